//! EC2NodeClasses.

mod cluster;
pub mod conditions;
pub mod drift;
mod groups;
pub mod images;
mod placement;
mod profiles;
mod reservations;
mod subnets;
mod terms;
#[cfg(test)]
pub(crate) mod testing;
