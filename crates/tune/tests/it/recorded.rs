//! A machine of `testdata`: its files in a temporary directory, its network cards in memory.
//!
//! A line of a tree is `/path = value`, with `\t` for a tab, or `ethtool INTERFACE WHAT = value`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ebof_tune::{Channels, Coalescing, Files, Machine, Pause};

/// `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;

pub(crate) struct Recorded {
    directory: tempfile::TempDir,
    files: Files,
    cards: RefCell<BTreeMap<(String, String), String>>,
    /// Paths that refuse to be written, with the error's number.
    pub(crate) refusing: RefCell<BTreeMap<String, i32>>,
    /// Paths that take a value without keeping it.
    pub(crate) deaf: RefCell<BTreeSet<String>>,
    /// Paths of which the kernel makes another value.
    pub(crate) adjusting: RefCell<BTreeMap<String, String>>,
    /// Paths that were written, in order.
    pub(crate) written: RefCell<Vec<String>>,
    /// Writes until the process is killed, which is a panic here.
    pub(crate) life: Cell<Option<usize>>,
}

impl Recorded {
    pub(crate) fn load(name: &str) -> Self {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let directory = tempfile::tempdir().unwrap();
        let files = Files::below(&directory.path().join("root"));
        let machine = Self {
            directory,
            files,
            cards: RefCell::default(),
            refusing: RefCell::default(),
            deaf: RefCell::default(),
            adjusting: RefCell::default(),
            written: RefCell::default(),
            life: Cell::new(None),
        };
        for line in fs::read_to_string(tree).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let (knob, value) = line.split_once(" = ").expect(line);
            match knob.strip_prefix("ethtool ") {
                Some(card) => {
                    let (interface, what) = card.split_once(' ').expect(line);
                    machine.cards.borrow_mut().insert((interface.to_owned(), what.to_owned()), value.to_owned());
                }
                None => machine.put(knob, value),
            }
        }
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path.trim_start_matches('/'))
    }

    /// Makes a file, as the kernel or somebody else would change it.
    pub(crate) fn put(&self, path: &str, value: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.replace("\\t", "\t") + "\n").unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// All files with their values, and all cards.
    pub(crate) fn everything(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        collect(&self.path("/"), &mut all);
        let root = self.path("/").display().to_string();
        let mut all: BTreeMap<_, _> = all.into_iter().map(|(path, value)| (path.replace(&root, "/"), value)).collect();
        all.extend(self.cards.borrow().iter().map(|((card, what), value)| (format!("{card} {what}"), value.clone())));
        all
    }

    /// What is not as it was.
    pub(crate) fn changed_since(&self, before: &BTreeMap<String, String>) -> Vec<String> {
        let now = self.everything();
        let gone = before.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("{path} is gone"));
        let other = now.iter().filter(|(path, value)| before.get(*path) != Some(value));
        gone.chain(other.map(|(path, value)| format!("{path} = {value}"))).collect()
    }

    fn card(&self, interface: &str, what: &str) -> io::Result<String> {
        let cards = self.cards.borrow();
        let value = cards.get(&(interface.to_owned(), what.to_owned())).cloned();
        value.ok_or_else(|| io::Error::from_raw_os_error(NOT_SUPPORTED))
    }

    /// Counts a change; whether it has an effect.
    fn on_write(&self, path: &str) -> io::Result<bool> {
        match self.life.get() {
            Some(0) => panic!("killed"),
            life => self.life.set(life.map(|life| life - 1)),
        }
        if let Some(&errno) = self.refusing.borrow().get(path) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.written.borrow_mut().push(path.to_owned());
        Ok(!self.deaf.borrow().contains(path))
    }
}

fn collect(directory: &Path, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, all);
        } else {
            let value = fs::read_to_string(&path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            let path = path.display().to_string();
            // Masks are restored without the zeros in front.
            let zeros = if path.ends_with("_cpus") { value.len() - value.trim_start_matches('0').len() } else { 0 };
            all.insert(path, value[zeros..].to_owned());
        }
    }
}

impl Machine for Recorded {
    fn read(&self, path: &str) -> io::Result<String> {
        self.files.read(path)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        self.files.names(path)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        if !self.on_write(path)? {
            return Ok(());
        }
        if let Some(adjusted) = self.adjusting.borrow().get(path) {
            return self.files.write(path, adjusted);
        }
        if !path.ends_with("/scheduler") {
            return self.files.write(path, value);
        }
        let all = self.files.read(path)?;
        let names = all.split_whitespace().map(|name| name.trim_matches(['[', ']']));
        let marked: Vec<_> =
            names.map(|name| if name == value { format!("[{name}]") } else { name.to_owned() }).collect();
        self.files.write(path, &marked.join(" "))
    }

    fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        let adaptive = self.card(interface, "adaptive-rx")?;
        Ok(Coalescing { adaptive_rx: Some(adaptive == "on"), ..Coalescing::default() })
    }

    fn set_adaptive_rx(&self, interface: &str, on: bool) -> io::Result<()> {
        if self.on_write(&format!("{interface} adaptive-rx"))? {
            let value = if on { "on" } else { "off" };
            self.cards.borrow_mut().insert((interface.to_owned(), "adaptive-rx".to_owned()), value.to_owned());
        }
        Ok(())
    }

    fn pause(&self, interface: &str) -> io::Result<Pause> {
        let pause = self.card(interface, "pause")?;
        let (rx, tx) = pause.split_once(' ').unwrap();
        Ok(Pause { rx: rx == "on", tx: tx == "on" })
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        let combined = self.card(interface, "combined")?;
        let (count, max) = combined.split_once(" of ").unwrap();
        let (combined, combined_max) = (count.parse().unwrap(), max.parse().unwrap());
        Ok(Channels { combined, combined_max, ..Channels::default() })
    }

    fn switch_service(&self, service: &str, on: bool) -> io::Result<()> {
        assert_eq!(service, "irqbalance.service");
        self.on_write("irqbalance")?;
        if on {
            self.put("/proc/812/comm", "irqbalance");
        } else {
            self.remove("/proc/812");
        }
        Ok(())
    }
}
