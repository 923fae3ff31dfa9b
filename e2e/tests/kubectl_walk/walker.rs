//! Walks: runs the steps with one kubectl against one control plane, and writes down what it said.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::likeness;
use crate::script::{How, Step};

/// What is waited for takes seconds; a machine that compiles beside us may need more.
const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// What was said at one step.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Said {
    pub(crate) step: String,
    pub(crate) lines: Vec<String>,
}

pub(crate) struct Walker {
    kubectl: PathBuf,
    /// The manifests, a kubeconfig and kubectl's cache, for this walk alone.
    folder: tempfile::TempDir,
    watch: Option<Watch>,
}

struct Watch {
    line: String,
    child: Child,
    lines: Receiver<String>,
}

impl Walker {
    /// `manifests` and the definitions of our kinds are copied, so that the paths in what kubectl says are the same everywhere.
    pub(crate) fn new(kubectl: &Path, kubeconfig: &Path, manifests: &Path, definitions: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (from, to) in [(manifests, folder.path().to_owned()), (definitions, folder.path().join("crds"))] {
            fs::create_dir_all(&to).unwrap();
            for file in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
                if file.extension().is_some_and(|extension| extension == "yaml") {
                    fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
                }
            }
        }
        // A copy, as the walk changes the namespace of its context.
        fs::copy(kubeconfig, folder.path().join("kubeconfig")).unwrap();
        Self { kubectl: kubectl.to_owned(), folder, watch: None }
    }

    pub(crate) fn walk(&mut self, steps: &[Step]) -> Vec<Said> {
        steps.iter().filter_map(|step| self.take(step)).collect()
    }

    fn take(&mut self, step: &Step) -> Option<Said> {
        match step {
            Step::Section(title) => Some(Said { step: format!("## {title}"), lines: Vec::new() }),
            Step::Run { how: How::Until(word), line, arguments } => Some(self.wait(Some(word), line, arguments)),
            Step::Run { how: How::UntilSuccess, line, arguments } => Some(self.wait(None, line, arguments)),
            Step::Run { how, line, arguments } => {
                let mut lines = self.run(arguments);
                match how {
                    How::Sorted => {
                        let code = lines.pop();
                        if let Some(rows) = lines.get_mut(1..) {
                            rows.sort();
                        }
                        lines.dedup();
                        lines.extend(code);
                    }
                    How::LastLine => drop(lines.drain(..lines.len().saturating_sub(2))),
                    How::Once | How::Until(_) | How::UntilSuccess => {}
                }
                Some(Said { step: line.clone(), lines })
            }
            Step::Watch { line, arguments } => {
                self.watch = Some(self.start_watch(line, arguments));
                None
            }
            Step::Watched(count) => {
                let watch = self.watch.take().expect("a watch is ended after it was started");
                Some(watch.end(*count))
            }
        }
    }

    /// The output, the errors and the exit code.
    fn run(&self, arguments: &[String]) -> Vec<String> {
        let output = self.command(arguments).output().unwrap();
        let mut lines = likeness::of(&String::from_utf8_lossy(&output.stdout));
        lines.extend(likeness::of(&String::from_utf8_lossy(&output.stderr)));
        lines.push(format!("[{}]", output.status.code().map_or("killed".to_owned(), |code| code.to_string())));
        lines
    }

    /// Nothing when it came so, or ended well where no word is asked for; what was said instead when it did not.
    fn wait(&self, word: Option<&String>, line: &str, arguments: &[String]) -> Said {
        let deadline = Instant::now() + WAIT_MAX;
        let mut lines = Vec::new();
        loop {
            let output = self.command(arguments).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            if word.map_or(output.status.success(), |word| said.trim() == word) {
                break;
            }
            if Instant::now() >= deadline {
                let said = [output.stdout, output.stderr].concat();
                lines.push(format!("waited in vain for {}", word.map_or("success", String::as_str)));
                lines.extend(String::from_utf8_lossy(&said).lines().map(str::to_owned));
                break;
            }
            thread::sleep(POLL_EVERY);
        }
        Said { step: line.to_owned(), lines }
    }

    /// Returns when the watch stands, which its first line does not say: an empty list prints nothing. So the watch begins with
    /// a request of its own, and kubectl's log of requests tells when it was answered.
    fn start_watch(&self, line: &str, arguments: &[String]) -> Watch {
        let mut child =
            self.command(arguments).arg("-v=6").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let (stands, until_it_stands) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if line.contains("watch=true") {
                    let _ = stands.send(());
                }
            }
        });
        until_it_stands.recv_timeout(WAIT_MAX).expect("the watch is answered");
        Watch { line: line.to_owned(), child, lines }
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .stdin(Stdio::null());
        command
    }
}

impl Watch {
    fn end(mut self, count: usize) -> Said {
        let deadline = Instant::now() + WAIT_MAX;
        let mut lines = Vec::new();
        while lines.len() < count {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        Said { step: self.line.clone(), lines: likeness::of(&lines.join("\n")) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
