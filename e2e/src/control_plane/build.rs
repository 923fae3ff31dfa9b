//! Go modules in, cached binaries out.
//!
//! ```text
//! <cache>/kerf/control-plane/
//!   kubernetes-v1.36.3/kube-apiserver, kubectl
//!   kubernetes-v1.36.3.lock        held while building: a second process waits, then finds the work done
//!   kubernetes-v1.36.3.building/   go.mod, go.sum, half-made binaries; renamed into place only when whole
//! ```
//!
//! A cached binary is used as it is, without asking for Go.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::parts::{Part, Set, Staging};

/// Where progress is told, a line at a time. Usually [`to_stderr`].
pub type Progress<'a> = &'a dyn Fn(&str);

/// A build of minutes should say that it lives, without filling the screen.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How much of Go's output goes into an error: enough for a compiler message with its surroundings.
const TAIL_LINES: usize = 30;

/// Paths of built binaries, by name.
#[derive(Clone, Debug)]
pub struct Binaries {
    paths: BTreeMap<&'static str, PathBuf>,
}

/// Either the binaries, or why this machine cannot have them.
pub enum Prepared {
    Ready(Binaries),
    Skipped(String),
}

impl Binaries {
    pub fn path(&self, name: &str) -> Result<&Path> {
        self.paths
            .get(name)
            .map(PathBuf::as_path)
            .with_context(|| format!("{name} is not among the parts that were prepared"))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.paths
            .iter()
            .map(|(name, path)| (*name, path.as_path()))
    }
}

/// Makes sure each part's binary is in the cache, building what is missing.
///
/// - Guarantees: a path that is returned is a whole binary. An interrupted build leaves none behind, and two processes do not
///   build the same set at once.
/// - Assumptions: the Go module proxy can be reached when something must be built.
/// - Caveats: without Go, and with something missing, the answer is `Skipped`; a failing build is an error.
pub fn prepare(parts: &[Part], progress: Progress<'_>) -> Result<Prepared> {
    let root = cache_folder()?;
    if parts.iter().any(|part| !binary_path(&root, part).is_file()) {
        let Some(go) = find_on_path("go") else {
            return Ok(Prepared::Skipped(
                "no go on PATH, and the control plane's binaries are not in the cache".to_owned(),
            ));
        };
        for set in sets(parts) {
            let of_set: Vec<&Part> = parts
                .iter()
                .filter(|part| std::ptr::eq(part.set, set))
                .collect();
            build_set(&go, &root, set, &of_set, progress)?;
        }
    }
    Ok(Prepared::Ready(Binaries {
        paths: parts
            .iter()
            .map(|part| (part.name, binary_path(&root, part)))
            .collect(),
    }))
}

/// `$XDG_CACHE_HOME` or `~/.cache`, then `kerf/control-plane`.
pub fn cache_folder() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|value| Path::new(value).is_absolute()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(
            env::var_os("HOME")
                .context("neither XDG_CACHE_HOME nor HOME is set: no place for a cache")?,
        )
        .join(".cache"),
    };
    Ok(base.join("kerf").join("control-plane"))
}

/// A [`Progress`] for people. It writes past the test harness, which would keep a passing test's prints to itself.
pub fn to_stderr(line: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn binary_path(root: &Path, part: &Part) -> PathBuf {
    root.join(part.set.folder()).join(part.name)
}

fn sets(parts: &[Part]) -> Vec<&'static Set> {
    let mut sets: Vec<&'static Set> = Vec::new();
    for part in parts {
        if !sets.iter().any(|set| std::ptr::eq(*set, part.set)) {
            sets.push(part.set);
        }
    }
    sets
}

fn build_set(
    go: &Path,
    root: &Path,
    set: &Set,
    parts: &[&Part],
    progress: Progress<'_>,
) -> Result<()> {
    let label = format!("{} {}", set.name, set.version);
    fs::create_dir_all(root)
        .with_context(|| format!("cannot make the cache folder {}", root.display()))?;
    // Held until the end of this function, and let go by the system if we die.
    let _lock = lock(
        &root.join(format!("{}.lock", set.folder())),
        &label,
        progress,
    )?;
    let missing: Vec<&Part> = parts
        .iter()
        .copied()
        .filter(|part| !binary_path(root, part).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }

    let began = Instant::now();
    let names: Vec<&str> = missing.iter().map(|part| part.name).collect();
    progress(&format!(
        "control plane: building {} of {label}, once for this machine; some minutes",
        names.join(", ")
    ));
    let work = root.join(format!("{}.building", set.folder()));
    if work.exists() {
        fs::remove_dir_all(&work).context("cannot clear an interrupted build")?;
    }
    let output = work.join("bin");
    fs::create_dir_all(&output).context("cannot make the build folder")?;

    resolve(go, &work, set, &missing, progress)
        .with_context(|| format!("cannot resolve {label}"))?;
    compile(go, &work, &output, set, &missing, progress)
        .with_context(|| format!("cannot build {label}"))?;

    let folder = root.join(set.folder());
    fs::create_dir_all(&folder).context("cannot make the folder of binaries")?;
    for part in &missing {
        fs::rename(output.join(part.name), folder.join(part.name))
            .with_context(|| format!("cannot move {} into the cache", part.name))?;
    }
    fs::remove_dir_all(&work).context("cannot clear the build folder")?;
    progress(&format!(
        "control plane: built {} of {label} in {} s",
        names.join(", "),
        began.elapsed().as_secs()
    ));
    Ok(())
}

