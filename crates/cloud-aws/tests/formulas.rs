//! Every type of the built-in catalogue under every AMI family and several kubelets, as the provider offers it and as the
//! contract's formulas have it.
#![expect(clippy::unwrap_used, reason = "a test whose world does not stand should fail at once")]

use kerf_api::Ec2NodeClass;
use kerf_cloud::aws::{AmiFamily, TypeFacts, offers, regions};
use kerf_cloud_aws::by_hand::{HandClock, finish};
use kerf_cloud_aws::oracle::{Case, Eviction, differences};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::supply::Supply;
use kerf_cloud_aws::wire::TypeInZone;
use kerf_cloud_aws::wire::scripted::Scripted;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const REGION: &str = "us-west-2";
const ZONE: &str = "us-west-2a";

/// Every type that some region sells.
fn all_types() -> Vec<TypeFacts> {
    let everywhere = regions().flat_map(|region| offers(region).unwrap());
    let by_name: BTreeMap<_, _> = everywhere.map(|(facts, _)| (facts.name.clone(), facts.clone())).collect();
    by_name.into_values().collect()
}

fn supply(types: &[TypeFacts], settings: Settings, clock: &HandClock) -> Supply {
    let wire = Scripted::default();
    wire.account().types = types.to_vec();
    wire.account().offerings =
        types.iter().map(|facts| TypeInZone { instance_type: facts.name.to_string(), zone: ZONE.to_owned() }).collect();
    let supply = Supply::new(Arc::new(settings), Arc::new(clock.clone()));
    finish(clock, Duration::ZERO, supply.refresh_types(&wire)).unwrap();
    supply
}

fn class(family: &str, spec: &Value) -> Ec2NodeClass {
    let mut class = json!({"metadata": {"name": "default"}, "spec": {"amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}]},
        "status": {"subnets": [{"id": "subnet-1", "zone": ZONE, "zoneID": "usw2-az1"}]}});
    for (key, value) in spec.as_object().unwrap() {
        class["spec"][key] = value.clone();
    }
    serde_json::from_value(class).unwrap()
}

/// A class as it is written, and the same in the oracle's words.
fn cases(family: &'static str) -> Vec<(Value, Case)> {
    let case = Case::of(family, REGION);
    let device = match family {
        "Bottlerocket" => "/dev/xvdb",
        "Windows2019" | "Windows2022" | "Windows2025" => "/dev/sda1",
        _ => "/dev/xvda",
    };
    vec![
        (json!({}), case.clone()),
        (json!({"kubelet": {"maxPods": 110}}), Case { max_pods: Some(110), ..case.clone() }),
        (json!({"kubelet": {"podsPerCore": 5}}), Case { pods_per_core: Some(5), ..case.clone() }),
        (
            json!({"kubelet": {
                "kubeReserved": {"cpu": "123m"}, "systemReserved": {"memory": "200Mi"}, "evictionHard": {"memory.available": "7.5%"}}}),
            Case {
                kube_reserved_cpu_milli: Some(123),
                system_reserved_memory: Some(200 << 20),
                eviction_memory: Some(Eviction::Percent(7.5)),
                ..case.clone()
            },
        ),
        (
            json!({"kubelet": {"evictionHard": {"memory.available": "100%"}, "evictionSoft": {"memory.available": "1Gi"}},
                   "instanceStorePolicy": "RAID0"}),
            Case { eviction_memory: Some(Eviction::Percent(100.0)), has_raid0: true, ..case.clone() },
        ),
        (
            json!({"kubelet": {"evictionHard": {"memory.available": "1Gi"}},
                   "blockDeviceMappings": [{"deviceName": device, "ebs": {"volumeSize": "123Gi"}}]}),
            Case { eviction_memory: Some(Eviction::Bytes(1 << 30)), volume: Some(123 << 30), ..case.clone() },
        ),
        (
            json!({"networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]}),
            Case { n_efa_only: Some(1), ..case },
        ),
    ]
}

#[test]
fn every_type_under_every_family_is_as_the_contract_works_out() {
    let types = all_types();
    assert!(types.len() > 1000, "{}", types.len());
    let clock = HandClock::new();
    let mut found = Vec::new();
    for (reserved_enis, vm_memory_overhead_share) in [(0, 0.075), (2, 0.05)] {
        let settings =
            Settings { region: REGION.to_owned(), reserved_enis, vm_memory_overhead_share, ..Settings::default() };
        let supply = supply(&types, settings, &clock);
        for family in AmiFamily::ALL.map(AmiFamily::as_str) {
            // The operator's own settings move pods and memory alone: a class without wishes shows that.
            let n_cases = if reserved_enis == 0 { usize::MAX } else { 1 };
            for (spec, case) in cases(family).into_iter().take(n_cases) {
                let case =
                    Case { reserved_enis: i64::from(reserved_enis), memory_overhead: vm_memory_overhead_share, ..case };
                // Lists that nobody asks for again are dropped.
                clock.advance(Duration::from_secs(3600));
                let offered = supply.instance_types(&class(family, &spec)).unwrap();
                assert_eq!(offered.len(), types.len());
                for (facts, it) in std::iter::zip(&types, offered.iter()) {
                    found.extend(differences(facts, &case, it).into_iter().map(|what| format!("{spec} {what}")));
                }
            }
        }
    }
    let first: Vec<&String> = found.iter().take(20).collect();
    assert!(found.is_empty(), "{} differences, the first being {first:#?}", found.len());
}

#[test]
fn what_the_kubelet_is_told_is_what_was_planned_with() {
    let types = all_types();
    let supply = supply(&types, Settings { region: REGION.to_owned(), ..Settings::default() }, &HandClock::new());
    for family in AmiFamily::ALL.map(AmiFamily::as_str) {
        let class = class(family, &json!({"kubelet": {"podsPerCore": 5}}));
        // One size of each family is enough: reading the class again for each type is most of the work.
        let types = supply.instance_types(&class).unwrap();
        for it in types.iter().filter(|it| it.name.as_str().ends_with(".xlarge")) {
            let facts = supply.facts(it.name.as_str()).unwrap();
            let told = supply.kubelet_of(&class, &facts).unwrap();
            assert_eq!(i64::from(told.max_pods), it.capacity.get("pods").units(), "{family} {}", it.name);
        }
    }
}
