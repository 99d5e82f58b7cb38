//! What is stored comes back, and what is damaged is told.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_manage::api::Asker;
use ebof_state::{Calls, SystemCall};

use super::*;

fn config(port: u16) -> Config {
    let text = format!("subsystems = []\n[[ports]]\nlisten = \"tcp://127.0.0.1:{port}\"\n");
    ebof_manage::load("a.toml", &text).unwrap().config
}

fn open(path: &Path) -> Result<Generations, Unusable> {
    Generations::open(Arc::new(StateDirectory::open(path).unwrap()), Track::Source)
}

/// Replaces what is stored, whatever it is.
fn replace(generations: &Generations, config: &Config, plan: &Plan, cause: &Cause) -> Result<(), ConfigStoreError> {
    generations.replace(generations.revision().as_ref(), config, plan, cause)
}

fn store(generations: &Generations, port: u16) {
    let cause = Cause::new(Asker::Signal { signal: "SIGHUP".to_owned() }, "reload");
    let plan = Plan::between(&Config::default(), &config(port));
    replace(generations, &config(port), &plan, &cause).unwrap();
}

fn three(path: &Path) {
    let generations = open(path).unwrap();
    [1, 2, 3].into_iter().for_each(|port| store(&generations, port));
}

#[test]
fn generations_come_back_in_order() {
    let base = tempfile::tempdir().unwrap();
    assert_eq!(open(base.path()).unwrap().configuration().unwrap(), None);
    three(base.path());
    let generations = open(base.path()).unwrap();
    assert_eq!(generations.configuration().unwrap(), Some(config(3)));
    let history = generations.history();
    assert_eq!(history.generations.iter().map(|it| it.generation).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(generations.read(&history.generations[0]).unwrap(), config(1));
    assert_eq!(history.generations[1].cause.to_string(), "reload by SIGHUP");
    assert_eq!(history.generations[1].changes, ["add port tcp://127.0.0.1:2"]);
    // The same again is not a generation.
    store(&generations, 3);
    assert_eq!(generations.current(), Some(3));
}

#[test]
fn what_is_stored_is_replaced_only_by_who_has_seen_it() {
    let base = tempfile::tempdir().unwrap();
    three(base.path());
    let generations = open(base.path()).unwrap();
    let (plan, cause) = (Plan::default(), Cause::library());
    for seen in [None, Some(Revision::from_config(&config(2)))] {
        let refused = generations.replace(seen.as_ref(), &config(4), &plan, &cause).unwrap_err();
        let ConfigStoreError::NotStored(why) = refused else { panic!("{refused:?}") };
        let stored = Some(Revision::from_config(&config(3)));
        assert_eq!(why.downcast_ref::<Outdated>(), Some(&Outdated { stored, seen }), "{why}");
        assert_eq!(generations.configuration().unwrap(), Some(config(3)));
    }
    let seen = Revision::from_config(&config(3));
    generations.replace(Some(&seen), &config(4), &plan, &cause).unwrap();
    assert_eq!(generations.revision(), Some(Revision::from_config(&config(4))));
}

#[test]
fn a_stored_configuration_can_be_loaded_as_it_is() {
    let base = tempfile::tempdir().unwrap();
    three(base.path());
    let text = std::fs::read_to_string(base.path().join("configuration-2.toml")).unwrap();
    assert_eq!(ebof_manage::load("a.toml", &text).unwrap().config, config(2));
}

#[test]
fn a_change_that_was_interrupted_does_not_count() {
    let base = tempfile::tempdir().unwrap();
    three(base.path());
    // Its file is there, and the list does not have it.
    let directory = StateDirectory::open(base.path()).unwrap();
    directory.replace("configuration-4.toml", config(4).to_toml().unwrap().as_bytes()).unwrap();
    drop(directory);
    let generations = open(base.path()).unwrap();
    assert_eq!(generations.configuration().unwrap(), Some(config(3)));
    assert!(!base.path().join("configuration-4.toml").exists());
    store(&generations, 5);
    assert_eq!((generations.current(), generations.configuration().unwrap()), (Some(4), Some(config(5))));
}

#[test]
fn only_a_limited_number_of_files_is_kept() {
    let base = tempfile::tempdir().unwrap();
    let generations = open(base.path()).unwrap();
    let most = u16::try_from(ebof_manage::api::GENERATIONS_MAX).unwrap();
    (1..=most + 2).for_each(|port| store(&generations, port));
    let names = std::fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = names.filter(|name| Track::Source.number(name).is_some()).count();
    assert_eq!(files, usize::from(most));
    assert!(!base.path().join("configuration-2.toml").exists() && base.path().join("configuration-3.toml").exists());
}

/// What is told if the next start is to go by a directory in which `harm` was done.
fn told(harm: impl Fn(&Path)) -> String {
    let base = tempfile::tempdir().unwrap();
    three(base.path());
    harm(base.path());
    let before = contents(base.path());
    let error = match open(base.path()) {
        Err(error) => error,
        Ok(generations) => generations.configuration().unwrap_err(),
    };
    assert_eq!(contents(base.path()), before, "nothing was changed");
    let text = error.failure(base.path()).to_string();
    // A file as the source puts what is damaged aside, and stores what it has.
    let directory = Arc::new(StateDirectory::open(base.path()).unwrap());
    let generations = Generations::open_or_begin(directory, Track::Source).unwrap();
    store(&generations, 9);
    drop(generations);
    assert_eq!(open(base.path()).unwrap().configuration().unwrap(), Some(config(9)));
    text.replace(&base.path().display().to_string(), "DIR")
}

fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn damage_is_told_and_no_older_configuration_taken() {
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 5]).unwrap();
    };
    let text = told(|base| cut(&base.join("configuration-3.toml")));
    assert!(text.starts_with("the state file DIR/configuration-3.toml is damaged: it has "), "{text}");
    assert!(text.contains("the target is not started") && text.contains("--import FILE"), "{text}");
    let text = told(|base| std::fs::remove_file(base.join("configuration-3.toml")).unwrap());
    assert!(text.contains("configuration-3.toml is missing, and configuration.json says that it is there"), "{text}");
    let text = told(|base| cut(&base.join("configuration.json")));
    assert!(text.starts_with("the state file DIR/configuration.json is damaged"), "{text}");
    let text = told(|base| std::fs::remove_file(base.join("configuration.json")).unwrap());
    assert!(text.contains("configuration.json is missing, and DIR/configuration-1.toml is there"), "{text}");
    // An older one in the place of the last one.
    let text = told(|base| {
        std::fs::copy(base.join("configuration-2.toml"), base.join("configuration-3.toml")).unwrap();
    });
    assert!(text.contains("configuration.json says"), "{text}");
    let replaced = |name: &'static str, content: &'static [u8]| {
        move |base: &Path| StateDirectory::open(base).unwrap().replace(name, content).unwrap()
    };
    let text = told(replaced("configuration.json", b"{\"schema\": 2, \"last\": 0, \"generations\": []}"));
    assert!(text.contains("it has schema 2, and this version of ebof knows 1"), "{text}");
    let text = told(replaced("configuration.json", b"[]"));
    assert!(text.contains("it is not understood"), "{text}");
    let text = told(replaced("configuration-3.toml", b"ports = 7\n"));
    assert!(text.contains("it is not understood"), "{text}");
}

