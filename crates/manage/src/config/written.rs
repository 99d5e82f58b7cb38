//! Values as a configuration writes them, for serde.

use std::fmt;
use std::time::Duration;

use serde::Serializer;

use crate::units::{format_duration, format_size};

/// Whether a value that is `true` by default need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
pub(super) fn is_true(value: &bool) -> bool {
    *value
}

pub(super) fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn as_optional_text<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

pub(super) fn as_texts<T: fmt::Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
pub(super) fn as_size<S: Serializer>(bytes: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_size(u64::from(*bytes)))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
pub(super) fn as_size64<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_size(*bytes))
}

pub(super) fn as_optional_size<S: Serializer>(bytes: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => as_size(bytes, serializer),
        None => serializer.serialize_none(),
    }
}

pub(super) fn as_optional_size64<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&format_size(*bytes)),
        None => serializer.serialize_none(),
    }
}

pub(super) fn as_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}
