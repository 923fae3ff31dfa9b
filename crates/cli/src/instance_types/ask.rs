//! What is wanted, gathered from the command line and the files.

use super::arguments::{InstanceTypesArguments, Range};
use crate::input::{Sink, Trouble, read_all};
use anyhow::{Context, bail};
use kerf_api::NodePool;
use kerf_api::labels::AWS_WELL_KNOWN;
use kerf_cloud::aws::{AmiFamily, NodeClassFacts, regions};
use kerf_model::{Money, Operator, Requirement, Requirements, Text, labels, typo};
use serde_json::Value;

const DEFAULT_REGION: &str = "us-east-1";
const PREFIX: &str = "karpenter.k8s.aws/";

pub(super) struct Ask {
    pub(super) region: String,
    pub(super) requirements: Requirements,
    pub(super) cpu: Option<Range>,
    pub(super) memory: Option<Range>,
    pub(super) max_price: Option<Money>,
    pub(super) class: NodeClassFacts,
    /// In the order they were given; at least one.
    pub(super) families: Vec<AmiFamily>,
    /// For people: what of the files was left aside.
    pub(super) notes: Vec<String>,
}

impl Ask {
    pub(super) fn new(arguments: &InstanceTypesArguments) -> anyhow::Result<Self> {
        let mut notes = Vec::new();
        let (pool, class) = read_files(arguments)?;
        let mut requirements = Requirements::new();
        if let Some(pool) = &pool {
            of_pool(pool, &mut requirements, &mut notes)?;
        }
        for text in &arguments.requirements {
            let (key, requirement) = parse(text).with_context(|| format!("--requirement {text:?}"))?;
            requirements.add(&key, requirement);
        }
        if !arguments.zones.is_empty() {
            requirements.add(labels::ZONE, Requirement::is_in(arguments.zones.iter().map(String::as_str)));
        }
        if !arguments.capacity_types.is_empty() {
            let names = arguments.capacity_types.iter().map(|kind| kind.as_str());
            requirements.add(labels::CAPACITY_TYPE, Requirement::is_in(names));
        }
        let class = class.unwrap_or_default();
        let region = arguments.region.clone().or_else(|| region_of(&class, &requirements));
        let families = families(arguments, &class);
        Ok(Self {
            region: region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
            requirements,
            cpu: arguments.cpu,
            memory: arguments.memory,
            max_price: arguments.max_price,
            class,
            families,
            notes,
        })
    }
}

/// Each once, in the order given.
fn families(arguments: &InstanceTypesArguments, class: &NodeClassFacts) -> Vec<AmiFamily> {
    let mut families = Vec::new();
    for family in arguments.families.iter().flat_map(|families| &families.0) {
        if !families.contains(family) {
            families.push(*family);
        }
    }
    if families.is_empty() { vec![class.ami_family] } else { families }
}

/// `eu-west-1` of `eu-west-1b`, where zones are named.
fn region_of(class: &NodeClassFacts, requirements: &Requirements) -> Option<String> {
    let of_class = class.zones.iter().flat_map(|zones| zones.keys());
    let wanted = requirements.get(labels::ZONE).filter(|wanted| !wanted.complement);
    let mut zones = of_class.chain(wanted.into_iter().flat_map(|wanted| &wanted.values));
    zones.find_map(|zone| regions().find(|region| zone.starts_with(region))).map(str::to_owned)
}

#[derive(Default)]
struct Found {
    pools: Vec<(String, Value)>,
    classes: Vec<(String, Value)>,
    troubles: Vec<Trouble>,
}

impl Sink for Found {
    fn object(&mut self, source: &str, value: Value) {
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "NodePool" => self.pools.push((source.to_owned(), value)),
            "EC2NodeClass" => self.classes.push((source.to_owned(), value)),
            _ => {}
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.troubles.push(trouble);
    }
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The pool, and the class that it names where that is in the files too.
fn read_files(arguments: &InstanceTypesArguments) -> anyhow::Result<(Option<NodePool>, Option<NodeClassFacts>)> {
    if arguments.files.is_empty() {
        return Ok((None, None));
    }
    let mut found = Found::default();
    read_all(&arguments.files, &mut found)?;
    if let Some(Trouble { source, what, message }) = found.troubles.first() {
        bail!("{source}: {what}: {message}");
    }
    let (source, object) = match found.pools.as_slice() {
        [one] => one,
        [] => bail!("the files hold no NodePool to take requirements from"),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, object)| name(object)).collect();
            bail!("the files hold several NodePools ({}); give one", names.join(", "));
        }
    };
    let pool: NodePool = serde_json::from_value(object.clone())
        .with_context(|| format!("{source}: NodePool {} cannot be read", name(object)))?;
    let wanted = &pool.spec.template.spec.node_class_ref.name;
    let Some((source, object)) = found.classes.iter().find(|(_, object)| name(object) == wanted) else {
        return Ok((Some(pool), None));
    };
    let facts = NodeClassFacts::read(object).with_context(|| format!("{source}: EC2NodeClass {wanted}"))?;
    if let Some((path, text)) = facts.kubelet.expressions.iter().next() {
        bail!("{source}: EC2NodeClass {wanted}: spec.{path}: {text:?} is not an amount");
    }
    Ok((Some(pool), Some(facts)))
}

