//! Many names in few words.

use kerf_model::PodId;
use std::collections::BTreeMap;

/// A key by which `web-2` comes before `web-10`.
pub(super) fn natural(pod: &PodId) -> (String, String, u64, String) {
    let name = &*pod.name;
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (pod.namespace.to_string(), stem.to_owned(), number.parse().unwrap_or(0), name.to_owned())
}

/// How many pods there are of each name up to the last dash.
pub(super) fn stems(pods: &[String]) -> BTreeMap<&str, usize> {
    let mut out = BTreeMap::new();
    for pod in pods {
        *out.entry(stem(pod)).or_default() += 1;
    }
    out
}

fn stem(pod: &str) -> &str {
    pod.rsplit_once('-').map_or(pod, |(stem, _)| stem)
}

/// `inflate-* ×12, kube-system/dns-7f-abcde`: pods that differ only after the last dash together.
pub(super) fn compressed(pods: &[String]) -> String {
    let stems = stems(pods);
    let single = |of: &str| pods.iter().find(|pod| stem(pod) == of);
    let words = stems.iter().map(|(stem, number)| match (number, single(stem)) {
        (1, Some(pod)) => short(pod).to_owned(),
        (number, _) => format!("{}-* ×{number}", short(stem)),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The same where the names of single pods do not matter.
pub(super) fn in_stems(pods: &[String]) -> String {
    let words = stems(pods).into_iter().map(|(stem, number)| match number {
        1 => format!("{}-*", short(stem)),
        number => format!("{}-* ×{number}", short(stem)),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The first few names, and how many more.
pub(super) fn first_few(pods: &[String], most: usize) -> String {
    let mut words: Vec<&str> = pods.iter().take(most).map(|pod| short(pod)).collect();
    let more = format!("and {} more", pods.len().saturating_sub(most));
    if pods.len() > most {
        words.push(&more);
    }
    words.join(", ")
}

/// The namespace goes without saying where it is the default one.
fn short(pod: &str) -> &str {
    pod.strip_prefix("default/").unwrap_or(pod)
}

/// `1 pod`, `2 pods`.
pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}

/// `100,000`.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &str) -> Vec<String> {
        words.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn many_names_become_few_words() {
        assert_eq!(compressed(&names("default/inflate-1 default/inflate-2 default/inflate-10")), "inflate-* ×3");
        assert_eq!(
            compressed(&names("default/lonely default/web-1 kube-system/dns-x-1 kube-system/dns-x-2")),
            "lonely, web-1, kube-system/dns-x-* ×2"
        );
        assert_eq!(first_few(&names("default/a default/b b/c default/d"), 3), "a, b, b/c, and 1 more");
        assert_eq!(first_few(&names("default/a"), 3), "a");
    }

    #[test]
    fn numbers_sort_and_print_as_people_expect() {
        let mut pods = [PodId::new("n", "web-10"), PodId::new("n", "web-2"), PodId::new("n", "web-x")];
        pods.sort_by_key(natural);
        let sorted: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
        assert_eq!(sorted, ["web-2", "web-10", "web-x"]);
        assert_eq!((count(1, "pod"), count(100_000, "pod")), ("1 pod".to_owned(), "100,000 pods".to_owned()));
    }
}
