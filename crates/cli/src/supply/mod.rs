//! What can be bought: a file of instance types, kwok's own, or the built-in AWS catalogue.

use kerf_api::{NodeOverlay, labels as api_labels};
use kerf_cloud::{aws, kwok};
use kerf_cloud_sim::ec2_class;
use kerf_mirror::{Inquiry, LabelRules, Stock, Supply, Types};
use kerf_model::{CapacityType, InstanceType, Money, NodeClassRef, Text, TypeName, labels};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const DEFAULT_REGION: &str = "us-east-1";

/// Where the figures of a plan come from, for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) name: String,
    /// Of the figures, where it is known.
    pub(crate) date: Option<String>,
    pub(crate) n_types: usize,
}

/// All catalogues together.
pub(crate) struct Catalogue {
    /// A file that serves every pool, and its name.
    file: Option<(String, Types)>,
    region: Option<String>,
    kwok: OnceCell<Types>,
    /// Types of the region for a class without any wishes: prices of machines that belong to nobody.
    plain_aws: OnceCell<BTreeMap<TypeName, InstanceType>>,
    origins: RefCell<BTreeSet<Origin>>,
}

impl Catalogue {
    pub(crate) fn of_file(name: String, types: Vec<InstanceType>) -> Self {
        let types: Types = types.into_iter().map(Arc::new).collect();
        Self { file: Some((name, types)), ..Self::built_in(None) }
    }

    pub(crate) fn built_in(region: Option<String>) -> Self {
        Self {
            file: None,
            region,
            kwok: OnceCell::new(),
            plain_aws: OnceCell::new(),
            origins: RefCell::new(BTreeSet::new()),
        }
    }

    /// The catalogues that were asked for something, in order of name.
    pub(crate) fn origins(&self) -> Vec<Origin> {
        self.origins.borrow().iter().cloned().collect()
    }

    /// The labels that pods may ask for: those of both providers, and what the file's types carry.
    pub(crate) fn label_rules(&self) -> LabelRules {
        let rules = LabelRules::aws()
            .with_well_known(api_labels::KWOK_WELL_KNOWN.iter().copied())
            .with_restricted_domain(api_labels::KWOK_GROUP);
        rules.with_well_known(self.keys_of_file())
    }

    /// The same, for the engine.
    pub(crate) fn well_known(&self) -> BTreeSet<Text> {
        let known = labels::WELL_KNOWN
            .iter()
            .chain(api_labels::AWS_WELL_KNOWN)
            .chain(api_labels::KWOK_WELL_KNOWN)
            .map(|key| Text::from(*key));
        known.chain(self.keys_of_file().into_iter().map(Text::from)).collect()
    }

    fn keys_of_file(&self) -> BTreeSet<String> {
        let types = self.file.iter().flat_map(|(_, types)| types.iter());
        let sets = types.flat_map(|it| {
            std::iter::once(&it.requirements).chain(it.offerings.iter().map(|offering| &*offering.requirements))
        });
        sets.flat_map(|set| set.iter().map(|(key, _)| key.to_string())).collect()
    }

    fn types_of(&self, inquiry: &Inquiry<'_>) -> Result<Types, Text> {
        if let Some((name, types)) = &self.file {
            self.remember(name.clone(), None, types.len());
            return Ok(types.clone());
        }
        match &*inquiry.node_class.kind {
            "KWOKNodeClass" => {
                let types = self.kwok.get_or_init(|| kwok::embedded().into_iter().map(Arc::new).collect());
                self.remember("kwok's built-in types".to_owned(), None, types.len());
                Ok(types.clone())
            }
            _ => {
                let class = ec2_class::read(inquiry.class_object)?;
                let region =
                    self.region.clone().or_else(|| class.region()).unwrap_or_else(|| DEFAULT_REGION.to_owned());
                let types =
                    aws::instance_types(&region, &class.facts).map_err(|error| Text::from(error.to_string()))?;
                self.remember_aws(&region, types.len());
                Ok(types.into_iter().map(Arc::new).collect())
            }
        }
    }

    fn remember(&self, name: String, date: Option<String>, n_types: usize) {
        self.origins.borrow_mut().insert(Origin { name, date, n_types });
    }

    fn remember_aws(&self, region: &str, n_types: usize) {
        self.remember(format!("AWS {region}"), Some(aws::catalogue_date().to_owned()), n_types);
    }
}

impl Supply for Catalogue {
    fn serves(&self, node_class: &NodeClassRef) -> bool {
        self.file.is_some()
            || matches!(
                (&*node_class.group, &*node_class.kind),
                (api_labels::KWOK_GROUP, "KWOKNodeClass") | (api_labels::AWS_GROUP, "EC2NodeClass")
            )
    }

