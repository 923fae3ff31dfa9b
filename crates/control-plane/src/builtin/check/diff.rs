//! What changed between two trees, as the real server shows it: a unified diff of the JSON of its own structures.
//!
//! Those have other names and another order than what clients write, and say null, zero and empty for what is not there. The
//! table lists them: a field's name, and behind it what it holds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// Lines of context around a change.
const N_CONTEXT: usize = 3;
/// Beyond this many pairs of lines the changed part is shown as replaced as a whole.
const PAIRS_MAX: usize = 4_000_000;

/// `$` text, `!` flag, `#` number, `?` null when absent, `0` a quantity that is zero when absent, `~` label selector,
/// `.Type` structure, `*Type` structure or null, `[]Type` list of structures. `Name=json` where the client's name does not
/// follow from ours.
const TYPES: &str = "
PodSpec Volumes[]Volume InitContainers[]Container Containers[]Container EphemeralContainers[]EphemeralContainer RestartPolicy$ \
TerminationGracePeriodSeconds? ActiveDeadlineSeconds? DNSPolicy$ NodeSelector? ServiceAccountName$ \
AutomountServiceAccountToken? NodeName$ SecurityContext*PodSecurityContext ImagePullSecrets[]Name Hostname$ Subdomain$ \
SetHostnameAsFQDN? Affinity*Affinity SchedulerName$ Tolerations[]Toleration HostAliases[]HostAlias PriorityClassName$ Priority? \
PreemptionPolicy? DNSConfig*DNSConfig ReadinessGates[]ReadinessGate RuntimeClassName? Overhead? EnableServiceLinks? \
TopologySpreadConstraints[]Spread OS*Name SchedulingGates[]Name ResourceClaims[]PodClaim Resources*ResourceRequirements \
HostnameOverride? SchedulingGroup?
PersistentVolumeClaimSpec AccessModes? Selector~ Resources.VolumeResources VolumeName$ StorageClassName? VolumeMode? \
DataSource*TypedLocal DataSourceRef*Typed VolumeAttributesClassName?
PersistentVolumeSource GCEPersistentDisk? AWSElasticBlockStore? HostPath*HostPath Glusterfs? NFS*NFS RBD? Quobyte? ISCSI? \
FlexVolume? Cinder? CephFS=cephfs? FC? Flocker? AzureFile? VsphereVolume? AzureDisk? PhotonPersistentDisk? PortworxVolume? \
ScaleIO? Local*Local StorageOS=storageos? CSI*PersistentCSI
Volume Name$ HostPath*HostPath EmptyDir*EmptyDir GCEPersistentDisk? AWSElasticBlockStore? GitRepo? Secret*SecretVolume NFS*NFS \
ISCSI? Glusterfs? PersistentVolumeClaim*ClaimVolume RBD? Quobyte? FlexVolume? Cinder? CephFS=cephfs? Flocker? \
DownwardAPI*DownwardVolume FC? AzureFile? ConfigMap*ConfigVolume VsphereVolume? AzureDisk? PhotonPersistentDisk? \
Projected*Projected PortworxVolume? ScaleIO? StorageOS=storageos? CSI*CSIVolume Ephemeral*Ephemeral Image*ImageVolume
Container Name$ Image$ Command? Args? WorkingDir$ Ports[]Port EnvFrom[]EnvFrom Env[]Env Resources.ResourceRequirements \
ResizePolicy[]Resize RestartPolicy? RestartPolicyRules? VolumeMounts[]Mount VolumeDevices[]Device LivenessProbe*Probe \
ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle TerminationMessagePath$ TerminationMessagePolicy$ ImagePullPolicy$ \
SecurityContext*SecurityContext Stdin! StdinOnce! TTY!
EphemeralContainer Name$ Image$ Command? Args? WorkingDir$ Ports[]Port EnvFrom[]EnvFrom Env[]Env Resources.ResourceRequirements \
ResizePolicy[]Resize RestartPolicy? RestartPolicyRules? VolumeMounts[]Mount VolumeDevices[]Device LivenessProbe*Probe \
ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle TerminationMessagePath$ TerminationMessagePolicy$ ImagePullPolicy$ \
SecurityContext*SecurityContext Stdin! StdinOnce! TTY! TargetContainerName$
PodSecurityContext HostNetwork! HostPID! HostIPC! ShareProcessNamespace? HostUsers? SELinuxOptions*SELinux WindowsOptions? \
RunAsUser? RunAsGroup? RunAsNonRoot? SupplementalGroups? SupplementalGroupsPolicy? FSGroup? FSGroupChangePolicy? \
Sysctls[]NameValue SeccompProfile*Profile AppArmorProfile*Profile SELinuxChangePolicy?
SecurityContext Capabilities*Capabilities Privileged? SELinuxOptions*SELinux WindowsOptions? RunAsUser? RunAsGroup? \
RunAsNonRoot? ReadOnlyRootFilesystem? AllowPrivilegeEscalation? ProcMount? SeccompProfile*Profile AppArmorProfile*Profile
Name Name$
NameValue Name$ Value$
SELinux User$ Role$ Type$ Level$
Profile Type$ LocalhostProfile?
Capabilities Add? Drop?
Affinity NodeAffinity*NodeAffinity PodAffinity*PodAffinity PodAntiAffinity*PodAffinity
NodeAffinity RequiredDuringSchedulingIgnoredDuringExecution*NodeSelector \
PreferredDuringSchedulingIgnoredDuringExecution[]PreferredNode
NodeSelector NodeSelectorTerms[]NodeTerm
PreferredNode Weight# Preference.NodeTerm
NodeTerm MatchExpressions[]Requirement MatchFields[]Requirement
Requirement Key$ Operator$ Values?
PodAffinity RequiredDuringSchedulingIgnoredDuringExecution[]PodTerm PreferredDuringSchedulingIgnoredDuringExecution[]WeightedPod
PodTerm LabelSelector~ Namespaces? TopologyKey$ NamespaceSelector~ MatchLabelKeys? MismatchLabelKeys?
WeightedPod Weight# PodAffinityTerm.PodTerm
Toleration Key$ Operator$ Value$ Effect$ TolerationSeconds?
HostAlias IP$ Hostnames?
DNSConfig Nameservers? Searches? Options[]DNSOption
DNSOption Name$ Value?
ReadinessGate ConditionType$
Spread MaxSkew# TopologyKey$ WhenUnsatisfiable$ LabelSelector~ MinDomains? NodeAffinityPolicy? NodeTaintsPolicy? \
MatchLabelKeys?
PodClaim Name$ ResourceClaimName? ResourceClaimTemplateName?
ResourceRequirements Limits? Requests? Claims[]Claim
VolumeResources Limits? Requests?
Claim Name$ Request$
TypedLocal APIGroup? Kind$ Name$
Typed APIGroup? Kind$ Name$ Namespace?
Port Name$ HostPort# ContainerPort# Protocol$ HostIP$
EnvFrom Prefix$ ConfigMapRef*OptionalName SecretRef*OptionalName
OptionalName Name$ Optional?
Env Name$ Value$ ValueFrom*EnvSource
EnvSource FieldRef*FieldRef ResourceFieldRef*ResourceRef ConfigMapKeyRef*KeyRef SecretKeyRef*KeyRef FileKeyRef*FileRef
FieldRef APIVersion$ FieldPath$
ResourceRef ContainerName$ Resource$ Divisor0
KeyRef Name$ Key$ Optional?
FileRef VolumeName$ Path$ Key$ Optional?
Resize ResourceName$ RestartPolicy$
Mount Name$ ReadOnly! RecursiveReadOnly? MountPath$ SubPath$ MountPropagation? SubPathExpr$
Device Name$ DevicePath$
Probe Exec*Exec HTTPGet*HTTPGet TCPSocket*TCPSocket GRPC*GRPC InitialDelaySeconds# TimeoutSeconds# PeriodSeconds# \
SuccessThreshold# FailureThreshold# TerminationGracePeriodSeconds?
Lifecycle PostStart*Hook PreStop*Hook StopSignal?
Hook Exec*Exec HTTPGet*HTTPGet TCPSocket*TCPSocket Sleep*Sleep
Exec Command?
HTTPGet Path$ Port# Host$ Scheme$ HTTPHeaders[]NameValue
TCPSocket Port# Host$
GRPC Port# Service?
Sleep Seconds#
HostPath Path$ Type?
EmptyDir Medium$ SizeLimit?
SecretVolume SecretName$ Items[]KeyToPath DefaultMode? Optional?
ConfigVolume Name$ Items[]KeyToPath DefaultMode? Optional?
KeyToPath Key$ Path$ Mode?
NFS Server$ Path$ ReadOnly!
ClaimVolume ClaimName$ ReadOnly!
DownwardVolume Items[]DownwardFile DefaultMode?
DownwardFile Path$ FieldRef*FieldRef ResourceFieldRef*ResourceRef Mode?
Projected Sources[]Projection DefaultMode?
Projection Secret*ProjectedFiles DownwardAPI*ProjectedDownward ConfigMap*ProjectedFiles ServiceAccountToken*Token \
ClusterTrustBundle? PodCertificate?
ProjectedFiles Name$ Items[]KeyToPath Optional?
ProjectedDownward Items[]DownwardFile
Token Audience$ ExpirationSeconds# Path$
CSIVolume Driver$ ReadOnly? FSType? VolumeAttributes? NodePublishSecretRef*Name
Ephemeral VolumeClaimTemplate*ClaimTemplate
ClaimTemplate Spec.PersistentVolumeClaimSpec
ImageVolume Reference$ PullPolicy$
Local Path$ FSType?
PersistentCSI Driver$ VolumeHandle$ ReadOnly! FSType$ VolumeAttributes? ControllerPublishSecretRef*SecretRef \
NodeStageSecretRef*SecretRef NodePublishSecretRef*SecretRef ControllerExpandSecretRef*SecretRef NodeExpandSecretRef*SecretRef
SecretRef Name$ Namespace$
";

