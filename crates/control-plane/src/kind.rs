//! What is served: the table of built-in kinds, and the kinds that CustomResourceDefinitions add to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::custom::{CustomVersion, Versions};
use crate::schema::Schema;

/// One served resource in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub subresources: Vec<Subresource>,
    /// The shape of the whole object. Always there for a resource that stores objects.
    pub schema: Option<Arc<Schema>>,
    /// For a resource that a CustomResourceDefinition brought.
    pub custom: Option<Arc<CustomVersion>>,
    /// How its objects become those of the kind's other versions. None where there are no others: built-in kinds.
    pub versions: Option<Arc<Versions>>,
    /// Where its objects are kept: `(group, plural)`. Differs from its own for a second group that shows the same objects.
    pub stored_as: (String, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    Status,
    Scale,
    Eviction,
    Binding,
    EphemeralContainers,
    Resize,
    Finalize,
    Approval,
    Token,
}

impl Subresource {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Eviction => "eviction",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::Token => "token",
        }
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        const ALL: [Subresource; 9] = [
            Subresource::Status,
            Subresource::Scale,
            Subresource::Eviction,
            Subresource::Binding,
            Subresource::EphemeralContainers,
            Subresource::Resize,
            Subresource::Finalize,
            Subresource::Approval,
            Subresource::Token,
        ];
        ALL.into_iter().find(|subresource| subresource.name() == name)
    }
}

impl Resource {
    /// `apps/v1`, or `v1` in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    #[must_use]
    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// Whether this is the built-in `kind` of `group`.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.custom.is_none() && self.group == group && self.kind == kind
    }

    /// Whether objects are written in this version.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.versions.as_ref().is_none_or(|versions| {
            let version = versions.kept_in().strip_prefix(self.group.as_str()).and_then(|rest| rest.strip_prefix('/'));
            version == Some(self.version.as_str())
        })
    }
}

/// group version kind plural | short names | categories | scope | subresources
const BUILT_IN: &str = "
 v1 Binding bindings || ns |
 v1 ConfigMap configmaps |cm| ns |
 v1 Endpoints endpoints |ep| ns |
 v1 Event events |ev| ns |
 v1 LimitRange limitranges |limits| ns |
 v1 Namespace namespaces |ns| cluster |status,finalize
 v1 Node nodes |no| cluster |status
 v1 PersistentVolumeClaim persistentvolumeclaims |pvc| ns |status
 v1 PersistentVolume persistentvolumes |pv| cluster |status
 v1 Pod pods |po|all ns |status,eviction,binding,ephemeralcontainers,resize
 v1 PodTemplate podtemplates || ns |
 v1 ReplicationController replicationcontrollers |rc|all ns |status,scale
 v1 ResourceQuota resourcequotas |quota| ns |status
 v1 Secret secrets || ns |
 v1 ServiceAccount serviceaccounts |sa| ns |token
 v1 Service services |svc|all ns |status
admissionregistration.k8s.io v1 MutatingWebhookConfiguration mutatingwebhookconfigurations ||api-extensions cluster |
admissionregistration.k8s.io v1 ValidatingAdmissionPolicy validatingadmissionpolicies ||api-extensions cluster |status
admissionregistration.k8s.io v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings ||api-extensions cluster |
admissionregistration.k8s.io v1 ValidatingWebhookConfiguration validatingwebhookconfigurations ||api-extensions cluster |
apiextensions.k8s.io v1 CustomResourceDefinition customresourcedefinitions |crd,crds|api-extensions cluster |status
apps v1 ControllerRevision controllerrevisions || ns |
apps v1 DaemonSet daemonsets |ds|all ns |status
apps v1 Deployment deployments |deploy|all ns |status,scale
apps v1 ReplicaSet replicasets |rs|all ns |status,scale
apps v1 StatefulSet statefulsets |sts|all ns |status,scale
batch v1 CronJob cronjobs |cj|all ns |status
batch v1 Job jobs ||all ns |status
coordination.k8s.io v1 Lease leases || ns |
events.k8s.io v1 Event events |ev| ns |
policy v1 PodDisruptionBudget poddisruptionbudgets |pdb| ns |status
rbac.authorization.k8s.io v1 ClusterRoleBinding clusterrolebindings || cluster |
rbac.authorization.k8s.io v1 ClusterRole clusterroles || cluster |
rbac.authorization.k8s.io v1 RoleBinding rolebindings || ns |
rbac.authorization.k8s.io v1 Role roles || ns |
resource.k8s.io v1 DeviceClass deviceclasses || cluster |
resource.k8s.io v1 ResourceClaim resourceclaims || ns |status
resource.k8s.io v1 ResourceClaimTemplate resourceclaimtemplates || ns |
resource.k8s.io v1 ResourceSlice resourceslices || cluster |
scheduling.k8s.io v1 PriorityClass priorityclasses |pc| cluster |
storage.k8s.io v1 CSIDriver csidrivers || cluster |
storage.k8s.io v1 CSINode csinodes || cluster |
storage.k8s.io v1 CSIStorageCapacity csistoragecapacities || ns |
storage.k8s.io v1 StorageClass storageclasses |sc| cluster |
storage.k8s.io v1 VolumeAttachment volumeattachments || cluster |status
";

