//! Drift: whether a machine is no longer what its class describes.
//!
//! What the class says is compared by its hash, what it selects by what it found. A class that has found nothing yet is no
//! ground for a verdict: that is an error, since calling every node drifted would replace them all.

use super::images::choose;
use crate::wire::Ec2Instance;
use kerf_api::{Ec2NodeClass, Ec2NodeClassStatus, labels};
use kerf_cloud::CloudError;
use kerf_model::{InstanceType, Text};
use std::collections::{BTreeMap, BTreeSet};

pub const NODE_CLASS: &str = "NodeClassDrift";
pub const IMAGE: &str = "AMIDrift";
pub const SECURITY_GROUPS: &str = "SecurityGroupDrift";
pub const SUBNET: &str = "SubnetDrift";
pub const RESERVATION: &str = "CapacityReservationDrift";
pub const PLACEMENT_GROUP: &str = "PlacementGroupDrift";

/// What is compared with the class.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Fresh from EC2: a reservation can leave a running instance.
    pub instance: &'a Ec2Instance,
    pub instance_type: &'a InstanceType,
    /// Of the claim; where they are not known, the hash is not compared.
    pub annotations: &'a BTreeMap<Text, Text>,
    /// The class's placement group, as it is resolved now.
    pub placement_group_id: Option<&'a str>,
    /// Whether reserved capacity is a thing here (gate ReservedCapacity).
    pub has_reserved_capacity: bool,
}

