//! Deployments, replica sets, stateful sets, daemon sets, jobs, cron jobs, replication controllers.

use serde_json::{Value, json};

use super::super::meta;
use super::super::names;
use super::super::tree::{
    Faults, METADATA, Path, SPEC, STATUS, at, copy_key, entries, flag, has, int, items, open, ordered, text,
};
use super::{pod, volumes};

const MISMATCH: &str = "`selector` does not match template `labels`";

pub(super) fn deployment(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    faults.not_negative(&SPEC.field("replicas"), at(spec, "replicas"));
    selector_and_template(faults, spec, "deployment", "ReplicaSet");
    deployment_strategy(faults, spec);
    faults.not_negative(&SPEC.field("minReadySeconds"), at(spec, "minReadySeconds"));
    faults.not_negative(&SPEC.field("revisionHistoryLimit"), at(spec, "revisionHistoryLimit"));
    if let Some(deadline) = int(spec, "progressDeadlineSeconds") {
        let path = SPEC.field("progressDeadlineSeconds");
        faults.not_negative(&path, at(spec, "progressDeadlineSeconds"));
        if deadline <= int(spec, "minReadySeconds").unwrap_or_default() {
            faults.invalid(&path, deadline, "must be greater than minReadySeconds");
        }
    }
}

pub(super) fn replica_set(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    faults.not_negative(&SPEC.field("replicas"), at(spec, "replicas"));
    faults.not_negative(&SPEC.field("minReadySeconds"), at(spec, "minReadySeconds"));
    selector_and_template(faults, spec, "deployment", "ReplicaSet");
}

fn selector_and_template(faults: &mut Faults, spec: &Value, kind: &str, template_of: &str) {
    let selector = at(spec, "selector");
    selector_of(faults, selector, kind);
    let template_path = SPEC.field("template");
    match meta::selects(selector, at(spec, "template.metadata.labels")) {
        None => faults.invalid(&SPEC.field("selector"), selector.clone(), "invalid label selector"),
        Some(is_selected) => {
            if selector.is_null() || !is_selected && !is_empty(selector) {
                mismatch(faults, &template_path, spec);
            }
            pod::template(faults, &template_path, at(spec, "template"));
            always_restarts(faults, spec, template_of);
        }
    }
}

fn is_empty(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty()
}

fn selector_of(faults: &mut Faults, selector: &Value, kind: &str) {
    let path = SPEC.field("selector");
    if selector.is_null() {
        faults.required(&path, "");
        return;
    }
    meta::selector(faults, &path, selector);
    if is_empty(selector) {
        faults.invalid(&path, selector.clone(), format!("empty selector is invalid for {kind}"));
    }
}

fn mismatch(faults: &mut Faults, template: &Path<'_>, spec: &Value) {
    let metadata = template.field("metadata");
    faults.invalid(&metadata.field("labels"), at(spec, "template.metadata.labels").clone(), MISMATCH);
}

fn always_restarts(faults: &mut Faults, spec: &Value, kind: &str) {
    let template = SPEC.field("template");
    let path = template.field("spec");
    let policy = text(spec, "template.spec.restartPolicy");
    if policy != "Always" {
        faults.not_supported(&path.field("restartPolicy"), policy, &["Always"]);
    }
    if has(spec, "template.spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        faults.forbidden(&path.field("activeDeadlineSeconds"), detail);
    }
}

/// A count, or a percentage as a text.
pub(super) fn count_or_percent(faults: &mut Faults, path: &Path<'_>, value: &Value) {
    match value {
        Value::String(given) => {
            if let Some(why) = names::percent(given) {
                faults.invalid(path, given.as_str(), why);
            }
        }
        _ => faults.not_negative(path, value),
    }
}

