//! Identifiers of resources: names of ebof's objects as segments of a URI.

use std::collections::BTreeMap;

/// A name as one segment: letters, digits, `.`, `_` and `-` stay; any other run of characters
/// becomes one `-`.
#[must_use]
pub(crate) fn slug(name: &str) -> String {
    let mut slug = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
            slug.push(c);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    // Segments of dots have a meaning of their own in URIs.
    if slug.bytes().all(|byte| byte == b'.') { format!("-{slug}") } else { slug }
}

/// Identifiers of named objects: the segments of their names, each different from those before it.
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
        Self::avoiding(names, |_| false)
    }

    /// Of objects with these names; identifiers that are `taken` are somebody else's.
    pub(crate) fn avoiding<'n>(names: impl IntoIterator<Item = &'n str>, taken: impl Fn(&str) -> bool) -> Self {
        let mut all = Self::default();
        for (at, name) in names.into_iter().enumerate() {
            let plain = slug(name);
            let mut id = plain.clone();
            let mut number = 2;
            while all.by_id.contains_key(&id) || taken(&id) {
                id = format!("{plain}-{number}");
                number += 1;
            }
            all.by_id.insert(id.clone(), at);
            all.by_name.entry(name.to_owned()).or_insert(at);
            all.ids.push(id);
        }
        all
    }

    /// The identifier of the object at an index.
    pub(crate) fn at(&self, index: usize) -> &str {
        self.ids.get(index).map_or("", String::as_str)
    }

    /// The identifier of the object of this name.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_segments_of_their_own() {
        assert_eq!(slug("tcp://127.0.0.1:4420"), "tcp-127.0.0.1-4420");
        assert_eq!(slug("d0.a_b-c"), "d0.a_b-c");
        assert_eq!(slug(".."), "-..");
        assert_eq!(slug("a/../b"), "a-..-b");
        let all = Ids::avoiding(["a b", "a/b", "a-b", "a-b-2", "c"], |id| id == "c");
        assert_eq!(all.iter().collect::<Vec<_>>(), ["a-b", "a-b-2", "a-b-3", "a-b-2-2", "c-2"]);
        assert_eq!((all.of("a/b"), all.index("a-b-3"), all.index("c")), (Some("a-b-2"), Some(2), None));
    }
}
