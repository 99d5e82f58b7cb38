//! The tables of the specification as tables: numbers and what they are called, values of a few
//! bits, and dwords by their bits. The tables themselves are in the files of what they describe.

/// The constants of a type around a number whose unknown values are kept, and their names: `None`
/// for an unknown one, or the text behind `else`. A type behind `=>` is that of the data.
macro_rules! numbers {
    ($type:ident: $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal $(=> $data:ident)?;)*) => {
        $crate::table::numbers!(@constants $type: $($(#[$doc])* $name = $number, $text $(=> $data)?;)*);

        impl $type {
            /// What it is called, as for a person; `None` where no specification names it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    Self(_) => None,
                }
            }
        }
    };
    ($type:ident, else $unknown:tt: $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        $crate::table::numbers!(@constants $type: $($(#[$doc])* $name = $number, $text;)*);

        impl $type {
            /// What it is called, as for a person.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self(_) => $unknown,
                }
            }
        }
    };
    (@constants $type:ident: $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal $(=> $data:ident)?;)*) => {
        impl $type {
            $(#[doc = concat!("*", $text, "*, ", stringify!($number), $(": `", stringify!($data), "`",)? ".\n\n")]
            $(#[$doc])*
            pub const $name: Self = Self($number);)*
        }
    };
}
pub(crate) use numbers;

/// An enum of the values that some bits of a field have, and their names if the table has them.
/// Values that no specification names are kept.
macro_rules! values {
    ($(#[$meta:meta])* pub enum $type:ident, $bits:literal bits {
        $($(#[$doc:meta])* $value:ident = $number:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$doc])* #[doc = concat!("\n\nIts number is ", stringify!($number), ".")] $value,)*
            /// What no specification names.
            Reserved(u8),
        }

        impl $type {
            const MASK: u8 = u8::MAX >> (8 - $bits);

            /// From the low bits; the others are ignored.
            #[must_use]
            pub const fn decode(bits: u8) -> Self {
                match bits & Self::MASK {
                    $($number => Self::$value,)*
                    reserved => Self::Reserved(reserved),
                }
            }

            /// To the low bits.
            #[must_use]
            pub const fn encode(self) -> u8 {
                match self {
                    $(Self::$value => $number,)*
                    Self::Reserved(reserved) => reserved & Self::MASK,
                }
            }
        }

        impl $crate::table::Bits for $type {
            fn of_bits(bits: u32) -> Self {
                Self::decode(bits.to_le_bytes()[0])
            }

            fn bits(self) -> u32 {
                self.encode().into()
            }
        }
    };
    ($(#[$meta:meta])* pub enum $type:ident, $bits:literal bits {
        $($(#[$doc:meta])* $value:ident = $number:literal, $text:literal;)*
    }) => {
        $crate::table::values! { $(#[$meta])* pub enum $type, $bits bits {
            $($(#[$doc])* $value = $number;)*
        } }

        impl $type {
            /// In words, as for a person.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                    Self::Reserved(_) => "reserved",
                }
            }
        }
    };
}
pub(crate) use values;

/// A dword with its fields, each with its highest and its lowest bit.
macro_rules! dword {
    ($(#[$meta:meta])* pub struct $type:ident {
        $($(#[$doc:meta])* $field:ident: $of:ty = $high:literal:$low:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $field: $of,)*
        }

        impl $type {
            /// From the dword; reserved bits are ignored.
            #[must_use]
            pub fn decode(dword: u32) -> Self {
                Self { $($field: $crate::table::Bits::of_bits(dword >> $low & $crate::table::mask($high, $low)),)* }
            }

            /// To the dword; what does not fit into a field is cut off.
            #[must_use]
            pub fn encode(self) -> u32 {
                0 $(| ($crate::table::Bits::bits(self.$field) & $crate::table::mask($high, $low)) << $low)*
            }
        }
    };
}
pub(crate) use dword;

/// A set of bits: what is in one or the other, and whether it has others.
macro_rules! flags {
    ($type:ident) => {
        impl $type {
            /// What is in these and in those.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all of `other` are among these.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}
pub(crate) use flags;

/// A value that a field of a dword may have.
pub(crate) trait Bits {
    /// From the bits of the field, which are the lowest ones.
    fn of_bits(bits: u32) -> Self;

    /// To the lowest bits.
    fn bits(self) -> u32;
}

/// A field of `high` - `low` + 1 bits, moved to the lowest ones.
pub(crate) const fn mask(high: u32, low: u32) -> u32 {
    u32::MAX >> (31 - (high - low))
}

impl Bits for bool {
    fn of_bits(bits: u32) -> Self {
        bits != 0
    }

    fn bits(self) -> u32 {
        self.into()
    }
}

impl Bits for u8 {
    fn of_bits(bits: u32) -> Self {
        bits.to_le_bytes()[0]
    }

    fn bits(self) -> u32 {
        self.into()
    }
}

impl Bits for u16 {
    fn of_bits(bits: u32) -> Self {
        let [low, high, ..] = bits.to_le_bytes();
        Self::from_le_bytes([low, high])
    }

    fn bits(self) -> u32 {
        self.into()
    }
}