/// Whether something differs, or why that cannot be told.
type Check = fn(&Subject<'_>, &Ec2NodeClassStatus) -> Result<bool, String>;

/// The first difference, in one word. The order is the contract's.
pub fn drift(subject: &Subject<'_>, class: &Ec2NodeClass) -> Result<Option<Text>, CloudError> {
    if is_hash_other(subject.annotations, class) {
        return Ok(Some(NODE_CLASS.into()));
    }
    let none = Ec2NodeClassStatus::default();
    let status = class.status.as_ref().unwrap_or(&none);
    let checks: [(&str, Check); 5] = [
        (IMAGE, is_image_other),
        (SECURITY_GROUPS, are_groups_other),
        (SUBNET, is_subnet_other),
        (RESERVATION, is_reservation_gone),
        (PLACEMENT_GROUP, is_group_other),
    ];
    for (word, is_other) in checks {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let no_verdict = |why| CloudError::Other { message: format!("EC2NodeClass {name}: {why}").into() };
        if is_other(subject, status).map_err(no_verdict)? {
            return Ok(Some(word.into()));
        }
    }
    Ok(None)
}

/// Only where all four annotations are there and both were hashed the same way.
fn is_hash_other(of_claim: &BTreeMap<Text, Text>, class: &Ec2NodeClass) -> bool {
    let of_class = |key: &str| class.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    let of_claim = |key: &str| of_claim.get(key).map(|value| &**value);
    let hash = (of_class(labels::EC2_NODE_CLASS_HASH), of_claim(labels::EC2_NODE_CLASS_HASH));
    let version = (of_class(labels::EC2_NODE_CLASS_HASH_VERSION), of_claim(labels::EC2_NODE_CLASS_HASH_VERSION));
    matches!((hash, version), ((Some(now), Some(then)), (Some(a), Some(b))) if a == b && now != then)
}

fn is_image_other(subject: &Subject<'_>, status: &Ec2NodeClassStatus) -> Result<bool, String> {
    if status.amis.is_empty() {
        return Err("status.amis is empty: whether images have changed cannot be told".to_owned());
    }
    if subject.instance.image_id.is_empty() {
        return Err(format!("{} has no image id: whether it has changed cannot be told", subject.instance.id));
    }
    Ok(choose(&status.amis, subject.instance_type).is_none_or(|ami| ami.id != subject.instance.image_id))
}

fn are_groups_other(subject: &Subject<'_>, status: &Ec2NodeClassStatus) -> Result<bool, String> {
    if status.security_groups.is_empty() {
        return Err("status.securityGroups is empty: whether groups have changed cannot be told".to_owned());
    }
    let wanted: BTreeSet<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    let has: BTreeSet<&str> = subject.instance.security_group_ids.iter().map(String::as_str).collect();
    Ok(wanted != has)
}

fn is_subnet_other(subject: &Subject<'_>, status: &Ec2NodeClassStatus) -> Result<bool, String> {
    if status.subnets.is_empty() {
        return Err("status.subnets is empty: whether subnets have changed cannot be told".to_owned());
    }
    Ok(!status.subnets.iter().any(|subnet| Some(&subnet.id) == subject.instance.subnet_id.as_ref()))
}

fn is_reservation_gone(subject: &Subject<'_>, status: &Ec2NodeClassStatus) -> Result<bool, String> {
    let is_reserved = subject.has_reserved_capacity
        && subject.instance.reservation_preference.as_deref() == Some("capacity-reservations-only");
    let id = subject.instance.reservation_id.as_ref().filter(|_| is_reserved);
    Ok(id.is_some_and(|id| !status.capacity_reservations.iter().any(|reservation| reservation.id == *id)))
}

fn is_group_other(subject: &Subject<'_>, _: &Ec2NodeClassStatus) -> Result<bool, String> {
    Ok(subject.instance.placement_group_id.as_deref() != subject.placement_group_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cloud::aws::{NodeClassFacts, assemble, type_facts};
    use serde_json::{Value, json};

    fn class(change: impl FnOnce(&mut Value)) -> Ec2NodeClass {
        let mut class = json!({
            "metadata": {"name": "default", "annotations": {
                "karpenter.k8s.aws/ec2nodeclass-hash": "1", "karpenter.k8s.aws/ec2nodeclass-hash-version": "v6"}},
            "status": {
                "amis": [{"id": "ami-1", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}],
                "subnets": [{"id": "subnet-1", "zone": "a"}, {"id": "subnet-2", "zone": "b"}],
                "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
                "capacityReservations": [{"id": "cr-1", "availabilityZone": "a", "instanceMatchCriteria": "targeted",
                    "instanceType": "m5.large", "ownerID": "1"}],
            },
        });
        change(&mut class);
        serde_json::from_value(class).unwrap()
    }

    fn instance() -> Ec2Instance {
        Ec2Instance {
            id: "i-1".to_owned(),
            image_id: "ami-1".to_owned(),
            subnet_id: Some("subnet-2".to_owned()),
            security_group_ids: vec!["sg-2".to_owned(), "sg-1".to_owned()],
            ..Ec2Instance::default()
        }
    }

    struct Case {
        instance: Ec2Instance,
        annotations: BTreeMap<Text, Text>,
        group: Option<&'static str>,
    }

    fn unchanged() -> Case {
        let annotations = BTreeMap::from([
            (labels::EC2_NODE_CLASS_HASH.into(), "1".into()),
            (labels::EC2_NODE_CLASS_HASH_VERSION.into(), "v6".into()),
        ]);
        Case { instance: instance(), annotations, group: None }
    }

    fn verdict(case: &Case, class: &Ec2NodeClass) -> Result<Option<Text>, CloudError> {
        let instance_type = assemble(type_facts("m5.large").unwrap(), "us-east-1", &[], &NodeClassFacts::default());
        let subject = Subject {
            instance: &case.instance,
            instance_type: &instance_type,
            annotations: &case.annotations,
            placement_group_id: case.group,
            has_reserved_capacity: true,
        };
        drift(&subject, class)
    }

    #[test]
    fn each_difference_has_its_word_and_the_first_wins() {
        assert_eq!(verdict(&unchanged(), &class(|_| ())).unwrap(), None);
        let reserved = |id: &str, how: &str| {
            let mut case = unchanged();
            case.instance.reservation_id = Some(id.to_owned());
            case.instance.reservation_preference = Some(how.to_owned());
            case
        };
        let annotated = |hash: &str, version: &str| {
            let mut case = unchanged();
            case.annotations.insert(labels::EC2_NODE_CLASS_HASH.into(), hash.into());
            case.annotations.insert(labels::EC2_NODE_CLASS_HASH_VERSION.into(), version.into());
            case
        };
        let with = |change: fn(&mut Ec2Instance)| {
            let mut case = unchanged();
            change(&mut case.instance);
            case
        };
        let cases: Vec<(Case, Option<&str>)> = vec![
            (annotated("2", "v6"), Some(NODE_CLASS)),
            (annotated("2", "v5"), None),
            (with(|instance| instance.image_id = "ami-0".to_owned()), Some(IMAGE)),
            (with(|instance| drop(instance.security_group_ids.pop())), Some(SECURITY_GROUPS)),
            (with(|instance| instance.subnet_id = Some("subnet-3".to_owned())), Some(SUBNET)),
            (reserved("cr-2", "capacity-reservations-only"), Some(RESERVATION)),
            (reserved("cr-1", "capacity-reservations-only"), None),
            (reserved("cr-2", "open"), None),
            (Case { group: Some("pg-1"), ..unchanged() }, Some(PLACEMENT_GROUP)),
            (with(|instance| instance.placement_group_id = Some("pg-1".to_owned())), Some(PLACEMENT_GROUP)),
        ];
        for (case, expected) in &cases {
            let found = verdict(case, &class(|_| ())).unwrap();
            assert_eq!(found.as_deref(), *expected, "{:?} {:?}", case.instance, case.annotations);
        }
        let everything = Case {
            group: Some("pg-1"),
            instance: Ec2Instance { image_id: "ami-0".to_owned(), subnet_id: None, ..instance() },
            ..annotated("2", "v6")
        };
        assert_eq!(verdict(&everything, &class(|_| ())).unwrap().as_deref(), Some(NODE_CLASS));
        let no_image_fits = class(|class| class["status"]["amis"][0]["requirements"][0]["values"] = json!(["arm64"]));
        assert_eq!(verdict(&unchanged(), &no_image_fits).unwrap().as_deref(), Some(IMAGE));
    }

    #[test]
    fn an_empty_status_is_an_error_and_no_drift() {
        for field in ["amis", "securityGroups", "subnets"] {
            let error = verdict(&unchanged(), &class(|class| class["status"][field] = json!([]))).unwrap_err();
            assert!(error.to_string().contains(&format!("status.{field} is empty")), "{error}");
        }
        let mut nameless = unchanged();
        nameless.instance.image_id = String::new();
        assert!(verdict(&nameless, &class(|_| ())).is_err());
    }

    #[test]
    fn a_claim_without_a_hash_has_not_drifted_by_it() {
        let mut bare = unchanged();
        bare.annotations.clear();
        assert_eq!(verdict(&bare, &class(|_| ())).unwrap(), None);
    }
}