struct Field {
    name: &'static str,
    json: String,
    holds: char,
    of: &'static str,
}

static SHAPES: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    TYPES
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.map(field).collect()))
        })
        .collect()
});

fn field(word: &'static str) -> Field {
    let end = word.find(['$', '!', '#', '?', '0', '~', '.', '*', '[']).unwrap_or(word.len());
    let (names, kind) = word.split_at(end);
    let (name, json) = names.split_once('=').unwrap_or((names, ""));
    let holds = kind.chars().next().unwrap_or('?');
    let of = kind.trim_start_matches(|sign: char| !sign.is_ascii_alphabetic());
    Field { name, json: if json.is_empty() { client_name(name) } else { json.to_owned() }, holds, of }
}

/// `DNSPolicy` is `dnsPolicy` for clients: the leading capitals become small, but for the one that begins the next word.
fn client_name(name: &str) -> String {
    let n_capitals = name.chars().take_while(char::is_ascii_uppercase).count();
    let n_small = if n_capitals == name.len() || n_capitals <= 1 { n_capitals } else { n_capitals - 1 };
    name.chars()
        .enumerate()
        .map(|(index, letter)| if index < n_small { letter.to_ascii_lowercase() } else { letter })
        .collect()
}

/// The changed lines, with their surroundings.
pub(super) fn between(type_name: &str, before: &Value, after: &Value) -> String {
    unified(&lines_of(type_name, before), &lines_of(type_name, after))
}

