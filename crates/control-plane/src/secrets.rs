//! What keeps strangers out: a token that nobody can guess, in a file that nobody else can read.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a token. Loopback is shared with everybody who has an account on the machine.
const TOKEN_BYTES: usize = 32;

/// From the operating system's randomness, another one in each start.
pub(crate) fn token() -> io::Result<String> {
    Ok(format!("kerf-{}", random_hex(TOKEN_BYTES)?))
}

fn random_hex(n_bytes: usize) -> io::Result<String> {
    let mut bytes = vec![0; n_bytes];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| io::Error::other("the operating system gives no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Puts the text into a new file that only its owner may read, and that file in place of whatever has the name: what others may
/// read, own, or have made a link of, is never written to.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = beside(path)?;
    let written = write_new(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // It may not have come to a file; the first error is the one that matters.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// A name in the same folder that nobody could have prepared.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", random_hex(8)?));
    Ok(path.with_file_name(hidden))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// A folder of its own, which goes with its owner.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(token().unwrap());
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let found = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_secret_file_is_its_owners_alone_also_where_an_open_one_was() {
        let folder = Folder::new();
        let path = folder.0.join("kerf.yaml");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        write(&path, "token: x").unwrap();
        assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap().as_str()), (0o600, "token: x"));
        assert_ne!(std::fs::metadata(&path).unwrap().ino(), before, "who has the old one open reads nothing new");
        assert_eq!(folder.names(), ["kerf.yaml"]);
    }

    #[test]
    fn a_link_is_replaced_and_what_it_points_to_is_left_alone() {
        let folder = Folder::new();
        let (victim, path) = (folder.0.join("victim"), folder.0.join("kerf.yaml"));
        std::fs::write(&victim, "theirs").unwrap();
        symlink(&victim, &path).unwrap();
        write(&path, "token: x").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "theirs");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = Folder::new();
        std::fs::create_dir(folder.0.join("kerf.yaml")).unwrap();
        write(&folder.0.join("kerf.yaml"), "token: x").unwrap_err();
        assert_eq!(folder.names(), ["kerf.yaml"]);
    }
}
