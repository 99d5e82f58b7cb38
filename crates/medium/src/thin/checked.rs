//! Reads and writes of namespaces with checksums on the caller's thread: what is in memory, mapped
//! and, for a write, in flux. Everything else goes to the drive's thread.
//!
//! A read locks its blocks, takes their tags, and is compared with them when it completes. A write
//! locks its blocks, and puts their tags into pages in memory when it completes. Requests for the
//! same blocks are never here at the same time, unless all of them read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebof_backend::{Completion, CompletionHook, Error, Io, Operation, Request, Segments, Submitted};
use ebof_drive::tag::Tag;

use crate::Thin;
use crate::pages::Places;
use crate::thin::block_tags::{match_tag, places};
use crate::thin::shared::{Epoch, FailedWrite, LockedBlocks, Message};

/// Tags of blocks that lie side by side: mostly one.
enum BlockTags {
    One(Tag),
    Many(Vec<Tag>),
}

impl BlockTags {
    fn as_slice(&self) -> &[Tag] {
        match self {
            Self::One(tag) => std::slice::from_ref(tag),
            Self::Many(tags) => tags,
        }
    }

    fn push(&mut self, tag: Tag) {
        match self {
            Self::Many(tags) if tags.is_empty() => *self = Self::One(tag),
            Self::Many(tags) => tags.push(tag),
            Self::One(first) => *self = Self::Many(vec![*first, tag]),
        }
    }
}

impl FromIterator<Tag> for BlockTags {
    fn from_iter<T: IntoIterator<Item = Tag>>(tags: T) -> Self {
        let mut all = Self::default();
        tags.into_iter().for_each(|tag| all.push(tag));
        all
    }
}

