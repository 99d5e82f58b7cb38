//! What outlives the process, as text: which objects NSIDs have named, stored before hosts are
//! shown another object, and which hosts have proven which host identifiers.

use std::fmt::Write as _;
use std::io;

use ebof_fabrics::{DataId, ObjectRecord, Objects};
use ebof_nvme::{HostId, Nqn, Nsid, Uuid};

/// Stores a text, which means something to a target only.
pub trait TextStore: Send + Sync {
    /// What was stored last; `None` for nothing. What is not understood is taken for lost.
    fn load(&self) -> Option<String>;

    /// Replaces what is stored. When this returns, it survives a crash.
    ///
    /// # Errors
    /// It cannot be stored.
    fn store(&self, text: &str) -> io::Result<()>;
}

/// Nothing outlives the process.
pub(crate) struct Forgotten;

impl TextStore for Forgotten {
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
pub(crate) fn load(store: &dyn TextStore) -> Objects {
    let Some(text) = store.load() else { return Objects::default() };
    decode(&text).unwrap_or_else(|| {
        tracing::warn!("which namespaces were served before is not known: hosts that return have to identify them all");
        Objects::restored([], true)
    })
}

/// Stores what is known.
pub(crate) fn store(store: &dyn TextStore, objects: &Objects) -> io::Result<()> {
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

/// The first line of the text with host identifiers.
const HOST_IDS_HEAD: &str = "ebof host identifiers 1";

/// The host identifiers that hosts have proven to an earlier target.
pub(crate) fn load_host_ids(store: &dyn TextStore) -> Vec<(HostId, Nqn)> {
    let Some(text) = store.load() else { return Vec::new() };
    decode_host_ids(&text).unwrap_or_else(|| {
        tracing::warn!(
            "which hosts have proven their host identifiers before is not known: until its host returns, an \
             identifier is whose who proves it first"
        );
        Vec::new()
    })
}

/// Stores them.
pub(crate) fn store_host_ids(store: &dyn TextStore, proven: &[(HostId, Nqn)]) -> io::Result<()> {
    store.store(&encode_host_ids(proven))
}

fn encode_host_ids(proven: &[(HostId, Nqn)]) -> String {
    let mut text = format!("{HOST_IDS_HEAD}\n");
    for (host_id, host) in proven {
        let _written = writeln!(text, "{} {host}", Uuid(host_id.0));
    }
    text
}

/// What [`encode_host_ids`] has written; `None` for anything else.
fn decode_host_ids(text: &str) -> Option<Vec<(HostId, Nqn)>> {
    let lines = text.strip_prefix(HOST_IDS_HEAD)?.strip_prefix('\n')?.lines();
    let proven = lines.map(|line| {
        let (host_id, host) = line.split_once(' ')?;
        Some((HostId(Uuid::parse(host_id)?.0), Nqn::parse(host).ok()?))
    });
    proven.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_identifiers_that_are_stored_are_those_that_are_read() {
        let proven = ["a", "b"].map(|name| {
            (HostId([name.as_bytes()[0]; 16]), Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap())
        });
        let text = encode_host_ids(&proven);
        assert_eq!(decode_host_ids(&text).as_deref(), Some(&proven[..]));
        assert_eq!(decode_host_ids(&encode_host_ids(&[])).as_deref(), Some(&[][..]));
        for broken in [String::new(), text.replacen('1', "2", 1), text.replace(' ', "_"), format!("{text}x")] {
            assert_eq!(decode_host_ids(&broken), None, "{broken}");
        }
    }

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
