//! Numbers that name things and must not be swapped for one another.

pub mod uuid;

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

id!(
    /// Namespace identifier (Base, Namespace Identifier): 1 to FFFFFFFEh name a namespace, 0 is
    /// unused and FFFFFFFFh means all namespaces.
    Nsid, u32, "{}"
);
id!(
    /// Command identifier: unique among the outstanding commands of one submission queue.
    Cid, u16, "{}"
);
id!(
    /// Queue identifier: 0 is the Admin Queue.
    QueueId, u16, "{}"
);
id!(
    /// Controller identifier (CNTLID), unique within a subsystem.
    ControllerId, u16, "{}"
);

impl Nsid {
    /// Names every namespace (FFFFFFFFh).
    pub const ALL: Self = Self(0xffff_ffff);
    /// Names none; used by commands that are not about a namespace.
    pub const NONE: Self = Self(0);

    /// Whether the value may name one namespace: neither 0 nor the broadcast value.
    #[must_use]
    pub const fn names_one(self) -> bool {
        self.0 != 0 && self.0 < 0xffff_ffff
    }
}

impl QueueId {
    /// The Admin Queue.
    pub const ADMIN: Self = Self(0);

    /// Whether this is the Admin Queue.
    #[must_use]
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

impl ControllerId {
    /// Connect: "allocate a controller for me" (dynamic controller model, FFFFh).
    pub const DYNAMIC: Self = Self(0xffff);
    /// Connect: any static controller (FFFEh).
    pub const ANY_STATIC: Self = Self(0xfffe);
    /// The largest identifier that names a controller (FFEFh; FFF0h to FFFFh are reserved).
    pub const MAX: Self = Self(0xffef);
}
