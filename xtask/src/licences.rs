//! Licences of everything ebof is built from, against the list in deny.toml. Owns the reading of
//! SPDX expressions; the list itself is cargo-deny's, so that both tools allow the same.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::metadata::{self, Package};

/// Checks all packages; `false` if one of them is not allowed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let allowed = allowed(&deny)?;
    let packages = metadata::all(root)?;
    let refused: Vec<String> = packages.iter().filter_map(|package| refusal(package, &allowed)).collect();
    for refusal in &refused {
        println!("licences: {refusal}");
    }
    println!("licences: {} packages, {} refused", packages.len(), refused.len());
    Ok(refused.is_empty())
}

fn refusal(package: &Package, allowed: &[String]) -> Option<String> {
    let Package { name, version, licence, .. } = package;
    let Some(expression) = licence else {
        return Some(format!("{name} {version} names no licence"));
    };
    match permits(expression, allowed) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name} {version} is under {expression}, which deny.toml does not allow")),
        Err(error) => Some(format!("{name} {version}: {expression:?} is not an SPDX expression: {error}")),
    }
}

/// The `allow` list of the `[licenses]` table.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let table = deny.split("[licenses]").nth(1).context("deny.toml has no [licenses]")?;
    let list = table.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.context("deny.toml allows no licences")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an SPDX expression can be satisfied by the allowed licences alone.
fn permits(expression: &str, allowed: &[String]) -> Result<bool> {
    // The slash is the notation of old manifests for OR.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let result = either(&mut words, allowed)?;
    match words.next() {
        None => Ok(result),
        Some(word) => bail!("{word:?} is left over"),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut result = both(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        result |= both(words, allowed)?;
    }
    Ok(result)
}

fn both(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut result = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed)?;
    }
    Ok(result)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    match words.next() {
        Some("(") => {
            let result = either(words, allowed)?;
            if words.next() != Some(")") {
                bail!("a parenthesis stays open");
            }
            Ok(result)
        }
        None | Some(")" | "AND" | "OR" | "WITH") => bail!("a licence is missing"),
        Some(licence) => {
            let name = match words.next_if_eq(&"WITH") {
                Some(_) => format!("{licence} WITH {}", words.next().context("an exception is missing")?),
                None => licence.to_owned(),
            };
            Ok(allowed.contains(&name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(expression: &str) -> bool {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        permits(expression, &allowed).unwrap()
    }

    #[test]
    fn one_of_several_is_enough_and_all_of_a_conjunction_are_needed() {
        assert!(permitted("MIT OR GPL-3.0-only"));
        assert!(permitted("GPL-3.0-only/MIT"));
        assert!(permitted("MIT AND Apache-2.0"));
        assert!(!permitted("MIT AND GPL-3.0-only"));
        assert!(!permitted("GPL-3.0-only"));
        assert!(permitted("(MIT OR GPL-3.0-only) AND Apache-2.0"));
        assert!(!permitted("MIT AND (GPL-3.0-only OR BSL-1.0)"));
        assert!(permitted("GPL-3.0-only OR Apache-2.0 WITH LLVM-exception"));
        assert!(!permitted("Apache-2.0 WITH Other-exception"));
    }

    #[test]
    fn invalid_licence_expressions_are_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "MIT WITH", "AND"] {
            assert!(permits(expression, &["MIT".to_owned()]).is_err(), "{expression:?}");
        }
    }

    #[test]
    fn the_list_is_that_of_the_licenses_table() {
        let deny = "[advisories]\nignore = []\n[licenses]\nallow = [\n  \"MIT\", # short\n  \"Apache-2.0\",\n]\n";
        assert_eq!(allowed(deny).unwrap(), ["MIT", "Apache-2.0"]);
        assert!(allowed("[bans]\n").is_err());
    }

    #[test]
    fn a_package_without_a_licence_is_refused() {
        let package = |licence: Option<&str>| Package {
            name: "a".into(),
            version: "1.0.0".into(),
            licence: licence.map(str::to_owned),
            ..Package::default()
        };
        let allowed = ["MIT".to_owned()];
        assert!(refusal(&package(None), &allowed).is_some());
        assert!(refusal(&package(Some("GPL-2.0-only")), &allowed).is_some());
        assert!(refusal(&package(Some("MIT")), &allowed).is_none());
    }
}
