//! The schema of `karpenter.sh/v1alpha5` Provisioner.
//!
//! It judges types and little else: what older versions accepted is accepted, and so are two slips that are easy to make (requirements
//! under `provider`, a key in the wrong domain). What has no equivalent is told by [`super::translate()`], where it can say why.

use crate::schema::parts::{resource_list, switch};
use crate::schema::rule::Look as _;
use crate::schema::{
    Merge, Rule, Schema, boolean, instant, int_or_text, int32, int64, list_of, map_of, object, one_of, open_object,
    patterns, text,
};

pub(super) fn provisioner() -> Schema {
    object([("spec", spec()), ("status", status())]).about(
        "A Provisioner (of before NodePools) says what nodes may look like and when they go. It is translated into a NodePool and, with an \
         inline provider, an EC2NodeClass of the same name.",
    )
}

fn spec() -> Schema {
    object([
        ("annotations", map_of(text()).about("Annotations that every node gets.")),
        ("labels", map_of(text()).about("Labels that every node gets.")),
        ("taints", taints("Taints that every node carries for good.")),
        (
            "startupTaints",
            taints("Taints that nodes are born with and that someone else takes off; pods need not tolerate them."),
        ),
        ("requirements", requirements()),
        ("kubeletConfiguration", kubelet("Settings of the kubelet. They become those of the EC2NodeClass.")),
        ("kubelet", kubelet("The same as kubeletConfiguration, by the name it had later; set one of them.")),
        (
            "provider",
            open_object()
                .about("How AWS makes the nodes: the fields of an AWSNodeTemplate, inline. Excludes providerRef."),
        ),
        ("providerRef", provider_ref()),
        (
            "ttlSecondsAfterEmpty",
            int64().at_least(0).about(
                "After so many seconds without pods a node goes. Unset keeps empty nodes. Excludes consolidation.",
            ),
        ),
        (
            "ttlSecondsUntilExpired",
            int64().at_least(0).about("At this age in seconds a node is replaced. Unset never does."),
        ),
        (
            "limits",
            object([("resources", resource_list().about("What all nodes together may hold."))])
                .about("Bounds on how far the Provisioner may go."),
        ),
        ("weight", int32().range(1, 100).about("Provisioners of higher weight are tried first. Unset counts as 0.")),
        (
            "consolidation",
            object([("enabled", boolean().about("Whether nodes are removed or replaced when that is cheaper."))])
                .about("Whether nodes are merged. Excludes ttlSecondsAfterEmpty."),
        ),
    ])
    .about("What is wanted of the nodes.")
    .rule(Rule::new(
        "has(self.provider) != has(self.providerRef)",
        "set exactly one of provider and providerRef",
        |spec| spec.has("provider") != spec.has("providerRef"),
    ))
    .rule(Rule::new(
        "!(has(self.ttlSecondsAfterEmpty) && has(self.consolidation) && has(self.consolidation.enabled) \
         && self.consolidation.enabled)",
        "ttlSecondsAfterEmpty and consolidation exclude each other; set one of them",
        |spec| !(spec.has("ttlSecondsAfterEmpty") && spec.at("consolidation").at("enabled") == true),
    ))
}

fn taints(about: &'static str) -> Schema {
    list_of(
        object([
            ("key", text().about("Key of the taint.")),
            ("value", text().about("Value of the taint.")),
            ("effect", text().about("What the taint does to pods that do not tolerate it.")),
            ("timeAdded", text().about("Not used.")),
        ])
        .require(["key", "effect"]),
    )
    .about(about)
}

fn requirements() -> Schema {
    list_of(
        object([
            ("key", text().about("The label key.")),
            (
                "operator",
                text().about("How the label's value relates to `values`: In, NotIn, Exists, DoesNotExist, Gt or Lt."),
            ),
            ("values", list_of(text()).about("What the label is compared with.")),
        ])
        .require(["key", "operator"]),
    )
    .about("Conditions on labels that every node meets.")
}

fn provider_ref() -> Schema {
    object([
        ("apiVersion", text().about("karpenter.k8s.aws/v1alpha1, or nothing.")),
        ("kind", text().about("AWSNodeTemplate, or nothing.")),
        ("name", text().about("Name of the AWSNodeTemplate.")),
    ])
    .require(["name"])
    .about("The AWSNodeTemplate that says how AWS makes the nodes. Excludes provider.")
}

fn kubelet(about: &'static str) -> Schema {
    let amounts = |about| map_of(int_or_text().pattern(patterns::QUANTITY)).about(about);
    let signals = |about| map_of(text()).about(about);
    let count = |about| int32().at_least(0).about(about);
    let percent = |about| int32().range(0, 100).about(about);
    object([
        ("clusterDNS", list_of(text()).about("Addresses of the cluster's DNS.")),
        ("containerRuntime", text().about("Not used: every image has containerd.")),
        ("maxPods", count("At most so many pods per node.")),
        ("podsPerCore", count("At most so many pods per core; maxPods holds, too.")),
        ("systemReserved", amounts("What the system keeps for itself.")),
        ("kubeReserved", amounts("What the components of Kubernetes keep for themselves.")),
        ("evictionHard", signals("Below these amounts pods are evicted at once.")),
        ("evictionSoft", signals("Below these amounts pods are evicted after a while.")),
        ("evictionSoftGracePeriod", signals("How long that while is.")),
        ("evictionMaxPodGracePeriod", int32().about("At most so many seconds does such a pod get to end.")),
        ("imageGCHighThresholdPercent", percent("Above this use of the disk images are removed.")),
        ("imageGCLowThresholdPercent", percent("Down to this use of the disk.")),
        ("cpuCFSQuota", switch("Whether CPU limits are enforced.")),
    ])
    .about(about)
}

fn status() -> Schema {
    object([
        ("resources", resource_list().about("What the nodes hold together.")),
        ("lastScaleTime", instant().about("When the number of nodes last changed.")),
        ("conditions", conditions()),
    ])
    .about("What is known of the Provisioner and of its translation.")
}

/// Conditions of that time have a severity, and may lack what ours always have.
pub(super) fn conditions() -> Schema {
    list_of(
        object([
            ("lastTransitionTime", instant().about("When the status last changed.")),
            ("message", text().about("The same in a sentence, for people.")),
            ("observedGeneration", int64().about("The generation of the object that this statement is about.")),
            ("reason", text().about("Why the status is what it is, in one word for programs.")),
            ("severity", text().about("How bad it is, as older versions put it.")),
            ("status", one_of(&["True", "False", "Unknown"]).about("Whether the statement holds.")),
            ("type", text().about("What the statement is about.")),
        ])
        .require(["status", "type"]),
    )
    .merge(Merge::MapBy("type"))
    .about("What is known about the object, one statement per type.")
}
