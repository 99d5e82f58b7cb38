//! From a text to a configuration: ebof's own keys in TOML or JSON, and what `nvmetcli save`
//! writes.
//!
//! Detects the format of a text, and checks the text as a whole ([`Objection`]).
//! Keys are read in `read`, the Linux target's in [`nvmetcli`].

pub mod nvmetcli;
mod read;
mod whole;

use std::path::Path;

use crate::config::{Config, limits};
use crate::diagnostic::{Collector, Diagnostics};
use crate::units::format_size;

use read::native;
use read::tree::{self, Node};
use whole::Whole;

pub use read::native::{KeyFinding, LookAtKey};
pub use whole::Objection;

/// The format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// ebof's own keys, in TOML.
    Toml,
    /// JSON: ebof's own keys, or what `nvmetcli save` writes; the keys tell.
    Json,
}

/// A valid configuration, with remarks about its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings and notes.
    pub remarks: Diagnostics,
    /// Distinguishes a configuration that removes something on purpose from a truncated one.
    whole: Whole,
}

impl FileFormat {
    /// Detects the format by the extension of the name, otherwise by the first character.
    #[must_use]
    pub fn detect(name: &str, text: &str) -> Self {
        match Path::new(name).extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("toml") => Self::Toml,
            Some(extension) if extension.eq_ignore_ascii_case("json") => Self::Json,
            _ if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') => Self::Json,
            _ => Self::Toml,
        }
    }
}

/// Reads a configuration: TOML, JSON with the same keys, or the JSON that `nvmetcli save` writes.
///
/// `name` is what messages call the text, usually its path. Relative paths inside stay as they are:
/// see [`Config::rebase`].
///
/// # Errors
/// All errors of the text, each with its position.
pub fn load(name: &str, text: &str) -> Result<Loaded, Diagnostics> {
    load_as(FileFormat::detect(name, text), name, text)
}

/// As [`load`], for a known format.
///
/// # Errors
/// All errors of the text, each with its position.
pub fn load_as(format: FileFormat, name: &str, text: &str) -> Result<Loaded, Diagnostics> {
    load_with(format, name, text, None)
}

/// As [`load`], for somebody who wants to know all about a configuration that no target has yet:
/// what `look` finds where it says that keys are, and hosts that lack one.
///
/// # Errors
/// All errors of the text and of keys, each with its position.
pub fn load_with_keys(name: &str, text: &str, look: &mut LookAtKey<'_>) -> Result<Loaded, Diagnostics> {
    load_with(FileFormat::detect(name, text), name, text, Some(look))
}

fn load_with(
    format: FileFormat,
    name: &str,
    text: &str,
    look: Option<&mut LookAtKey<'_>>,
) -> Result<Loaded, Diagnostics> {
    let mut out = Collector::new(name, text);
    let mut whole = Whole::default();
    let config = if text.len() > limits::TEXT_BYTES_MAX {
        let size = format_size(limits::TEXT_BYTES_MAX as u64);
        out.error(0..0, format!("the configuration has {} bytes", text.len()), format!("accepted: at most {size}"));
        None
    } else {
        out.set_json(format == FileFormat::Json);
        let root = match format {
            FileFormat::Toml => tree::from_toml(text, &mut out),
            FileFormat::Json => tree::from_json(text, &mut out),
        };
        whole = Whole::from_text(format, text, root.as_ref());
        root.map(|root| read_root(format, &root, look, &mut out))
    };
    match config {
        Some(config) if !out.has_errors() => Ok(Loaded { config, remarks: out.finish(), whole }),
        _ => Err(out.finish()),
    }
}

fn read_root(format: FileFormat, root: &Node, look: Option<&mut LookAtKey<'_>>, out: &mut Collector<'_>) -> Config {
    if format == FileFormat::Json && nvmetcli::looks_like(root) {
        return nvmetcli::read(root, out);
    }
    let config = native::read(root, out);
    if let Some(look) = look {
        native::remark_on_proofs(root, &config, out);
        native::look_at_keys(root, &config, look, out);
    }
    config
}

/// Checks a configuration that was built by hand, such as from command-line arguments, by all the
/// rules of [`load`]. `name` is what messages call it; they point into its TOML form.
///
/// # Errors
/// All errors of the configuration.
pub fn check(name: &str, config: &Config) -> Result<Loaded, Diagnostics> {
    let text = config.to_toml().map_err(|error| {
        let mut out = Collector::new(name, "");
        out.error(0..0, error.to_string(), "");
        out.finish()
    })?;
    load_as(FileFormat::Toml, name, &text)
}

#[cfg(test)]
mod tests;
