//! Provisioners and AWSNodeTemplates, released from themselves.

use super::beta::Current;
use super::gather::{Found, Sorted};
use super::made::{Made, Said};
use kerf_api::Kind;
use kerf_api::older::marks::{RELEASED_FROM, TRANSLATED_FROM};
use kerf_api::older::{
    Refusal, Translation, TranslationSettings, Warning, template_name, translate, translate_template,
};
use serde_json::{Value, json};

/// The pool of a Provisioner, on its way.
pub(super) struct Translated<'a> {
    from: &'a Found,
    pool: Value,
    template: Option<&'a Found>,
    /// Where the class is the template's own: made when all Provisioners have been seen.
    is_shared: bool,
}

/// Adds the classes. What comes back are the pools whose class, if it is theirs alone, was made.
pub(super) fn convert_classes<'a>(
    input: &'a Sorted,
    current: &[Current<'_>],
    settings: &TranslationSettings,
    made: &mut Made,
) -> Vec<Translated<'a>> {
    let mut uses = Vec::new();
    let mut pools = Vec::new();
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
        let Some(pool) = node_pool.filter(|_| may_launch).map(|pool| released(pool, Some(provisioner))) else {
            continue;
        };
        if let Some(holder) = input.holder(Kind::NodePool, provisioner.name())
            && !current.iter().any(|other| other.is_printed_as(&pool))
        {
            made.refuse_held(provisioner, Kind::NodePool, holder);
            continue;
        }
        // A shared one comes with its template, below.
        let own = node_class.filter(|_| !is_shared).map(|class| released(class, None));
        if own.is_none_or(|class| made.add_translated(provisioner, Kind::Ec2NodeClass, &class, input)) {
            pools.push(Translated { from: provisioner, pool, template, is_shared });
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
            made.add_translated(template, Kind::Ec2NodeClass, &released(class, Some(template)), input);
        }
    }
    pools
}

/// A pool whose class went to somebody else of that name is left out: its nodes would be another's.
pub(super) fn add_pools(pools: Vec<Translated<'_>>, made: &mut Made) {
    for Translated { from, pool, template, is_shared } in pools {
        match template.filter(|template| is_shared && !made.has_class_from(template.name(), template)) {
            Some(template) => {
                let message = "the EC2NodeClass of this AWSNodeTemplate is left out, and the pool with it";
                made.refuse(from, "spec.providerRef.name", &format!("{:?}", template.name()), message);
            }
            None => drop(made.add(from, Kind::NodePool, &pool)),
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
