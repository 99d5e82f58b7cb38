//! Damage of the drive's own data on a medium: where it is, and how it is known.

use thiserror::Error;

/// Damage of a journal or checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// A frame of the journal is missing although it was flushed.
    #[error(
        "frame {frame} of its journal, the 4096 bytes from {at} on, {content}, although {proof}; what it said of namespaces \
         and blocks is lost"
    )]
    Frame {
        /// Its number.
        frame: u64,
        /// Where it is, in bytes.
        at: u64,
        /// What is there.
        content: Content,
        /// How it is known that it was flushed.
        proof: Proof,
    },
    /// A checkpoint is missing or changed although it was completed.
    #[error("its checkpoint {generation}, at byte {at}, {part}")]
    Checkpoint {
        /// The checkpoint's generation: its parity tells its slot.
        generation: u64,
        /// Where it is, in bytes.
        at: u64,
        /// What is wrong with it.
        part: Part,
    },
    /// A frame was written by a later version of this program.
    #[error(
        "frame {frame} of its journal, the 4096 bytes from {at} on, are whole, but have records that this version does not know: \
         use the version that wrote it"
    )]
    Unknown {
        /// Its number.
        frame: u64,
        /// Where it is, in bytes.
        at: u64,
    },
}

/// What is where a frame should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Content {
    /// Nothing but zeros.
    #[error("are zeros")]
    Zeros,
    /// A frame that was changed.
    #[error("have a checksum that does not fit")]
    Checksum,
    /// A frame of an earlier time, or of another position.
    #[error("are a frame of an earlier time")]
    Stale,
    /// Something else.
    #[error("are no frame")]
    Foreign,
    /// It cannot be read.
    #[error("cannot be read")]
    Unreadable,
}

/// How it is known that a frame was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Proof {
    /// A later frame says so.
    #[error("frame {0} says that it was flushed")]
    Frame(u64),
    /// A mark says so.
    #[error("the mark of what was flushed says that {0} frames were")]
    Mark(u64),
}

/// What is wrong with a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Part {
    /// The header is missing, although frames or marks were written after it.
    #[error("has no header that can be read")]
    Header,
    /// The body is not what the header says.
    #[error("is not what its header says")]
    Body,
}
