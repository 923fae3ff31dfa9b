"""What the Python client sees: lists, watches, patches, custom objects, the dynamic client and a leader election.

Prints a line for everything that it learns. The test runs it against both stages and compares.

    python3 visit.py KUBECONFIG NODEPOOL_DEFINITION     the visit
    python3 visit.py KUBECONFIG elect NAME              one candidate of an election
"""

import json
import subprocess
import sys
import time

import yaml
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

NAMESPACE = "visit"
WAIT_SECONDS = 60


def tell(what, *values):
    print(what, *[json.dumps(value, sort_keys=True) for value in values], flush=True)


def refused(what, call):
    """Tells how the server says no."""
    try:
        call()
        tell(what, "was allowed")
    except ApiException as error:
        status = json.loads(error.body)
        tell(what, error.status, status["reason"], status["message"], status.get("details"))


def wait_until(what, holds):
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.05)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"part": "visit"}), data=data)


def lists(core):
    for number in range(5):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"listed-{number}", number=str(number)))
    of_ours = {"label_selector": "part=visit"}
    everything = core.list_namespaced_config_map(NAMESPACE, **of_ours)
    tell("listed", [item.metadata.name for item in everything.items])
    page = core.list_namespaced_config_map(NAMESPACE, limit=2, **of_ours)
    while True:
        tell("page", [item.metadata.name for item in page.items], page.metadata.remaining_item_count)
        if not page.metadata._continue:
            break
        page = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=page.metadata._continue, **of_ours)
    named = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=listed-3")
    tell("by field", [item.metadata.name for item in named.items])
    refused("bad selector", lambda: core.list_namespaced_config_map(NAMESPACE, label_selector="a in b"))
    refused("not there", lambda: core.read_namespaced_config_map("nobody", NAMESPACE))
    refused("there already", lambda: core.create_namespaced_config_map(NAMESPACE, config_map("listed-0")))
    refused("bad name", lambda: core.create_namespaced_config_map(NAMESPACE, config_map("Not_A_Name")))
    return everything.metadata.resource_version


def watches(core, since):
    """Each watch ends after what it waits for, and the next goes on where it was."""
    core.create_namespaced_config_map(NAMESPACE, config_map("watched", a="1"))
    core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"b": "2"}})
    core.delete_namespaced_config_map("watched", NAMESPACE)
    seen = 0
    for n_events in (1, 2):
        watcher = watch.Watch()
        events = watcher.stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=since, timeout_seconds=WAIT_SECONDS,
            label_selector="part=visit")
        for event in events:
            seen += 1
            tell("event", event["type"], event["object"].metadata.name, event["object"].data)
            since = event["object"].metadata.resource_version
            n_events -= 1
            if n_events == 0:
                watcher.stop()
    tell("events", seen)
    began = watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, label_selector="part=visit", timeout_seconds=1)
    tell("began with", sorted(event["object"].metadata.name for event in began))


def patches(core, apps):
    labels = {"app": "visit"}
    container = client.V1Container(name="main", image="registry.example/main:1", env=[client.V1EnvVar(name="A", value="1")])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container]))
    spec = client.V1DeploymentSpec(replicas=0, selector=client.V1LabelSelector(match_labels=labels), template=template)
    apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="patched"), spec=spec))

    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}]}}}}
    patched = apps.patch_namespaced_deployment("patched", NAMESPACE, strategic)
    tell("strategic", [(env.name, env.value) for env in patched.spec.template.spec.containers[0].env])
    core.create_namespaced_config_map(NAMESPACE, config_map("patched", keep="1", drop="2"))
    merge = core.patch_namespaced_config_map(
        "patched", NAMESPACE, {"data": {"drop": None, "new": "3"}}, _content_type="application/merge-patch+json")
    tell("merge", merge.data)
    steps = [{"op": "replace", "path": "/data/keep", "value": "4"}, {"op": "move", "from": "/data/new", "path": "/data/old"}]
    tell("json", core.patch_namespaced_config_map("patched", NAMESPACE, steps).data)
    failing = [{"op": "test", "path": "/data/keep", "value": "5"}]
    refused("failed test", lambda: core.patch_namespaced_config_map("patched", NAMESPACE, failing))
    scaled = apps.patch_namespaced_deployment_scale("patched", NAMESPACE, {"spec": {"replicas": 3}})
    tell("scaled", scaled.kind, scaled.spec.replicas, scaled.status.selector)

    stale = core.read_namespaced_config_map("patched", NAMESPACE)
    core.patch_namespaced_config_map("patched", NAMESPACE, {"data": {"later": "6"}})
    refused("stale", lambda: core.replace_namespaced_config_map("patched", NAMESPACE, stale))
    rehearsed = core.patch_namespaced_config_map("patched", NAMESPACE, {"data": {"x": "7"}}, dry_run="All")
    tell("rehearsed", rehearsed.data, core.read_namespaced_config_map("patched", NAMESPACE).data)