/// The pool's requirements and labels that types can meet. Others are the pool's own and say nothing about types.
fn of_pool(pool: &NodePool, requirements: &mut Requirements, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let template = &pool.spec.template;
    for (position, written) in template.spec.requirements.iter().enumerate() {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        let read = Operator::parse(written.operator.as_str()).and_then(|operator| Requirement::new(operator, &values));
        let Some(mut requirement) = read else {
            bail!(
                "NodePool {}: spec.template.spec.requirements[{position}]: {} {} [{}] means nothing",
                pool.metadata.name.as_deref().unwrap_or_default(),
                written.key,
                written.operator,
                values.join(", ")
            );
        };
        requirement.min_values = written.min_values.and_then(|count| u32::try_from(count).ok());
        match is_of_types(&written.key) {
            true => requirements.add(&written.key, requirement),
            false => notes.push(format!("{} is the pool's own and selects no type", written.key)),
        }
    }
    let own = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    for (key, value) in own.into_iter().flatten().filter(|(key, _)| is_of_types(key)) {
        requirements.add(key, Requirement::is_in([value.as_str()]));
    }
    Ok(())
}

/// Keys that the types of the catalogue speak about.
fn known_keys() -> impl Iterator<Item = &'static str> {
    labels::WELL_KNOWN.into_iter().filter(|key| *key != labels::NODEPOOL).chain(AWS_WELL_KNOWN.iter().copied())
}

fn is_of_types(key: &str) -> bool {
    let key = labels::normalise(key);
    known_keys().any(|known| known == key)
}

/// `KEY OPERATOR [VALUE,…]`.
fn parse(text: &str) -> anyhow::Result<(String, Requirement)> {
    let mut words = text.split_whitespace();
    let Some(key) = words.next() else {
        bail!("is empty; use a key, an operator and values, such as 'instance-category In c,m'");
    };
    let key = full_key(key)?;
    let operators = || Operator::ALL.map(|(_, name)| name).join(", ");
    let Some(word) = words.next() else {
        bail!("has no operator; use one of {}", operators());
    };
    let Some(operator) = Operator::parse(word) else {
        bail!("{word:?} is no operator; use one of {}", operators());
    };
    let rest: Vec<&str> = words.collect();
    let rest = rest.join(",");
    let values: Vec<Text> = rest.split(',').filter(|value| !value.is_empty()).map(Text::from).collect();
    match (operator, values.len()) {
        (Operator::In | Operator::NotIn, 0) => bail!("{word} needs values, with commas between them"),
        (Operator::Exists | Operator::DoesNotExist, n) if n > 0 => bail!("{word} takes no values"),
        _ => {}
    }
    let requirement = Requirement::new(operator, &values);
    Ok((key, requirement.with_context(|| format!("{word} needs one whole number"))?))
}

/// The key as types have it: today's name, with its prefix.
fn full_key(written: &str) -> anyhow::Result<String> {
    let with_prefix = format!("{PREFIX}{written}");
    for key in [written, with_prefix.as_str()] {
        if is_of_types(key) {
            return Ok(labels::normalise(key).to_owned());
        }
    }
    let close = typo::misspelt(written, known_keys()).or_else(|| typo::misspelt(&with_prefix, known_keys()));
    let close = close.or_else(|| typo::in_wrong_domain(written, known_keys()));
    match close {
        Some(meant) => bail!("no type has the label {written}; did you mean {meant}?"),
        None => {
            let known: Vec<&str> = known_keys().map(|key| key.strip_prefix(PREFIX).unwrap_or(key)).collect();
            bail!("no type has the label {written}; they have {}", known.join(", "))
        }
    }
}
