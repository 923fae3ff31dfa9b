//! The simulated account: its subnets, security groups and images, and how a class's terms find them.
//!
//! An obliging account (the default) has whatever is asked for, so that a manifest from elsewhere works as it is: every tag
//! matches, and an id that is named exists. A strict one has only what carries its tags.

use super::options::SimOptions;
use crate::chance::Chance;
use kerf_api::{Ami, AmiSelectorTerm, Ec2NodeClass, Requirement, SecurityGroup, Subnet, labels};
use kerf_cloud::aws;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Account {
    options: Arc<SimOptions>,
    /// What is in the account does not depend on the seed: two worlds differ by luck, not by address.
    names: Chance,
}

/// Why a class has no images.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoImages {
    NotFound,
    UnsupportedAlias(String),
}

impl Account {
    pub(crate) fn new(options: Arc<SimOptions>) -> Self {
        Self { options, names: Chance::new(0) }
    }

    /// One per zone of the region.
    fn own_subnets(&self) -> Vec<Subnet> {
        let zones = aws::zones(&self.options.region).unwrap_or_default();
        zones.iter().map(|zone| self.subnet(format!("subnet-0{}", self.names.hex("subnet", zone, 16)), zone)).collect()
    }

    fn subnet(&self, id: String, zone: &str) -> Subnet {
        Subnet { id, zone: zone.to_owned(), zone_id: Some(zone_id(&self.options.region, zone)) }
    }

    pub(crate) fn subnets(&self, class: &Ec2NodeClass) -> Vec<Subnet> {
        let own = self.own_subnets();
        let mut found: BTreeMap<String, Subnet> = BTreeMap::new();
        for term in &class.spec.subnet_selector_terms {
            let matches: Vec<Subnet> = match &term.id {
                Some(id) => match own.iter().find(|subnet| subnet.id == *id) {
                    Some(subnet) => vec![subnet.clone()],
                    None if self.is_obliging() && !own.is_empty() => {
                        let at = self.names.bits("zone of", id, 0) % own.len() as u64;
                        vec![self.subnet(id.clone(), &own[at as usize].zone)]
                    }
                    None => Vec::new(),
                },
                None if self.has_tags(term.tags.as_ref()) => own.clone(),
                None => Vec::new(),
            };
            found.extend(matches.into_iter().map(|subnet| (subnet.id.clone(), subnet)));
        }
        // All have as many free addresses, so they are in order of id.
        found.into_values().collect()
    }

    pub(crate) fn security_groups(&self, class: &Ec2NodeClass) -> Vec<SecurityGroup> {
        let named = |name: &str| SecurityGroup {
            id: format!("sg-0{}", self.names.hex("security group", name, 16)),
            name: Some(name.to_owned()),
        };
        let own = named(&format!("eks-cluster-sg-{}", self.options.cluster_name));
        let mut found: BTreeMap<String, SecurityGroup> = BTreeMap::new();
        for term in &class.spec.security_group_selector_terms {
            let matching = match (&term.id, &term.name) {
                (Some(id), _) if *id == own.id => Some(own.clone()),
                (Some(id), _) => {
                    let name = format!("group-{}", self.names.hex("name of", id, 6));
                    self.is_obliging().then(|| SecurityGroup { id: id.clone(), name: Some(name) })
                }
                (None, Some(name)) if own.name.as_deref().is_some_and(|own| is_like(own, name)) => Some(own.clone()),
                (None, Some(name)) => self.is_obliging().then(|| named(&name.replace(['*', '?'], "x"))),
                (None, None) => self.has_tags(term.tags.as_ref()).then(|| own.clone()),
            };
            found.extend(matching.into_iter().map(|group| (group.id.clone(), group)));
        }
        found.into_values().collect()
    }

