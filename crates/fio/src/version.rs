//! The versions of fio whose layout is known.

/// A version of the engine interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// Number 31: fio 3.31 to 3.33.
    V31,
    /// Number 36: fio 3.38 and 3.39.
    V36,
}

/// The supported versions, for messages.
pub(crate) const SUPPORTED: &str = "3.31 to 3.33 (Debian 12 has 3.33) and 3.38 to 3.39 (Debian 13 has 3.39)";

/// The interface of fio's version string (`fio-3.33`, `fio-3.39-12-gabcdef`).
pub(crate) fn interface(version: &str) -> Option<Interface> {
    let number = version.strip_prefix("fio-")?.split(['-', ' ']).next()?;
    let (major, minor) = number.split_once('.')?;
    match (major.parse().ok()?, minor.parse().ok()?) {
        (3, 31..=33) => Some(Interface::V31),
        (3, 38..=39) => Some(Interface::V36),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_whose_layout_is_known_are_accepted() {
        let known = ["fio-3.31", "fio-3.33", "fio-3.33-dirty", "fio-3.38", "fio-3.39", "fio-3.39-4-g0123456"];
        let found: Vec<_> = known.iter().map(|version| interface(version)).collect();
        let old = Some(Interface::V31);
        let new = Some(Interface::V36);
        assert_eq!(found, [old, old, old, new, new, new]);
        for unknown in ["fio-3.30", "fio-3.34", "fio-3.37", "fio-3.40", "fio-4.33", "fio-2.33", "3.33", "fio-", "fio-3"]
        {
            assert_eq!(interface(unknown), None, "{unknown}");
        }
    }
}
