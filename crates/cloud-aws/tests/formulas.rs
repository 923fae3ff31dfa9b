//! Every type of the built-in catalogue under every AMI family and several kubelets, as the provider offers it and as the
//! contract's formulas have it.
#![expect(clippy::unwrap_used, reason = "a test whose world does not stand should fail at once")]

use kerf_cloud::aws::{AmiFamily, TypeFacts, offers, regions};
use kerf_cloud_aws::by_hand::{HandClock, finish};
use kerf_cloud_aws::oracle::{Case, ZONE, cases, class, differences};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::supply::Supply;
use kerf_cloud_aws::wire::TypeInZone;
use kerf_cloud_aws::wire::scripted::Scripted;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const REGION: &str = "us-west-2";

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
            for (spec, case) in cases(family, REGION).into_iter().take(n_cases) {
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