    pub(crate) fn images(&self, class: &Ec2NodeClass) -> Result<Vec<Ami>, NoImages> {
        let mut found: BTreeMap<String, Ami> = BTreeMap::new();
        for term in &class.spec.ami_selector_terms {
            let images = match &term.alias {
                Some(alias) => self.images_of_alias(alias)?,
                None => self.images_of_term(term),
            };
            found.extend(images.into_iter().map(|image| (image.id.clone(), image)));
        }
        if found.is_empty() { Err(NoImages::NotFound) } else { Ok(found.into_values().collect()) }
    }

    fn images_of_alias(&self, alias: &str) -> Result<Vec<Ami>, NoImages> {
        let minor = self.options.kubernetes_minor;
        let (family, version) = alias.split_once('@').unwrap_or((alias, "latest"));
        let unsupported = |why: String| Err(NoImages::UnsupportedAlias(why));
        match family {
            "al2" if minor >= 33 => {
                return unsupported(format!(
                    "alias {alias:?} is not supported for Kubernetes 1.{minor}: AL2 ends with 1.32"
                ));
            }
            "windows2025" if minor < 35 => {
                return unsupported(format!(
                    "alias {alias:?} is not supported for Kubernetes 1.{minor}: it begins with 1.35"
                ));
            }
            _ => {}
        }
        let day = aws::catalogue_date().replace('-', "");
        let version = if version == "latest" { format!("v{day}") } else { version.to_owned() };
        let named = |(name, requirements): (String, Vec<Requirement>)| self.image(name, requirements);
        let arch_of = |arch: &str| if arch == "x86_64" { "amd64" } else { "arm64" };
        let images: Vec<(String, Vec<Requirement>)> = match family {
            "al2023" | "al2" => [
                ("x86_64", "standard"),
                ("x86_64", "nvidia"),
                ("x86_64", "neuron"),
                ("arm64", "standard"),
                ("arm64", "nvidia"),
            ]
            .iter()
            .map(|(arch, variant)| {
                let name = format!("amazon-eks-node-{family}-{arch}-{variant}-1.{minor}-{version}");
                (name, image_requirements(arch_of(arch), variant))
            })
            .collect(),
            "bottlerocket" => {
                [("x86_64", "standard"), ("x86_64", "nvidia"), ("arm64", "standard"), ("arm64", "nvidia")]
                    .iter()
                    .map(|(arch, variant)| {
                        let nvidia = if *variant == "nvidia" { "-nvidia" } else { "" };
                        let name = format!("bottlerocket-aws-k8s-1.{minor}{nvidia}-{arch}-{version}");
                        (name, image_requirements(arch_of(arch), variant))
                    })
                    .collect()
            }
            _ => windows(family)
                .map(|(year, build)| {
                    let name = format!("Windows_Server-{year}-English-Core-EKS_Optimized-1.{minor}-{version}");
                    (
                        name,
                        vec![
                            is_in(labels::OS, "windows"),
                            is_in(labels::ARCH, "amd64"),
                            is_in(labels::WINDOWS_BUILD, build),
                        ],
                    )
                })
                .into_iter()
                .collect(),
        };
        Ok(images.into_iter().map(named).collect())
    }

    /// Images by id, name, parameter or tags. An id is one image; the other terms find one for each architecture.
    fn images_of_term(&self, term: &AmiSelectorTerm) -> Vec<Ami> {
        if let Some(id) = &term.id {
            let image = Ami { id: id.clone(), ..self.image(format!("image-{id}"), vec![is_in(labels::ARCH, "amd64")]) };
            return if self.is_obliging() { vec![image] } else { Vec::new() };
        }
        let name = term.name.as_ref().or(term.ssm_parameter.as_ref());
        let is_there = if name.is_some() { self.is_obliging() } else { self.has_tags(term.tags.as_ref()) };
        if !is_there {
            return Vec::new();
        }
        let name = name.map_or_else(|| "image".to_owned(), |name| name.replace(['*', '?'], "x"));
        ["amd64", "arm64"]
            .iter()
            .map(|arch| self.image(format!("{name}-{arch}"), vec![is_in(labels::ARCH, arch)]))
            .collect()
    }

