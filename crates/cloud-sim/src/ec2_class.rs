//! What an EC2NodeClass says about instance types, as the catalogue wants to hear it.

use kerf_cloud::aws::{NodeClassFacts, regions};
use kerf_model::Text;
use serde_json::Value;

/// What the catalogue needs to know of a class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Class {
    pub facts: NodeClassFacts,
}

/// Reads a class; without one, the provider's defaults. In words what of it makes no sense.
pub fn read(object: Option<&Value>) -> Result<Class, Text> {
    let Some(object) = object else {
        return Ok(Class::default());
    };
    let facts = NodeClassFacts::read(object).map_err(|problem| Text::from(format!("its EC2NodeClass: {problem}")))?;
    // A gate of the AWS provider turns expressions on; there is nobody here to evaluate them.
    if let Some((path, text)) = facts.kubelet.expressions.iter().next() {
        return Err(format!("its EC2NodeClass: {path}: {text:?} is not an amount").into());
    }
    Ok(Class { facts })
}

impl Class {
    /// The region of its subnets: `eu-west-1` of `eu-west-1b`.
    pub fn region(&self) -> Option<String> {
        let zone = self.facts.zones.as_ref()?.keys().next()?;
        regions().find(|region| zone.starts_with(region)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_region_is_that_of_the_subnets() {
        let class = json!({"spec": {}, "status": {"subnets": [{"id": "subnet-1", "zone": "eu-west-1b"}]}});
        assert_eq!(read(Some(&class)).unwrap().region().as_deref(), Some("eu-west-1"));
        assert_eq!(read(None).unwrap().region(), None);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"},
            "spec": {"kubelet": {"systemReserved": {"memory": "lots"}}}});
        let error = read(Some(&class)).err().unwrap();
        assert!(error.contains("kubelet.systemReserved.memory"), "{error}");
    }
}
