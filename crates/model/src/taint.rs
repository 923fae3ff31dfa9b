//! Taints and tolerations.

use crate::ids::Text;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]
            .into_iter()
            .find(|effect| effect.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: Effect,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    Exists,
    Equal,
    /// The taint's value is an integer below the toleration's.
    Lt,
    /// The taint's value is an integer above the toleration's.
    Gt,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Empty with `Exists` tolerates every key.
    pub key: Text,
    pub operator: TolerationOperator,
    pub value: Text,
    /// None tolerates every effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if self.key.is_empty() {
            return self.operator == TolerationOperator::Exists;
        }
        if self.key != taint.key {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, bound)| taint < bound),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, bound)| taint > bound),
        }
    }
}

/// The first taint that none of the tolerations covers.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: TolerationOperator, value: &str, effect: Option<Effect>) -> Toleration {
        Toleration { key: key.into(), operator, value: value.into(), effect }
    }

    #[test]
    fn a_toleration_covers_what_kubernetes_says_it_covers() {
        let taint = Taint { key: "gpu".into(), value: "5".into(), effect: Effect::NoSchedule };
        use TolerationOperator::{Equal, Exists, Gt, Lt};
        for (toleration, expected) in [
            (toleration("gpu", Exists, "", None), true),
            (toleration("", Exists, "", None), true),
            (toleration("", Equal, "", None), false),
            (toleration("gpu", Equal, "5", Some(Effect::NoSchedule)), true),
            (toleration("gpu", Equal, "5", Some(Effect::NoExecute)), false),
            (toleration("gpu", Equal, "6", None), false),
            (toleration("gpu", Lt, "6", None), true),
            (toleration("gpu", Gt, "6", None), false),
            (toleration("other", Exists, "", None), false),
        ] {
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        }
    }
}
