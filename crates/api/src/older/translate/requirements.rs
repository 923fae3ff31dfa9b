//! Requirements: slips repaired, and what a webhook of that time filled in written out.

use serde_json::{Map, Value, json};

use super::read::{Place, Section, Told};
use crate::labels::{self, LabelRestriction, LabelRules};
use crate::objects::Operator;
use crate::older::marks::PROVISIONER_NAME_LABEL;

pub(super) struct Requirements {
    pub(super) items: Vec<Value>,
    /// Where each item comes from; `None` for a default.
    pub(super) places: Vec<Option<Place>>,
}

/// Keys that guides write and that never existed.
const SLIPS: &[(&str, &str)] = &[("karpenter.k8s.aws/capacity-type", labels::CAPACITY_TYPE)];

pub(super) fn repaired_key(key: &str) -> &str {
    SLIPS.iter().find(|(slip, _)| *slip == key).map_or(key, |(_, meant)| meant)
}

/// The requirements of a Provisioner, those that stand under its inline provider by mistake, and the defaults of that time: the labels
/// of the Provisioner count as said, too.
pub(super) fn of(
    spec: &Section<'_>,
    inline: Option<&Section<'_>>,
    labels: &Map<String, Value>,
    told: &mut Told,
) -> Requirements {
    let mut written = spec.sections("requirements", told);
    if let Some(inline) = inline.filter(|inline| inline.has("requirements")) {
        told.warn(inline.at("requirements"), "requirements belong under spec; they are read as if they stood there");
        written.extend(inline.sections("requirements", told));
    }
    let mut found = Requirements { items: Vec::new(), places: Vec::new() };
    for section in written {
        if let Some(requirement) = Requirement::read(&section, told) {
            for part in requirement.repaired(&section, told) {
                part.judge(&section, told);
                found.items.push(part.into());
                found.places.push(Some(section.place.clone()));
            }
        }
    }
    let missing = defaults(&found.items, labels);
    found.places.resize(found.items.len() + missing.len(), None);
    found.items.extend(missing);
    found
}

#[derive(Clone)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    fn read(section: &Section<'_>, told: &mut Told) -> Option<Self> {
        section.tell_unknown(&["key", "operator", "values"], told);
        let mut text = |name: &str| {
            if !section.has(name) {
                told.miss(section.at(name), "this field is required");
            }
            section.text(name, told).map(str::to_owned)
        };
        let (key, operator) = (text("key"), text("operator"));
        let mut values = Vec::new();
        for (i, value) in section.list("values", told).iter().enumerate() {
            match value.as_str() {
                Some(text) => values.push(text.to_owned()),
                None => told.refuse(section.at("values").item(i), value, "this must be a string; put quotes around it"),
            }
        }
        Some(Self { key: key?, operator: operator?, values })
    }

    /// What was meant. Mostly one requirement; none where nodes meet it anyway.
    fn repaired(mut self, section: &Section<'_>, told: &mut Told) -> Vec<Self> {
        let meant = repaired_key(&self.key);
        if meant != self.key {
            told.warn(section.at("key"), format!("there is no label {}; it is read as {meant}", self.key));
            self.key = meant.to_owned();
        }
        match self.key.as_str() {
            PROVISIONER_NAME_LABEL => {
                told.warn(section.at("key"), "nodes carry this label anyway; the requirement is left out");
                Vec::new()
            }
            labels::CAPACITY_TYPE => {
                for value in &mut self.values {
                    let letters: String = value.chars().filter(char::is_ascii_alphabetic).collect();
                    if letters.eq_ignore_ascii_case("ondemand") && value != labels::ON_DEMAND {
                        told.warn(section.at("values"), format!("{value:?} is read as {:?}", labels::ON_DEMAND));
                        *value = labels::ON_DEMAND.to_owned();
                    }
                }
                vec![self]
            }
            labels::INSTANCE_CATEGORY => self.with_families(section, told),
            _ => vec![self],
        }
    }

    /// A category is letters alone (`c`, `inf`); what has a digit is a family (`g4dn`), and no category ever equals it.
    fn with_families(self, section: &Section<'_>, told: &mut Told) -> Vec<Self> {
        let is_family = |value: &String| value.bytes().any(|byte| byte.is_ascii_digit());
        let (families, categories): (Vec<String>, Vec<String>) = self.values.iter().cloned().partition(is_family);
        if families.is_empty() || !["In", "NotIn"].contains(&self.operator.as_str()) {
            return vec![self];
        }
        let of_families = Self { key: labels::INSTANCE_FAMILY.to_owned(), values: families, ..self.clone() };
        if !categories.is_empty() && self.operator == "In" {
            let message = format!(
                "categories have no digits, and one requirement cannot ask for categories or families; ask for families alone, by {}",
                labels::INSTANCE_FAMILY
            );
            told.refuse(section.at("values"), &json!(self.values), message);
            return vec![self];
        }
        let message = format!(
            "{} are families, not categories; the requirement is read as one on {}",
            of_families.values.join(", "),
            labels::INSTANCE_FAMILY
        );
        told.warn(section.at("key"), message);
        // What excludes both excludes each.
        let of_categories = (!categories.is_empty()).then_some(Self { values: categories, ..self });
        of_categories.into_iter().chain([of_families]).collect()
    }

    fn judge(&self, section: &Section<'_>, told: &mut Told) {
        let rules = LabelRules::aws();
        if let Some(restriction) = rules.restriction(rules.normalized(&self.key)) {
            let message = match (self.key.as_str(), &restriction) {
                ("karpenter.k8s.aws/instance-pods", _) => {
                    "nodes no longer carry this label; ask for instance-cpu or instance-memory instead".to_owned()
                }
                (_, LabelRestriction::Hostname | LabelRestriction::Domain { .. }) => restriction.to_string(),
            };
            told.refuse(section.at("key"), &json!(self.key), message);
        }
        const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
        if matches!(Operator::from(self.operator.as_str()), Operator::Other(_)) {
            let message = format!("one of {} would do", OPERATORS.join(", "));
            told.refuse(section.at("operator"), &json!(self.operator), message);
        }
    }
}

impl From<Requirement> for Value {
    fn from(Requirement { key, operator, values }: Requirement) -> Self {
        let mut fields = Map::from_iter([("key".to_owned(), key.into()), ("operator".to_owned(), operator.into())]);
        super::pool::put(&mut fields, "values", values.into());
        Value::Object(fields)
    }
}

/// Written out, so that a reader of the pool sees them.
fn defaults(written: &[Value], labels: &Map<String, Value>) -> Vec<Value> {
    let rules = LabelRules::aws();
    let is_said = |key: &str| {
        let by_requirement = written
            .iter()
            .any(|requirement| requirement["key"].as_str().is_some_and(|written| rules.normalized(written) == key));
        by_requirement || labels.keys().any(|label| rules.normalized(label) == key)
    };
    let says_in = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let mut missing = Vec::new();
    for (key, value) in [(labels::CAPACITY_TYPE, labels::ON_DEMAND), (labels::OS, "linux"), (labels::ARCH, "amd64")] {
        if !is_said(key) {
            missing.push(says_in(key, &[value]));
        }
    }
    let decides_type =
        [labels::INSTANCE_TYPE, labels::INSTANCE_FAMILY, labels::INSTANCE_CATEGORY, labels::INSTANCE_GENERATION];
    if !decides_type.into_iter().any(is_said) {
        missing.push(says_in(labels::INSTANCE_CATEGORY, &["c", "m", "r"]));
        missing.push(json!({"key": labels::INSTANCE_GENERATION, "operator": "Gt", "values": ["2"]}));
    }
    missing
}