def custom_objects(definition):
    extensions, custom = client.ApiextensionsV1Api(), client.CustomObjectsApi()
    with open(definition, encoding="utf-8") as file:
        extensions.create_custom_resource_definition(yaml.safe_load(file))

    def is_established():
        conditions = extensions.read_custom_resource_definition("nodepools.karpenter.sh").status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)

    wait_until("the definition to be established", is_established)
    pools = ("karpenter.sh", "v1", "nodepools")
    pool = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"},
        "spec": {"template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
    }

    def create():
        try:
            return custom.create_cluster_custom_object(*pools, pool)
        except ApiException as error:
            # An established definition is served a moment later.
            if error.status == 404:
                return None
            raise

    created = []
    wait_until("the kind to be served", lambda: created.append(create()) or created[-1])
    tell("custom", created[-1]["spec"], created[-1]["metadata"]["generation"])
    tell("custom list", [item["metadata"]["name"] for item in custom.list_cluster_custom_object(*pools)["items"]])
    patched = custom.patch_cluster_custom_object(
        *pools, "pool", {"spec": {"weight": 7}}, _content_type="application/merge-patch+json")
    tell("custom patch", patched["spec"]["weight"], patched["metadata"]["generation"])
    status = custom.patch_cluster_custom_object_status(
        *pools, "pool", {"status": {"nodes": 2}}, _content_type="application/merge-patch+json")
    tell("custom status", status["status"], status["metadata"]["generation"])
    refused("custom refused", lambda: custom.patch_cluster_custom_object(
        *pools, "pool", {"spec": {"weight": 1000}}, _content_type="application/merge-patch+json"))

    found = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="karpenter.sh/v1", kind="NodePool")
    tell("dynamic", found.name, found.namespaced, sorted(found.verbs), found.get(name="pool").spec.weight)
    applied = {**pool, "spec": {**pool["spec"], "weight": 9}}
    conflict = lambda: found.server_side_apply(body=applied, name="pool", field_manager="visit")
    try:
        conflict()
        tell("apply", "was allowed")
    except dynamic.exceptions.ConflictError as error:
        tell("apply", error.status, json.loads(error.body)["message"])
    forced = found.server_side_apply(body=applied, name="pool", field_manager="visit", force_conflicts=True)
    tell("forced", forced.spec.weight, [(entry.manager, entry.operation) for entry in forced.metadata.managedFields])
    custom.delete_cluster_custom_object(*pools, "pool")
    refused("custom gone", lambda: custom.get_cluster_custom_object(*pools, "pool"))
    extensions.delete_custom_resource_definition("nodepools.karpenter.sh")


def elect(name):
    lock = LeaseLock("leader", NAMESPACE, name)
    settings = electionconfig.Config(
        lock, lease_duration=3, renew_deadline=2, retry_period=1,
        onstarted_leading=lambda: tell("leads", name), onstopped_leading=lambda: tell("led", name))
    leaderelection.LeaderElection(settings).run()


def election(kubeconfig):
    """Two candidates; the one that leads is ended, and the other takes over."""
    leases = client.CoordinationV1Api()
    candidates = {}

    def start(name):
        candidates[name] = subprocess.Popen(
            [sys.executable, __file__, kubeconfig, "elect", name], stdout=subprocess.PIPE, text=True)

    def leader():
        try:
            return leases.read_namespaced_lease("leader", NAMESPACE).spec.holder_identity
        except ApiException:
            return None

    try:
        start("first")
        tell("elected", candidates["first"].stdout.readline().strip(), leader())
        renewed = leases.read_namespaced_lease("leader", NAMESPACE).spec.renew_time
        start("second")
        wait_until("a renewal", lambda: leases.read_namespaced_lease("leader", NAMESPACE).spec.renew_time > renewed)
        tell("still", leader())
        candidates["first"].kill()
        tell("elected", candidates["second"].stdout.readline().strip(), leader())
        tell("transitions", leases.read_namespaced_lease("leader", NAMESPACE).spec.lease_transitions)
    finally:
        for candidate in candidates.values():
            candidate.kill()
            candidate.wait()


def visit(kubeconfig, definition):
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    tell("version", client.VersionApi().get_code().git_version)
    groups = [group.name for group in client.ApisApi().get_api_versions().groups]
    tell("groups", [group in groups for group in ("apps", "batch", "policy", "storage.k8s.io", "nothing")])
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    watches(core, lists(core))
    patches(core, apps)
    custom_objects(definition)
    election(kubeconfig)
    core.delete_namespace(NAMESPACE)
    wait_until("the namespace to go", lambda: NAMESPACE not in [item.metadata.name for item in core.list_namespace().items])
    tell("gone")


if __name__ == "__main__":
    config.load_kube_config(config_file=sys.argv[1])
    if sys.argv[2] == "elect":
        elect(sys.argv[3])
    else:
        visit(sys.argv[1], sys.argv[2])