    fn types(&self, inquiries: &[Inquiry<'_>], overlays: &[Arc<NodeOverlay>]) -> Stock {
        // Pools of one class share one list.
        let mut by_class: BTreeMap<&NodeClassRef, Result<Types, Text>> = BTreeMap::new();
        let mut types = Vec::new();
        for inquiry in inquiries {
            let of_class = by_class.entry(inquiry.node_class).or_insert_with(|| self.types_of(inquiry));
            types.push(of_class.clone());
        }
        if overlays.is_empty() {
            return Stock { types, rejected_overlays: Vec::new() };
        }
        kerf_controllers::supply::overlaid(inquiries, types, overlays)
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        let cheapest = |it: &InstanceType| {
            it.offerings
                .iter()
                .filter(|offering| offering.capacity_type() == Some(capacity_type))
                .filter(|offering| zone.is_none() || offering.zone() == zone)
                .map(|offering| offering.price)
                .min()
        };
        if let Some((_, types)) = &self.file {
            return types.iter().find(|it| it.name == *instance_type).and_then(|it| cheapest(it));
        }
        // Only names of EC2 types have a dot in the middle; do not load a catalogue for others.
        if !instance_type.as_str().contains('.') {
            return None;
        }
        let plain = self.plain_aws.get_or_init(|| {
            let region = self.region.as_deref().unwrap_or(DEFAULT_REGION);
            let types = aws::instance_types(region, &aws::NodeClassFacts::default()).unwrap_or_default();
            types.into_iter().map(|it| (it.name.clone(), it)).collect()
        });
        plain.get(instance_type).and_then(cheapest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{Labels, Requirements};
    use serde_json::{Value, json};

    fn ask(catalogue: &Catalogue, kind: &str, class: Option<&Value>, overlays: &[Arc<NodeOverlay>]) -> Stock {
        let group = if kind == "EC2NodeClass" { "karpenter.k8s.aws" } else { "karpenter.kwok.sh" };
        let node_class = NodeClassRef { group: group.into(), kind: kind.into(), name: "default".into() };
        assert!(catalogue.serves(&node_class));
        let (pool, labels, requirements) = ("p".into(), Labels::new(), Requirements::new());
        let inquiry = Inquiry {
            pool: &pool,
            labels: &labels,
            requirements: &requirements,
            node_class: &node_class,
            class_object: class,
        };
        catalogue.types(&[inquiry], overlays)
    }

    #[test]
    fn each_kind_of_class_has_its_catalogue() {
        let catalogue = Catalogue::built_in(None);
        assert_eq!(ask(&catalogue, "KWOKNodeClass", None, &[]).types[0].as_ref().unwrap().len(), 144);
        assert!(ask(&catalogue, "EC2NodeClass", None, &[]).types[0].as_ref().unwrap().len() > 100);
        let names: Vec<String> = catalogue.origins().into_iter().map(|origin| origin.name).collect();
        assert_eq!(names, ["AWS us-east-1", "kwok's built-in types"]);
    }

    #[test]
    fn the_region_follows_from_the_subnets() {
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"}, "spec": {},
            "status": {"subnets": [{"id": "s", "zone": "eu-west-1b", "zoneID": "euw1-az2"}]}});
        let catalogue = Catalogue::built_in(None);
        let stock = ask(&catalogue, "EC2NodeClass", Some(&class), &[]);
        let types = stock.types[0].as_ref().unwrap();
        let zones: BTreeSet<&str> = types
            .iter()
            .flat_map(|it| it.offerings.iter().filter(|o| o.available).filter_map(|o| o.zone().map(|zone| &**zone)))
            .collect();
        assert_eq!(zones, BTreeSet::from(["eu-west-1b"]));
        assert_eq!(catalogue.origins()[0].name, "AWS eu-west-1");
    }

    #[test]
    fn a_region_that_nobody_knows_is_told() {
        let catalogue = Catalogue::built_in(Some("mars-1".to_owned()));
        let stock = ask(&catalogue, "EC2NodeClass", None, &[]);
        assert!(stock.types[0].as_ref().unwrap_err().contains("mars-1"));
    }

    #[test]
    fn overlays_change_prices_and_bad_ones_are_rejected() {
        let overlay = |name: &str, spec: Value| -> Arc<NodeOverlay> {
            let object = json!({"metadata": {"name": name}, "spec": spec});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let overlays = [
            overlay(
                "free",
                json!({"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}], "price": "0"}),
            ),
            overlay("odd", json!({"requirements": [], "priceAdjustment": "cheaper"})),
        ];
        let catalogue = Catalogue::built_in(None);
        let stock = ask(&catalogue, "KWOKNodeClass", None, &overlays);
        let types = stock.types[0].as_ref().unwrap();
        let price = |name: &str| types.iter().find(|it| it.name.as_str() == name).unwrap().offerings[0].price;
        assert_eq!(price("c-1x-arm64-linux"), Money::ZERO);
        assert_ne!(price("c-1x-amd64-linux"), Money::ZERO);
        assert_eq!(&*stock.rejected_overlays[0].0, "odd");
    }

    #[test]
    fn machines_of_nobody_are_priced_by_their_name() {
        let catalogue = Catalogue::built_in(None);
        assert!(catalogue.price(&"m5.large".into(), None, CapacityType::OnDemand).is_some());
        assert!(catalogue.price(&"c-1x-amd64-linux".into(), None, CapacityType::OnDemand).is_none());
    }
}
