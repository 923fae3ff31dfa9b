//! The selector terms of EC2NodeClass. Their rules are uneven, and the unevenness is part of the contract: some say "no
//! term may", others only "not all terms may".

use serde_json::Value;

use super::rule::Look as _;
use super::{Merge, Rule, Schema, list_of, map_of, object, one_of, patterns, text};
use crate::objects::AmiFamily;

const MAX_TERMS: u64 = 30;

pub(crate) fn subnets() -> Schema {
    terms(object([("tags", term_tags()), ("id", text().pattern(patterns::SUBNET_ID).about("ID of a subnet."))]))
        .about("Subnets to launch into: those that any term selects.")
        .rule(some_term())
        .rule(each_has("self.all(t, has(t.tags) || has(t.id))", "every term needs tags or id", &["tags", "id"]))
        .rule(not_all_combine(
            "!self.all(t, has(t.id) && has(t.tags))",
            "an id stands alone; put tags into a term of their own",
            "id",
            &["tags"],
        ))
}

pub(crate) fn security_groups() -> Schema {
    terms(object([
        ("tags", term_tags()),
        ("id", text().pattern(patterns::SECURITY_GROUP_ID).about("ID of a security group.")),
        ("name", text().about("Name of a security group (not its Name tag).")),
    ]))
    .about("Security groups to attach: all that any term selects.")
    .rule(some_term())
    .rule(each_has(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name))",
        "every term needs tags, id or name",
        &["tags", "id", "name"],
    ))
    .rule(not_all_combine(
        "!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",
        "one of id, name or tags per term: an id stands alone; put tags and name into terms of their own",
        "id",
        &["tags", "name"],
    ))
    .rule(not_all_combine(
        "!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",
        "one of id, name or tags per term: a name stands alone; put tags and id into terms of their own",
        "name",
        &["tags", "id"],
    ))
}

pub(crate) fn capacity_reservations() -> Schema {
    terms(object([
        ("tags", term_tags()),
        ("id", text().pattern(patterns::CAPACITY_RESERVATION_ID).about("ID of a capacity reservation.")),
        ("ownerID", text().pattern(patterns::ACCOUNT_ID).about("Account that owns the reservation.")),
        (
            "instanceMatchCriteria",
            one_of(&["open", "targeted"])
                .about("Whether the reservation takes any fitting instance, or only those that name it."),
        ),
    ]))
    .about(
        "On-demand capacity reservations and capacity blocks that may be used: those that any term selects. \
         Omit it for none.",
    )
    .rule(each_has(
        "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
        "every term needs tags, id or instanceMatchCriteria",
        &["tags", "id", "instanceMatchCriteria"],
    ))
    .rule(not_all_combine(
        "!self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",
        "an id stands alone, and an empty list is better left out",
        "id",
        &["tags", "ownerID", "instanceMatchCriteria"],
    ))
}

pub(crate) fn amis() -> Schema {
    terms(object([
        ("alias", alias()),
        ("tags", term_tags()),
        ("id", text().pattern(patterns::AMI_ID).about("ID of an image.")),
        ("name", text().about("Name of an image (not its Name tag); wildcards work.")),
        ("owner", text().about("Who owns the image: an account, `self`, `amazon` or `aws-marketplace`.")),
        ("ssmParameter", text().about("Name or ARN of an SSM parameter that holds an image ID.")),
    ]))
    .min_items(1)
    .about("Images to start from: one alias, or those that any other term selects.")
    .rule(each_has(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
        "every term needs tags, id, name, alias or ssmParameter",
        &["tags", "id", "name", "alias", "ssmParameter"],
    ))
    .rule(none_combines(
        "!self.exists(t, has(t.id) && (has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
        "an id stands alone; put the rest into terms of their own",
        "id",
        &["alias", "tags", "name", "owner"],
    ))
    .rule(none_combines(
        "!self.exists(t, has(t.alias) && (has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
        "an alias stands alone; leave out the rest",
        "alias",
        &["id", "tags", "name", "owner"],
    ))
    .rule(Rule::new(
        "!(self.exists(t, has(t.alias)) && self.size() != 1)",
        "an alias must be the only term",
        |list| list.items().len() == 1 || !list.items().iter().any(|term| term.has("alias")),
    ))
}

fn alias() -> Schema {
    text()
        .max_length(30)
        .about(
            "A family and a version of the images that AWS makes for EKS, such as al2023@v20240807 or \
             bottlerocket@latest.",
        )
        .rule(Rule::new("self.matches('^[a-zA-Z0-9]+@.+$')", "an alias is written family@version", |alias| {
            let alias = alias.text();
            alias.split_once('@').is_some_and(|(family, version)| {
                let is_word = !family.is_empty() && family.bytes().all(|byte| byte.is_ascii_alphanumeric());
                is_word && !version.is_empty() && !version.contains('\n')
            })
        }))
        .rule(Rule::new(
            "self.find('^[^@]+') in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",
            "the family of an alias is al2, al2023, bottlerocket, windows2019, windows2022 or windows2025",
            |alias| AmiFamily::ALIASES.iter().any(|(family, _)| *family == alias_family(alias.text())),
        ))
        .rule(Rule::new(
            "self.find('^[^@]+') in ['windows2019', 'windows2022', 'windows2025'] ? self.find('@.*') == \
             '@latest' : true",
            "Windows images come only as @latest",
            |alias| {
                let is_latest = alias.text().split_once('@').is_some_and(|(_, version)| version == "latest");
                is_latest || !alias_family(alias.text()).starts_with("windows")
            },
        ))
}

pub(crate) fn alias_family(alias: &str) -> &str {
    alias.split('@').next().unwrap_or_default()
}

pub(crate) fn terms(term: Schema) -> Schema {
    list_of(term).merge(Merge::AtomicList).max_items(MAX_TERMS)
}

pub(crate) fn term_tags() -> Schema {
    map_of(text()).max_properties(20).about("Tags that must all be there; the value * accepts any.").rule(Rule::new(
        "self.all(k, k != '' && self[k] != '')",
        "neither a tag's key nor its value may be empty; use * for any value",
        |tags| tags.as_object().is_none_or(|tags| tags.iter().all(|(key, value)| !key.is_empty() && value != "")),
    ))
}

fn some_term() -> Rule {
    Rule::new("self.size() != 0", "at least one term must be there", |list| !list.items().is_empty())
}

pub(crate) fn each_has(cel: &'static str, message: &'static str, any_of: &'static [&'static str]) -> Rule {
    Rule::new(cel, message, |list| list.items().iter().all(|term| has_any(term, any_of)))
}

/// Broken when every term combines, so one good term in the list excuses the others; and an empty list is broken too.
pub(crate) fn not_all_combine(
    cel: &'static str,
    message: &'static str,
    one: &'static str,
    others: &'static [&'static str],
) -> Rule {
    Rule::new(cel, message, move |list| !list.items().iter().all(|term| term.has(one) && has_any(term, others)))
}

fn none_combines(cel: &'static str, message: &'static str, one: &'static str, others: &'static [&'static str]) -> Rule {
    Rule::new(cel, message, move |list| !list.items().iter().any(|term| term.has(one) && has_any(term, others)))
}

fn has_any(term: &Value, names: &[&str]) -> bool {
    names.iter().any(|name| term.has(name))
}