    fn image(&self, name: String, requirements: Vec<Requirement>) -> Ami {
        let id = format!("ami-0{}", self.names.hex("image", &format!("{} {name}", self.options.region), 16));
        Ami { id, name: Some(name), deprecated: false, requirements }
    }

    /// The profile that machines of a class run under.
    pub(crate) fn instance_profile(&self, class: &Ec2NodeClass) -> String {
        let role = class.spec.role.as_deref().unwrap_or_default();
        let made = || {
            let number = self.names.bits("instance profile", &format!("{} {role}", self.options.region), 0);
            format!("{}_{number}", self.options.cluster_name)
        };
        class.spec.instance_profile.clone().unwrap_or_else(made)
    }

    fn is_obliging(&self) -> bool {
        self.options.account_tags.is_none()
    }

    fn has_tags(&self, wanted: Option<&BTreeMap<String, String>>) -> bool {
        let Some(own) = &self.options.account_tags else { return true };
        wanted.is_some_and(|wanted| {
            wanted.iter().all(|(key, value)| own.get(key).is_some_and(|own| value == "*" || is_like(own, value)))
        })
    }
}

/// In order of the length of the key, then the key.
fn image_requirements(arch: &str, variant: &str) -> Vec<Requirement> {
    let lacks = |key: &str| Requirement { operator: "DoesNotExist".into(), ..is_in(key, "") };
    let has = |key: &str| Requirement { operator: "Exists".into(), ..is_in(key, "") };
    let mut out = vec![is_in(labels::ARCH, arch)];
    match variant {
        "nvidia" => out.push(has(labels::INSTANCE_GPU_COUNT)),
        "neuron" => out.push(has(labels::INSTANCE_ACCELERATOR_COUNT)),
        _ => out.extend([lacks(labels::INSTANCE_GPU_COUNT), lacks(labels::INSTANCE_ACCELERATOR_COUNT)]),
    }
    out
}

fn is_in(key: &str, value: &str) -> Requirement {
    let values = if value.is_empty() { Vec::new() } else { vec![value.to_owned()] };
    Requirement { key: key.to_owned(), operator: "In".into(), values, min_values: None }
}

fn windows(family: &str) -> Option<(&'static str, &'static str)> {
    match family {
        "windows2019" => Some(("2019", "10.0.17763")),
        "windows2022" => Some(("2022", "10.0.20348")),
        "windows2025" => Some(("2025", "10.0.26100")),
        _ => None,
    }
}

/// Whether a text is like a pattern in which `*` means any letters and `?` one.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            text.char_indices().map(|(at, _)| &text[at..]).chain([""]).any(|tail| is_like(tail, rest))
        }
        Some(wanted) => match text.chars().next() {
            Some(letter) if wanted == '?' || wanted == letter => {
                is_like(&text[letter.len_utf8()..], &pattern[wanted.len_utf8()..])
            }
            _ => false,
        },
    }
}

