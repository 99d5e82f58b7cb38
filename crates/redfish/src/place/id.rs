//! Identifiers of resources: names of ebof's objects as segments of a URI.

use std::collections::BTreeMap;

/// A name as one segment, from which it can be read again: no two names have the same, so that an
/// identifier is that of one name for ever. Letters, digits, `.`, `_` and `-` stay; `:` is `~`, `/`
/// is `!`, a space is `+`, and any other byte is `=` with two hexadecimal digits.
#[must_use]
pub(crate) fn slug(name: &str) -> String {
    use std::fmt::Write as _;
    let mut slug = String::with_capacity(name.len());
    // `.` and `..` are resolved by clients and proxies: dots are escaped there.
    let is_dots = name.bytes().all(|byte| byte == b'.');
    for byte in name.bytes() {
        match byte {
            b':' => slug.push('~'),
            b'/' => slug.push('!'),
            b' ' => slug.push('+'),
            _ if !is_dots && (byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) => slug.push(byte.into()),
            _ => {
                let _written = write!(slug, "={byte:02X}");
            }
        }
    }
    slug
}

/// Identifiers of named objects: the segments of their names. Those of one name that several
/// objects have are numbered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    /// In the order of the objects.
    ids: Vec<String>,
    by_id: BTreeMap<String, usize>,
    by_name: BTreeMap<String, usize>,
}

impl Ids {
    /// Of objects with these names.
    pub(crate) fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut all = Self::default();
        for (at, name) in names.into_iter().enumerate() {
            let plain = slug(name);
            let mut id = plain.clone();
            let mut number = 2;
            while all.by_id.contains_key(&id) {
                // No name has a comma in its segment.
                id = format!("{plain},{number}");
                number += 1;
            }
            all.by_id.insert(id.clone(), at);
            all.by_name.entry(name.to_owned()).or_insert(at);
            all.ids.push(id);
        }
        all
    }

    /// Of objects with these identifiers, no two of which are the same.
    pub(crate) fn of_ids(ids: impl IntoIterator<Item = String>) -> Self {
        let ids: Vec<String> = ids.into_iter().collect();
        let by_id = ids.iter().cloned().zip(0..).collect();
        Self { ids, by_id, by_name: BTreeMap::new() }
    }

    /// The identifier of the object at an index, which is one of those that it was made of.
    pub(crate) fn at(&self, index: usize) -> &str {
        &self.ids[index]
    }

    /// The identifier of the object of this name.
    pub(crate) fn id_of(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|&at| self.at(at))
    }

    /// The index of the object with this identifier.
    pub(crate) fn index(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// All, in the order of the objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(String::as_str)
    }
}

/// The identifier of the primary controller of a drive.
pub(crate) const PRIMARY: &str = "pf";

/// The identifier of the one controller of a plain subsystem.
pub(crate) const PLAIN: &str = "io";

/// The identifier of what a subsystem demands that is not told anything else. Others are NQNs.
pub(crate) const DEFAULT_POLICY: &str = "default";

/// What identifiers of hosts' endpoints begin with: no drive and no subsystem is called so.
pub(crate) const HOST_PREFIX: &str = "host~";

/// Whether an identifier of an endpoint is that of a target; those of hosts are none.
pub(super) fn is_target(id: &str) -> bool {
    let last = id.rsplit_once('-').filter(|_| !id.starts_with(HOST_PREFIX)).map(|(_, last)| last);
    last.is_some_and(|last| last == PRIMARY || last == PLAIN || is_function(last))
}

/// Whether a text is `vf` and a number.
pub(crate) fn is_function(text: &str) -> bool {
    text.strip_prefix("vf").is_some_and(|digits| digits.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test redfish.identifiers
    #[test]
    fn no_two_names_have_the_same_segment() {
        assert_eq!(slug("tcp://127.0.0.1:4420"), "tcp~!!127.0.0.1~4420");
        assert_eq!(slug("d0.a_b-c"), "d0.a_b-c");
        assert_eq!((slug(".."), slug("."), slug("")), ("=2E=2E".to_owned(), "=2E".to_owned(), String::new()));
        assert_eq!(slug("a/../b"), "a!..!b");
        assert_eq!(slug("\u{e4},~=2E"), "=C3=A4=2C=7E=3D2E");
        let names = ["a b", "a/b", "a-b", "a:b", "a~b", "a!b", "a+b", "a=2Db", "a--b", "a-b-2", "a//b"];
        let all: std::collections::BTreeSet<String> = names.iter().map(|name| slug(name)).collect();
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|slug| !slug.contains(',') && !slug.contains('/')));
    }

    #[test]
    fn objects_of_one_name_are_numbered() {
        let all = Ids::new(["a b", "a", "a", "a,2"]);
        assert_eq!(all.iter().collect::<Vec<_>>(), ["a+b", "a", "a,2", "a=2C2"]);
        assert_eq!((all.id_of("a"), all.index("a,2"), all.index("c")), (Some("a"), Some(2), None));
    }
}
