//! Log pages that are tables of identifiers: Supported Log Pages (00h) and Changed Namespace List
//! (04h).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Lid;
use crate::name::id::Nsid;

/// Supported Log Pages (00h): a `LidSupport` for each of the 256 LIDs. NVMe Base 2.1, section of
/// that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LID Supported and Effects, by LID.
    pub lids: [U32; 256],
}

const _: () = assert!(size_of::<SupportedLogPages>() == 1024);

impl SupportedLogPages {
    /// What is said of `lid`.
    #[must_use]
    pub fn support(&self, lid: Lid) -> LidSupport {
        LidSupport(self.lids[usize::from(lid.0)].get())
    }

    /// Says `support` of `lid`.
    pub fn set(&mut self, lid: Lid, support: LidSupport) {
        self.lids[usize::from(lid.0)].set(support.0);
    }

    /// The supported log pages in order.
    pub fn iter(&self) -> impl Iterator<Item = (Lid, LidSupport)> {
        (0..=u8::MAX).map(Lid).map(|lid| (lid, self.support(lid))).filter(|(_, support)| support.is_supported())
    }
}

impl Default for SupportedLogPages {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// LID Supported and Effects data structure, 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LidSupport(pub u32);

impl LidSupport {
    /// LID Supported (LSUPP).
    pub const SUPPORTED: Self = Self(1 << 0);
    /// Index Offset Supported (IOS).
    pub const INDEX_OFFSET: Self = Self(1 << 1);

    /// Supported, with LID Specific Parameter (LIDSP) `lidsp`; its meaning depends on the log page
    /// (70h: `lsp`).
    #[must_use]
    pub fn with_parameter(lidsp: u16) -> Self {
        Self(Self::SUPPORTED.0 | u32::from(lidsp) << 16)
    }

    /// Whether the log page is supported.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.0 & Self::SUPPORTED.0 != 0
    }

    /// LID Specific Parameter (LIDSP).
    #[must_use]
    pub const fn parameter(self) -> u16 {
        let [_, _, low, high] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

/// Changed Namespace List (04h): namespaces changed since it was last read. NVMe Base 2.1, section
/// of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedNamespaces {
    /// Identifiers in ascending order up to the first zero; FFFFFFFFh first where there are too
    /// many.
    pub identifier: [U32; 1024],
}

const _: () = assert!(size_of::<ChangedNamespaces>() == 4096);

impl ChangedNamespaces {
    /// NSIDs a list holds.
    pub const ENTRIES_MAX: usize = 1024;

    /// A list of `nsids`, which ascend; of more than 1024 it says just that. 0 and FFFFFFFFh are
    /// left out.
    #[must_use]
    pub fn new(nsids: impl IntoIterator<Item = Nsid>) -> Self {
        let mut list = Self::default();
        let mut slots = list.identifier.iter_mut();
        for nsid in nsids.into_iter().filter(|nsid| nsid.names_one()) {
            let Some(slot) = slots.next() else {
                list = Self::default();
                list.identifier[0] = U32::MAX_VALUE;
                break;
            };
            slot.set(nsid.0);
        }
        list
    }

    /// Whether more namespaces changed than the list holds: look at all of them.
    #[must_use]
    pub fn is_overflowed(&self) -> bool {
        self.identifier[0] == U32::MAX_VALUE
    }

    /// The changed namespaces up to the first zero; none where `is_overflowed`.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> {
        self.identifier.iter().map(|nsid| Nsid(nsid.get())).take_while(|nsid| nsid.names_one())
    }
}

impl Default for ChangedNamespaces {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