#[test]
fn what_cannot_be_stored_leaves_what_there_was() {
    let base = tempfile::tempdir().unwrap();
    let generations = open(base.path()).unwrap();
    store(&generations, 1);
    // In the place of the list's temporary file.
    std::fs::create_dir(base.path().join(".configuration.json.new")).unwrap();
    let cause = Cause::library();
    let error = replace(&generations, &config(2), &Plan::default(), &cause).unwrap_err().to_string();
    assert!(error.contains("storing") && error.contains("configuration.json"), "{error}");
    assert_eq!((generations.current(), generations.history().generations.len()), (Some(1), 1));
    std::fs::remove_dir(base.path().join(".configuration.json.new")).unwrap();
    drop(generations);
    let generations = open(base.path()).unwrap();
    assert_eq!(generations.configuration().unwrap(), Some(config(1)));
    store(&generations, 2);
    assert_eq!(generations.configuration().unwrap(), Some(config(2)));
}

#[test]
fn what_was_served_beside_the_directory_is_no_source() {
    let base = tempfile::tempdir().unwrap();
    three(base.path());
    let directory = Arc::new(StateDirectory::open(base.path()).unwrap());
    let beside = Generations::open_or_begin(directory, Track::Beside).unwrap();
    assert_eq!(beside.current(), None);
    store(&beside, 9);
    assert_eq!((beside.current(), ConfigStore::is_source(&beside)), (Some(1), false));
    drop(beside);
    assert_eq!(open(base.path()).unwrap().configuration().unwrap(), Some(config(3)));
}

