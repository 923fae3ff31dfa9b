//! `kerf plan`.

use crate::Outcome;
use crate::arguments::{Format, PlanArguments};
use crate::input::{self, Sink, Trouble};
use crate::live;
use crate::output;
use crate::supply::Catalogue;
use anyhow::{Context, bail};
use kerf_cloud::kwok;
use kerf_mirror::{Mirror, MirrorSettings, Seen, View};
use kerf_model::{Effort, Note, ReservedMode, UnixMillis};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

pub(crate) fn run(arguments: &PlanArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let mut notes = Vec::new();
    let catalogue = catalogue(arguments, &mut notes)?;
    let mut gatherer = Gatherer { mirror: Mirror::new(settings(arguments, &catalogue)?), n_objects: 0, n_troubles: 0 };
    if arguments.live {
        gatherer.n_objects = live::observe(&mut gatherer.mirror, &catalogue, arguments.kubeconfig.as_deref())?;
    } else {
        input::read_all(&files(arguments)?, &mut gatherer)?;
    }
    if gatherer.n_objects == 0 && gatherer.n_troubles == 0 {
        if arguments.live {
            bail!("there is nothing in the cluster that could be planned for");
        }
        let files = files(arguments)?;
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        bail!("there is no Kubernetes object in {}", names.join(", "));
    }
    let mut mirror = gatherer.mirror;
    notes.into_iter().for_each(|note| mirror.note(note));

    let now = arguments.now.unwrap_or_else(jiff::Timestamp::now);
    let snapshot = mirror.snapshot(UnixMillis(now.as_millisecond()), &catalogue);
    if gatherer.n_objects == 0 {
        let first = snapshot.notes.first().map(output::text::note).unwrap_or_default();
        bail!("nothing could be read: {first}");
    }
    let effort = arguments.effort.map_or_else(Effort::default, |max| Effort { max });
    let (plan, report) = kerf_engine::plan_capacity(&snapshot, &effort);
    if let Err(breaches) = kerf_engine::audit(&snapshot, &plan) {
        let told: Vec<String> = breaches.iter().take(3).map(ToString::to_string).collect();
        bail!("this plan would break a rule and is not shown (please report it with the input): {}", told.join("; "));
    }

    let document = output::Document::new(&snapshot, &plan, &report, &catalogue.origins());
    match arguments.output {
        Format::Text => output::text::write(out, &document)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &document)?;
            writeln!(out)?;
        }
        Format::Yaml => serde_norway::to_writer(&mut *out, &document)?,
    }
    Ok(if document.pending.is_empty() { Outcome::Done } else { Outcome::Pending })
}

fn files(arguments: &PlanArguments) -> anyhow::Result<Vec<PathBuf>> {
    if !arguments.files.is_empty() {
        return Ok(arguments.files.clone());
    }
    if std::io::stdin().is_terminal() {
        bail!("what should be planned? Give files with -f, or pipe in what kubectl prints (see kerf plan --help)");
    }
    Ok(vec!["-".into()])
}

fn settings(arguments: &PlanArguments, catalogue: &Catalogue) -> anyhow::Result<MirrorSettings> {
    let view = if arguments.live { View::Live } else { View::Files };
    let mut settings = MirrorSettings::new(view);
    settings.gates = arguments.feature_gates.mirror;
    settings.labels = catalogue.label_rules();
    settings.scheduling.well_known = catalogue.well_known();
    settings.scheduling.preferences = arguments.preference_policy.into();
    settings.scheduling.min_values = arguments.min_values_policy.into();
    settings.scheduling.placed_by = arguments.placed_by.into();
    settings.scheduling.reserved = arguments.feature_gates.reserved_capacity.then_some(ReservedMode::Strict);
    if let Some(path) = &arguments.scheduler_config {
        let config: Value =
            serde_norway::from_str(&read_file(path)?).with_context(|| format!("{} is not YAML", path.display()))?;
        settings.default_spreads =
            kerf_mirror::read_scheduler_config(&path.display().to_string(), &config).map_err(|notes| {
                let words: Vec<String> = notes.iter().map(output::text::note).collect();
                anyhow::anyhow!("{}", words.join("; "))
            })?;
    }
    Ok(settings)
}

fn catalogue(arguments: &PlanArguments, notes: &mut Vec<Note>) -> anyhow::Result<Catalogue> {
    let Some(path) = &arguments.instance_types else {
        return Ok(Catalogue::built_in(arguments.region.clone()));
    };
    let name = path.display().to_string();
    let parsed = kwok::parse(&read_file(path)?);
    if parsed.types.is_empty() {
        match parsed.problems.first() {
            Some(problem) => bail!("{name} holds no instance type: {problem}"),
            None => bail!("{name} holds no instance type"),
        }
    }
    notes.extend(parsed.problems.into_iter().map(|problem| Note {
        source: name.as_str().into(),
        object: format!("instance type {}", problem.instance_type).into(),
        field: problem.field.into(),
        message: format!("found {}, expected {}", problem.found, problem.expected).into(),
    }));
    Ok(Catalogue::of_file(name, parsed.types))
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Hands what the files hold to the mirror.
struct Gatherer {
    mirror: Mirror,
    n_objects: usize,
    n_troubles: usize,
}

impl Sink for Gatherer {
    fn object(&mut self, source: &str, value: Value) {
        match self.mirror.observe_value(source, value) {
            Seen::New | Seen::Replaced { .. } | Seen::NotNeeded => self.n_objects += 1,
            Seen::Unreadable => self.n_troubles += 1,
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.n_troubles += 1;
        self.mirror.note(Note {
            source: trouble.source.into(),
            object: trouble.what.into(),
            field: "".into(),
            message: trouble.message.into(),
        });
    }
}
