//! Requirements as users write them, checked by the contract's runtime rules.

use crate::read::Reader;
use kerf_api::LabelRules;
use kerf_api::validate::{is_label_value, is_qualified_name};
use kerf_model::{CapacityType, Operator, Requirement, Requirements, Text, labels};

/// Who wrote a requirement, which decides what may stand in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// Kubernetes' six operators, and the labels a pod may ask for.
    Pod,
    /// A pod's preference, or a volume: never refused for its labels.
    Unchecked,
    /// A NodePool or NodeClaim: eight operators; labels were checked elsewhere.
    Pool,
}

/// One requirement in its written form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) key: &'a str,
    pub(crate) operator: &'a str,
    pub(crate) values: &'a [String],
    pub(crate) min_values: Option<i64>,
}

impl<'a> Written<'a> {
    pub(crate) fn of_term(expression: &'a k8s_openapi::api::core::v1::NodeSelectorRequirement) -> Self {
        Self {
            key: &expression.key,
            operator: &expression.operator,
            values: expression.values.as_deref().unwrap_or_default(),
            min_values: None,
        }
    }

    pub(crate) fn of_pool(requirement: &'a kerf_api::Requirement) -> Self {
        Self {
            key: &requirement.key,
            operator: requirement.operator.as_str(),
            values: &requirement.values,
            min_values: requirement.min_values,
        }
    }
}

/// What is wrong with a requirement, and in which of its fields.
#[derive(Debug)]
struct Wrong {
    field: &'static str,
    message: String,
}

/// Adds a requirement to what is there. What is malformed is a fault. A contradiction to what is there comes back in
/// words: whether it is fatal is the caller's to know.
#[must_use]
pub(crate) fn add(
    reader: &mut Reader,
    field: &str,
    requirements: &mut Requirements,
    written: Written<'_>,
    author: Author,
    rules: &LabelRules,
) -> Option<String> {
    match read(written, author, rules) {
        Ok(requirement) => {
            // A pod that insists on an unknown label is refused with the same hint; all else would pass in silence.
            let is_silent = author == Author::Pool || (author == Author::Pod && requirement.allows_absence());
            if is_silent && let Some(meant) = rules.misspelt(written.key) {
                let message = format!("{:?} is not a label that is known here (typo of {meant:?}?)", written.key);
                reader.note(format!("{field}.key"), message);
            }
            let contradiction = contradiction(requirements, written.key, &requirement);
            requirements.add(written.key, requirement);
            contradiction
        }
        Err(wrong) => {
            reader.fault(format!("{field}.{}", wrong.field), wrong.message);
            None
        }
    }
}

/// The first key on which two sets of requirements cannot both hold, in words.
pub(crate) fn first_contradiction(present: &Requirements, added: &Requirements) -> Option<String> {
    added.iter().find_map(|(key, requirement)| contradiction(present, key, requirement))
}

/// In words, how a requirement leaves nothing of what was asked for before under the same key.
fn contradiction(present: &Requirements, key: &str, added: &Requirement) -> Option<String> {
    let key = labels::normalise(key);
    let before = present.get(key)?;
    let is_absent = |requirement: &Requirement| requirement.operator() == Operator::DoesNotExist;
    let clash = if is_absent(before) || is_absent(added) {
        !(before.allows_absence() && added.allows_absence())
    } else {
        is_absent(&before.intersect(added))
    };
    clash.then(|| format!("{key} is asked to be {before} and {added} at once, which nothing can be"))
}

fn read(written: Written<'_>, author: Author, rules: &LabelRules) -> Result<Requirement, Wrong> {
    let wrong = |field, message| Err(Wrong { field, message });
    let operator = Operator::parse(written.operator)
        .filter(|operator| author == Author::Pool || !matches!(operator, Operator::Gte | Operator::Lte));
    let Some(operator) = operator else {
        let more = if author == Author::Pool { ", Lt, Gte or Lte" } else { " or Lt" };
        return wrong(
            "operator",
            format!("unknown operator {:?} (use In, NotIn, Exists, DoesNotExist, Gt{more})", written.operator),
        );
    };
    if written.key.is_empty() {
        return wrong("key", "it is empty".to_owned());
    }
    if author == Author::Pod {
        if let Err(message) = check_key(rules, written.key) {
            return wrong("key", message);
        }
        if let Some(value) = written.values.iter().find(|value| !is_label_value(value)) {
            return wrong("values", format!("{value:?} cannot be the value of a label"));
        }
    }
    if operator == Operator::In && written.values.is_empty() {
        return wrong("values", "In needs at least one value".to_owned());
    }
    let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
    if operator == Operator::In
        && labels::normalise(written.key) == labels::CAPACITY_TYPE
        && author != Author::Unchecked
    {
        let known = |value: &Text| CapacityType::parse(value).is_some();
        if !values.iter().any(known) {
            return wrong(
                "values",
                format!("none of [{}] is a capacity type (on-demand, spot, reserved)", values.join(", ")),
            );
        }
    }
    let Some(mut requirement) = Requirement::new(operator, &values) else {
        return wrong("values", format!("{} needs exactly one whole number", operator.as_str()));
    };
    if matches!(operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte)
        && values.iter().any(|value| value.starts_with('-'))
    {
        return wrong("values", format!("{} needs a whole number that is not negative", operator.as_str()));
    }
    if let Some(min_values) = written.min_values {
        let count = u32::try_from(min_values).unwrap_or(0);
        if operator == Operator::In && (count as usize) > values.len() {
            return wrong("minValues", format!("{min_values} is more than the {} values listed", values.len()));
        }
        requirement.min_values = (count > 0).then_some(count);
    }
    Ok(requirement)
}

