//! Where the tags of a namespace's blocks are, and whether a block matches its tag. What the tags
//! are now is in `tags.rs`.

use std::ops::Range;

use ebof_drive::block_format::TAGS_PER_PAGE;
use ebof_drive::tag::Tag;

use crate::Thin;
use crate::blank::is_zero;
use crate::pages::{Owner, Places};

/// Offsets and owners of the pages that hold the tags of `blocks`, which lie in one extent; none if
/// that is unmapped.
pub(crate) fn pages_of(thin: &Thin, blocks: &Range<u64>) -> Vec<(u64, Owner)> {
    let block_layout = &thin.block_layout;
    let index = block_layout.index(blocks.start);
    let Some(extent) = thin.map.lookup(index).filter(|_| !blocks.is_empty()) else { return Vec::new() };
    let begin = thin.shared.layout.extent(extent);
    let owner = |page| {
        let tagged = block_layout.tagged(index, page);
        let blocks = tagged.start..tagged.end.min(thin.block_count());
        (begin + block_layout.page_at(page), Owner { volume: thin.volume, blocks, index, page })
    };
    (block_layout.page(blocks.start)..=block_layout.page(blocks.end - 1)).map(owner).collect()
}

/// Offsets of the data of a block, and of the page with its tag; `None` if its extent is unmapped.
pub(crate) fn location(thin: &Thin, block: u64) -> Option<(u64, u64)> {
    let begin = thin.shared.layout.extent(thin.map.lookup(thin.block_layout.index(block))?);
    Some((begin + thin.block_layout.data(block), begin + thin.block_layout.page_at(thin.block_layout.page(block))))
}

/// The page of tags of a block, and its place there; `None` if its extent is unmapped.
pub(crate) fn place_of(thin: &Thin, block: u64) -> Option<Places> {
    let (_, at) = location(thin, block)?;
    let place = thin.block_layout.place(block);
    Some(Places { at, places: place..place + 1 })
}

/// The pages of tags of `blocks`, which lie in extent `extent` of the medium, and their places
/// there.
pub(crate) fn places(thin: &Thin, extent: u32, blocks: &Range<u64>) -> impl Iterator<Item = Places> + use<> {
    let block_layout = thin.block_layout;
    let begin = thin.shared.layout.extent(extent);
    let (mut at, end) = (blocks.start, blocks.end);
    std::iter::from_fn(move || {
        let first = at;
        let place = block_layout.place(first);
        at = (first + TAGS_PER_PAGE - place as u64).min(end);
        let count = usize::try_from(at - first).expect("the blocks of a page at most");
        let page = begin + block_layout.page_at(block_layout.page(first));
        (first < end).then_some(Places { at: page, places: place..place + count })
    })
}

/// The tag that a block with these data, which are decrypted, gets. It has no metadata. If it
/// `is_blank`, there are zeros on the medium.
pub(crate) fn new_tag(thin: &Thin, block: u64, data: &[u8], is_blank: bool) -> MatchedTag {
    let mut tag = Tag::new(thin.volume, block, data, [0; 8]);
    if is_blank {
        tag = Tag::UNWRITTEN;
    } else if let Some(cipher) = &thin.cipher {
        cipher.encrypt_tag(block, &mut tag.0);
    }
    MatchedTag { on_medium: tag, metadata: [0; 8] }
}

/// A tag that matches its block.
#[derive(Clone, Copy)]
pub(crate) struct MatchedTag {
    /// As it is on the medium: encrypted, if the namespace is.
    pub(crate) on_medium: Tag,
    pub(crate) metadata: [u8; 8],
}

/// The first of these tags that matches the block with these data, which are decrypted in place.
pub(crate) fn match_tag(
    thin: &Thin,
    block: u64,
    data: &mut [u8],
    tags: impl Iterator<Item = Tag>,
) -> Option<MatchedTag> {
    let encrypted = thin.cipher.as_ref().filter(|_| !is_zero(data));
    let zeros = thin.cipher.is_some() && encrypted.is_none();
    if let Some(cipher) = encrypted {
        cipher.decrypt(block, data.len(), data);
    }
    let clear = |on_medium: Tag| {
        let mut tag = on_medium;
        if let Some(cipher) = &thin.cipher
            && tag != Tag::LOST
        {
            cipher.decrypt_tag(block, &mut tag.0);
        }
        tag
    };
    tags.into_iter().find_map(|on_medium| {
        // The tag of a block that was never written is not encrypted.
        if on_medium == Tag::UNWRITTEN {
            let zeros = zeros || thin.cipher.is_none() && is_zero(data);
            return zeros.then(|| MatchedTag { on_medium, metadata: on_medium.metadata() });
        }
        let tag = clear(on_medium);
        tag.matches(thin.volume, block, data).then(|| MatchedTag { on_medium, metadata: tag.metadata() })
    })
}
