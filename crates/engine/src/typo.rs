//! Which known label a misspelt one was meant to be.

use kerf_model::Text;
use kerf_model::typo::letters_apart;

/// A known key that the user may have meant: one contains the other, they share the last part, or few letters differ.
pub(crate) fn likely_meant<'k>(key: &str, known: impl Iterator<Item = &'k Text>) -> Option<Text> {
    let last = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
    let mut close: Vec<(usize, &Text)> = known
        .filter(|candidate| &***candidate != key)
        .filter_map(|candidate| {
            let distance = letters_apart(key, candidate);
            let alike = candidate.contains(key) || last(candidate) == last(key) || distance <= 3;
            alike.then_some((distance, candidate))
        })
        .collect();
    close.sort();
    close.first().map(|(_, candidate)| (*candidate).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_recognised() {
        let known: Vec<Text> =
            ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"].map(Into::into).to_vec();
        let meant = |key: &str| likely_meant(key, known.iter()).map(|text| text.to_string());
        assert_eq!(meant("node.kubernetes.io/instnace-type").as_deref(), Some("node.kubernetes.io/instance-type"));
        assert_eq!(meant("zone").as_deref(), Some("topology.kubernetes.io/zone"));
        assert_eq!(meant("example.com/zone").as_deref(), Some("topology.kubernetes.io/zone"));
        assert_eq!(meant("team"), None);
    }
}
