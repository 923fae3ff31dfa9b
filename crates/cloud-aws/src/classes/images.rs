//! Images: which AMIs a class may use, and which of them a type gets.
//!
//! ```text
//! alias ────────▶ SSM paths ─▶ ids, each with what its variant is for ─┐
//! ssmParameter ─▶ SSM ───────▶ ids ─┬─▶ one question                    ├─▶ the best of each kind ─▶ newest first
//! id ───────────────────────────────┘                                   │
//! name, tags ─────────────────────────▶ a question each ────────────────┘
//! ```

pub(super) mod alias;
pub(super) mod parameters;

use super::terms::term_in_words;
use crate::wire::{Aws, Failure, Filter, Image, ImageQuery};
use alias::{Alias, Path};
use kerf_api::{Ami, AmiFamily, AmiSelectorTerm, Ec2NodeClass, Operator, Requirement, labels};
use kerf_model::{InstanceType, Requirements, Text, UnixMillis};
use parameters::{ALIAS_TTL, Parameters, TERM_TTL};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The AMI that a type gets: the first, in the order of the status, whose requirements the type meets.
pub fn choose<'a>(amis: &'a [Ami], instance_type: &InstanceType) -> Option<&'a Ami> {
    Chooser::new(amis).choose(instance_type)
}

/// For asking about many types.
pub struct Chooser<'a>(Vec<(Requirements, &'a Ami)>);

impl<'a> Chooser<'a> {
    pub fn new(amis: &'a [Ami]) -> Self {
        Self(amis.iter().map(|ami| (requirements_of(ami), ami)).collect())
    }

    pub fn choose(&self, instance_type: &InstanceType) -> Option<&'a Ami> {
        let fits = |needs: &Requirements| instance_type.requirements.compatible(needs, |_| true).is_ok();
        self.0.iter().find(|(needs, _)| fits(needs)).map(|(_, ami)| *ami)
    }
}

/// Why there is no image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoImages {
    NotFound(String),
    UnsupportedAlias(String),
    Failed(Failure),
}

impl From<Failure> for NoImages {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What a class may use, and what could not be asked on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) amis: Vec<Ami>,
    pub(super) trouble: Option<Failure>,
}

/// Looks a class's images up. `version` is the cluster's, such as `1.35`.
pub(super) async fn find(
    wire: &dyn Aws,
    class: &Ec2NodeClass,
    version: &str,
    parameters: &Parameters,
    now: UnixMillis,
) -> Result<Found, NoImages> {
    let (found, trouble) = match alias_of(class) {
        Some(text) => of_alias(wire, &text, version, parameters, now).await?,
        None => (of_terms(wire, &class.spec.ami_selector_terms, parameters, now).await?, None),
    };
    let amis = best(found, now);
    match (amis.is_empty(), trouble) {
        (true, Some(failure)) => Err(failure.into()),
        (true, None) => Err(NoImages::NotFound(why_none(class, version))),
        (false, trouble) => Ok(Found { amis, trouble }),
    }
}

/// The alias that is written, or the one that a family without terms means: its newest images.
fn alias_of(class: &Ec2NodeClass) -> Option<String> {
    let terms = &class.spec.ami_selector_terms;
    if let Some(alias) = terms.iter().find_map(|term| term.alias.clone()) {
        return Some(alias);
    }
    let family = class.spec.ami_family.as_ref().filter(|_| terms.is_empty())?;
    let (word, _) = AmiFamily::ALIASES.iter().find(|(_, name)| *name == family.as_str())?;
    Some(format!("{word}@latest"))
}

/// An image, and what it is for.
type Candidate = (Image, Vec<Requirement>);

async fn of_alias(
    wire: &dyn Aws,
    text: &str,
    version: &str,
    parameters: &Parameters,
    now: UnixMillis,
) -> Result<(Vec<Candidate>, Option<Failure>), NoImages> {
    let alias = Alias::parse(text).map_err(NoImages::UnsupportedAlias)?;
    alias.check(version).map_err(NoImages::UnsupportedAlias)?;
    let mut published: Vec<(String, Path)> = Vec::new();
    let mut trouble: Option<Failure> = None;
    for path in alias.paths(version) {
        match parameters.get(wire, &path.name, path.is_mutable, ALIAS_TTL, now).await {
            Ok(id) => published.push((id, path)),
            // A variant that was never published is no reason to do without the others.
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => trouble = trouble.or(Some(failure)),
        }
    }
    if published.is_empty() {
        return Ok((Vec::new(), trouble));
    }
    let ids: BTreeSet<&String> = published.iter().map(|(id, _)| id).collect();
    let images = match wire.describe_images(by_id(ids)).await {
        Ok(images) => images,
        // Where images may not be described, those that AWS publishes are known well enough by where they are published.
        Err(failure) if failure.is_denied() => {
            trouble = trouble.or(Some(failure));
            let by_id: BTreeMap<&String, &Path> = published.iter().map(|(id, path)| (id, path)).collect();
            by_id.into_iter().map(|(id, path)| unseen(id, path)).collect()
        }
        Err(failure) => return Err(failure.into()),
    };
    let mut found = Vec::new();
    for image in images {
        let paths = published.iter().filter(|(id, _)| *id == image.id);
        for variant in paths.flat_map(|(_, path)| path.variants) {
            found.push((image.clone(), variant.requirements(&alias.family)));
        }
    }
    Ok((found, trouble))
}

fn unseen(id: &str, path: &Path) -> Image {
    Image { id: id.to_owned(), architecture: path.architecture.to_owned(), ..Image::default() }
}

