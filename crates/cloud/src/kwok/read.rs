//! Reads an instance-type file. A type that makes no sense becomes a problem; the others load.

use super::{DEFAULT_PODS, Parts, assemble, default_overhead};
use kerf_model::resources::PODS;
use kerf_model::{
    InstanceType, Labels, Money, Offering, Operator, Quantity, Requirement, Requirements, Resources, Text, labels,
    shared_requirements,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// What a file holds, and what in it could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    pub types: Vec<InstanceType>,
    pub problems: Vec<Problem>,
}

/// Something in the file that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of the instance type, or its place in the file where it has none.
    pub instance_type: String,
    pub field: String,
    pub found: String,
    pub expected: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "instance type {}: {}: found {}, expected {}",
            self.instance_type, self.field, self.found, self.expected
        )
    }
}

/// Reads the kwok instance-type format.
///
/// Guarantees: total; a type with a problem is left out unless the problem is one offering among several, which alone
/// is left out. Types keep their order; of two with one name the first stays.
/// Caveats: `Available` is read as true whatever it says, as the kwok provider does. The older shape of an offering
/// (`zone`, `capacityType`, `price`), which the kwok provider would load without requirements, is read as it was meant.
pub fn parse(text: &str) -> Parsed {
    let file = |found: String| Problem {
        instance_type: "(file)".to_owned(),
        field: "content".to_owned(),
        found,
        expected: "a JSON array of instance types",
    };
    let items = match serde_json::from_str(text) {
        Ok(Value::Array(items)) => items,
        Ok(other) => {
            return Parsed { types: vec![], problems: vec![file(show(&other))] };
        }
        Err(error) => {
            return Parsed { types: vec![], problems: vec![file(error.to_string())] };
        }
    };
    let mut parsed = Parsed::default();
    let mut names = BTreeSet::new();
    for (position, item) in items.iter().enumerate() {
        let named = item
            .as_object()
            .and_then(|object| field(object, "name"))
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let mut reader = Reader { name: named.map_or_else(|| format!("#{position}"), str::to_owned), problems: vec![] };
        if let Some(it) = reader.instance_type(item) {
            if names.insert(it.name.clone()) {
                parsed.types.push(it);
            } else {
                reader.note("name", &Value::from(it.name.as_str()), "a name that no earlier type has");
            }
        }
        parsed.problems.append(&mut reader.problems);
    }
    parsed
}

/// Reads one type, noting what is wrong. `None` is always accompanied by a problem.
struct Reader {
    name: String,
    problems: Vec<Problem>,
}

impl Reader {
    fn instance_type(&mut self, item: &Value) -> Option<InstanceType> {
        let object = self.object("(type)", item)?;
        // Every field is read before giving up, so that one look at the file finds all that is wrong with it.
        let name = self.text(object, "name");
        let architecture = self.text(object, "architecture");
        let operating_systems = self.texts(object, "operatingSystems");
        let capacity = self.resources(object, "resources");
        let overhead = match field(object, "overhead") {
            Some(_) => self.resources(object, "overhead"),
            None => Some(default_overhead()),
        };
        let labels = self.labels(object);
        let offerings = self.offerings(object);
        let mut capacity = capacity?;
        if !capacity.0.contains_key(PODS) {
            capacity.set(PODS, Quantity::from_units(DEFAULT_PODS));
        }
        Some(assemble(Parts {
            name: name?,
            architecture: architecture?,
            operating_systems: operating_systems?,
            capacity,
            overhead: overhead?,
            offerings: offerings?,
            labels: labels?,
        }))
    }

    fn offerings(&mut self, object: &Map<String, Value>) -> Option<Vec<Offering>> {
        let items = self.array(object, "offerings", "a list of offerings")?;
        let offerings: Vec<Offering> = items
            .iter()
            .enumerate()
            .filter_map(|(position, item)| self.offering(&format!("offerings[{position}]"), item))
            .collect();
        (!offerings.is_empty() || items.is_empty()).then_some(offerings)
    }