pub(super) fn at_most_all(faults: &mut Faults, path: &Path<'_>, value: &Value) {
    if percent_of(value).is_some_and(|percent| percent > 100) {
        faults.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

fn percent_of(value: &Value) -> Option<u64> {
    let given = value.as_str()?;
    if names::percent(given).is_some() {
        return None;
    }
    given.strip_suffix('%')?.parse().ok()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(given) => percent_of(value).unwrap_or_else(|| given.parse().unwrap_or_default()) == 0,
        _ => value.as_i64().unwrap_or_default() == 0,
    }
}

fn deployment_strategy(faults: &mut Faults, spec: &Value) {
    let path = SPEC.field("strategy");
    let strategy = at(spec, "strategy");
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                faults.forbidden(&path.field("rollingUpdate"), detail);
            }
        }
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            count_or_percent(faults, &path.field("maxUnavailable"), unavailable);
            count_or_percent(faults, &path.field("maxSurge"), surge);
            if is_zero(unavailable) && is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                faults.invalid(&path.field("maxUnavailable"), unavailable.clone(), detail);
            }
            at_most_all(faults, &path.field("maxUnavailable"), unavailable);
        }
        other => {
            let found = json!({ "Type": other, "RollingUpdate": rolling });
            let shown = ordered(&found, &["Type", "RollingUpdate"]);
            faults.not_supported(&path, found, &["Recreate", "RollingUpdate"]);
            faults.show(shown);
        }
    }
}

pub(super) fn daemon_set(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    let selector = at(spec, "selector");
    let template = SPEC.field("template");
    meta::selector(faults, &SPEC.field("selector"), selector);
    // No selector selects nothing.
    let is_selected =
        if selector.is_null() { Some(false) } else { meta::selects(selector, at(spec, "template.metadata.labels")) };
    if is_selected == Some(false) {
        mismatch(faults, &template, spec);
    }
    if !selector.is_null() && is_empty(selector) {
        let detail = "empty selector is invalid for daemonset";
        faults.invalid(&SPEC.field("selector"), selector.clone(), detail);
    }
    pod::template(faults, &template, at(spec, "template"));
    always_restarts(faults, spec, "DaemonSet");
    faults.not_negative(&SPEC.field("minReadySeconds"), at(spec, "minReadySeconds"));
    let path = SPEC.field("updateStrategy");
    let strategy = at(spec, "updateStrategy");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            let (unavailable, surge) =
                (at(strategy, "rollingUpdate.maxUnavailable"), at(strategy, "rollingUpdate.maxSurge"));
            for (field, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                count_or_percent(faults, &path.field(field), value);
            }
            for (field, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                at_most_all(faults, &path.field(field), value);
            }
            match (is_zero(unavailable), is_zero(surge)) {
                (false, false) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    faults.invalid(&path.field("maxSurge"), surge.clone(), detail);
                }
                (true, true) => {
                    faults.required(&path.field("maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        other => {
            let found = json!({ "Type": other, "RollingUpdate": at(strategy, "rollingUpdate") });
            let shown = ordered(&found, &["Type", "RollingUpdate"]);
            faults.not_supported(&path, found, &["RollingUpdate", "OnDelete"]);
            faults.show(shown);
        }
    }
    faults.not_negative(&SPEC.field("revisionHistoryLimit"), at(spec, "revisionHistoryLimit"));
}

pub(super) fn stateful_set(faults: &mut Faults, object: &Value, is_create: bool) {
    let spec = at(object, "spec");
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => faults.required(&SPEC.field("podManagementPolicy"), ""),
        other => {
            faults.invalid(&SPEC.field("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let path = SPEC.field("updateStrategy");
    let rolling = at(spec, "updateStrategy.rollingUpdate");
    match text(spec, "updateStrategy.type") {
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            faults.not_negative(&path.field("partition"), at(rolling, "partition"));
            if has(rolling, "maxUnavailable") {
                let (path, value) = (path.field("maxUnavailable"), at(rolling, "maxUnavailable"));
                count_or_percent(faults, &path, value);
                if is_zero(value) {
                    faults.invalid(&path, value.clone(), "cannot be 0");
                }
                at_most_all(faults, &path, value);
            }
        }
        "OnDelete" => {
            if !rolling.is_null() {
                let found = json!({
                    "Partition": at(rolling, "partition").as_i64().unwrap_or_default(),
                    "MaxUnavailable": at(rolling, "maxUnavailable"),
                });
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                let shown = ordered(&found, &["Partition", "MaxUnavailable"]);
                faults.invalid(&path.field("rollingUpdate"), found, detail);
                faults.show(shown);
            }
        }
        "" => faults.required(&path, ""),
        other => {
            let found = json!({ "Type": other, "RollingUpdate": rolling });
            let shown = ordered(&found, &["Type", "RollingUpdate"]);
            faults.invalid(&path, found, "must be 'RollingUpdate' or 'OnDelete'");
            faults.show(shown);
        }
    }
    let retention = SPEC.field("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let found = text(at(spec, "persistentVolumeClaimRetentionPolicy"), field);
        faults.one_of(&retention.field(field), found, &["Retain", "Delete"]);
    }
    let templates = SPEC.field("volumeClaimTemplates");
    if is_create {
        for (index, template) in items(spec, "volumeClaimTemplates").iter().enumerate() {
            volumes::claim_spec(faults, &templates.index(index).field("spec"), at(template, "spec"));
        }
    }
    faults.not_negative(&SPEC.field("replicas"), at(spec, "replicas"));
    faults.not_negative(&SPEC.field("minReadySeconds"), at(spec, "minReadySeconds"));
    faults.not_negative(&SPEC.field("ordinals.start"), at(spec, "ordinals.start"));
    let service = text(spec, "serviceName");
    if is_create && !service.is_empty() {
        for why in names::label(service) {
            faults.invalid(&SPEC.field("serviceName"), service, why);
        }
    }
    let selector = at(spec, "selector");
    selector_of(faults, selector, "statefulset");
    let template_path = SPEC.field("template");
    match meta::selects(selector, at(spec, "template.metadata.labels")) {
        None => faults.invalid(&SPEC.field("selector"), selector.clone(), ""),
        Some(is_selected) => {
            if selector.is_null() || !is_selected && !is_empty(selector) {
                mismatch(faults, &template_path, spec);
            }
            pod::template(faults, &template_path, &with_claims(spec));
        }
    }
    always_restarts(faults, spec, "StatefulSet");
}

/// The template as its pods will be: with the claims as volumes, and without the names each pod gets.
fn with_claims(spec: &Value) -> Value {
    let mut template = at(spec, "template").clone();
    let claims = items(spec, "volumeClaimTemplates");
    let pod = open(&mut template, "spec");
    pod.remove("hostname");
    pod.remove("subdomain");
    if !claims.is_empty() {
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|claim| {
                let name = text(claim, "metadata.name");
                json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })
            })
            .collect();
        let is_claimed =
            |volume: &Value| claims.iter().any(|claim| text(claim, "metadata.name") == text(volume, "name"));
        volumes.extend(items(spec, "template.spec.volumes").iter().filter(|volume| !is_claimed(volume)).cloned());
        pod.insert("volumes".to_owned(), Value::Array(volumes));
    }
    template
}

