//! Children that end with their parent, however it ends.
//!
//! ```text
//! us ──spawn──▶ etcd, kube-apiserver          each in a process group of its own: an interrupt at the terminal is ours alone
//!  └───pipe───▶ guard (sh)                    learns every child's pid; when the pipe closes, it kills them and clears the folder
//! ```
//!
//! A death signal from the kernel would need unsafe code, and follows the thread that spawned, not the process: a control
//! plane shared by several tests would die with the first test's thread. A pipe that closes tells the same news on every
//! Unix, also when we are killed.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

const GUARD: &str = r#"
pids=
while read -r pid; do pids="$pids $pid"; done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
rm -rf "$1"
"#;
/// The end of a log that goes into an error message: where a server says why it gave up.
const TAIL_LINES: usize = 15;

pub(crate) struct Processes {
    folder: PathBuf,
    children: Vec<(String, Child)>,
    /// Gone once the children are ended or released.
    guard: Option<Child>,
}

impl Processes {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let guard = Command::new("sh")
            .args(["-c", GUARD, "kerf-guard"])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sh, which guards the control plane's processes")?;
        Ok(Self { folder: folder.to_owned(), children: Vec::new(), guard: Some(guard) })
    }

    /// Starts a server that logs to `<name>.log` in the folder.
    pub(crate) fn start(&mut self, name: &str, binary: &Path, arguments: &[String]) -> Result<()> {
        self.spawn(name, Command::new(binary).args(arguments)).map(drop)
    }

    /// Starts a command like a server: in the folder, with a log, under the guard's care. Answers with its pid.
    pub(crate) fn spawn(&mut self, name: &str, command: &mut Command) -> Result<u32> {
        let log =
            File::create(log_path(&self.folder, name)).with_context(|| format!("cannot make a log for {name}"))?;
        let child = command
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share a log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let pid = child.id();
        self.children.push((name.to_owned(), child));
        let guard = self.guard.as_mut().expect("nothing is started after the end");
        let pipe = guard.stdin.as_mut().expect("the guard was started with a pipe");
        writeln!(pipe, "{pid}").with_context(|| format!("the guard did not take {name} under its care"))?;
        Ok(pid)
    }

    pub(crate) fn pids(&self) -> Vec<(String, u32)> {
        self.children.iter().map(|(name, child)| (name.clone(), child.id())).collect()
    }

    pub(crate) fn check_alive(&mut self) -> Result<()> {
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait().with_context(|| format!("cannot ask after {name}"))? {
                bail!("{name} ended by itself with {status}:\n{}", log_tail(&self.folder, name));
            }
        }
        Ok(())
    }

    pub(crate) fn log_tails(&self) -> String {
        self.children.iter().map(|(name, _)| format!("--- {name}\n{}\n", log_tail(&self.folder, name))).collect()
    }

    /// Kills and reaps all of them. Again is harmless.
    pub(crate) fn end(&mut self) {
        self.dismiss_guard();
        for (_, child) in &mut self.children {
            // An error means it is gone already.
            let _ = child.kill();
        }
        for (_, mut child) in self.children.drain(..) {
            let _ = child.wait();
        }
    }

    /// Lets them live on after us.
    pub(crate) fn release(mut self) -> Vec<(String, u32)> {
        self.dismiss_guard();
        self.children.drain(..).map(|(name, child)| (name, child.id())).collect()
    }

    /// Before the children are reaped: afterwards their pids may belong to others, and the guard would not know.
    fn dismiss_guard(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether one of the servers failed because somebody else took its port.
pub(crate) fn says_port_taken(folder: &Path) -> bool {
    logs(folder).iter().any(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("address already in use")))
}

/// Copies the logs out of a folder that is about to go.
pub(crate) fn keep_logs(folder: &Path, kept: &Path) -> Result<()> {
    fs::create_dir_all(kept)?;
    for path in logs(folder) {
        if let Some(name) = path.file_name() {
            fs::copy(&path, kept.join(name))?;
        }
    }
    Ok(())
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect()
}

pub(crate) fn log_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn log_tail(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(log_path(folder, name)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper(processes: &mut Processes) -> u32 {
        processes.start("sleeper", Path::new("/bin/sleep"), &["600".to_owned()]).unwrap();
        processes.children[0].1.id()
    }

    fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for: {what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_child_ends_with_the_value_that_started_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(folder.path()).unwrap();
        let pid = sleeper(&mut processes);
        // Right after a spawn the new program may not have its command line yet.
        wait_for("the child to run", || super::super::standing::command_line(pid).is_some());
        drop(processes);
        assert_eq!(super::super::standing::command_line(pid), None);
    }

    #[test]
    fn the_guard_ends_the_children_and_clears_the_folder_when_the_parents_pipe_closes() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(folder.path()).unwrap();
        sleeper(&mut processes);
        // What the kernel does to our end of the pipe when we are killed.
        drop(processes.guard.as_mut().unwrap().stdin.take());
        wait_for("the child to be killed", || processes.children[0].1.try_wait().unwrap().is_some());
        wait_for("the folder to be cleared", || !folder.path().exists());
    }

    #[test]
    fn a_server_that_gives_up_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(folder.path()).unwrap();
        processes
            .start("server", Path::new("/bin/sh"), &["-c".to_owned(), "echo address already in use; exit 3".to_owned()])
            .unwrap();
        let mut said = String::new();
        wait_for("the server to end", || {
            processes.check_alive().inspect_err(|error| said = error.to_string()).is_err()
        });
        assert!(said.contains("server ended by itself") && said.contains("already in use"), "{said}");
        assert!(says_port_taken(folder.path()));
    }
}