fn lines_of(type_name: &str, value: &Value) -> Vec<String> {
    let mut text = String::new();
    structure(&mut text, type_name, value, 0);
    text.lines().map(str::to_owned).collect()
}

fn indent(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', depth));
}

fn structure(text: &mut String, type_name: &str, value: &Value, depth: usize) {
    text.push('{');
    let fields = SHAPES.get(type_name).map(Vec::as_slice).unwrap_or_default();
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        indent(text, depth + 1);
        text.push_str(&format!("\"{}\": ", field.name));
        let found = value.get(&field.json).unwrap_or(&Value::Null);
        // Clients write these beside the security context, the server keeps them in it.
        if field.of == "PodSecurityContext" {
            let mut context = found.as_object().cloned().unwrap_or_default();
            for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
                if let Some(given) = value.get(key) {
                    context.insert(key.to_owned(), given.clone());
                }
            }
            structure(text, field.of, &Value::Object(context), depth + 1);
        } else {
            held(text, field, found, depth + 1);
        }
    }
    if !fields.is_empty() {
        indent(text, depth);
    }
    text.push('}');
}

fn held(text: &mut String, field: &Field, value: &Value, depth: usize) {
    match (field.holds, value) {
        ('$', Value::Null) => text.push_str("\"\""),
        ('!', Value::Null) => text.push_str("false"),
        ('#', Value::Null) => text.push('0'),
        ('0', Value::Null) => text.push_str("\"0\""),
        ('.', _) | ('*', Value::Object(_)) => structure(text, field.of, value, depth),
        ('[', Value::Array(list)) if !list.is_empty() => {
            text.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                indent(text, depth + 1);
                structure(text, field.of, item, depth + 1);
            }
            indent(text, depth);
            text.push(']');
        }
        ('[', _) => text.push_str("null"),
        ('~', Value::Object(_)) => plain(text, value, depth, &["matchLabels", "matchExpressions"]),
        _ => plain(text, value, depth, &[]),
    }
}

/// Values without structures of their own. `first` is the order of the keys, where it is not that of the alphabet.
fn plain(text: &mut String, value: &Value, depth: usize, first: &[&str]) {
    match value {
        Value::Object(map) => {
            let ordered = first.iter().filter_map(|key| map.get_key_value(*key));
            let rest = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
            let mut is_empty = true;
            text.push('{');
            for (key, item) in ordered.chain(rest) {
                if !is_empty {
                    text.push(',');
                }
                is_empty = false;
                indent(text, depth + 1);
                text.push_str(&format!("{}: ", Value::from(key.as_str())));
                plain(text, item, depth + 1, &[]);
            }
            if !is_empty {
                indent(text, depth);
            }
            text.push('}');
        }
        Value::Array(list) if list.is_empty() => text.push_str("null"),
        Value::Array(list) => {
            text.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                indent(text, depth + 1);
                plain(text, item, depth + 1, &[]);
            }
            indent(text, depth);
            text.push(']');
        }
        // Go writes these three so that no browser takes them for markup.
        _ => text.push_str(&value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")),
    }
}

