//! A store that fails: what is answered, and what of files was changed for the configuration.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ebof_manage::api::{ApplyError, Cause, ConfigStore, ConfigStoreError, FileChange, Revision, Target as _};
use ebof_manage::{Config, Plan};

use crate::reload_rig::{block, connect, image, namespace, start, text};

/// What was asked of a store, with the size that the file had then.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Intend(Vec<FileChange>, u64),
    Replace(u64),
    Forget(u64),
}

/// How a store answers.
type Answer = fn() -> Result<(), ConfigStoreError>;

struct Watching {
    file: PathBuf,
    answers: Mutex<(Answer, Answer)>,
    asked: Mutex<Vec<Asked>>,
    /// What is stored.
    revision: Mutex<Option<Revision>>,
    /// What it has stored before.
    before: Vec<Config>,
}

impl Watching {
    fn size(&self) -> u64 {
        std::fs::metadata(&self.file).unwrap().len()
    }

    fn asked(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }
}

impl ConfigStore for Watching {
    fn revision(&self) -> Option<Revision> {
        self.revision.lock().unwrap().clone()
    }

    fn replace(
        &self,
        seen: Option<&Revision>,
        config: &Config,
        _plan: &Plan,
        _cause: &Cause,
    ) -> Result<(), ConfigStoreError> {
        self.asked(Asked::Replace(self.size()));
        let answer = self.answers.lock().unwrap().1;
        let mut revision = self.revision.lock().unwrap();
        assert_eq!(seen, revision.as_ref(), "the target has seen what is stored");
        answer()?;
        *revision = Some(Revision::from_config(config));
        Ok(())
    }

    fn intend(&self, changes: &[FileChange]) -> Result<(), ConfigStoreError> {
        self.asked(Asked::Intend(changes.to_vec(), self.size()));
        let answer = self.answers.lock().unwrap().0;
        answer()
    }

    fn forget(&self) {
        self.asked(Asked::Forget(self.size()));
    }

    fn is_source(&self) -> bool {
        true
    }

    fn stored(&self) -> Vec<Config> {
        self.before.clone()
    }
}

fn stored() -> Result<(), ConfigStoreError> {
    Ok(())
}

fn full() -> Result<(), ConfigStoreError> {
    Err(ConfigStoreError::NotStored("no space left".into()))
}

fn unknown() -> Result<(), ConfigStoreError> {
    Err(ConfigStoreError::Unknown("the medium failed".into()))
}

/// What is to change of a file is noted before it changes, and forgotten when the configuration is
/// stored or the file is what it was, unless it is not known which of both counts.
// @test data.interrupted-file-change
#[test]
fn a_file_changes_between_its_note_and_the_configuration() {
    const SMALL: u64 = 1 << 20;
    const LARGE: u64 = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", SMALL, 7);
    let (target, config, address) = start(&[text(&path)]);
    let answers = Mutex::new((stored as Answer, stored as Answer));
    let store = Arc::new(Watching {
        file: path.clone(),
        answers,
        asked: Mutex::default(),
        revision: Mutex::default(),
        before: Vec::new(),
    });
    target.store_in(Arc::clone(&store) as Arc<dyn ConfigStore>).map_err(drop).unwrap();
    let mut larger = config.clone();
    larger.subsystems[0].namespaces[0].drive = format!("{}:4Mi", path.display()).parse().unwrap();
    let file = text(&path).to_owned();
    let noted = || {
        let changes = vec![FileChange::Extend { path: file.clone(), from_bytes: SMALL, to_bytes: LARGE }];
        Asked::Intend(changes, SMALL)
    };
    let apply = |answers: (Answer, Answer)| {
        *store.answers.lock().unwrap() = answers;
        let outcome = target.apply(larger.clone());
        (outcome, std::mem::take(&mut *store.asked.lock().unwrap()))
    };

    let (outcome, asked) = apply((full, stored));
    assert!(matches!(outcome, Err(ApplyError::NotStored { .. })), "{outcome:?}");
    assert_eq!((asked, store.size()), (vec![noted()], SMALL), "nothing was touched");

    let (outcome, asked) = apply((stored, full));
    assert!(matches!(outcome, Err(ApplyError::NotStored { .. })), "{outcome:?}");
    assert_eq!(asked, [noted(), Asked::Replace(LARGE), Asked::Forget(SMALL)]);

    let (outcome, asked) = apply((stored, unknown));
    let told = outcome.unwrap_err().to_string();
    assert!(told.starts_with("it is not known whether the new configuration is stored"), "{told}");
    assert_eq!((asked, store.size()), (vec![noted(), Asked::Replace(LARGE)], SMALL), "the next start needs the note");
    assert_eq!(target.config(), config);
    assert_eq!(block(&namespace(&connect(address), 1)), [7; 512]);

    let (outcome, asked) = apply((stored, stored));
    assert_eq!(outcome.unwrap().changes.len(), 2, "the size in the configuration, and that of the namespace");
    assert_eq!(asked, [noted(), Asked::Replace(LARGE), Asked::Forget(LARGE)]);
}

/// A configuration of before comes back: its file is not there, since its file system is not.
#[test]
fn a_way_back_makes_no_empty_file_for_one_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, config, _address) = start(&[text(&path)]);
    let with = |name: &str| {
        let mut other = config.clone();
        let drive = format!("{}:1Mi", directory.path().join(name).display());
        other.subsystems[0].namespaces[0].drive = drive.parse().unwrap();
        other
    };
    let answers = Mutex::new((stored as Answer, stored as Answer));
    let store = Watching {
        file: path.clone(),
        answers,
        asked: Mutex::default(),
        revision: Mutex::default(),
        before: vec![with("b.img")],
    };
    target.store_in(Arc::new(store) as Arc<dyn ConfigStore>).map_err(drop).unwrap();
    let error = target.apply(with("b.img")).unwrap_err().to_string();
    assert!(error.contains("was served before"), "{error}");
    assert!(!directory.path().join("b.img").exists());
    assert_eq!(target.config(), config);
    target.apply(with("new.img")).unwrap();
}