fn lock(path: &Path, label: &str, progress: Progress<'_>) -> Result<File> {
    let file =
        File::create(path).with_context(|| format!("cannot make the lock {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(&format!(
                "control plane: another process builds {label}; waiting for it"
            ));
            file.lock().context("cannot wait for the lock")?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock"),
    }
    Ok(file)
}

/// Writes a go.mod that requires the set, with replacements where its own go.mod has them, and lets Go fill in the rest.
fn resolve(
    go: &Path,
    work: &Path,
    set: &Set,
    parts: &[&Part],
    progress: Progress<'_>,
) -> Result<()> {
    let module_at = format!("{}@{}", set.module, set.version);
    let download: Download =
        json_of(go_command(go, work).args(["mod", "download", "-json", &module_at]))?;
    let upstream: GoMod = json_of(
        go_command(go, work)
            .args(["mod", "edit", "-json"])
            .arg(&download.go_mod),
    )?;
    fs::write(work.join("go.mod"), go_mod(set, &upstream)?).context("cannot write go.mod")?;
    let mut get = go_command(go, work);
    get.arg("get").args(
        parts
            .iter()
            .map(|part| format!("{}@{}", part.import_path(), set.version)),
    );
    run(
        &mut get,
        &format!("{}: resolving", set.name),
        "modules",
        progress,
    )
}

fn compile(
    go: &Path,
    work: &Path,
    output: &Path,
    set: &Set,
    parts: &[&Part],
    progress: Progress<'_>,
) -> Result<()> {
    // One after the other: what they share is compiled with the first. `-o` names the file: Go would
    // call etcd `server`.
    for part in parts {
        let mut build = go_command(go, work);
        build.args([
            "build",
            "-v",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            &linker_flags(set),
            "-o",
        ]);
        build.arg(output.join(part.name)).arg(part.import_path());
        run(
            &mut build,
            &format!("{}: compiling", part.name),
            "packages",
            progress,
        )?;
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
        let new_version = match (&replacement.new.version, set.staging) {
            (Some(version), _) => version.clone(),
            (None, Staging::V0Twin) => v0_twin(set.version)?,
            (None, Staging::None) => bail!(
                "{} replaces {} by the folder {}, which its archive does not have: say in the table of parts where to find it",
                set.module,
                replacement.old.path,
                replacement.new.path
            ),
        };
        let old_version = replacement
            .old
            .version
            .as_ref()
            .map(|version| format!(" {version}"))
            .unwrap_or_default();
        // A folder is replaced by the published module of the same name; a module by what upstream put in its place.
        let new_path = if replacement.new.version.is_some() {
            &replacement.new.path
        } else {
            &replacement.old.path
        };
        text.push_str(&format!(
            "replace {}{old_version} => {new_path} {new_version}\n",
            replacement.old.path
        ));
    }
    Ok(text)
}

fn v0_twin(version: &str) -> Result<String> {
    let rest = version
        .strip_prefix("v1.")
        .with_context(|| format!("{version} has no v0 twin"))?;
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
        .stdin(Stdio::null());
    command
}

fn json_of<T: for<'de> Deserialize<'de>>(command: &mut Command) -> Result<T> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    // `go mod download -json` tells its errors in the JSON, on stdout.
    let said = || {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    ensure!(output.status.success(), "{command:?} failed:\n{}", said());
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?} answered something unexpected"))
}

/// Runs a long command, counting the lines it says (Go says one per module or package) and telling the count now and then.
fn run(command: &mut Command, label: &str, unit: &str, progress: Progress<'_>) -> Result<()> {
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let stderr = child
        .stderr
        .take()
        .expect("stderr was piped two lines above");
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
            progress(&format!(
                "control plane: {label}, {n_lines} {unit} so far, {} s",
                began.elapsed().as_secs()
            ));
            told = Instant::now();
        }
    }
    let status = child.wait().context("cannot wait for go")?;
    let _ = reader.join();
    ensure!(
        status.success(),
        "{command:?} failed with {status}:\n{}",
        tail.join("\n")
    );
    Ok(())
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

#[derive(Deserialize)]
struct Download {
    #[serde(rename = "GoMod")]
    go_mod: PathBuf,
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
        assert!(
            text.contains("\nrequire k8s.io/kubernetes v1.36.3\n"),
            "{text}"
        );
        assert!(
            text.contains("\nreplace k8s.io/api => k8s.io/api v0.36.3\n"),
            "{text}"
        );
        assert!(
            text.contains("\nreplace example.com/a v1.0.0 => example.com/b v2.0.0\n"),
            "{text}"
        );
    }

    #[test]
    fn a_folder_nobody_told_us_about_is_refused_by_name() {
        let error = go_mod(
            &ETCD,
            &upstream(r#"[{"Old":{"Path":"x.io/y"},"New":{"Path":"../y"}}]"#),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("x.io/y"), "{error}");
    }

    #[test]
    fn a_module_without_replacements_needs_none() {
        assert!(
            !go_mod(&ETCD, &upstream("null"))
                .unwrap()
                .contains("replace")
        );
    }

    #[test]
    fn a_lock_that_is_held_makes_the_second_wait_and_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = lock(&path, "x", &|_| {}).unwrap();
        let (told_tx, told_rx) = mpsc::channel();
        let waiter = thread::spawn(move || {
            lock(&path, "x", &move |line| {
                told_tx.send(line.to_owned()).unwrap()
            })
            .map(drop)
        });
        assert!(told_rx.recv().unwrap().contains("another process builds x"));
        drop(held);
        waiter.join().unwrap().unwrap();
    }
}
