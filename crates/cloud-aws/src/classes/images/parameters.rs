//! What SSM parameters hold, remembered for a while.

use crate::memory::Memory;
use crate::wire::{Aws, Failure, Filter, ImageQuery};
use kerf_model::UnixMillis;
use std::collections::BTreeSet;
use std::time::Duration;

/// For the parameters that AWS publishes: a day. Deprecated images are forgotten earlier.
pub(crate) const ALIAS_TTL: Duration = Duration::from_secs(24 * 3_600);
/// For parameters of the user's own, who may want to see a change soon.
pub(crate) const TERM_TTL: Duration = Duration::from_secs(300);

/// EC2 takes so many values in one filter.
const IDS_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Parameters {
    known: Memory<String, Parameter>,
}

#[derive(Debug, Clone)]
struct Parameter {
    value: String,
    is_mutable: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { known: Memory::new(ALIAS_TTL) }
    }
}

impl Parameters {
    pub(crate) async fn get(
        &self,
        wire: &dyn Aws,
        name: &str,
        is_mutable: bool,
        ttl: Duration,
        now: UnixMillis,
    ) -> Result<String, Failure> {
        if let Some(known) = self.known.get(&name.to_owned(), now) {
            return Ok(known.value);
        }
        let value = wire.get_parameter(name.to_owned()).await?;
        self.known.put_for(name.to_owned(), Parameter { value: value.clone(), is_mutable }, ttl, now);
        Ok(value)
    }

    /// Forgets the parameters that may hold something newer by now: those whose image is deprecated, or gone. Answers how
    /// many.
    pub(crate) async fn forget_deprecated(&self, wire: &dyn Aws, now: UnixMillis) -> Result<usize, Failure> {
        self.known.expired(now);
        let mutable: Vec<(String, Parameter)> =
            self.known.alive(now).into_iter().filter(|(_, parameter)| parameter.is_mutable).collect();
        let ids: BTreeSet<&String> = mutable.iter().map(|(_, parameter)| &parameter.value).collect();
        let ids: Vec<&String> = ids.into_iter().collect();
        let mut current: BTreeSet<String> = BTreeSet::new();
        for some in ids.chunks(IDS_MAX) {
            let query = ImageQuery { filters: vec![Filter::new("image-id", some.iter().copied())], owners: Vec::new() };
            let images = wire.describe_images(query).await?;
            let fresh = images.into_iter().filter(|image| image.deprecated_at_ms.is_none_or(|at| at > now.0));
            current.extend(fresh.map(|image| image.id));
        }
        let stale: Vec<&String> =
            mutable.iter().filter(|(_, parameter)| !current.contains(&parameter.value)).map(|(name, _)| name).collect();
        for name in &stale {
            self.known.remove(name);
        }
        Ok(stale.len())
    }
}
