//! Which known name somebody may have meant.

/// How many letters to insert, delete, change or swap to get from one to the other.
pub fn letters_apart(a: &str, b: &str) -> usize {
    letters_apart_within(a, b, usize::MAX).expect("nothing is further apart than that")
}

/// The same, or None as soon as it is known to be more than `most`. Claims are read again with every change of theirs, and
/// most names differ in their first letters.
fn letters_apart_within(a: &str, b: &str, most: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        // A swap reaches back two rows, never below both.
        if row.iter().chain(&last).min().is_some_and(|least| *least > most) {
            return None;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    Some(last[b.len()]).filter(|distance| *distance <= most)
}

/// A known key with so few other letters that the user probably meant it.
///
/// Stricter than what a refusal says of a key that nobody has: the key may be the user's own, and short names are often
/// alike. A third of the last part may differ, and no more than three letters.
pub fn misspelt<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let close = known.filter(|known| *known != key).filter_map(|known| {
        // Saves the table for most of them.
        if known.len().abs_diff(key.len()) > 3 {
            return None;
        }
        let distance = letters_apart_within(key, known, (last_part(known).len() / 3).min(3))?;
        Some((distance, known))
    });
    close.min().map(|(_, known)| known)
}

/// A known key of another domain with the same last part.
pub fn in_wrong_domain<'k>(key: &str, mut known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known.find(|known| *known != key && last_part(known) == last_part(key))
}

fn last_part(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] =
        ["karpenter.sh/capacity-type", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"];

    #[test]
    fn a_slip_of_the_fingers_is_found_and_a_name_of_ones_own_is_not() {
        for (key, meant) in [
            ("node.kubernetes.io/instnace-type", Some("node.kubernetes.io/instance-type")),
            ("node.kubernetes.io/instance-types", Some("node.kubernetes.io/instance-type")),
            ("karpenter.sh/capcity-typ", Some("karpenter.sh/capacity-type")),
            ("kubernetes.io/arhc", Some("kubernetes.io/arch")),
            ("kubernetes.io/role", None),
            ("kubernetes.io/arch", None),
            ("example.com/arch", None),
            ("team", None),
        ] {
            assert_eq!(misspelt(key, KNOWN.into_iter()), meant, "{key}");
        }
    }

    #[test]
    fn a_known_name_in_a_wrong_domain_is_found() {
        let meant = in_wrong_domain("karpenter.k8s.aws/capacity-type", KNOWN.into_iter());
        assert_eq!(meant, Some("karpenter.sh/capacity-type"));
        assert_eq!(in_wrong_domain("karpenter.k8s.aws/colour", KNOWN.into_iter()), None);
    }
}