/// Every served resource, by group, version and plural.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
    /// By group and plural: versions that are written but not served. Controllers work through them.
    unserved: BTreeMap<(String, String), Arc<Resource>>,
}

impl Catalog {
    /// The built-in kinds.
    #[must_use]
    pub fn built_in() -> Self {
        let mut catalog = Self::default();
        for line in BUILT_IN.lines().filter(|line| !line.trim().is_empty()) {
            catalog.insert(built_in_row(line));
        }
        catalog
    }

    #[must_use]
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A resource in the version in which its objects are written.
    #[must_use]
    pub fn of_plural(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let served = self.iter().filter(|resource| resource.group == group && resource.plural == plural);
        let unserved = self.unserved.values();
        let unserved = unserved.filter(|resource| resource.group == group && resource.plural == plural);
        served.chain(unserved).find(|resource| resource.is_kept())
    }

    /// Every resource once, in the version in which its objects are written.
    pub fn kept(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.iter().filter(|resource| resource.is_kept()).chain(self.unserved.values())
    }

    /// By what an object says of itself.
    #[must_use]
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    pub fn insert(&mut self, resource: Resource) {
        self.by_path
            .insert((resource.group.clone(), resource.version.clone(), resource.plural.clone()), Arc::new(resource));
    }

    /// Clients do not get to see it.
    pub fn insert_unserved(&mut self, resource: Resource) {
        self.unserved.insert((resource.group.clone(), resource.plural.clone()), Arc::new(resource));
    }

    pub fn retain(&mut self, keep: impl Fn(&Resource) -> bool) {
        self.by_path.retain(|_, resource| keep(resource));
        self.unserved.retain(|_, resource| keep(resource));
    }

    /// In order of group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }
}

fn built_in_row(line: &str) -> Resource {
    let columns: Vec<&str> = line.split('|').collect();
    let [names, short_names, categories_and_scope, subresources] = columns.as_slice() else {
        panic!("a row of the table has four columns: {line}");
    };
    let names: Vec<&str> = names.trim_end().split(' ').collect();
    let [group, version, kind, plural] = names.as_slice() else {
        panic!("a row begins with group, version, kind and plural: {line}");
    };
    let (categories, scope) = categories_and_scope.trim().rsplit_once(' ').unwrap_or(("", categories_and_scope.trim()));
    let list = |text: &str| {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let stored_as = match (*group, *plural) {
        // Both groups show the same events.
        ("events.k8s.io", "events") => (String::new(), "events".to_owned()),
        (group, plural) => (group.to_owned(), plural.to_owned()),
    };
    let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
    Resource {
        group: (*group).to_owned(),
        version: (*version).to_owned(),
        kind: (*kind).to_owned(),
        list_kind: format!("{kind}List"),
        plural: (*plural).to_owned(),
        singular: kind.to_lowercase(),
        short_names: list(short_names),
        categories: list(categories),
        namespaced: scope == "ns",
        subresources: list(subresources)
            .iter()
            .map(|name| Subresource::parse(name).expect("the table names known subresources"))
            .collect(),
        schema: Schema::built_in(&api_version, kind),
        custom: None,
        versions: None,
        stored_as,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_served() {
        let catalog = Catalog::built_in();
        assert_eq!(catalog.iter().count(), BUILT_IN.trim().lines().count());
        let pods = catalog.get("", "v1", "pods").unwrap();
        assert!(pods.namespaced && pods.has(Subresource::Eviction) && pods.categories == ["all"]);
        let nodes = catalog.get("", "v1", "nodes").unwrap();
        assert!(!nodes.namespaced && nodes.short_names == ["no"] && nodes.categories.is_empty());
        assert_eq!(catalog.of_kind("apps/v1", "Deployment").unwrap().plural, "deployments");
    }
}
