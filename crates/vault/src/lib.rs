//! Memory for keys that stay as long as a host, a connection or a drive does.
//!
//! It comes from pages of its own, which are locked, so that they are not swapped, and left out of
//! core dumps, and it is erased when its owner is dropped ([`KeptBytes`], [`KeptValue`]). Keys are
//! small and many: they are slots of a few pages (`slots.rs`), and pages that have none are given
//! back.
//!
//! This crate deliberately knows no key, computes nothing, and formats no byte. What is on the
//! stack or the heap for a moment is its caller's: [`with_clean_stack`] helps with the former,
//! `zeroize` with the latter.

#[expect(unsafe_code, reason = "owners of memory that is no box's; see the rule at the top of the file")]
mod kept;
#[expect(unsafe_code, reason = "pages of its own have no safe interface; see the rule at the top of the file")]
mod pages;
#[expect(unsafe_code, reason = "slots are parts of pages")]
mod slots;

pub use kept::{KeptBytes, KeptValue};
pub use pages::{Unprotected, unprotected};

/// Bytes of the stack that [`with_clean_stack`] erases. What is computed with keys here takes some
/// 10 KiB, most of it for the exponentiations of unoptimized programs.
const STACK_BYTES: usize = 32 << 10;

/// Does `work`, and erases what it has left on the stack: the copies that computations and moves
/// make. What it returns is not erased, and has to be no key, or the owner of one.
///
/// It is done as well as the language allows: the frames of `work` are below that of the caller,
/// and what is erased is below it, too. Registers are left as they are.
pub fn with_clean_stack<R>(work: impl FnOnce() -> R) -> R {
    let result = below(work);
    zeroize::zeroize_stack::<STACK_BYTES>();
    result
}

#[inline(never)]
fn below<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