/// A medium on which the calls in a range fail.
#[derive(Clone, Debug)]
struct Failing(Arc<[AtomicUsize; 3]>);

impl Failing {
    fn fail(&self, from: usize, to: usize) {
        [0, from, to].into_iter().zip(&*self.0).for_each(|(value, at)| at.store(value, Ordering::SeqCst));
    }

    fn has_failed(&self) -> bool {
        let [calls, from, _] = &*self.0;
        calls.load(Ordering::SeqCst) > from.load(Ordering::SeqCst)
    }
}

impl Calls for Failing {
    fn make(&self, _call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let [calls, from, to] = &*self.0;
        let at = calls.fetch_add(1, Ordering::SeqCst);
        let is_failing = (from.load(Ordering::SeqCst)..to.load(Ordering::SeqCst)).contains(&at);
        if is_failing { Err(io::Error::from_raw_os_error(5)) } else { work() }
    }
}

/// A medium that fails at one call, or from one call on, and a process that ends there: the next
/// start has what the answer said, and either of both where that said that it is not known.
// @test data.stored-outcome
#[test]
fn the_answer_is_what_the_next_start_has() {
    let mut unknown = 0;
    for once in [true, false] {
        for at in 0.. {
            let base = tempfile::tempdir().unwrap();
            let calls = Failing(Arc::default());
            let directory = StateDirectory::open_with(base.path(), Box::new(calls.clone())).unwrap();
            let generations = Generations::open(Arc::new(directory), Track::Source).unwrap();
            store(&generations, 1);
            calls.fail(at, if once { at + 1 } else { usize::MAX });
            let outcome = replace(&generations, &config(2), &Plan::default(), &Cause::library());
            let has_failed = calls.has_failed();
            let what = format!("call {at} fails ({once}): {outcome:?}");
            let in_force = if outcome.is_ok() { 2 } else { 1 };
            assert_eq!(generations.configuration().unwrap(), Some(config(in_force)), "{what}");
            drop(generations);
            let next = open(base.path()).unwrap();
            let found = next.configuration().unwrap();
            match outcome {
                Ok(()) => assert_eq!(found, Some(config(2)), "{what}"),
                Err(ConfigStoreError::NotStored(_)) => assert_eq!(found, Some(config(1)), "{what}"),
                Err(ConfigStoreError::Unknown(_)) => {
                    unknown += 1;
                    assert!(!once && [Some(config(1)), Some(config(2))].contains(&found), "{what}");
                }
            }
            store(&next, 3);
            assert_eq!(next.configuration().unwrap(), Some(config(3)), "{what}");
            if !has_failed {
                break;
            }
        }
    }
    assert!(unknown > 0);
}

// @test data.stored-outcome
#[test]
fn nothing_is_changed_before_it_is_known_what_is_stored() {
    let base = tempfile::tempdir().unwrap();
    let calls = Failing(Arc::default());
    let directory = StateDirectory::open_with(base.path(), Box::new(calls.clone())).unwrap();
    let generations = Generations::open(Arc::new(directory), Track::Source).unwrap();
    store(&generations, 1);
    let change = |port| replace(&generations, &config(port), &Plan::default(), &Cause::library());
    let mut at = 0;
    let told = loop {
        calls.fail(at, usize::MAX);
        match change(2) {
            Err(ConfigStoreError::Unknown(error)) => break error.to_string(),
            _ => at += 1,
        }
        calls.fail(0, 0);
        store(&generations, 1);
    };
    assert!(told.contains("it is not known whether") && told.contains("configuration.json"), "{told}");
    assert!(base.path().join("configuration-2.toml").exists(), "the next start may need it");
    let told = change(3).unwrap_err().to_string();
    assert!(told.contains("nothing is stored while it is not known what is in"), "{told}");
    calls.fail(0, 0);
    store(&generations, 3);
    drop(generations);
    assert_eq!(open(base.path()).unwrap().configuration().unwrap(), Some(config(3)));
}
