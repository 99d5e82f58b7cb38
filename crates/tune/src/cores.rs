//! Sets of processor cores, in the kernel's two notations: lists (`0-3,8`) and masks
//! (`ff,00000000`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The cores of the largest machine that Linux can be built for.
const CORES_MAX: u32 = 8192;

/// A set of cores. Both of its notations are canonical: equal sets have equal texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(BTreeSet<u32>);

impl Cores {
    /// One core; empty if no machine has it.
    #[must_use]
    pub fn one(core: u32) -> Self {
        [core].into_iter().collect()
    }

    /// Reads a list such as `0-3,8`. An empty text is an empty set.
    #[must_use]
    pub fn from_list(text: &str) -> Option<Self> {
        let mut cores = BTreeSet::new();
        let text = text.trim();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= CORES_MAX {
                return None;
            }
            cores.extend(first..=last);
        }
        Some(Self(cores))
    }

    /// Reads a mask: hexadecimal digits in groups of 32 bits, the highest first.
    #[must_use]
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cores = BTreeSet::new();
        for (group, digits) in text.trim().rsplit(',').enumerate() {
            let digits = digits.trim();
            if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            let bits = u32::from_str_radix(digits, 16).ok()?;
            let first = u32::try_from(group).ok().and_then(|group| group.checked_mul(32))?;
            if first >= CORES_MAX {
                return None;
            }
            cores.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
        }
        Some(Self(cores))
    }

    /// The set as a list.
    #[must_use]
    pub fn to_list(&self) -> String {
        ranges(self.0.iter().copied())
    }

    /// The set as a mask, without leading zeros.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last / 32 + 1);
        let mut text = String::new();
        for group in (0..groups).rev() {
            let bits = (0..32).filter(|bit| self.contains(group * 32 + bit)).fold(0_u32, |bits, bit| bits | 1 << bit);
            let _infallible = if text.is_empty() { write!(text, "{bits:x}") } else { write!(text, ",{bits:08x}") };
        }
        text
    }

    /// Whether a core is in it.
    #[must_use]
    pub fn contains(&self, core: u32) -> bool {
        self.0.contains(&core)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The cores, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Those that are in the other set, too.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for Cores {
    fn from_iter<I: IntoIterator<Item = u32>>(cores: I) -> Self {
        Self(cores.into_iter().filter(|&core| core < CORES_MAX).collect())
    }
}

/// Numbers in order, as ranges: `0-3,8`.
pub(crate) fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|&next| last.checked_add(1) == Some(next)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _infallible =
            if first == last { write!(text, "{comma}{first}") } else { write!(text, "{comma}{first}-{last}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_and_masks_are_the_kernels() {
        let list = |text| Cores::from_list(text).map(|cores| cores.to_list());
        let mask = |text| Cores::from_mask(text).map(|cores| (cores.to_list(), cores.to_mask()));
        assert_eq!(list("0-3,8\n").as_deref(), Some("0-3,8"));
        assert_eq!(list("0,1,2,5-5").as_deref(), Some("0-2,5"));
        assert_eq!(list("").as_deref(), Some(""));
        assert_eq!(mask("00000000,0000000f\n"), Some(("0-3".to_owned(), "f".to_owned())));
        assert_eq!(mask("1,00000000"), Some(("32".to_owned(), "1,00000000".to_owned())));
        assert_eq!(mask("0"), Some((String::new(), "0".to_owned())));
    }

    #[test]
    fn what_is_no_set_of_cores_is_refused() {
        for text in ["x", "1-", "-1", "3-1", "0,,1", "8192", "0-4294967295", "99999999999"] {
            assert_eq!(Cores::from_list(text), None, "{text}");
        }
        let long = "0,".repeat(300) + "1";
        for text in ["", "x", "+1", "1,", "123456789", &long] {
            assert_eq!(Cores::from_mask(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn both_notations_keep_the_set(cores in proptest::collection::btree_set(0..CORES_MAX, 0..40)) {
            let cores = Cores(cores);
            prop_assert_eq!(Cores::from_list(&cores.to_list()).unwrap(), cores.clone());
            prop_assert_eq!(Cores::from_mask(&cores.to_mask()).unwrap(), cores);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}") {
            let _any = (Cores::from_list(&text), Cores::from_mask(&text));
        }
    }
}