pub(super) fn stateful_set_update(faults: &mut Faults, new: &Value, old: &Value) {
    let mut after = at(new, "spec").clone();
    for key in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        copy_key(open(&mut after, ""), key, at(old, "spec"));
    }
    if &after != at(old, "spec") {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        faults.forbidden(&SPEC, detail);
    }
}

pub(super) fn replication_controller(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    faults.not_negative(&SPEC.field("minReadySeconds"), at(spec, "minReadySeconds"));
    let selector = at(spec, "selector");
    if entries(spec, "selector").next().is_none() {
        faults.required(&SPEC.field("selector"), "");
    }
    faults.not_negative(&SPEC.field("replicas"), at(spec, "replicas"));
    let template = SPEC.field("template");
    if !has(spec, "template") {
        faults.required(&template, "");
        return;
    }
    if meta::selects(&json!({ "matchLabels": selector }), at(spec, "template.metadata.labels")) == Some(false) {
        mismatch(faults, &template, spec);
    }
    pod::template(faults, &template, at(spec, "template"));
    always_restarts(faults, spec, "ReplicationController");
}

pub(super) fn job(faults: &mut Faults, object: &Value) {
    if !flag(object, "spec.manualSelector") {
        generated_labels(faults, object);
    }
    let spec = at(object, "spec");
    job_spec(faults, &SPEC, spec);
    job_selector(faults, spec);
    if text(spec, "completionMode") == "Indexed"
        && let Some(completions) = int(spec, "completions").filter(|completions| *completions > 0)
    {
        let name = text(object, "metadata.name");
        let last = format!("{name}-{}", completions - 1);
        if !names::label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            faults.invalid(&METADATA.field("name"), name, detail);
        }
    }
}

fn job_selector(faults: &mut Faults, spec: &Value) {
    let selector = at(spec, "selector");
    if selector.is_null() {
        faults.required(&SPEC.field("selector"), "");
    } else {
        meta::selector(faults, &SPEC.field("selector"), selector);
    }
    if meta::selects(selector, at(spec, "template.metadata.labels")) == Some(false) || selector.is_null() {
        mismatch(faults, &SPEC.field("template"), spec);
    }
}

