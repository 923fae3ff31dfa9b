//! Aliases: a family and a version, and where AWS publishes the ids of such images.

use kerf_api::{AmiFamily, Operator, Requirement, labels};

/// Such as `al2023@v20250610` or `bottlerocket@latest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alias {
    pub(crate) family: AmiFamily,
    pub(crate) version: String,
}

/// What machines an image is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Standard,
    Nvidia,
    Neuron,
    /// Windows has no others.
    Windows,
}

/// A public SSM parameter that holds an image's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) name: String,
    /// As EC2 names it.
    pub(crate) architecture: &'static str,
    pub(crate) variants: &'static [Variant],
    /// Whether it will hold another id some day.
    pub(crate) is_mutable: bool,
}

impl Alias {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known: Vec<&str> = AmiFamily::ALIASES.iter().map(|(word, _)| *word).collect();
        let wants = || {
            format!(
                "spec.amiSelectorTerms: found alias {text:?}; <family>@<version> would do, with a family of {}",
                known.join(", ")
            )
        };
        let (word, version) = text.split_once('@').filter(|(_, version)| !version.is_empty()).ok_or_else(wants)?;
        let (_, family) = AmiFamily::ALIASES.iter().find(|(known, _)| *known == word).ok_or_else(wants)?;
        Ok(Self { family: AmiFamily::from(*family), version: version.to_owned() })
    }

    /// Refuses what AWS does not publish for a version of Kubernetes. We never switch families by ourselves.
    pub(crate) fn check(&self, version: &str) -> Result<(), String> {
        let minor = minor(version);
        match self.family {
            AmiFamily::Al2 if minor.is_some_and(|minor| minor >= 33) => Err(format!(
                "spec.amiSelectorTerms: alias al2@{} is unsupported on Kubernetes {version}: AL2 images exist only below 1.33; \
                 use an al2023 or bottlerocket alias",
                self.version
            )),
            AmiFamily::Windows2025 if minor.is_some_and(|minor| minor < 35) => Err(format!(
                "spec.amiSelectorTerms: alias windows2025@{} is unsupported on Kubernetes {version}: such images exist from 1.35; \
                 use windows2022@latest",
                self.version
            )),
            _ => Ok(()),
        }
    }

    fn is_latest(&self) -> bool {
        self.version == "latest"
    }

    pub(crate) fn paths(&self, version: &str) -> Vec<Path> {
        use Variant::{Neuron, Nvidia, Standard, Windows};
        let path = |name: String, architecture: &'static str, variants: &'static [Variant]| Path {
            name,
            architecture,
            variants,
            is_mutable: self.is_latest(),
        };
        let eks = format!("/aws/service/eks/optimized-ami/{version}");
        let pinned = |name: String| {
            if self.is_latest() { "recommended".to_owned() } else { format!("{name}-{version}-{}", self.version) }
        };
        match &self.family {
            AmiFamily::Al2 => {
                let al2 = |suffix: &str, name: &str, arch, variants| {
                    path(format!("{eks}/amazon-linux-2{suffix}/{}/image_id", pinned(name.to_owned())), arch, variants)
                };
                vec![
                    al2("", "amazon-eks-node", "x86_64", &[Standard]),
                    al2("-arm64", "amazon-eks-arm64-node", "arm64", &[Standard]),
                    al2("-gpu", "amazon-eks-gpu-node", "x86_64", &[Neuron, Nvidia]),
                ]
            }
            AmiFamily::Al2023 => {
                let al2023 = |arch: &'static str, variant: &str, variants| {
                    let name = pinned(format!("amazon-eks-node-al2023-{arch}-{variant}"));
                    path(format!("{eks}/amazon-linux-2023/{arch}/{variant}/{name}/image_id"), arch, variants)
                };
                vec![
                    al2023("x86_64", "standard", &[Standard]),
                    al2023("x86_64", "nvidia", &[Nvidia]),
                    al2023("x86_64", "neuron", &[Neuron]),
                    al2023("arm64", "standard", &[Standard]),
                    al2023("arm64", "nvidia", &[Nvidia]),
                ]
            }
            AmiFamily::Bottlerocket => {
                let release = self.version.strip_prefix('v').unwrap_or(&self.version);
                let bottlerocket = |suffix: &str, arch: &'static str, variants| {
                    path(
                        format!("/aws/service/bottlerocket/aws-k8s-{version}{suffix}/{arch}/{release}/image_id"),
                        arch,
                        variants,
                    )
                };
                vec![
                    bottlerocket("", "x86_64", &[Standard, Neuron]),
                    bottlerocket("-nvidia", "x86_64", &[Nvidia]),
                    bottlerocket("", "arm64", &[Standard]),
                    bottlerocket("-nvidia", "arm64", &[Nvidia]),
                ]
            }
            family => {
                let year = family.as_str().trim_start_matches("Windows");
                let server = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{version}");
                vec![path(format!("/aws/service/ami-windows-latest/{server}/image_id"), "x86_64", &[Windows])]
            }
        }
    }
}