    fn offering(&mut self, path: &str, item: &Value) -> Option<Offering> {
        let object = self.object(path, item)?;
        let price = field(object, "price").unwrap_or(&Value::Null);
        let Some(dollars) = price.as_f64().filter(|dollars| dollars.is_finite() && *dollars >= 0.0) else {
            return self.problem(&format!("{path}.Price"), price, "a price in dollars per hour, zero or more");
        };
        let reservation_capacity = match field(object, "reservationCapacity") {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
                Some(count) => Some(count),
                None => {
                    return self.problem(&format!("{path}.ReservationCapacity"), value, "a count, zero or more");
                }
            },
        };
        let requirements = self.requirements(path, object)?;
        for key in [labels::ZONE, labels::CAPACITY_TYPE] {
            if requirements.get(key).and_then(Requirement::single).is_none() {
                let found =
                    requirements.get(key).map_or(Value::Null, |requirement| Value::from(requirement.to_string()));
                let expected = "one value each for topology.kubernetes.io/zone and karpenter.sh/capacity-type";
                return self.problem(&format!("{path}.Requirements[{key}]"), &found, expected);
            }
        }
        Some(Offering {
            requirements: shared_requirements(&requirements),
            price: Money::from_dollars(dollars),
            price_is_estimate: false,
            available: true,
            reservation_capacity,
            overrides: None,
        })
    }

    fn requirements(&mut self, path: &str, object: &Map<String, Value>) -> Option<Requirements> {
        let mut requirements = Requirements::new();
        for (name, key) in [("zone", labels::ZONE), ("capacityType", labels::CAPACITY_TYPE)] {
            if let Some(value) = field(object, name).and_then(Value::as_str) {
                requirements.add(key, Requirement::is_in([value]));
            }
        }
        let Some(Value::Array(items)) = field(object, "requirements") else {
            return Some(requirements);
        };
        for (position, item) in items.iter().enumerate() {
            let path = format!("{path}.Requirements[{position}]");
            let object = self.object(&path, item)?;
            let key = field(object, "key").and_then(Value::as_str).unwrap_or_default();
            let operator = field(object, "operator").and_then(Value::as_str).and_then(Operator::parse);
            let values: Vec<Text> = match field(object, "values") {
                Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(Text::from).collect(),
                _ => vec![],
            };
            match operator.and_then(|operator| Requirement::new(operator, &values)) {
                Some(requirement) if !key.is_empty() => requirements.add(key, requirement),
                _ => {
                    return self.problem(&path, item, "key, operator (In, NotIn, Exists, …) and values");
                }
            }
        }
        Some(requirements)
    }

    fn resources(&mut self, object: &Map<String, Value>, name: &str) -> Option<Resources> {
        let value = field(object, name).unwrap_or(&Value::Null);
        let Value::Object(entries) = value else {
            return self.problem(name, value, "an object of quantities");
        };
        let mut resources = Resources::new();
        for (resource, amount) in entries {
            // Like the API server, take a bare number for a quantity.
            let text = match amount {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match Quantity::parse(&text) {
                Ok(quantity) if quantity.milli >= 0 => resources.set(resource, quantity),
                _ => {
                    return self.problem(
                        &format!("{name}.{resource}"),
                        amount,
                        "a quantity such as 4, 500m or 8Gi, zero or more",
                    );
                }
            }
        }
        Some(resources)
    }

    fn labels(&mut self, object: &Map<String, Value>) -> Option<Labels> {
        let mut found = Labels::new();
        match field(object, "labels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (key, value) in entries {
                    let Some(text) = value.as_str() else {
                        return self.problem(&format!("labels.{key}"), value, "a text");
                    };
                    found.insert(key.as_str().into(), text.into());
                }
            }
            Some(other) => return self.problem("labels", other, "an object of texts"),
        }
        Some(found)
    }

    fn text(&mut self, object: &Map<String, Value>, name: &str) -> Option<Text> {
        let value = field(object, name).unwrap_or(&Value::Null);
        match value.as_str().filter(|text| !text.is_empty()) {
            Some(text) => Some(text.into()),
            None => self.problem(name, value, "a text"),
        }
    }

    fn texts(&mut self, object: &Map<String, Value>, name: &str) -> Option<Vec<Text>> {
        let items = self.array(object, name, "a list of texts")?;
        let texts: Option<Vec<Text>> = items.iter().map(|item| item.as_str().map(Text::from)).collect();
        match texts.filter(|texts| !texts.is_empty()) {
            Some(texts) => Some(texts),
            None => self.problem(name, &Value::Array(items.clone()), "a list of texts"),
        }
    }

    fn array<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        name: &str,
        expected: &'static str,
    ) -> Option<&'a Vec<Value>> {
        match field(object, name).unwrap_or(&Value::Null) {
            Value::Array(items) => Some(items),
            other => self.problem(name, other, expected),
        }
    }

    fn object<'a>(&mut self, path: &str, item: &'a Value) -> Option<&'a Map<String, Value>> {
        match item.as_object() {
            Some(object) => Some(object),
            None => self.problem(path, item, "an object"),
        }
    }

    fn problem<T>(&mut self, field: &str, found: &Value, expected: &'static str) -> Option<T> {
        self.note(field, found, expected);
        None
    }

    fn note(&mut self, field: &str, found: &Value, expected: &'static str) {
        self.problems.push(Problem {
            instance_type: self.name.clone(),
            field: field.to_owned(),
            found: show(found),
            expected,
        });
    }
}

/// The exact key first, then one that differs in case only, as Go reads JSON.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// Enough of a value to find it in the file.
fn show(value: &Value) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
