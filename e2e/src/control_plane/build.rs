//! Go modules in, cached binaries out.
//!
//! ```text
//! <cache>/kerf/control-plane/
//!   kubernetes-v1.36.3/kube-apiserver, kubectl, …
//!   kwok-v0.8.0/kwok, pod-ready.yaml, …      the binary, and the files of its module that it needs
//!   kubernetes-v1.36.3.lock        held while building: a second process waits, then finds the work done
//!   kubernetes-v1.36.3.building/   go.mod, go.sum, half-made binaries; renamed into place only when whole
//! ```
//!
//! A cached binary is used as it is, without asking for Go.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::go;
use super::parts::{Part, Set};

/// Where progress is told, a line at a time. Usually [`to_stderr`].
pub type Progress<'a> = &'a dyn Fn(&str);

/// Paths of built binaries, by name.
#[derive(Clone, Debug)]
pub struct Binaries {
    paths: BTreeMap<&'static str, PathBuf>,
    root: PathBuf,
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

    /// The text of one of a set's files, by its name without folders.
    pub fn file(&self, set: &Set, name: &str) -> Result<String> {
        let path = self.root.join(set.folder()).join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.paths.iter().map(|(name, path)| (*name, path.as_path()))
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
    if parts.iter().any(|part| !binary_path(&root, part).is_file() || !missing_files(&root, part.set).is_empty()) {
        let Some(go) = find_on_path("go") else {
            return Ok(Prepared::Skipped(
                "no go on PATH, and the control plane's binaries are not in the cache".to_owned(),
            ));
        };
        for set in sets(parts) {
            let of_set: Vec<&Part> = parts.iter().filter(|part| std::ptr::eq(part.set, set)).collect();
            build_set(&go, &root, set, &of_set, progress)?;
        }
    }
    let paths = parts.iter().map(|part| (part.name, binary_path(&root, part))).collect();
    Ok(Prepared::Ready(Binaries { paths, root }))
}

/// `$XDG_CACHE_HOME` or `~/.cache`, then `kerf/control-plane`.
pub fn cache_folder() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|value| Path::new(value).is_absolute()) {
        Some(cache) => PathBuf::from(cache),
        None => {
            PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set: no place for a cache")?)
                .join(".cache")
        }
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

fn file_path(root: &Path, set: &Set, file: &str) -> PathBuf {
    root.join(set.folder()).join(last_name(file))
}

fn last_name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn missing_files(root: &Path, set: &Set) -> Vec<&'static str> {
    set.files.iter().copied().filter(|file| !file_path(root, set, file).is_file()).collect()
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

fn build_set(go: &Path, root: &Path, set: &Set, parts: &[&Part], progress: Progress<'_>) -> Result<()> {
    let label = format!("{} {}", set.name, set.version);
    fs::create_dir_all(root).with_context(|| format!("cannot make the cache folder {}", root.display()))?;
    // Held until the end of this function, and let go by the system if we die.
    let _lock = lock(&root.join(format!("{}.lock", set.folder())), &label, progress)?;
    let missing: Vec<&Part> = parts.iter().copied().filter(|part| !binary_path(root, part).is_file()).collect();
    let files = missing_files(root, set);
    if missing.is_empty() && files.is_empty() {
        return Ok(());
    }

    let work = root.join(format!("{}.building", set.folder()));
    if work.exists() {
        fs::remove_dir_all(&work).context("cannot clear an interrupted build")?;
    }
    let output = work.join("bin");
    fs::create_dir_all(&output).context("cannot make the build folder")?;
    let folder = root.join(set.folder());
    fs::create_dir_all(&folder).context("cannot make the folder of binaries")?;
    if !missing.is_empty() {
        build_parts(go, &work, &output, set, &missing, progress)?;
    }
    if !files.is_empty() {
        let module = go::module_folder(go, &work, set).with_context(|| format!("cannot fetch {label}"))?;
        for file in files {
            fs::copy(module.join(file), output.join(last_name(file)))
                .with_context(|| format!("{label} has no {file}"))?;
        }
    }
    let made = fs::read_dir(&output).context("cannot look at what was built")?;
    for entry in made {
        let name = entry.context("cannot look at what was built")?.file_name();
        fs::rename(output.join(&name), folder.join(&name))
            .with_context(|| format!("cannot move {} into the cache", name.display()))?;
    }
    fs::remove_dir_all(&work).context("cannot clear the build folder")
}

fn build_parts(
    go: &Path,
    work: &Path,
    output: &Path,
    set: &Set,
    parts: &[&Part],
    progress: Progress<'_>,
) -> Result<()> {
    let began = Instant::now();
    let label = format!("{} {}", set.name, set.version);
    let names = parts.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
    progress(&format!("control plane: building {names} of {label}, once for this machine; some minutes"));
    go::resolve(go, work, set, parts, progress).with_context(|| format!("cannot resolve {label}"))?;
    go::compile(go, work, output, set, parts, progress).with_context(|| format!("cannot build {label}"))?;
    progress(&format!("control plane: built {names} of {label} in {} s", began.elapsed().as_secs()));
    Ok(())
}

fn lock(path: &Path, label: &str, progress: Progress<'_>) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot make the lock {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(&format!("control plane: another process builds {label}; waiting for it"));
            file.lock().context("cannot wait for the lock")?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock"),
    }
    Ok(file)
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_lock_that_is_held_makes_the_second_wait_and_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = lock(&path, "x", &|_| {}).unwrap();
        let (told_tx, told_rx) = mpsc::channel();
        let waiter =
            thread::spawn(move || lock(&path, "x", &move |line| told_tx.send(line.to_owned()).unwrap()).map(drop));
        assert!(told_rx.recv().unwrap().contains("another process builds x"));
        drop(held);
        waiter.join().unwrap().unwrap();
    }
}