/// One step from the old lines to the new ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Keep,
    Remove,
    Add,
}

fn unified(old: &[String], new: &[String]) -> String {
    let steps = steps(old, new);
    let changed: Vec<usize> =
        steps.iter().enumerate().filter(|(_, step)| **step != Step::Keep).map(|(index, _)| index).collect();
    let mut text = String::new();
    let mut next = 0;
    while let Some(&first) = changed.get(next) {
        // Changes whose surroundings touch are shown together.
        let mut last = first;
        while let Some(&following) = changed.get(next).filter(|following| **following <= last + 2 * N_CONTEXT + 1) {
            last = following;
            next += 1;
        }
        let start = first.saturating_sub(N_CONTEXT);
        let end = (last + N_CONTEXT + 1).min(steps.len());
        hunk(&mut text, old, new, &steps, start, end);
    }
    text
}

fn hunk(text: &mut String, old: &[String], new: &[String], steps: &[Step], start: usize, end: usize) {
    let count = |range: &[Step], without: Step| range.iter().filter(|step| **step != without).count();
    let (skipped, shown) = (steps.get(..start).unwrap_or_default(), steps.get(start..end).unwrap_or_default());
    let (mut old_at, mut new_at) = (count(skipped, Step::Add), count(skipped, Step::Remove));
    let range = |at: usize, n_lines: usize| match n_lines {
        0 => format!("{at},0"),
        1 => format!("{}", at + 1),
        _ => format!("{},{n_lines}", at + 1),
    };
    let (n_old, n_new) = (count(shown, Step::Add), count(shown, Step::Remove));
    text.push_str(&format!("@@ -{} +{} @@\n", range(old_at, n_old), range(new_at, n_new)));
    for step in shown {
        let (sign, line) = match step {
            Step::Keep => (' ', old.get(old_at)),
            Step::Remove => ('-', old.get(old_at)),
            Step::Add => ('+', new.get(new_at)),
        };
        old_at += usize::from(*step != Step::Add);
        new_at += usize::from(*step != Step::Remove);
        text.push(sign);
        text.push_str(line.map(String::as_str).unwrap_or_default());
        text.push('\n');
    }
}

/// The fewest removals and additions.
fn steps(old: &[String], new: &[String]) -> Vec<Step> {
    let n_head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (old.get(n_head..).unwrap_or_default(), new.get(n_head..).unwrap_or_default());
    let n_tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let old_middle = old_rest.get(..old_rest.len() - n_tail).unwrap_or_default();
    let new_middle = new_rest.get(..new_rest.len() - n_tail).unwrap_or_default();
    let mut steps = vec![Step::Keep; n_head];
    steps.extend(middle_steps(old_middle, new_middle));
    steps.extend(std::iter::repeat_n(Step::Keep, n_tail));
    steps
}

fn middle_steps(old: &[String], new: &[String]) -> Vec<Step> {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        let removed = std::iter::repeat_n(Step::Remove, old.len());
        return removed.chain(std::iter::repeat_n(Step::Add, new.len())).collect();
    }
    // How long the longest common run from here is.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    let at = |common: &[u32], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or_default();
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let length =
                if a == b { at(&common, i + 1, j + 1) + 1 } else { at(&common, i + 1, j).max(at(&common, i, j + 1)) };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = length;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < old.len() || j < new.len() {
        let step = if i < old.len() && j < new.len() && old.get(i) == new.get(j) {
            Step::Keep
        } else if i < old.len() && (j == new.len() || at(&common, i + 1, j) >= at(&common, i, j + 1)) {
            Step::Remove
        } else {
            Step::Add
        };
        i += usize::from(step != Step::Add);
        j += usize::from(step != Step::Remove);
        steps.push(step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_of_the_table_is_there() {
        for fields in SHAPES.values() {
            for field in fields.iter().filter(|field| !field.of.is_empty()) {
                assert!(SHAPES.contains_key(field.of), "{}", field.of);
            }
        }
        assert_eq!(client_name("DNSPolicy"), "dnsPolicy");
        assert_eq!(client_name("SELinuxOptions"), "seLinuxOptions");
        assert_eq!((client_name("OS"), client_name("Name")), ("os".to_owned(), "name".to_owned()));
    }
}
