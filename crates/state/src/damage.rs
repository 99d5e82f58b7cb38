//! What can be wrong with the bytes of a file.

/// Why the bytes of a file are not what was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file has no bytes.
    #[error("it is empty")]
    Empty,
    /// It does not begin with a header.
    #[error("it does not begin with `# ebof-state 1 LENGTH CHECKSUM`")]
    NoHeader,
    /// It ends too early, or goes on after its end.
    #[error("it has {found} bytes after its first line, and {expected} were stored")]
    Length {
        /// How many there are.
        found: u64,
        /// How many there were.
        expected: u64,
    },
    /// The content is not the one that was stored.
    #[error("its checksum is {found:08x}, and the content that was stored has {expected:08x}")]
    Checksum {
        /// What the content has.
        found: u32,
        /// What the header says.
        expected: u32,
    },
}
