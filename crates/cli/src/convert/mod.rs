//! `kerf convert`: older objects as v1.
//!
//! ```text
//! input (files) ─▶ gather ─▶ alpha (Provisioners)  ┐
//!                           beta  (v1beta1)        ├─▶ made ─▶ print          what was converted, to standard output
//!                           v1, as it is           ┘    └────▶ report         what was not, to standard error
//! ```

mod alpha;
pub(crate) mod arguments;
mod beta;
mod gather;
mod made;
mod print;
mod report;

use crate::Outcome;
use crate::input;
use anyhow::bail;
use arguments::ConvertArguments;
use gather::Gathered;
use kerf_api::older::TranslationSettings;
use made::Made;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

pub(crate) fn run(arguments: &ConvertArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let files = files(arguments)?;
    let mut gathered = Gathered::default();
    input::read_all(&files, &mut gathered)?;
    if let Some(trouble) = gathered.troubles.first() {
        bail!("{}, {}: {}; nothing is printed", trouble.source, trouble.what, trouble.message);
    }
    if gathered.objects.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        bail!("there is no Kubernetes object in {}", names.join(", "));
    }
    let settings = TranslationSettings {
        default_instance_profile: arguments.default_instance_profile.clone(),
        default_role: arguments.role.clone(),
        kubernetes_minor: arguments.kubernetes_version,
        cluster_name: None,
    };
    let mut made = Made::default();
    let sorted = gathered.sort(&mut made);
    // Who is written in v1 or v1beta1 keeps its name; and classes come before the pools that go by them.
    let pools = beta::convert_classes(&sorted, &mut made);
    let translated = alpha::convert_classes(&sorted, &pools, &settings, &mut made);
    alpha::add_pools(translated, &mut made);
    beta::add_pools(pools, &sorted, &mut made);
    let is_whole = !made.has_no_equivalent();
    report::write(&mut std::io::stderr().lock(), &made)?;
    print::write(out, made.into_objects(), arguments.output)?;
    Ok(if is_whole { Outcome::Done } else { Outcome::Pending })
}

fn files(arguments: &ConvertArguments) -> anyhow::Result<Vec<PathBuf>> {
    if !arguments.files.is_empty() {
        return Ok(arguments.files.clone());
    }
    if std::io::stdin().is_terminal() {
        bail!("what should be converted? Give files with -f, or pipe in what kubectl prints (see kerf convert --help)");
    }
    Ok(vec!["-".into()])
}
