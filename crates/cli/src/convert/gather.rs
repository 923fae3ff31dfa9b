//! What was found in the input, by what becomes of it.

use super::made::Made;
use crate::input::{Sink, Trouble};
use kerf_api::Kind;
use kerf_api::older::TranslatedKind;
use kerf_api::older::marks;
use serde_json::Value;

/// An object of the input.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// File and line.
    pub(super) source: String,
    pub(super) value: Value,
}

impl Found {
    pub(super) fn name(&self) -> &str {
        self.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it is an EC2NodeClass of `compute.k8s.aws`.
    pub(super) fn is_alias(&self) -> bool {
        TranslatedKind::of(&self.value) == Some(TranslatedKind::ComputeNodeClass)
    }

    /// `Provisioner lab`
    pub(super) fn title(&self) -> String {
        let kind = self.value.get("kind").and_then(Value::as_str).unwrap_or("object");
        format!("{kind} {}", self.name()).trim_end().to_owned()
    }
}

#[derive(Default)]
pub(super) struct Gathered {
    pub(super) objects: Vec<Found>,
    pub(super) troubles: Vec<Trouble>,
}

impl Sink for Gathered {
    fn object(&mut self, source: &str, value: Value) {
        if value.get("kind").is_some_and(Value::is_string) {
            self.objects.push(Found { source: source.to_owned(), value });
        } else {
            self.troubles.push(Trouble {
                source: source.to_owned(),
                what: "document".to_owned(),
                message: "it is no Kubernetes object: it has no kind".to_owned(),
            });
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.troubles.push(trouble);
    }
}

/// The input, each object once: of two with the same kind and name the later one counts, as with `kubectl apply`.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) provisioners: Vec<Found>,
    pub(super) templates: Vec<Found>,
    /// Those of v1 and v1beta1, and the EC2NodeClasses of `compute.k8s.aws`.
    pub(super) pools: Vec<Found>,
    pub(super) classes: Vec<Found>,
    /// Of v1, and of no concern.
    pub(super) others: Vec<(Kind, Found)>,
}

impl Gathered {
    pub(super) fn sort(self, made: &mut Made) -> Sorted {
        let mut sorted = Sorted::default();
        for found in self.objects {
            let text = |name: &str| found.value.get(name).and_then(Value::as_str).unwrap_or_default();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            let group = api_version.split('/').next().unwrap_or_default();
            match (TranslatedKind::of(&found.value), api_version, kind) {
                (Some(TranslatedKind::Provisioner), ..) => put(&mut sorted.provisioners, found),
                (Some(TranslatedKind::AwsNodeTemplate), ..) => put(&mut sorted.templates, found),
                (Some(TranslatedKind::ComputeNodeClass), ..)
                | (_, "karpenter.k8s.aws/v1" | "karpenter.k8s.aws/v1beta1", "EC2NodeClass") => {
                    put(&mut sorted.classes, found)
                }
                (_, "karpenter.sh/v1" | "karpenter.sh/v1beta1", "NodePool") => put(&mut sorted.pools, found),
                (_, _, "NodeClaim" | "Machine") if group == "karpenter.sh" => {
                    made.leave_out(&found, "it is the operator's own; whoever applies it launches a machine");
                }
                _ => match Kind::of(&found.value) {
                    Some(kind) => sorted.others.push((kind, found)),
                    None if ["karpenter.sh", "karpenter.k8s.aws", "compute.k8s.aws"].contains(&group) => made.refuse(
                        &found,
                        "apiVersion",
                        &format!("{api_version:?}"),
                        "this version of the kind is not known; v1alpha5, v1alpha1, v1beta1 and v1 are",
                    ),
                    None => made.leave_out(&found, "it is not of Karpenter"),
                },
            }
        }
        sorted
    }
}

impl Sorted {
    /// Whether it is what a translation made of another object of the input, which is translated afresh.
    pub(super) fn makes_again(&self, object: &Value) -> bool {
        self.maker(object).is_some()
    }

    /// The object of the input that a translated one follows.
    pub(super) fn maker(&self, object: &Value) -> Option<&Found> {
        let origin = marks::origin(object)?;
        let is_it = |found: &&Found| found.name() == origin.name;
        match origin.resource.split('.').next() {
            Some("provisioners") => self.provisioners.iter().find(is_it),
            Some("awsnodetemplates") => self.templates.iter().find(is_it),
            Some("ec2nodeclassaliases") => self.classes.iter().find(|found| is_it(found) && found.is_alias()),
            _ => None,
        }
    }

    /// The NodePool or EC2NodeClass that somebody wrote in v1 or v1beta1 under a name, which no translation may take.
    pub(super) fn holder(&self, kind: Kind, name: &str) -> Option<&Found> {
        let list = if kind == Kind::NodePool { &self.pools } else { &self.classes };
        list.iter().find(|found| found.name() == name && !found.is_alias() && !self.makes_again(&found.value))
    }
}

fn put(list: &mut Vec<Found>, found: Found) {
    list.retain(|other| other.name() != found.name() || other.is_alias() != found.is_alias());
    list.push(found);
}
