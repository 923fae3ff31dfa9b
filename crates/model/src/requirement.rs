//! Requirements on node labels, and their algebra.
//!
//! A requirement on a key is a set of label values: either listed, or everything but a list (*complement*), perhaps
//! with integer bounds. Intersecting two of them narrows; an empty listed set says that the label must not exist.

use crate::ids::Text;
use crate::labels::{self, Labels};
use crate::values::Values;
use std::collections::BTreeMap;
use std::fmt;

/// The operators that users write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    pub const ALL: [(Operator, &'static str); 8] = [
        (Operator::In, "In"),
        (Operator::NotIn, "NotIn"),
        (Operator::Exists, "Exists"),
        (Operator::DoesNotExist, "DoesNotExist"),
        (Operator::Gt, "Gt"),
        (Operator::Lt, "Lt"),
        (Operator::Gte, "Gte"),
        (Operator::Lte, "Lte"),
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(operator, _)| operator)
    }

    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(operator, _)| *operator == self).map_or("", |(_, name)| name)
    }
}

/// The allowed values of one label key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// Whether `values` are the excluded ones rather than the allowed ones.
    pub complement: bool,
    pub values: Values,
    /// Inclusive lower bound. Only a complement keeps bounds.
    pub at_least: Option<i64>,
    /// Inclusive upper bound.
    pub at_most: Option<i64>,
    /// How many distinct values the instance types of a claim must still offer.
    pub min_values: Option<u32>,
}

impl Requirement {
    /// Any value will do, as long as there is one.
    pub fn exists() -> Self {
        Self { complement: true, values: Values::default(), at_least: None, at_most: None, min_values: None }
    }

    pub fn does_not_exist() -> Self {
        Self { complement: false, ..Self::exists() }
    }

    pub fn is_in<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self { complement: false, values: values.into_iter().map(Into::into).collect(), ..Self::exists() }
    }

    pub fn not_in<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), ..Self::exists() }
    }

    /// Builds from the written form. None when a bound is not a single integer.
    pub fn new(operator: Operator, values: &[Text]) -> Option<Self> {
        let bound = || match values {
            [single] => single.parse::<i64>().ok(),
            _ => None,
        };
        let values = || values.iter().map(|value| &**value);
        Some(match operator {
            Operator::In => Self::is_in(values()),
            Operator::NotIn => Self::not_in(values()),
            Operator::Exists => Self::exists(),
            Operator::DoesNotExist => Self::does_not_exist(),
            Operator::Gt => match bound()?.checked_add(1) {
                Some(lowest) => Self { at_least: Some(lowest), ..Self::exists() },
                None => Self::does_not_exist(),
            },
            Operator::Lt => match bound()?.checked_sub(1) {
                Some(highest) => Self { at_most: Some(highest), ..Self::exists() },
                None => Self::does_not_exist(),
            },
            Operator::Gte => Self { at_least: Some(bound()?), ..Self::exists() },
            Operator::Lte => Self { at_most: Some(bound()?), ..Self::exists() },
        })
    }

    /// What kind of requirement this is by now; bounds do not matter here.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, false) => Operator::In,
            (false, true) => Operator::DoesNotExist,
        }
    }

    /// Whether a node without the label passes: the two negative operators.
    pub fn allows_absence(&self) -> bool {
        matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }

    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && within(value, self.at_least, self.at_most)
    }

    /// The values allowed by both. minValues is the larger of the two.
    pub fn intersect(&self, other: &Requirement) -> Requirement {
        let at_least = self.at_least.max(other.at_least);
        let at_most = tighter_upper(self.at_most, other.at_most);
        let min_values = self.min_values.max(other.min_values);
        if clash(at_least, at_most) {
            return Self { min_values, ..Self::does_not_exist() };
        }
        let keep = |value: &&Text| within(value, at_least, at_most);
        let complement = self.complement && other.complement;
        let (ours, theirs) = (&self.values, &other.values);
        let values: Values = match (self.complement, other.complement) {
            (true, true) => ours.iter().chain(theirs).filter(keep).cloned().collect(),
            (true, false) => theirs.iter().filter(|value| !ours.contains(value)).filter(keep).cloned().collect(),
            (false, true) => ours.iter().filter(|value| !theirs.contains(value)).filter(keep).cloned().collect(),
            (false, false) => ours.iter().filter(|value| theirs.contains(value)).filter(keep).cloned().collect(),
        };
        let bounds = if complement { (at_least, at_most) } else { (None, None) };
        Self { complement, values, at_least: bounds.0, at_most: bounds.1, min_values }
    }

    /// Whether some value is allowed by both, without building the intersection.
    pub fn intersects(&self, other: &Requirement) -> bool {
        let at_least = self.at_least.max(other.at_least);
        let at_most = tighter_upper(self.at_most, other.at_most);
        if clash(at_least, at_most) {
            return false;
        }
        let keep = |value: &&Text| within(value, at_least, at_most);
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => other.values.iter().any(|value| !self.values.contains(value) && keep(&value)),
            (false, true) => self.values.iter().any(|value| !other.values.contains(value) && keep(&value)),
            (false, false) => self.values.iter().any(|value| other.values.contains(value) && keep(&value)),
        }
    }

    /// The one value, where only one is left.
    pub fn single(&self) -> Option<&Text> {
        if self.complement || self.values.len() != 1 { None } else { self.values.first() }
    }
}

