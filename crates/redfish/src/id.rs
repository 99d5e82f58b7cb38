//! Identifiers of resources: names of ebof's objects as segments of a URI.

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

/// The segments of names, each different from those before it.
#[must_use]
pub(crate) fn slugs<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<(String, &'n str)> {
    let mut all: Vec<(String, &str)> = Vec::new();
    let mut taken = std::collections::BTreeSet::new();
    for name in names {
        let plain = slug(name);
        let mut own = plain.clone();
        let mut number = 2;
        while !taken.insert(own.clone()) {
            own = format!("{plain}-{number}");
            number += 1;
        }
        all.push((own, name));
    }
    all
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
        let all = slugs(["a b", "a/b", "a-b", "a-b-2"]);
        assert_eq!(all.iter().map(|(slug, _)| slug.as_str()).collect::<Vec<_>>(), ["a-b", "a-b-2", "a-b-3", "a-b-2-2"]);
    }
}
