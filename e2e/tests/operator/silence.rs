//! A network that loses connections without a word: what is not heard of is not trusted.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use kerf_e2e::proxy::Proxy;

use crate::scene::{is_going, name};
use crate::stage::Stage;
use crate::tests;

tests!(; alone while_no_pod_is_heard_of_no_node_goes_and_all_recovers_by_itself);

/// Of the operator: watches that say nothing for half of it are begun anew.
const STALE_AFTER: Duration = Duration::from_secs(20);
/// As short as it may be, on a cluster that has nothing to add to what the real one shows.
const STALE_AFTER_ON_OURS: Duration = Duration::from_secs(8);

/// A node is empty when pods fall silent. Then it is full, which nobody hears, and may go if it is empty, which everybody hears.
fn while_no_pod_is_heard_of_no_node_goes_and_all_recovers_by_itself(stage: &Stage<'_>) {
    let proxy = Proxy::start(stage.address()).unwrap();
    let kubeconfig = proxy.kubeconfig(stage.operators_kubeconfig(), stage.folder()).unwrap();
    let stale_after = if stage.is_real() { STALE_AFTER } else { STALE_AFTER_ON_OURS };
    let limit = format!("{}s", stale_after.as_secs());
    let by_proxy = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("WATCH_STALE_AFTER", limit.as_str())];
    stage.with_operator(&by_proxy, || {
        stage.add_pool(|_| {});
        stage.add_deployment("inflate", 1, |_| {});
        stage.wait_until_running("inflate", 1);
        stage.wait_for("the claim to be ready", || stage.n_ready_claims() == 1);
        stage.kubectl_says(&["scale", "deployment", "inflate", "--replicas=0"]);
        stage.wait_for("the node to be empty", || stage.pods("inflate").is_empty());
        let node = name(&stage.nodes()[0]);

        proxy.freeze("/api/v1/pods");
        stage.kubectl_says(&["scale", "deployment", "inflate", "--replicas=1"]);
        stage.wait_until_running("inflate", 1);
        assert_eq!(stage.only_node_of("inflate"), node);
        stage.wait_for("the operator to be unready", || !stage.operator().is_ready());
        stage.patch(&stage.pool_path(), &json!({"spec": {"disruption": {"consolidateAfter": "0s"}}}));
        let may_go_since = Instant::now();
        while may_go_since.elapsed() < 2 * stale_after {
            let nodes = stage.nodes();
            assert!(nodes.len() == 1 && !is_going(&nodes[0]), "a full node goes");
            assert!(!is_going(&stage.claims()[0]), "the claim of a full node goes");
            assert!(!stage.operator().is_ready(), "nothing was heard of pods");
            thread::sleep(Duration::from_millis(250));
        }

        proxy.thaw();
        stage.wait_for("the operator to be ready", || stage.operator().is_ready());
        assert_eq!(stage.only_node_of("inflate"), node, "it was full all the time");
        stage.delete(&stage.object("apps/v1", "deployments", "inflate"));
        stage.wait_until_no_node_is_left();
    });
}
