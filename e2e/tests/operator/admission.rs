//! What the API server refuses of a pool, and what it takes.

use serde_json::{Value, json};

use crate::stage::{NODE_POOLS, Stage};
use crate::tests;

tests!(pools_that_break_a_rule_are_refused, pools_at_the_edge_of_the_rules_are_taken);

type Change = (&'static str, fn(&mut Value));

fn requirement(pool: &mut Value, requirement: Value) {
    pool["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(requirement);
}

fn label(pool: &mut Value, key: &str) {
    pool["spec"]["template"]["metadata"] = json!({"labels": {key: "value"}});
}

const REFUSED: &[Change] = &[
    ("the label of pools", |pool| label(pool, "karpenter.sh/nodepool")),
    ("a label of our domain", |pool| label(pool, "karpenter.sh/custom-label")),
    ("a requirement on the label of pools", |pool| {
        requirement(pool, json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}));
    }),
    ("In without values", |pool| {
        requirement(pool, json!({"key": "node.kubernetes.io/instance-type", "operator": "In"}));
    }),
    ("an unknown operator", |pool| {
        requirement(pool, json!({"key": "node.kubernetes.io/instance-type", "operator": "within", "values": ["5"]}));
    }),
    ("Gt of two values", |pool| requirement(pool, json!({"key": "a.b/c", "operator": "Gt", "values": ["1", "2"]}))),
    ("Lt of two values", |pool| requirement(pool, json!({"key": "a.b/c", "operator": "Lt", "values": ["1", "2"]}))),
    ("Gte of two values", |pool| requirement(pool, json!({"key": "a.b/c", "operator": "Gte", "values": ["1", "2"]}))),
    ("Lte of two values", |pool| requirement(pool, json!({"key": "a.b/c", "operator": "Lte", "values": ["1", "2"]}))),
    ("a negative consolidateAfter", |pool| pool["spec"]["disruption"]["consolidateAfter"] = json!("-1s")),
    ("minValues of -1", |pool| min_values(pool, -1)),
    ("minValues of 0", |pool| min_values(pool, 0)),
    ("minValues of 51", |pool| min_values(pool, 51)),
    ("more minValues than values", |pool| min_values(pool, 2)),
];

const TAKEN: &[Change] = &[
    ("a label of node-restriction", |pool| label(pool, "node-restriction.kubernetes.io/custom-label")),
    ("a label below node-restriction", |pool| label(pool, "subdomain.node-restriction.kubernetes.io/custom-label")),
    ("underutilized after a minute", |pool| {
        pool["spec"]["disruption"] =
            json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"});
    }),
];

fn min_values(pool: &mut Value, least: i64) {
    let key = "node.kubernetes.io/instance-type";
    requirement(pool, json!({"key": key, "operator": "In", "values": ["c-2x-amd64-linux"], "minValues": least}));
}

fn pools_that_break_a_rule_are_refused(stage: &Stage<'_>) {
    for (what, change) in REFUSED {
        let mut pool = stage.pool_manifest();
        change(&mut pool);
        let answer = stage.client.post(NODE_POOLS, &pool).unwrap();
        assert_eq!(answer.status, 422, "{what}: {}", answer.message());
        let said = stage.kubectl_apply(&pool.to_string());
        assert!(said.code == 1 && said.err.contains("is invalid"), "{what}: {}{}", said.out, said.err);
    }
}

fn pools_at_the_edge_of_the_rules_are_taken(stage: &Stage<'_>) {
    for (what, change) in TAKEN {
        let mut pool = stage.pool_manifest();
        change(&mut pool);
        let answer = stage.client.post(&format!("{NODE_POOLS}?dryRun=All"), &pool).unwrap();
        assert_eq!(answer.status, 201, "{what}: {}", answer.message());
    }
}