fn within(value: &str, at_least: Option<i64>, at_most: Option<i64>) -> bool {
    if at_least.is_none() && at_most.is_none() {
        return true;
    }
    value
        .parse::<i64>()
        .is_ok_and(|number| at_least.is_none_or(|bound| number >= bound) && at_most.is_none_or(|bound| number <= bound))
}

fn tighter_upper(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn clash(at_least: Option<i64>, at_most: Option<i64>) -> bool {
    matches!((at_least, at_most), (Some(low), Some(high)) if low > high)
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = || self.values.iter().map(|v| &**v).collect::<Vec<_>>().join(", ");
        match self.operator() {
            Operator::In => write!(f, "In [{}]", list())?,
            Operator::NotIn => write!(f, "NotIn [{}]", list())?,
            Operator::DoesNotExist => write!(f, "DoesNotExist")?,
            _ if self.at_least.is_none() && self.at_most.is_none() => write!(f, "Exists")?,
            _ => {}
        }
        if let Some(bound) = self.at_least {
            write!(f, ">= {bound}")?;
        }
        if let Some(bound) = self.at_most {
            let space = if self.at_least.is_some() { " " } else { "" };
            write!(f, "{space}<= {bound}")?;
        }
        Ok(())
    }
}

/// Requirements by label key. All must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Requirements(pub BTreeMap<Text, Requirement>);

/// Why two sets of requirements do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The node side says nothing about a label that is asked for.
    Undefined { key: Text },
    /// The values have nothing in common. Boxed: the many questions that end well should not carry its weight.
    Disjoint { key: Text, wanted: Box<Requirement>, offered: Box<Requirement> },
}

