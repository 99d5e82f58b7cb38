//! Kinds of backings: which there are, and how what a specification names is opened.
//!
//! Memory and the null device are in the folder, files and block devices in `file.rs`. Whoever
//! brings another kind registers it ([`Kinds::with`]); nothing else in this crate knows of it. A
//! kind chooses its scheme, opens a [`Device`] with a geometry of its own, tells what identifies it
//! ([`Persistent`](crate::Persistent)), and how errors call it ([`Name`], which need not be a
//! path).

pub(crate) mod memory;
pub(crate) mod null;

use std::fmt;
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::error::name::Name;
use crate::error::size::round_up;
use crate::file::{FileDevice, PathSpec, id_at};
use crate::geometry::check_blocks;
use crate::{BackingError, BackingId, BlockBytes, Device, Memory, Null, OpenError, Source, Spec};

/// A kind of backing.
pub trait BackingKind: Send + Sync + fmt::Debug {
    /// What is in front of the colon of its specifications.
    fn schemes(&self) -> &[&'static str];

    /// Whether it opens such sources.
    fn opens(&self, source: &Source) -> bool {
        matches!(source, Source::Named { scheme, .. } if self.schemes().contains(&scheme.as_str()))
    }

    /// Opens what `spec` names, with its size, its blocks and its permissions checked.
    ///
    /// # Errors
    /// What is wrong with it, and what to do about it.
    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError>;

    /// What tells the backing that `spec` names from others, without opening it: the same that the
    /// opened device [says](crate::Persistent::id). `None` if it is not there, or its data end with
    /// the device.
    fn id(&self, spec: &Spec) -> Option<BackingId>;
}

/// The kinds of backings that a program can open.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<Arc<dyn BackingKind>>);

/// A kind of backing cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is a kind of backings with the scheme `{scheme}` already")]
pub struct SchemeTaken {
    /// The one that both have.
    pub scheme: &'static str,
}

static SYSTEM: LazyLock<Kinds> = LazyLock::new(Kinds::system);

/// Opens a drive, and creates its file if the specification has a size and there is none. Of the
/// kinds that this crate has.
///
/// # Errors
/// What is wrong with the drive, and what to do about it.
pub fn open(spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
    SYSTEM.open(spec)
}

/// As [`Kinds::id`], of the kinds that this crate has.
#[must_use]
pub fn id(spec: &Spec) -> Option<BackingId> {
    SYSTEM.id(spec)
}

impl Kinds {
    /// Memory, the null device, files and block devices.
    #[must_use]
    pub fn system() -> Self {
        Self(vec![Arc::new(InMemory), Arc::new(Nowhere), Arc::new(InFile)])
    }

    /// The same and another one.
    ///
    /// # Errors
    /// There is one with its scheme.
    pub fn with(mut self, kind: Arc<dyn BackingKind>) -> Result<Self, SchemeTaken> {
        match kind.schemes().iter().find(|scheme| self.schemes().any(|taken| taken == **scheme)) {
            Some(scheme) => Err(SchemeTaken { scheme }),
            None => {
                self.0.push(kind);
                Ok(self)
            }
        }
    }

    /// Parses the specification of a drive of one of the kinds.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(&self, text: &str) -> Result<Spec, BackingError> {
        Spec::parse(text, &self.schemes().collect::<Vec<_>>())
    }

    /// Opens a drive, and creates its file if the specification has a size and there is none.
    ///
    /// # Errors
    /// What is wrong with the drive, and what to do about it.
    pub fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        self.find(&spec.source).ok_or_else(|| unknown(spec))?.open(spec)
    }

    /// What tells the backing that `spec` names from others, without opening it; `None` if it is
    /// not there, or its data end with the device.
    #[must_use]
    pub fn id(&self, spec: &Spec) -> Option<BackingId> {
        self.find(&spec.source)?.id(spec)
    }

    fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flat_map(|kind| kind.schemes()).copied()
    }

    fn find(&self, source: &Source) -> Option<&dyn BackingKind> {
        self.0.iter().find(|kind| kind.opens(source)).map(|kind| &**kind)
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Self::system()
    }
}

fn unknown(spec: &Spec) -> OpenError {
    OpenError::UnknownKind { spec: spec.to_string() }
}

#[derive(Debug)]
struct InMemory;

impl BackingKind for InMemory {
    fn schemes(&self) -> &[&'static str] {
        &["mem", "memory"]
    }

    fn opens(&self, source: &Source) -> bool {
        matches!(source, Source::Memory { .. })
    }

    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let Source::Memory { size_bytes } = spec.source else { return Err(unknown(spec)) };
        let (size_bytes, block_bytes) = (round_up(size_bytes), block_bytes(spec));
        check_blocks(Name::new("mem"), size_bytes, block_bytes)?;
        if size_bytes > Memory::CAPACITY_BYTES_MAX {
            return Err(OpenError::MemoryTooLarge { size_bytes, bytes_max: Memory::CAPACITY_BYTES_MAX });
        }
        Ok(Arc::new(Memory::new(size_bytes, block_bytes, spec.read_only)))
    }

    fn id(&self, _spec: &Spec) -> Option<BackingId> {
        None
    }
}

#[derive(Debug)]
struct Nowhere;

impl BackingKind for Nowhere {
    fn schemes(&self) -> &[&'static str] {
        &["null"]
    }

    fn opens(&self, source: &Source) -> bool {
        matches!(source, Source::Null { .. })
    }

    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let Source::Null { size_bytes } = spec.source else { return Err(unknown(spec)) };
        let (size_bytes, block_bytes) = (round_up(size_bytes), block_bytes(spec));
        check_blocks(Name::new("null"), size_bytes, block_bytes)?;
        Ok(Arc::new(Null::new(size_bytes, block_bytes, spec.read_only)))
    }

    fn id(&self, _spec: &Spec) -> Option<BackingId> {
        None
    }
}

/// A regular file or a block device.
#[derive(Debug)]
struct InFile;

impl BackingKind for InFile {
    fn schemes(&self) -> &[&'static str] {
        // A path has none.
        &[]
    }

    fn opens(&self, source: &Source) -> bool {
        matches!(source, Source::Path { .. })
    }

    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let Source::Path { path, size_bytes, direct } = &spec.source else { return Err(unknown(spec)) };
        let path_spec = PathSpec {
            path,
            size_bytes: *size_bytes,
            uncached: *direct,
            read_only: spec.read_only,
            block_bytes: spec.block_bytes.map(BlockBytes::bytes),
        };
        Ok(Arc::new(FileDevice::new(path_spec.open()?)))
    }

    fn id(&self, spec: &Spec) -> Option<BackingId> {
        let Source::Path { path, .. } = &spec.source else { return None };
        id_at(path)
    }
}

fn block_bytes(spec: &Spec) -> u32 {
    spec.block_bytes.map_or(512, BlockBytes::bytes)
}

#[cfg(test)]
mod tests;
