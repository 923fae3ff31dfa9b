//! Provisioners and AWSNodeTemplates, released from themselves.

use super::gather::{Found, Sorted};
use super::made::{Made, Said};
use kerf_api::Kind;
use kerf_api::older::marks::{RELEASED_FROM, TRANSLATED_FROM};
use kerf_api::older::{
    Refusal, Translation, TranslationSettings, Warning, template_name, translate, translate_template,
};
use serde_json::{Value, json};

pub(super) fn convert(input: &Sorted, settings: &TranslationSettings, made: &mut Made) {
    let mut uses = Vec::new();
    for provisioner in &input.provisioners {
        let named = template_name(&provisioner.value);
        let template = named.and_then(|name| input.templates.iter().find(|template| template.name() == name));
        let translation = translate(&provisioner.value, template.map(|template| &template.value), settings);
        let may_launch = translation.may_launch();
        let Translation { node_pool, node_class, warnings, refusals } = translation;
        tell(warnings, refusals, &[provisioner].into_iter().chain(template).collect::<Vec<_>>(), made);
        let class_name = node_class.as_ref().and_then(|class| class["metadata"]["name"].as_str()).map(str::to_owned);
        let is_shared = template.is_some_and(|template| class_name.as_deref() == Some(template.name()));
        uses.extend(named.map(|name| (name, is_shared)));
        // The class first: a pool without its class is of no use. A shared one comes with its template, below.
        let own = node_class.filter(|_| may_launch && !is_shared);
        let has_class = own.is_none_or(|class| made.add(provisioner, Kind::Ec2NodeClass, &released(class, None)));
        if let Some(pool) = node_pool.filter(|_| may_launch && has_class) {
            made.add(provisioner, Kind::NodePool, &released(pool, Some(provisioner)));
        }
    }
    for template in &input.templates {
        let mut uses = uses.iter().filter(|(name, _)| *name == template.name()).peekable();
        if uses.peek().is_some() && !uses.any(|(_, is_shared)| *is_shared) {
            // Everybody who names it has kubelet settings, and so a class of their own.
            continue;
        }
        let translation = translate_template(&template.value, settings);
        let may_launch = translation.may_launch();
        tell(translation.warnings, translation.refusals, &[template], made);
        if let Some(class) = translation.node_class.filter(|_| may_launch) {
            made.add(template, Kind::Ec2NodeClass, &released(class, Some(template)));
        }
    }
}

/// What is said of a template is said once, however many Provisioners name it.
pub(super) fn tell(warnings: Vec<Warning>, refusals: Vec<Refusal>, among: &[&Found], made: &mut Made) {
    let source = |object: &str| {
        let found = among.iter().find(|found| found.title() == object).or(among.first());
        found.map(|found| found.source.clone()).unwrap_or_default()
    };
    for what in warnings {
        if !made.warnings.iter().any(|said| said.what == what) {
            made.warnings.push(Said { source: source(&what.object), what });
        }
    }
    for what in refusals {
        if !made.refusals.iter().any(|said| said.what == what) {
            made.refusals.push(Said { source: source(&what.object), what });
        }
    }
}

/// Carries the annotation that takes it from its older object, and the labels and annotations that somebody gave that one.
pub(super) fn released(mut object: Value, like: Option<&Found>) -> Value {
    let metadata = &mut object["metadata"];
    for field in ["labels", "annotations"] {
        let given = like.and_then(|like| like.value.get("metadata")?.get(field)?.as_object());
        for (key, value) in given.into_iter().flatten() {
            if metadata[field].get(key).is_none() {
                metadata[field][key] = value.clone();
            }
        }
    }
    let origin = metadata["annotations"][TRANSLATED_FROM].as_str().unwrap_or_default();
    // Without the uid: whichever object of that name there is, it lets go.
    let origin: Vec<&str> = origin.split('/').take(2).collect();
    metadata["annotations"][RELEASED_FROM] = json!(origin.join("/"));
    object
}