impl Requirements {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_labels(labels: &Labels) -> Self {
        let mut requirements = Self::new();
        for (key, value) in labels {
            requirements.add(key, Requirement::is_in([&**value]));
        }
        requirements
    }

    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(key)
    }

    /// Intersects with what is there. Keys are normalised to today's names.
    pub fn add(&mut self, key: &str, requirement: Requirement) {
        let key = labels::normalise(key);
        match self.0.get_mut(key) {
            Some(present) => *present = present.intersect(&requirement),
            None => {
                self.0.insert(key.into(), requirement);
            }
        }
    }

    pub fn add_all(&mut self, other: &Requirements) {
        for (key, requirement) in &other.0 {
            self.add(key, requirement.clone());
        }
    }

    pub fn with(mut self, key: &str, requirement: Requirement) -> Self {
        self.add(key, requirement);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Requirement)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first key on which no node could satisfy both at once, labelled or not.
    pub fn first_contradiction<'a>(&'a self, other: &'a Requirements) -> Option<&'a Text> {
        self.first_disjoint(other).map(|(key, _, _)| key)
    }

    /// Whether every key that both sides name has a value in common. Keys that one side lacks are ignored.
    pub fn intersects(&self, other: &Requirements) -> bool {
        self.first_disjoint(other).is_none()
    }

    /// Whether a node with these requirements can take what `incoming` asks. Keys the node side does not define fail,
    /// unless `may_be_undefined` says otherwise or the incoming requirement is content with absence.
    pub fn compatible(&self, incoming: &Requirements, may_be_undefined: impl Fn(&str) -> bool) -> Result<(), Mismatch> {
        for (key, requirement) in &incoming.0 {
            if !self.0.contains_key(key) && !may_be_undefined(key) && !requirement.allows_absence() {
                return Err(Mismatch::Undefined { key: key.clone() });
            }
        }
        match self.first_disjoint(incoming) {
            Some((key, offered, wanted)) => Err(Mismatch::Disjoint {
                key: key.clone(),
                wanted: Box::new(wanted.clone()),
                offered: Box::new(offered.clone()),
            }),
            None => Ok(()),
        }
    }

    fn first_disjoint<'a>(&'a self, other: &'a Requirements) -> Option<(&'a Text, &'a Requirement, &'a Requirement)> {
        other.0.iter().find_map(|(key, theirs)| {
            let ours = self.0.get(key)?;
            let tolerated = ours.allows_absence() && theirs.allows_absence();
            (!tolerated && !ours.intersects(theirs)).then_some((key, ours, theirs))
        })
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, requirement)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{key} {requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn req(operator: &str, values: &[&str]) -> Requirement {
        let values: Vec<Text> = values.iter().map(|value| (*value).into()).collect();
        Requirement::new(Operator::parse(operator).unwrap(), &values).unwrap()
    }

    #[test]
    fn intersections_come_out_as_the_contract_says() {
        for (a, b, expected) in [
            (req("In", &["a", "b"]), req("In", &["b", "c"]), req("In", &["b"])),
            (req("In", &["a"]), req("In", &["c"]), req("DoesNotExist", &[])),
            (req("In", &["a", "b"]), req("NotIn", &["b"]), req("In", &["a"])),
            (req("NotIn", &["a"]), req("NotIn", &["b"]), req("NotIn", &["a", "b"])),
            (req("Exists", &[]), req("In", &["a"]), req("In", &["a"])),
            (req("Gt", &["3"]), req("In", &["3", "4", "x"]), req("In", &["4"])),
            (req("Gt", &["5"]), req("Lt", &["5"]), req("DoesNotExist", &[])),
            (
                req("Gte", &["5"]),
                req("Lte", &["5"]),
                Requirement { at_least: Some(5), at_most: Some(5), ..req("Exists", &[]) },
            ),
            (req("Gt", &[&i64::MAX.to_string()]), req("Exists", &[]), req("DoesNotExist", &[])),
        ] {
            assert_eq!(a.intersect(&b), expected, "{a} ∩ {b}");
            assert_eq!(b.intersect(&a), expected, "{b} ∩ {a}");
            let empty = expected.operator() == Operator::DoesNotExist;
            assert_eq!(a.intersects(&b), !empty, "{a} meets {b}");
        }
    }

    #[test]
    fn a_custom_label_must_be_declared_before_it_can_be_selected() {
        let node = Requirements::new().with("team", req("In", &["red"]));
        let never = |_: &str| false;
        let ask = |key: &str, requirement| Requirements::new().with(key, requirement);
        assert!(node.compatible(&ask("team", req("In", &["red"])), never).is_ok());
        assert!(matches!(node.compatible(&ask("other", req("Exists", &[])), never), Err(Mismatch::Undefined { .. })));
        assert!(node.compatible(&ask("other", req("NotIn", &["x"])), never).is_ok());
        assert!(node.compatible(&ask("other", req("DoesNotExist", &[])), never).is_ok());
        assert!(node.compatible(&ask("other", req("In", &["x"])), |key| key == "other").is_ok());
        assert!(matches!(node.compatible(&ask("team", req("In", &["blue"])), never), Err(Mismatch::Disjoint { .. })));
    }

    #[test]
    fn two_negative_requirements_go_together_even_when_nothing_is_left() {
        let node = Requirements::new().with("x", req("DoesNotExist", &[]));
        let incoming = Requirements::new().with("x", req("NotIn", &["a"]));
        assert!(node.compatible(&incoming, |_| false).is_ok());
    }

    #[test]
    fn beta_label_names_mean_todays_labels() {
        let requirements = Requirements::new().with("failure-domain.beta.kubernetes.io/zone", req("In", &["a"]));
        assert!(requirements.get(labels::ZONE).is_some());
    }
}