async fn of_terms(
    wire: &dyn Aws,
    terms: &[AmiSelectorTerm],
    parameters: &Parameters,
    now: UnixMillis,
) -> Result<Vec<Candidate>, NoImages> {
    let mut ids: Vec<String> = Vec::new();
    let mut queries: Vec<ImageQuery> = Vec::new();
    for term in terms {
        if let Some(id) = &term.id {
            ids.push(id.clone());
        } else if let Some(name) = &term.ssm_parameter {
            match parameters.get(wire, name, true, TERM_TTL, now).await {
                Ok(value) if value.starts_with("ami-") => ids.push(value),
                Ok(value) => {
                    tracing::warn!(parameter = %name, value = %value, "spec.amiSelectorTerms: the SSM parameter holds no image id")
                }
                Err(failure) if failure.is_not_found() => {
                    tracing::warn!(parameter = %name, "spec.amiSelectorTerms: there is no such SSM parameter");
                }
                Err(failure) => return Err(failure.into()),
            }
        } else {
            queries.extend(query_of(term));
        }
    }
    if !ids.is_empty() {
        queries.push(by_id(&ids));
    }
    let mut found: BTreeMap<String, Image> = BTreeMap::new();
    for query in queries {
        found.extend(wire.describe_images(query).await?.into_iter().map(|image| (image.id.clone(), image)));
    }
    Ok(found.into_values().map(|image| (image, Vec::new())).collect())
}

fn by_id<'a>(ids: impl IntoIterator<Item = &'a String>) -> ImageQuery {
    ImageQuery { filters: vec![Filter::new("image-id", ids)], owners: Vec::new() }
}

/// A term of name or tags. A name without an owner means ours and Amazon's: anyone may publish an image under any name.
fn query_of(term: &AmiSelectorTerm) -> Option<ImageQuery> {
    let mut filters: Vec<Filter> = Vec::new();
    let mut owners: Vec<String> = term.owner.iter().cloned().collect();
    if let Some(name) = &term.name {
        filters.push(Filter::new("name", [name]));
        if owners.is_empty() {
            owners = vec!["self".to_owned(), "amazon".to_owned()];
        }
    }
    filters.extend(term.tags.iter().flatten().map(|(key, value)| Filter::tag(key, value)));
    (!filters.is_empty()).then_some(ImageQuery { filters, owners })
}

/// Of images that are for the same, the best one: not deprecated, then newest, then the greater name. Newest first.
fn best(found: Vec<Candidate>, now: UnixMillis) -> Vec<Ami> {
    let is_deprecated = |image: &Image| image.deprecated_at_ms.is_some_and(|at| at <= now.0);
    let mut kept: BTreeMap<String, (Image, Vec<Requirement>)> = BTreeMap::new();
    for (image, mut requirements) in found {
        let Some(arch) = architecture(&image) else { continue };
        requirements.push(Requirement {
            key: labels::ARCH.to_owned(),
            operator: Operator::In,
            values: vec![arch.to_owned()],
            min_values: None,
        });
        requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
        let rank = |image: &Image| {
            (!is_deprecated(image), image.created.clone(), image.name.clone(), Reverse(image.id.clone()))
        };
        let kind = format!("{requirements:?}");
        if kept.get(&kind).is_none_or(|(other, _)| rank(other) < rank(&image)) {
            kept.insert(kind, (image, requirements));
        }
    }
    // The kinds are in order already; sorting keeps that among images of one day and id.
    let mut kept: Vec<(Image, Vec<Requirement>)> = kept.into_values().collect();
    kept.sort_by(|(a, _), (b, _)| (Reverse(&a.created), &a.id).cmp(&(Reverse(&b.created), &b.id)));
    let ami = |(image, requirements): (Image, Vec<Requirement>)| Ami {
        deprecated: is_deprecated(&image),
        name: Some(image.name).filter(|name| !name.is_empty()),
        id: image.id,
        requirements,
    };
    kept.into_iter().map(ami).collect()
}

/// As Kubernetes names it; None for those that no node of ours has.
fn architecture(image: &Image) -> Option<&'static str> {
    match image.architecture.as_str() {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

fn requirements_of(ami: &Ami) -> Requirements {
    let mut out = Requirements::new();
    for requirement in &ami.requirements {
        let values: Vec<Text> = requirement.values.iter().map(|value| value.as_str().into()).collect();
        let operator = kerf_model::Operator::parse(requirement.operator.as_str());
        if let Some(read) = operator.and_then(|operator| kerf_model::Requirement::new(operator, &values)) {
            out.add(&requirement.key, read);
        }
    }
    out
}

fn why_none(class: &Ec2NodeClass, version: &str) -> String {
    if let Some(text) = alias_of(class) {
        let paths = Alias::parse(&text).map(|alias| alias.paths(version)).unwrap_or_default();
        let first = paths.first().map(|path| path.name.as_str()).unwrap_or_default();
        return format!(
            "AMISelector did not match any AMIs: spec.amiSelectorTerms alias {text} names no image for Kubernetes {version} that \
             ssm:GetParameter knows ({first} and {} more paths); use {}@latest, or a release that exists for this version",
            paths.len().saturating_sub(1),
            text.split('@').next().unwrap_or_default()
        );
    }
    let words: Vec<String> = class
        .spec
        .ami_selector_terms
        .iter()
        .map(|term| {
            let parts =
                [("id", &term.id), ("name", &term.name), ("owner", &term.owner), ("ssmParameter", &term.ssm_parameter)];
            term_in_words(term.tags.as_ref(), &parts.map(|(name, value)| (name, value.as_ref())))
        })
        .collect();
    format!(
        "AMISelector did not match any AMIs: spec.amiSelectorTerms [{}] select no available image of x86_64 or arm64 by \
         ec2:DescribeImages; check ids, region and owner (a name without owner means self and amazon)",
        words.join("; ")
    )
}

#[cfg(test)]
#[path = "images/tests.rs"]
mod tests;
