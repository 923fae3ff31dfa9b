//! The Go command: a module resolved in a go.mod of its own, and binaries built from it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::build::Progress;
use super::parts::{Part, Set, Staging};

/// A build of minutes should say that it lives, without filling the screen.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How much of Go's output goes into an error: enough for a compiler message with its surroundings.
const TAIL_LINES: usize = 30;

/// Writes a go.mod that requires the set, with replacements where its own go.mod has them, and lets Go fill in the rest.
pub(super) fn resolve(go: &Path, work: &Path, set: &Set, parts: &[&Part], progress: Progress<'_>) -> Result<()> {
    let module_at = format!("{}@{}", set.module, set.version);
    let download: Download = json_of(go_command(go, work).args(["mod", "download", "-json", &module_at]))?;
    let upstream: GoMod = json_of(go_command(go, work).args(["mod", "edit", "-json"]).arg(&download.go_mod))?;
    fs::write(work.join("go.mod"), go_mod(set, &upstream)?).context("cannot write go.mod")?;
    let mut get = go_command(go, work);
    get.arg("get").args(parts.iter().map(|part| format!("{}@{}", part.import_path(), set.version)));
    run(&mut get, &format!("{}: resolving", set.name), "modules", progress)
}

/// The folder of the set's module in Go's cache, fetched if it is not there.
pub(super) fn module_folder(go: &Path, work: &Path, set: &Set) -> Result<PathBuf> {
    let module_at = format!("{}@{}", set.module, set.version);
    let download: Download = json_of(go_command(go, work).args(["mod", "download", "-json", &module_at]))?;
    Ok(download.dir)
}

/// Builds each part's binary into the folder `output`.
pub(super) fn compile(
    go: &Path,
    work: &Path,
    output: &Path,
    set: &Set,
    parts: &[&Part],
    progress: Progress<'_>,
) -> Result<()> {
    // Together, so that one is linked while another is compiled; but where Go would choose another name (it would call etcd
    // `server`), `-o` names the file of one.
    let (together, apart): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|part| part.has_the_name_that_go_gives());
    let groups = apart.into_iter().map(|part| (vec![part], output.join(part.name)));
    for (group, to) in groups.chain([(together, output.join(""))]).filter(|(group, _)| !group.is_empty()) {
        let mut build = go_command(go, work);
        build.args(["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", &linker_flags(set), "-o"]);
        build.arg(to).args(group.iter().map(|part| part.import_path()));
        let names = group.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
        run(&mut build, &format!("{names}: compiling"), "packages", progress)?;
    }
    Ok(())
}

fn linker_flags(set: &Set) -> String {
    let mut flags = "-s -w".to_owned();
    for (variable, value) in set.stamps {
        flags.push_str(&format!(" -X {variable}={value}"));
    }
    flags
}

fn go_mod(set: &Set, upstream: &GoMod) -> Result<String> {
    let mut text = format!(
        "module kerf.invalid/control-plane/{}\n\ngo {}\n\nrequire {} {}\n\n",
        set.name, upstream.go, set.module, set.version
    );
    for replacement in upstream.replace.iter().flatten() {
        // A module is replaced by what upstream put in its place, a folder by the published module of the same name.
        let (new_path, new_version) = match (&replacement.new.version, set.staging) {
            (Some(version), _) => (&replacement.new.path, version.clone()),
            (None, Staging::V0Twin) => (&replacement.old.path, v0_twin(set.version)?),
            (None, Staging::AsRequired) => continue,
        };
        let old_version = replacement.old.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        text.push_str(&format!("replace {}{old_version} => {new_path} {new_version}\n", replacement.old.path));
    }
    Ok(text)
}

fn v0_twin(version: &str) -> Result<String> {
    let rest = version.strip_prefix("v1.").with_context(|| format!("{version} has no v0 twin"))?;
    Ok(format!("v0.{rest}"))
}

/// Go, deaf to a workspace around the cache folder and to flags meant for other builds.
fn go_command(go: &Path, work: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(work)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-mod=mod")
        // A module may ask for a newer Go than the machine's; Go fetches it like any module.
        .env("GOTOOLCHAIN", "auto")
        // The compiler's own garbage costs a fifth of its time, and it never has much.
        .env("GOGC", "400")
        .stdin(Stdio::null());
    command
}