/// `use1-az1` of `us-east-1a`.
fn zone_id(region: &str, zone: &str) -> String {
    let short: String = region
        .split('-')
        .enumerate()
        .map(|(position, word)| match (position, word) {
            (0, word) => word,
            (_, "northeast") => "ne",
            (_, "northwest") => "nw",
            (_, "southeast") => "se",
            (_, "southwest") => "sw",
            (_, word) => &word[..word.len().min(1)],
        })
        .collect();
    let letter = zone.strip_prefix(region).and_then(|rest| rest.bytes().next()).unwrap_or(b'a');
    format!("{short}-az{}", letter.saturating_sub(b'a') + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(spec: Value) -> Ec2NodeClass {
        let object = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn account(change: impl Fn(&mut SimOptions)) -> Account {
        let mut options = SimOptions { region: "eu-west-1".to_owned(), ..SimOptions::default() };
        change(&mut options);
        Account::new(Arc::new(options))
    }

    #[test]
    fn an_obliging_account_has_whatever_is_asked_for() {
        let account = account(|_| {});
        let found =
            account.subnets(&class(json!({"subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "anything"}}]})));
        let zones: Vec<_> =
            found.iter().map(|subnet| (subnet.zone.as_str(), subnet.zone_id.as_deref().unwrap())).collect();
        assert_eq!(found.len(), 3);
        for zone in [("eu-west-1a", "euw1-az1"), ("eu-west-1b", "euw1-az2"), ("eu-west-1c", "euw1-az3")] {
            assert!(zones.contains(&zone), "{zones:?}");
        }
        assert!(found.is_sorted_by_key(|subnet| subnet.id.clone()));
        let named = account.subnets(&class(json!({"subnetSelectorTerms": [{"id": "subnet-0123"}]})));
        assert_eq!(named[0].id, "subnet-0123");
        let groups = account.security_groups(&class(
            json!({"securityGroupSelectorTerms": [{"id": "sg-1"}, {"name": "eks-cluster-*"}]}),
        ));
        assert_eq!(groups.len(), 2);
        assert_eq!(account.security_groups(&class(json!({"securityGroupSelectorTerms": []}))), []);
    }

    #[test]
    fn a_strict_account_has_only_what_carries_its_tags() {
        let account = account(|options| {
            options.account_tags = Some(BTreeMap::from([("karpenter.sh/discovery".to_owned(), "home".to_owned())]));
        });
        for (tags, n_found) in [
            (json!({"karpenter.sh/discovery": "home"}), 3),
            (json!({"karpenter.sh/discovery": "*"}), 3),
            (json!({"karpenter.sh/discovery": "h*e"}), 3),
            (json!({"karpenter.sh/discovery": "away"}), 0),
            (json!({"karpenter.sh/discovery": "home", "tier": "private"}), 0),
        ] {
            let found = account.subnets(&class(json!({"subnetSelectorTerms": [{"tags": tags}]})));
            assert_eq!(found.len(), n_found, "{tags}");
        }
        assert_eq!(account.subnets(&class(json!({"subnetSelectorTerms": [{"id": "subnet-0123"}]}))), []);
        assert_eq!(account.images(&class(json!({"amiSelectorTerms": [{"id": "ami-1"}]}))), Err(NoImages::NotFound));
    }

    #[test]
    fn an_alias_finds_an_image_for_each_kind_of_machine() {
        let account = account(|_| {});
        let images = account.images(&class(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}))).unwrap();
        assert_eq!(images.len(), 5);
        let arm = images.iter().find(|image| image.name.as_deref().unwrap().contains("arm64-standard")).unwrap();
        assert!(arm.name.as_deref().unwrap().starts_with("amazon-eks-node-al2023-arm64-standard-1.36-v20"));
        let keys: Vec<_> = arm.requirements.iter().map(|requirement| requirement.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "kubernetes.io/arch",
                "karpenter.k8s.aws/instance-gpu-count",
                "karpenter.k8s.aws/instance-accelerator-count"
            ]
        );
        for (alias, n_images) in [("bottlerocket@v1.50.0", 4), ("windows2022@latest", 1)] {
            assert_eq!(
                account.images(&class(json!({"amiSelectorTerms": [{"alias": alias}]}))).unwrap().len(),
                n_images
            );
        }
        let too_old = account.images(&class(json!({"amiSelectorTerms": [{"alias": "al2@latest"}]})));
        assert!(matches!(too_old, Err(NoImages::UnsupportedAlias(_))));
    }

    #[test]
    fn zone_ids_read_like_the_clouds() {
        for (region, zone, id) in [
            ("us-east-1", "us-east-1f", "use1-az6"),
            ("ap-southeast-2", "ap-southeast-2c", "apse2-az3"),
            ("us-gov-west-1", "us-gov-west-1a", "usgw1-az1"),
        ] {
            assert_eq!(zone_id(region, zone), id);
        }
    }
}
