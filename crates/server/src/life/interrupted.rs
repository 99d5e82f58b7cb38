//! Changes of files that belong to a change of the configuration: they are noted before they are
//! made, so that a start finishes or takes back what a process that has ended in between has left.
//!
//! Owns what is noted, and what becomes of it. Where it is noted is up to the store.

use std::path::Path;

use ebof_backend::{Interrupted, finish_extension, finish_file, take_back_extension, take_back_file};
use ebof_manage::api::FileChange;
use ebof_manage::{Config, Drive};

/// The changes of files that may be made on the way from a configuration to another.
pub(crate) fn changes(old: &Config, new: &Config) -> Vec<FileChange> {
    let before: Vec<&Drive> = drives(old).collect();
    let changes = drives(new).filter(|drive| !before.contains(drive)).filter_map(|drive| {
        let (path, size_bytes) = (drive.path()?, drive.size_bytes()?);
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() && metadata.len() < size_bytes => {
                Some(FileChange::Extend { path: path.to_owned(), from_bytes: metadata.len(), to_bytes: size_bytes })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some(FileChange::Make { path: path.to_owned(), size_bytes })
            }
            _ => None,
        }
    });
    changes.collect()
}

/// What a configuration stores data in.
fn drives(config: &Config) -> impl Iterator<Item = &Drive> {
    let namespaces = config.enabled_subsystems().flat_map(|subsystem| subsystem.enabled_namespaces());
    config.drives.iter().map(|drive| &drive.backing).chain(namespaces.map(|namespace| &namespace.drive))
}

/// Finishes or takes back what was noted and not forgotten, before a target starts with `config`.
/// Gives what was done and what is left, in words.
#[must_use]
pub fn finish_interrupted(changes: &[FileChange], config: &Config) -> Vec<String> {
    changes.iter().filter_map(|change| settle_one(change, config)).collect()
}

fn settle_one(change: &FileChange, config: &Config) -> Option<String> {
    let path = match change {
        FileChange::Extend { path, .. } | FileChange::Make { path, .. } => path,
    };
    let wanted: Vec<&Drive> = drives(config).filter(|drive| drive.path() == Some(path)).collect();
    let file = Path::new(path);
    let (outcome, what) = match change {
        FileChange::Extend { from_bytes, to_bytes, .. } => {
            if wanted.iter().any(|drive| drive.size_bytes() == Some(*to_bytes)) {
                let what = "was made larger, as a change wanted that was interrupted";
                (finish_extension(file, *from_bytes, *to_bytes), what)
            } else {
                let what = "has the size again that it had before a change that was interrupted";
                (take_back_extension(file, *from_bytes, *to_bytes), what)
            }
        }
        FileChange::Make { size_bytes, .. } if !wanted.is_empty() => {
            (finish_file(file, *size_bytes), "was made, as a change wanted that was interrupted")
        }
        FileChange::Make { size_bytes, .. } => {
            (take_back_file(file, *size_bytes), "was made for a change that was interrupted, and is removed")
        }
    };
    match outcome {
        Ok(Interrupted::Nothing) => None,
        Ok(Interrupted::Changed) => Some(format!("{path} {what}")),
        Ok(Interrupted::HasData) => {
            Some(format!("{path} is left by a change that was interrupted, and has data: it stays as it is"))
        }
        Err(error) => Some(format!("{path} is left by a change that was interrupted, and stays as it is: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(drive: &str) -> Config {
        let text = format!(
            "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:a\"\n\
             allow_any_host = true\nnamespaces = [{{ drive = \"{drive}\" }}]\n"
        );
        ebof_manage::load("a.toml", &text).unwrap().config
    }

    /// Whatever was stored when the process ended, and whatever of the file was changed, the next
    /// start finds a file of the size that its configuration says.
    // @test data.interrupted-file-change
    #[test]
    fn a_resize_that_was_interrupted_is_finished_or_taken_back() {
        for (sizes, expected) in [(("64M", "96M"), 96_000_000_u64), (("64M", "64M"), 64_000_000)] {
            for is_extended in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("a.img");
                let at = |size: &str| config(&format!("{}:{size}", path.display()));
                drop(ebof_backend::open(&format!("{}:64M", path.display()).parse().unwrap()).unwrap());
                let noted = changes(&at("64M"), &at("96M"));
                assert!(matches!(&noted[..], [FileChange::Extend { from_bytes: 64_000_000.., .. }]), "{noted:?}");
                if is_extended {
                    std::fs::File::options().write(true).open(&path).unwrap().set_len(96_002_048).unwrap();
                }
                let said = finish_interrupted(&noted, &at(sizes.1));
                let drive = ebof_backend::open(&format!("{}:{}", path.display(), sizes.1).parse().unwrap()).unwrap();
                assert!((expected..expected + 4096).contains(&drive.geometry().capacity_bytes), "{said:?}");
                let has_changed = is_extended == (sizes.1 == "64M");
                assert_eq!(said.len(), usize::from(has_changed), "{said:?}");
            }
        }
    }

    // @test data.interrupted-file-change
    #[test]
    fn a_file_that_was_made_and_is_in_no_configuration_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let named = config(&format!("{}:64M", path.display()));
        let noted = changes(&config("mem:64M"), &named);
        assert!(matches!(&noted[..], [FileChange::Make { .. }]), "{noted:?}");
        drop(ebof_backend::open(&format!("{}:64M", path.display()).parse().unwrap()).unwrap());
        assert_eq!(finish_interrupted(&noted, &named), Vec::<String>::new());
        assert!(path.exists());
        let said = finish_interrupted(&noted, &config("mem:64M"));
        assert!(said[0].ends_with("was made for a change that was interrupted, and is removed"), "{said:?}");
        assert!(!path.exists());
    }
}
