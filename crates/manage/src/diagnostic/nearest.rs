//! Names: enums whose variants have them, and suggestions for misspelt ones.

/// An enum whose variants have names, in a configuration, in JSON or in messages.
macro_rules! names {
    ($(#[$meta:meta])* pub enum $type:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $name:literal;)*
    }) => {
        $(#[$meta])*
        pub enum $type {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $type {
            /// All of them, in their order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use names;

/// The known name that `name` most probably stands for.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > 64 {
        return None;
    }
    let plain = |text: &str| text.replace('-', "_").to_lowercase();
    let name = plain(name);
    // One that lacks a part is another thing, however near it is.
    let parts = |text: &str| text.matches('+').count();
    let known = known.iter().filter(|known| parts(known) == parts(&name));
    let distances = known.map(|known| (distance(&name, &plain(known)), *known));
    let (distance, best) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= distance_max(best)).then_some(best)
}

/// Whether `name` is `known` with a slip or two.
#[must_use]
pub fn is_near(name: &str, known: &str) -> bool {
    nearest(name, &[known]).is_some()
}

/// At most a third of a name's characters differ.
fn distance_max(known: &str) -> usize {
    (known.len() / 3).max(1)
}

/// Insertions, deletions, replacements and swaps of neighbours between two texts.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_fewer_parts_is_not_suggested() {
        let known = ["anyone", "authenticated", "tls", "authenticated+tls"];
        assert_eq!(nearest("tls+authenticated", &known), None);
        assert_eq!(nearest("authenticated+tsl", &known), Some("authenticated+tls"));
        assert_eq!(nearest("autenticated", &known), Some("authenticated"));
    }

    #[test]
    fn misspelled_keys_find_the_nearest_one() {
        let known = ["nqn", "serial", "allow_any_host", "allowed_hosts", "namespaces"];
        for (slip, key) in [
            ("serail", "serial"),
            ("allow-any-host", "allow_any_host"),
            ("allow_host", "allowed_hosts"),
            ("Namespace", "namespaces"),
            ("nqm", "nqn"),
        ] {
            assert_eq!(nearest(slip, &known), Some(key), "{slip}");
        }
        assert_eq!(nearest("colour", &known), None);
        assert!(is_near("formta", "format") && !is_near("frobnicate", "format"));
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
    }

    #[test]
    fn a_transposition_is_one_edit() {
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }
}