/// A client may give the generated labels itself, but then the right ones.
fn generated_labels(faults: &mut Faults, object: &Value) {
    let (name, uid) = (text(object, "metadata.name"), text(object, "metadata.uid"));
    let labels = at(object, "spec.template.metadata.labels");
    let template = SPEC.field("template");
    let metadata = template.field("metadata");
    let path = metadata.field("labels");
    for (key, wanted) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        match labels.get(key).and_then(Value::as_str) {
            None => faults.required(&path.key(key), &format!("must be '{wanted}'")),
            Some(found) if found != wanted => {
                faults.invalid(&path.key(key), labels.clone(), format!("must be '{wanted}'"));
            }
            Some(_) => {}
        }
    }
    let generated = json!({
        "controller-uid": uid, "job-name": name,
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
    });
    let selector = at(object, "spec.selector");
    if meta::selects(selector, &generated) == Some(false) {
        faults.invalid(&SPEC.field("selector"), selector.clone(), "`selector` not auto-generated");
    }
}

fn job_spec(faults: &mut Faults, path: &Path<'_>, spec: &Value) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        faults.not_negative(&path.field(field), at(spec, field));
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        faults.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    match spec.get("completionMode").and_then(Value::as_str) {
        Some("Indexed") => {
            if !has(spec, "completions") {
                faults.required(&path.field("completions"), "when completion mode is Indexed");
            }
            if let Some(parallelism) = int(spec, "parallelism").filter(|parallelism| *parallelism > 100_000) {
                let detail = "must be less than or equal to 100000 when completion mode is Indexed";
                faults.invalid(&path.field("parallelism"), parallelism, detail);
            }
        }
        mode => {
            if let Some(other) = mode.filter(|mode| *mode != "NonIndexed") {
                faults.not_supported(&path.field("completionMode"), other, &["NonIndexed", "Indexed"]);
            }
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(found) = int(spec, field) {
                    faults.invalid(&path.field(field), found, "requires indexed completion mode");
                }
            }
        }
    }
    failure_policy(faults, path, spec);
    if let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) {
        let path = path.field("podReplacementPolicy");
        if has(spec, "podFailurePolicy") {
            faults.one_of(&path, policy, &["Failed"]);
        } else {
            faults.one_of(&path, policy, &["Failed", "TerminatingOrFailed"]);
        }
    }
    let template = path.field("template");
    pod::template(faults, &template, at(spec, "template"));
    let pod_path = template.field("spec");
    let path = pod_path.field("restartPolicy");
    match text(spec, "template.spec.restartPolicy") {
        "Always" | "" => faults.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            faults.invalid(&path, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => faults.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

fn failure_policy(faults: &mut Faults, path: &Path<'_>, spec: &Value) {
    let path = path.field("podFailurePolicy");
    let list = path.field("rules");
    let rules = items(spec, "podFailurePolicy.rules");
    if rules.len() > 20 {
        faults.too_many(&list, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = list.index(index);
        match text(rule, "action") {
            "" => faults
                .required(&path.field("action"), "valid values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\""),
            found => faults.one_of(&path.field("action"), found, &["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        let (codes, conditions) = (has(rule, "onExitCodes"), !items(rule, "onPodConditions").is_empty());
        if codes && conditions {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            faults.invalid(&path, Value::Null, detail);
        } else if !codes && !conditions {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            faults.invalid(&path, Value::Null, detail);
        }
    }
}

pub(super) fn job_update(faults: &mut Faults, new: &Value, old: &Value) {
    let (after, before) = (at(new, "spec"), at(old, "spec"));
    job_spec(faults, &SPEC, after);
    job_selector(faults, after);
    let is_elastic = text(after, "completionMode") == "Indexed"
        && at(after, "completions") == at(after, "parallelism")
        && has(before, "completions");
    if !is_elastic {
        faults.immutable(&SPEC.field("completions"), at(after, "completions"), at(before, "completions"));
    }
    faults.immutable(&SPEC.field("selector"), at(after, "selector"), at(before, "selector"));
    let mut was = at(before, "template").clone();
    // A job that was never started may still be moved.
    if flag(before, "suspend") && !has(old, "status.startTime") {
        for key in ["nodeSelector", "tolerations", "schedulingGates", "affinity"] {
            copy_key(open(&mut was, "spec"), key, at(after, "template.spec"));
        }
        for key in ["labels", "annotations"] {
            copy_key(open(&mut was, "metadata"), key, at(after, "template.metadata"));
        }
    }
    faults.immutable(&SPEC.field("template"), at(after, "template"), &was);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        faults.immutable(&SPEC.field(field), at(after, field), at(before, field));
    }
}

pub(super) fn cron_job(faults: &mut Faults, object: &Value, is_create: bool) {
    let spec = at(object, "spec");
    let schedule = text(spec, "schedule");
    let path = SPEC.field("schedule");
    if schedule.is_empty() {
        faults.required(&path, "");
    } else {
        if let Some(why) = schedule_fault(schedule) {
            faults.invalid(&path, schedule, why);
        }
        if schedule.contains("TZ") {
            faults.invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
    }
    faults.not_negative(&SPEC.field("startingDeadlineSeconds"), at(spec, "startingDeadlineSeconds"));
    match text(spec, "concurrencyPolicy") {
        "" => faults.required(&SPEC.field("concurrencyPolicy"), ""),
        found => faults.one_of(&SPEC.field("concurrencyPolicy"), found, &["Allow", "Forbid", "Replace"]),
    }
    let template = SPEC.field("jobTemplate");
    let job_path = template.field("spec");
    if has(spec, "jobTemplate.spec.selector") {
        let selector = at(spec, "jobTemplate.spec.selector").clone();
        faults.invalid(&job_path.field("selector"), selector, "`selector` will be auto-generated");
    }
    job_spec(faults, &job_path, at(spec, "jobTemplate.spec"));
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        faults.not_negative(&SPEC.field(field), at(spec, field));
    }
    let name = text(object, "metadata.name");
    if is_create && name.len() > 52 {
        faults.invalid(&METADATA.field("name"), name, "must be no more than 52 characters");
    }
}

/// Five fields of numbers, names, ranges, lists and steps, or `@daily` and the like.
fn schedule_fault(schedule: &str) -> Option<String> {
    const NAMES: [&str; 8] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot"];
    if schedule.starts_with('@') {
        let is_known = NAMES.contains(&schedule) && schedule != "@reboot" || schedule.starts_with("@every ");
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let fields = match fields.as_slice() {
        [zone, rest @ ..] if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => rest,
        all => all,
    };
    if fields.len() != 5 {
        let found: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), found.join(" ")));
    }
    const BOUNDS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    fields
        .iter()
        .zip(BOUNDS)
        .find_map(|(field, (low, high))| field.split(',').find_map(|part| schedule_part_fault(part, low, high)))
}

fn schedule_part_fault(part: &str, low: u32, high: u32) -> Option<String> {
    const WORDS: &str = "jan feb mar apr may jun jul aug sep oct nov dec sun mon tue wed thu fri sat";
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    if step.is_some_and(|step| step.parse::<u32>().is_err()) {
        let step = step.unwrap_or_default();
        return Some(format!("failed to parse int from {step}: strconv.Atoi: parsing \"{step}\": invalid syntax"));
    }
    if matches!(range, "*" | "?") {
        return None;
    }
    for end in range.split('-') {
        let is_word = !end.is_empty() && WORDS.split(' ').any(|word| word.eq_ignore_ascii_case(end));
        match end.parse::<u32>() {
            Ok(number) if number < low => {
                return Some(format!("beginning of range ({number}) below minimum ({low}): {part}"));
            }
            Ok(number) if number > high => {
                return Some(format!("end of range ({number}) above maximum ({high}): {part}"));
            }
            Err(_) if !is_word => {
                return Some(format!(
                    "failed to parse int from {end}: strconv.Atoi: parsing \"{end}\": invalid syntax"
                ));
            }
            _ => {}
        }
    }
    None
}

/// Counts in a status: none below zero, and the parts not above the whole.
pub(super) fn status_counts(faults: &mut Faults, object: &Value, counts: &[&str], parts: &[&str], sums_up: &str) {
    let status = at(object, "status");
    for field in counts {
        faults.not_negative(&STATUS.field(field), at(status, field));
    }
    let count = |field: &str| int(status, field).unwrap_or_default();
    for field in parts {
        if count(field) > count("replicas") {
            faults.invalid(&STATUS.field(field), count(field), "cannot be greater than status.replicas");
        }
    }
    if !sums_up.is_empty() && count("availableReplicas") > count("readyReplicas") {
        faults.invalid(&STATUS.field("availableReplicas"), count("availableReplicas"), sums_up);
    }
}
