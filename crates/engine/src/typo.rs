//! Which known label a misspelt one was meant to be.

use kerf_model::Text;

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

/// How many letters to insert, delete, change or swap to get from one to the other.
fn letters_apart(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
