//! Every type that the account sells, read through the SDK, under every AMI family and several kubelets: as the provider offers it
//! and as the contract's formulas have it.

use crate::{REGION, Stage, Wall};
use kerf_cloud::aws::AmiFamily;
use kerf_cloud_aws::oracle::{cases, class, differences};
use kerf_cloud_aws::settings::Settings;
use kerf_cloud_aws::supply::Supply;
use kerf_cloud_aws::wire::Aws;
use kerf_e2e::control_plane::build;
use std::sync::Arc;

#[test]
fn every_type_of_the_account_is_as_the_contract_works_out() {
    let Some(stage) = Stage::start("the formulas over every type of the account") else { return };
    let supply = Supply::new(Arc::new(Settings { region: REGION.to_owned(), ..Settings::default() }), Arc::new(Wall));
    stage.run(supply.refresh_types(&stage.sdk)).unwrap();
    let n_served = stage.run(stage.sdk.describe_instance_types(false)).unwrap().len();
    let mut found = Vec::new();
    let mut n_compared = 0;
    for family in AmiFamily::ALL.map(AmiFamily::as_str) {
        for (spec, case) in cases(family, REGION) {
            let offered = supply.instance_types(&class(family, &spec)).unwrap();
            assert_eq!(offered.len(), n_served, "{family} {spec}");
            for it in offered.iter() {
                let facts = supply.facts(it.name.as_str()).unwrap();
                found.extend(differences(&facts, &case, it).into_iter().map(|what| format!("{spec} {what}")));
                n_compared += 1;
            }
        }
    }
    let first: Vec<&String> = found.iter().take(20).collect();
    assert!(found.is_empty(), "{} differences, the first being {first:#?}", found.len());
    let n_families = AmiFamily::ALL.len();
    build::to_stderr(&format!(
        "{n_served} types read from EC2 under {n_families} AMI families and 7 classes each: {n_compared} comparisons of capacity, \
         allocatable, pods and labels, no difference"
    ));
}
