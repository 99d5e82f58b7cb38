//! Which objects NSIDs have named, as text that outlives the process: it is stored before hosts are
//! shown another object.

use std::fmt::Write as _;
use std::io;

use ebof_fabrics::{DataId, ObjectRecord, Objects};
use ebof_nvme::{Nqn, Nsid, Uuid};

/// Stores which objects NSIDs have named. What is stored means something to a target only.
pub trait ObjectStore: Send + Sync {
    /// What was stored last; `None` for nothing. What is not understood is taken for lost, and
    /// every NSID then for one that may have named another object.
    fn load(&self) -> Option<String>;

    /// Replaces what is stored. When this returns, it survives a crash.
    ///
    /// # Errors
    /// It cannot be stored. A change of a running target is refused then.
    fn store(&self, text: &str) -> io::Result<()>;
}

/// Nothing outlives the process.
pub(crate) struct Forgotten;

impl ObjectStore for Forgotten {
    fn load(&self) -> Option<String> {
        None
    }

    fn store(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

/// The first line, with the version of the rest.
const HEAD: &str = "ebof objects 1";

/// What follows it where something has been forgotten.
const INCOMPLETE: &str = "incomplete";

/// What a target that comes after another one knows of it.
pub(crate) fn load(store: &dyn ObjectStore) -> Objects {
    let Some(text) = store.load() else { return Objects::default() };
    decode(&text).unwrap_or_else(|| {
        tracing::warn!("which namespaces were served before is not known: hosts that return have to identify them all");
        Objects::restored([], true)
    })
}

/// Stores what is known.
pub(crate) fn store(store: &dyn ObjectStore, objects: &Objects) -> io::Result<()> {
    store.store(&encode(objects))
}

fn encode(objects: &Objects) -> String {
    let mut text = format!("{HEAD}\n");
    if objects.is_incomplete() {
        text += INCOMPLETE;
        text.push('\n');
    }
    for ((nqn, nsid), known) in objects.iter() {
        let changed = if known.has_changed { "changed" } else { "first" };
        let _written = writeln!(text, "{} {changed} {} {nqn}", nsid.0, Uuid(known.object.0));
    }
    text
}

/// What [`encode`] has written; `None` for anything else.
fn decode(text: &str) -> Option<Objects> {
    let mut lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.lines().peekable();
    let is_incomplete = lines.next_if_eq(&INCOMPLETE).is_some();
    let known = lines.map(line).collect::<Option<Vec<_>>>()?;
    Some(Objects::restored(known, is_incomplete))
}

fn line(line: &str) -> Option<((Nqn, Nsid), ObjectRecord)> {
    let mut words = line.split(' ');
    let nsid = Nsid(words.next()?.parse().ok()?);
    let has_changed = match words.next()? {
        "changed" => true,
        "first" => false,
        _ => return None,
    };
    let object = DataId(Uuid::parse(words.next()?)?.0);
    let nqn = Nqn::parse(words.next()?).ok()?;
    words.next().is_none().then_some(((nqn, nsid), ObjectRecord { object, has_changed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(is_incomplete: bool) -> Objects {
        let object = DataId([0xa1; 16]);
        let nqn = |name: &str| Nqn::parse(name).unwrap();
        let known = [
            ((nqn("nqn.2014-08.org.example:a"), Nsid(1)), ObjectRecord { object, has_changed: true }),
            ((nqn("any-name"), Nsid(7)), ObjectRecord { object, has_changed: false }),
        ];
        Objects::restored(known, is_incomplete)
    }

    #[test]
    fn what_is_stored_is_what_is_read() {
        for is_incomplete in [false, true] {
            let objects = objects(is_incomplete);
            assert_eq!(decode(&encode(&objects)), Some(objects));
        }
        assert_eq!(decode(&encode(&Objects::default())), Some(Objects::default()));
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        let text = encode(&objects(true));
        let lines: Vec<&str> = text.lines().collect();
        for broken in [
            String::new(),
            text.replacen('1', "2", 1),
            text.replace("changed", "chang"),
            text.replace("first", "first first"),
            text.replace("any-name", ""),
            format!("{text}x"),
            lines[0].to_owned(),
        ] {
            assert_eq!(decode(&broken), None, "{broken}");
        }
    }
}