impl Default for BlockTags {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// The hook of a read.
struct ReadHook {
    locked: LockedBlocks,
    tags: BlockTags,
    epoch: Arc<Epoch>,
    above: Option<Arc<dyn CompletionHook>>,
}

/// The hook of a write.
struct WriteHook {
    locked: LockedBlocks,
    tags: BlockTags,
    epoch: Arc<Epoch>,
    above: Option<Arc<dyn CompletionHook>>,
    /// It has completed, or was never begun.
    is_over: AtomicBool,
}

/// Does a request for blocks with checksums on the caller's thread, if possible.
pub(crate) fn submit(thin: &Arc<Thin>, io: &mut Io, request: Request) -> Submitted {
    let (offset, len, change) = match &request.operation {
        Operation::Read { offset, len, data } if data.as_buffer().is_some() => (*offset, *len, false),
        Operation::Write { offset, len, data, fua: false }
            if data.as_buffer().is_some() && !thin.is_bad_at(*offset, *len as u64) && !thin.must_defer_write(false) =>
        {
            (*offset, *len, true)
        }
        _ => return thin.defer(io, request),
    };
    let index = thin.index(offset);
    if len == 0 || index != thin.index(offset + len as u64 - 1) {
        return thin.defer(io, request);
    }
    let blocks = thin.blocks(offset, len as u64);
    if !thin.locks.try_lock(index, &blocks, change) {
        return thin.defer(io, request);
    }
    let mut locked = LockedBlocks::new(Arc::clone(thin), blocks, change);
    // Held until the request completes, and taken before the map is read: see `Thin`'s submit.
    let epoch = thin.shared.epoch();
    let Some(extent) = thin.map.lookup(index) else {
        drop(locked);
        return if change { thin.defer(io, request) } else { zeros(request) };
    };
    locked.extent = extent;
    if change {
        write_checked(thin, io, request, locked, epoch)
    } else {
        read_checked(thin, io, request, locked, epoch)
    }
}

fn read_checked(
    thin: &Arc<Thin>,
    io: &mut Io,
    mut request: Request,
    locked: LockedBlocks,
    epoch: Arc<Epoch>,
) -> Submitted {
    let mut tags = BlockTags::default();
    let mut read = |places: Places| thin.shared.pages.read(&places, |tag| tags.push(tag));
    if !places(thin, locked.extent, &locked.blocks).all(&mut read) {
        drop(locked);
        return thin.defer(io, request);
    }
    let on_medium = thin.shared.layout.extent(locked.extent) + thin.block_layout.data(locked.blocks.start);
    let above = request.hook.take();
    let hook = ReadHook { locked, tags, epoch, above: above.clone() };
    request.hook = Some(Arc::new(hook));
    pass_down(thin, io, request, on_medium, above)
}

fn write_checked(
    thin: &Arc<Thin>,
    io: &mut Io,
    mut request: Request,
    locked: LockedBlocks,
    epoch: Arc<Epoch>,
) -> Submitted {
    let pages = &thin.shared.pages;
    let all = || places(thin, locked.extent, &locked.blocks);
    let begun = all().take_while(|places| pages.begin_write(places)).count();
    if begun < all().count() {
        all().take(begun).for_each(|places| pages.cancel_write(&places));
        drop(locked);
        return thin.defer(io, request);
    }
    let on_medium = thin.shared.layout.extent(locked.extent) + thin.block_layout.data(locked.blocks.start);
    let tags = encode(thin, &mut request.operation, locked.blocks.start);
    let above = request.hook.take();
    let hook = Arc::new(WriteHook { locked, tags, epoch, above: above.clone(), is_over: AtomicBool::new(false) });
    request.hook = Some(Arc::clone(&hook) as Arc<dyn CompletionHook>);
    match pass_down(thin, io, request, on_medium, above) {
        Submitted::Busy(mut request) => {
            hook.cancel();
            if let Some(cipher) = &thin.cipher {
                thin.undo_encrypt(cipher, hook.locked.blocks.start * thin.block_layout.data_bytes, &mut request);
            }
            Submitted::Busy(request)
        }
        submitted => submitted,
    }
}

/// Why a request has one buffer, also when it has completed.
const ONE_BUFFER: &str = "requests with several segments went to the drive's thread, see `submit`";

/// Computes the tags of what is written from block `first` on, and encrypts both.
fn encode(thin: &Thin, operation: &mut Operation, first: u64) -> BlockTags {
    let data_bytes = usize::try_from(thin.block_layout.data_bytes).unwrap_or(usize::MAX);
    let Operation::Write { len, data, .. } = operation else { unreachable!("only writes come here, see `submit`") };
    let buffer = data.as_mut_buffer().expect(ONE_BUFFER);
    let blocks = (first..).zip(buffer.as_mut_slice()[..*len].chunks_exact_mut(data_bytes));
    let tags = blocks.map(|(block, bytes)| {
        let mut tag = Tag::new(thin.volume, block, bytes, [0; 8]);
        if let Some(cipher) = &thin.cipher {
            cipher.encrypt_tag(block, &mut tag.0);
            cipher.encrypt(block, data_bytes, bytes);
        }
        tag
    });
    tags.collect()
}

/// Passes a read or write to the backing device. One that this does not accept is returned as
/// it was, with the hook `above`.
fn pass_down(
    thin: &Thin,
    io: &mut Io,
    mut request: Request,
    on_medium: u64,
    above: Option<Arc<dyn CompletionHook>>,
) -> Submitted {
    let logical = match &mut request.operation {
        Operation::Read { offset, .. } | Operation::Write { offset, .. } => std::mem::replace(offset, on_medium),
        _ => 0,
    };
    match thin.shared.base.submit(io, request) {
        Submitted::Busy(mut request) => {
            request.hook = above;
            if let Operation::Read { offset, .. } | Operation::Write { offset, .. } = &mut request.operation {
                *offset = logical;
            }
            Submitted::Busy(request)
        }
        submitted => submitted,
    }
}

/// Completes a read of blocks that were never written.
fn zeros(mut request: Request) -> Submitted {
    if let Operation::Read { len, data, .. } = &mut request.operation {
        data.clear(0..*len);
    }
    Submitted::Done(request.complete(Ok(())))
}

impl ReadHook {
    /// Compares what was read with its tags.
    fn verify(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let LockedBlocks { thin, blocks, .. } = &self.locked;
        let data_bytes = usize::try_from(thin.block_layout.data_bytes).unwrap_or(usize::MAX);
        for ((block, bytes), &tag) in blocks.clone().zip(bytes.chunks_exact_mut(data_bytes)).zip(self.tags.as_slice()) {
            if match_tag(thin, block, bytes, std::iter::once(tag)).is_none() {
                let _ended = thin.shared.post(Message::Corrupt(thin.volume, block));
                let of = format!("instance {}", thin.volume.0);
                return Err(Error::Corrupt { action: ebof_backend::Action::Read, block, of });
            }
        }
        Ok(())
    }
}

impl CompletionHook for ReadHook {
    fn finish(&self, completion: &mut Completion) {
        self.epoch.finish(completion);
        let len = self.locked.blocks.end - self.locked.blocks.start;
        let len = usize::try_from(len * self.locked.thin.block_layout.data_bytes).expect("it is in memory");
        if completion.result.is_ok() {
            let buffer = completion.data.as_mut().and_then(Segments::as_mut_buffer).expect(ONE_BUFFER);
            completion.result = self.verify(&mut buffer.as_mut_slice()[..len]);
        }
        self.locked.unlock();
        if let Some(above) = &self.above {
            above.finish(completion);
        }
    }
}

impl WriteHook {
    /// The blocks have these tags now.
    fn succeed(&self) {
        let LockedBlocks { thin, extent, blocks, .. } = &self.locked;
        let mut tags = self.tags.as_slice().iter().copied();
        for places in places(thin, *extent, blocks) {
            let count = places.places.len();
            thin.shared.pages.end_write(&places, tags.by_ref().take(count));
        }
        thin.count_unsettled();
    }

    /// The write was not begun.
    fn cancel(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let LockedBlocks { thin, extent, blocks, .. } = &self.locked;
        places(thin, *extent, blocks).for_each(|places| thin.shared.pages.cancel_write(&places));
        self.locked.unlock();
    }

    /// Some of it may have been written: the drive's thread finds out what, and unlocks the blocks.
    fn fail(&self) {
        let failed = FailedWrite { locked: self.locked.take(), tags: self.tags.as_slice().to_vec() };
        let _ended = self.locked.thin.shared.post(Message::WriteFailed(failed));
    }
}

impl CompletionHook for WriteHook {
    fn finish(&self, completion: &mut Completion) {
        self.epoch.finish(completion);
        self.is_over.store(true, Ordering::Relaxed);
        if completion.result.is_ok() {
            self.succeed();
            self.locked.unlock();
        } else {
            self.fail();
        }
        if let Some(above) = &self.above {
            above.finish(completion);
        }
    }
}

impl Drop for WriteHook {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            self.fail();
        }
    }
}

impl std::fmt::Debug for ReadHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadHook").field("blocks", &self.locked.blocks).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WriteHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteHook").field("blocks", &self.locked.blocks).finish_non_exhaustive()
    }
}