impl Variant {
    /// What a type must have, or must not have, to get such an image.
    pub(crate) fn requirements(self, family: &AmiFamily) -> Vec<Requirement> {
        let has =
            |key: &str, operator| Requirement { key: key.to_owned(), operator, values: Vec::new(), min_values: None };
        let is = |key: &str, value: &str| Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: vec![value.to_owned()],
            min_values: None,
        };
        match self {
            Self::Standard => vec![
                has(labels::INSTANCE_ACCELERATOR_COUNT, Operator::DoesNotExist),
                has(labels::INSTANCE_GPU_COUNT, Operator::DoesNotExist),
            ],
            Self::Nvidia => vec![has(labels::INSTANCE_GPU_COUNT, Operator::Exists)],
            Self::Neuron => vec![has(labels::INSTANCE_ACCELERATOR_COUNT, Operator::Exists)],
            Self::Windows => vec![is(labels::OS, "windows"), is(labels::WINDOWS_BUILD, windows_build(family))],
        }
    }
}

fn windows_build(family: &AmiFamily) -> &'static str {
    match family {
        AmiFamily::Windows2019 => "10.0.17763",
        AmiFamily::Windows2022 => "10.0.20348",
        _ => "10.0.26100",
    }
}

/// The 35 of `1.35`.
pub(crate) fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').trim_end_matches('+').split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_where_aws_publishes() {
        let cases: [(&str, usize, &str); 8] = [
            ("al2@latest", 0, "/aws/service/eks/optimized-ami/1.31/amazon-linux-2/recommended/image_id"),
            (
                "al2@v20240807",
                1,
                "/aws/service/eks/optimized-ami/1.31/amazon-linux-2-arm64/amazon-eks-arm64-node-1.31-v20240807/image_id",
            ),
            (
                "al2@v20240807",
                2,
                "/aws/service/eks/optimized-ami/1.31/amazon-linux-2-gpu/amazon-eks-gpu-node-1.31-v20240807/image_id",
            ),
            (
                "al2023@latest",
                1,
                "/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
            ),
            (
                "al2023@v20250610",
                3,
                "/aws/service/eks/optimized-ami/1.31/amazon-linux-2023/arm64/standard/amazon-eks-node-al2023-arm64-standard-1.31-v20250610/image_id",
            ),
            ("bottlerocket@latest", 0, "/aws/service/bottlerocket/aws-k8s-1.31/x86_64/latest/image_id"),
            ("bottlerocket@v1.20.3", 3, "/aws/service/bottlerocket/aws-k8s-1.31-nvidia/arm64/1.20.3/image_id"),
            (
                "windows2022@latest",
                0,
                "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.31/image_id",
            ),
        ];
        for (text, index, expected) in cases {
            let paths = Alias::parse(text).unwrap().paths("1.31");
            assert_eq!(paths[index].name, expected);
            assert_eq!(paths[index].is_mutable, text.ends_with("@latest"), "{text}");
        }
    }

    #[test]
    fn d0_59_al2_is_refused_from_1_33_with_the_word_al2023_and_never_replaced() {
        let al2 = Alias::parse("al2@latest").unwrap();
        assert_eq!(al2.check("1.32"), Ok(()));
        let refusal = al2.check("1.33").unwrap_err();
        assert!(refusal.contains("al2023") && refusal.contains("1.33"), "{refusal}");
        assert!(al2.check("1.36").is_err());
        assert!(al2.paths("1.32").iter().all(|path| !path.name.contains("2023")));
    }

    #[test]
    fn windows_2025_needs_1_35() {
        let windows = Alias::parse("windows2025@latest").unwrap();
        assert!(windows.check("1.34").unwrap_err().contains("windows2022"));
        assert_eq!(windows.check("1.35"), Ok(()));
        let build = windows.paths("1.35")[0].variants[0].requirements(&windows.family);
        assert_eq!(build[1].values, ["10.0.26100"]);
    }

    #[test]
    fn an_alias_that_names_nothing_is_refused_with_the_families_there_are() {
        for text in ["ubuntu@latest", "al2023", "al2023@", "AL2023@latest"] {
            let refusal = Alias::parse(text).unwrap_err();
            assert!(refusal.contains(text) && refusal.contains("bottlerocket"), "{refusal}");
        }
    }
}