fn json_of<T: for<'de> Deserialize<'de>>(command: &mut Command) -> Result<T> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    // `go mod download -json` tells its errors in the JSON, on stdout.
    let said = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} failed:\n{}", said());
    serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} answered something unexpected"))
}

/// Runs a long command, counting the lines it says (Go says one per module or package) and telling the count now and then.
fn run(command: &mut Command, label: &str, unit: &str, progress: Progress<'_>) -> Result<()> {
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let stderr = child.stderr.take().expect("stderr was piped two lines above");
    let (say, said) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // The receiver is gone only when the caller has given up.
            let _ = say.send(line);
        }
    });

    let mut tail: Vec<String> = Vec::new();
    let mut n_lines = 0_usize;
    let mut told = Instant::now();
    loop {
        match said.recv_timeout(TELL_EVERY.saturating_sub(told.elapsed())) {
            Ok(line) => {
                n_lines += 1;
                tail.push(line);
                if tail.len() > TAIL_LINES {
                    tail.remove(0);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if told.elapsed() >= TELL_EVERY {
            progress(&format!("control plane: {label}, {n_lines} {unit} so far, {} s", began.elapsed().as_secs()));
            told = Instant::now();
        }
    }
    let status = child.wait().context("cannot wait for go")?;
    let _ = reader.join();
    ensure!(status.success(), "{command:?} failed with {status}:\n{}", tail.join("\n"));
    Ok(())
}

#[derive(Deserialize)]
struct Download {
    #[serde(rename = "GoMod")]
    go_mod: PathBuf,
    #[serde(rename = "Dir")]
    dir: PathBuf,
}

#[derive(Deserialize)]
struct GoMod {
    #[serde(rename = "Go")]
    go: String,
    /// `null` where there is none.
    #[serde(rename = "Replace")]
    replace: Option<Vec<Replacement>>,
}

#[derive(Deserialize)]
struct Replacement {
    #[serde(rename = "Old")]
    old: ModuleVersion,
    #[serde(rename = "New")]
    new: ModuleVersion,
}

#[derive(Deserialize)]
struct ModuleVersion {
    #[serde(rename = "Path")]
    path: String,
    #[serde(rename = "Version")]
    version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::parts::{ETCD, KUBERNETES};
    use super::*;

    fn upstream(replace: &str) -> GoMod {
        serde_json::from_str(&format!(r#"{{"Go":"1.26.0","Replace":{replace}}}"#)).unwrap()
    }

    #[test]
    fn a_staging_folder_becomes_the_published_v0_twin_and_a_module_stays_what_upstream_chose() {
        let text = go_mod(
            &KUBERNETES,
            &upstream(
                r#"[{"Old":{"Path":"k8s.io/api"},"New":{"Path":"./staging/src/k8s.io/api"}},
                    {"Old":{"Path":"example.com/a","Version":"v1.0.0"},"New":{"Path":"example.com/b","Version":"v2.0.0"}}]"#,
            ),
        )
        .unwrap();
        assert!(text.contains("\nrequire k8s.io/kubernetes v1.36.3\n"), "{text}");
        assert!(text.contains("\nreplace k8s.io/api => k8s.io/api v0.36.3\n"), "{text}");
        assert!(text.contains("\nreplace example.com/a v1.0.0 => example.com/b v2.0.0\n"), "{text}");
    }

    #[test]
    fn a_folder_that_is_also_required_in_a_published_version_needs_no_replacement() {
        let text =
            go_mod(&ETCD, &upstream(r#"[{"Old":{"Path":"go.etcd.io/etcd/api/v3"},"New":{"Path":"../api"}}]"#)).unwrap();
        assert!(!text.contains("replace"), "{text}");
    }

    #[test]
    fn a_module_without_replacements_needs_none() {
        assert!(!go_mod(&ETCD, &upstream("null")).unwrap().contains("replace"));
    }
}