/// Whether a pod may ask for this label.
pub(crate) fn check_key(rules: &LabelRules, key: &str) -> Result<(), String> {
    let key = labels::normalise(key);
    if !is_qualified_name(key) {
        return Err(format!("{key:?} is not a label key"));
    }
    match rules.restriction(key) {
        Some(restriction) => Err(format!("{key:?}: {restriction}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(author: Author, written: &[(&str, &str, &[&str])]) -> (Requirements, String) {
        let mut reader = Reader::new(&"f".into(), "o");
        let mut requirements = Requirements::new();
        for (key, operator, values) in written {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            let written = Written { key, operator, values: &values, min_values: None };
            if let Some(message) = add(&mut reader, "r", &mut requirements, written, author, &LabelRules::core()) {
                reader.fault("r", message);
            }
        }
        let fault = reader.fault.map_or(String::new(), |fault| format!("{}: {}", fault.field, fault.message));
        (requirements, fault)
    }

    #[test]
    fn sound_requirements_of_a_pod_are_taken_as_they_are() {
        let (requirements, fault) = check(
            Author::Pod,
            &[
                ("topology.kubernetes.io/zone", "In", &["a", "b"]),
                ("topology.kubernetes.io/zone", "NotIn", &["b"]),
                ("team", "Exists", &[]),
                ("size", "Gt", &["3"]),
            ],
        );
        assert_eq!(fault, "");
        assert_eq!(requirements.to_string(), "size >= 4, team Exists, topology.kubernetes.io/zone In [a]");
    }

    #[test]
    fn what_a_pod_may_not_ask_is_told_with_its_field() {
        for (written, expected) in [
            (("zone", "Within", &["a"][..]), "r.operator: unknown operator \"Within\""),
            (("size", "Gte", &["1"][..]), "r.operator: unknown operator \"Gte\""),
            (("size", "Gt", &["few"][..]), "r.values: Gt needs exactly one whole number"),
            (("zone", "In", &[][..]), "r.values: In needs at least one value"),
            (("zone", "In", &["a b"][..]), "r.values: \"a b\" cannot be"),
            (
                ("kubernetes.io/hostname", "In", &["n"][..]),
                "r.key: \"kubernetes.io/hostname\": kubernetes.io/hostname cannot be asked for",
            ),
            (
                ("karpenter.sh/other", "Exists", &[][..]),
                "r.key: \"karpenter.sh/other\": labels of karpenter.sh are reserved",
            ),
            (
                ("sub.karpenter.sh/other", "Exists", &[][..]),
                "r.key: \"sub.karpenter.sh/other\": labels of karpenter.sh are reserved",
            ),
            (("a b", "Exists", &[][..]), "r.key: \"a b\" is not a label key"),
            (("karpenter.sh/capacity-type", "In", &["cheap"][..]), "r.values: none of [cheap]"),
        ] {
            let (_, fault) = check(Author::Pod, &[written]);
            assert!(fault.starts_with(expected), "{written:?}: {fault}");
        }
        let (_, fault) = check(Author::Pool, &[("size", "Lt", &["-3"])]);
        assert!(fault.contains("that is not negative"), "{fault}");
        for key in ["not-karpenter.sh/x", "kubernetes.io/x", "karpenter.sh/nodepool", "app.kubernetes.io/name"] {
            assert_eq!(check(Author::Pod, &[(key, "Exists", &[])]).1, "", "{key}");
        }
    }

    #[test]
    fn a_misspelt_key_is_noted_where_nothing_else_would_tell() {
        let notes = |author: Author, key: &str, operator: &str, values: &[&str]| {
            let mut reader = Reader::new(&"f".into(), "o");
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            let written = Written { key, operator, values: &values, min_values: None };
            let mut requirements = Requirements::new();
            assert_eq!(add(&mut reader, "r", &mut requirements, written, author, &LabelRules::aws()), None);
            assert!(reader.fault.is_none() && requirements.get(key).is_some(), "it is used all the same");
            reader.notes.iter().map(|note| format!("{}: {}", note.field, note.message)).collect::<String>()
        };
        let typo = "node.kubernetes.io/instnace-type";
        let told = "r.key: \"node.kubernetes.io/instnace-type\" is not a label that is known here (typo of \"node.kubernetes.io/instance-type\"?)";
        assert_eq!(notes(Author::Pool, typo, "In", &["m5.large"]), told);
        assert_eq!(notes(Author::Pool, typo, "NotIn", &["m5.large"]), told);
        assert_eq!(notes(Author::Pod, typo, "NotIn", &["m5.large"]), told);
        // The engine refuses such a pod, with the same hint.
        assert_eq!(notes(Author::Pod, typo, "In", &["m5.large"]), "");
        assert_eq!(notes(Author::Pool, "example.com/instance-type", "Exists", &[]), "");
    }

    #[test]
    fn a_requirement_that_contradicts_itself_is_told() {
        for (first, second) in [
            (("z", "In", &["a"][..]), ("z", "In", &["b"][..])),
            (("z", "Gt", &["5"][..]), ("z", "Lt", &["5"][..])),
            (("z", "Exists", &[][..]), ("z", "DoesNotExist", &[][..])),
            (("z", "In", &["a"][..]), ("z", "NotIn", &["a"][..])),
        ] {
            let (_, fault) = check(Author::Pool, &[first, second]);
            assert!(fault.contains("at once"), "{first:?} {second:?}: {fault}");
        }
        assert_eq!(check(Author::Pool, &[("z", "DoesNotExist", &[]), ("z", "NotIn", &["a"])]).1, "");
    }
}
