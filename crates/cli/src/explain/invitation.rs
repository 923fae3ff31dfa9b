//! How an operator outside of a pod tells the people on its machine where to ask, and with which secret: a file of theirs alone.
//!
//! In a pod there is none of it: whoever may forward its ports may ask.

use anyhow::{Context, bail};
use kerf_controllers::shell::host;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether anybody listens on a port of this machine is known at once.
const KNOCK_WITHIN: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    /// The API server's address.
    pub(crate) cluster: String,
    /// A home may be shared between machines, and loopback is not.
    pub(crate) host: String,
    /// Who it is in the lease; empty for one that leads without asking.
    pub(crate) identity: String,
    pub(crate) address: SocketAddr,
    pub(crate) secret: String,
}

/// A file that goes with its operator.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) path: PathBuf,
    text: String,
}

/// How a cluster is called, however its address is written.
pub(crate) fn cluster(url: &impl ToString) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

/// Where they lie unless somebody says otherwise.
fn folder() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir())?;
    Some(Path::new(&home).join(".kube").join("kerf"))
}

/// Those of this machine for a cluster.
pub(super) fn for_cluster(cluster: &str) -> Vec<Invitation> {
    let Some(folder) = folder() else { return Vec::new() };
    let all = files(&folder).into_iter().filter_map(|path| Invitation::read(&path).ok());
    all.filter(|it| it.cluster == cluster && it.is_of_this_machine()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
    files.sort();
    files
}

impl Invitation {
    /// Nobody but the file's owner may read it, or have written it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let about = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
        if about.mode() & 0o077 != 0 {
            bail!(
                "{shown} is open to others (mode {:03o}), so its secret is none: restart the operator",
                about.mode() & 0o777
            );
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let invitation: Self =
            serde_json::from_str(&text).with_context(|| format!("{shown} was not written by an operator"))?;
        if !invitation.address.ip().is_loopback() {
            bail!("{shown} names {}, which is not on this machine", invitation.address);
        }
        Ok(invitation)
    }

    /// Writes it to a file of ours alone, in one step.
    pub(crate) fn leave(&self, path: Option<&Path>) -> anyhow::Result<Left> {
        let path = match (path, folder()) {
            (Some(path), _) => path.to_owned(),
            (None, Some(folder)) => {
                clear(&folder);
                folder.join(format!(
                    "{:016x}-{}.json",
                    kerf_api::hash::fnv1(self.cluster.as_bytes()),
                    std::process::id()
                ))
            }
            (None, None) => bail!("there is no home folder: name a file with --explain-file"),
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let text = serde_json::to_string(self).context("an invitation is JSON")?;
        let draft = path.with_extension(format!("{}.draft", std::process::id()));
        let write = || {
            // Somebody who was killed may have left it.
            let _ = fs::remove_file(&draft);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&draft, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Left { path, text })
    }

    fn is_of_this_machine(&self) -> bool {
        self.host == host().unwrap_or_default()
    }
}

/// Removes those of operators that were killed.
fn clear(folder: &Path) {
    for path in files(folder) {
        let is_over = |it: &Invitation| {
            it.is_of_this_machine()
                && TcpStream::connect_timeout(&it.address, KNOCK_WITHIN)
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        if Invitation::read(&path).is_ok_and(|it| is_over(&it)) {
            // Another one may have been quicker.
            let _ = fs::remove_file(&path);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // It may be a successor's by now.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn invitation() -> Invitation {
        Invitation {
            cluster: cluster(&"https://127.0.0.1:6443/"),
            host: host().unwrap_or_default(),
            identity: String::new(),
            address: "127.0.0.1:9".parse().unwrap(),
            secret: "s".to_owned(),
        }
    }

    #[test]
    fn it_is_for_its_owner_alone_and_goes_with_the_operator() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/operator.json");
        let left = invitation().leave(Some(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Invitation::read(&path).unwrap(), invitation());
        let successor = Invitation { secret: "t".to_owned(), ..invitation() }.leave(Some(&path)).unwrap();
        drop(left);
        assert_eq!(Invitation::read(&path).unwrap().secret, "t", "a successor's file stays");
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_others_could_read_or_that_leads_elsewhere_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator.json");
        let _left = invitation().leave(Some(&path)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(format!("{:#}", Invitation::read(&path).unwrap_err()).contains("open to others (mode 644)"));
        let elsewhere = Invitation { address: "192.0.2.1:80".parse().unwrap(), ..invitation() };
        let _left = elsewhere.leave(Some(&path)).unwrap();
        assert!(format!("{:#}", Invitation::read(&path).unwrap_err()).contains("not on this machine"));
    }

    #[test]
    fn what_killed_operators_left_is_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let alive = Invitation { address: listener.local_addr().unwrap(), ..invitation() };
        let _alive = alive.leave(Some(&folder.path().join("alive.json"))).unwrap();
        let dead = Invitation { address: closed_port(), ..invitation() };
        let _dead = dead.leave(Some(&folder.path().join("dead.json"))).unwrap();
        clear(folder.path());
        assert_eq!(files(folder.path()), [folder.path().join("alive.json")]);
    }

    fn closed_port() -> SocketAddr {
        std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
    }
}
