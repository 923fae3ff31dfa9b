//! Label selectors: the order of their terms does not matter, and one more term never selects more.

use kerf_model::{LabelSelector, Labels, SelectorOperator, SelectorTerm};

pub(crate) fn check(text: &str) {
    let mut labels = Labels::new();
    let mut terms = Vec::new();
    for line in text.lines().take(32) {
        match line.split_once('=') {
            Some((key, value)) => drop(labels.insert(key.into(), value.into())),
            None => terms.extend(term(line)),
        }
    }
    let selector = LabelSelector::new(terms.clone());
    let backwards = LabelSelector::new(terms.iter().rev().cloned().collect());
    assert_eq!(selector, backwards);
    for term in terms {
        let narrower = selector.clone().and(term);
        assert!(selector.matches(&labels) || !narrower.matches(&labels));
    }
}

fn term(line: &str) -> Option<SelectorTerm> {
    let mut words = line.split(' ');
    let key = words.next()?.into();
    let operator = match words.next()? {
        "In" => SelectorOperator::In,
        "NotIn" => SelectorOperator::NotIn,
        "Exists" => SelectorOperator::Exists,
        "DoesNotExist" => SelectorOperator::DoesNotExist,
        _ => return None,
    };
    let values = words.map(Into::into).collect();
    Some(SelectorTerm { key, operator, values })
}
