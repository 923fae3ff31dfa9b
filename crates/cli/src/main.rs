//! The porch: the one binary, `kerf`.
fn main() {}
