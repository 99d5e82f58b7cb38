//! Keys: `gen-dhchap-key`, `check-dhchap-key`, `gen-tls-key` and `check-tls-key`, and `keys`, which
//! has nvme-cli 3.0's names for them. They only make and read texts; nothing is stored.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebof_authentication::psk::{Identity, IdentityVersion};
use ebof_authentication::response::Names;
use ebof_authentication::secret::TextError;
use ebof_authentication::{ConfiguredPsk, Derivation, Hash, KeyMaterial, Secret};
use ebof_clock::Clock;
use ebof_initiator::overrides::parse;
use ebof_initiator::{host, key_lines};
use ebof_manage::Severity;
use ebof_manage::api::HOST_KEYS_MAX;
use ebof_manage::load::KeyFinding;
use ebof_nvme::Nqn;
use ebof_state::{PrivateFileError, read_credential, read_private};
use zeroize::Zeroizing;

use super::Outcome;
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::done::Done;
use crate::output::json::Object;
use crate::output::text::safe;
use crate::output::{say, show};

/// The longest file with keys.
const FILE_BYTES_MAX: usize = 4096;

/// `gen-dhchap-key`, as nvme-cli 3.0: the text has the secret itself.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GenSecret {
    /// The secret, 64, 96 or 128 hexadecimal digits [default: random]
    #[arg(short, long, value_name = "DIGITS")]
    secret: Option<String>,
    /// Length of the secret in bytes: 32, 48 or 64 [default: of SECRET, or by the hash]
    #[arg(short = 'l', long, visible_alias = "secret-length", value_name = "BYTES")]
    key_length: Option<usize>,
    /// Ignored: whoever uses the secret transforms it for its NQN
    #[arg(short, long, value_name = "NQN")]
    nqn: Option<String>,
    /// The hash that transforms it: 0 none, 1 SHA-256, 2 SHA-384, 3 SHA-512
    #[arg(short = 'm', long, value_name = "0|1|2|3", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    hmac: u8,
}

/// `check-dhchap-key`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "the_secret", required = true, multiple = false)]
pub(crate) struct CheckSecret {
    /// The secret, DHHC-1:..., which other users of this machine can see while this runs
    #[arg(short, long, visible_alias = "secret", value_name = "KEY")]
    key: Option<String>,
    /// A file with it, or with several, one in a line
    #[arg(short = 'f', long, value_name = "FILE", value_parser = parse::given_key_file)]
    keyfile: Option<PathBuf>,
}

/// For whom a PSK is.
#[derive(Clone, Debug, clap::Args)]
struct Between {
    /// The host's NQN [default: this host's]
    #[arg(short = 'n', long, value_name = "NQN")]
    hostnqn: Option<String>,
    /// The subsystem's NQN
    #[arg(short = 'c', long, value_name = "NQN")]
    subsysnqn: Option<String>,
    /// Version of the identity [default: 1]
    #[arg(short = 'I', long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    identity: Option<u8>,
    /// The derivation of libnvme 1.x, and so of nvme-cli 2.x
    #[arg(short = 'C', long)]
    compat: bool,
}

/// `gen-tls-key`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GenPsk {
    #[command(flatten)]
    between: Between,
    /// The hash: 1 SHA-256 and 32 bytes, 2 SHA-384 and 48 bytes
    #[arg(short = 'm', long, value_name = "1|2", default_value = "1", value_parser = psk_hash)]
    hmac: Hash,
    /// The PSK, 64 or 96 hexadecimal digits [default: random]
    #[arg(short, long, value_name = "DIGITS")]
    secret: Option<String>,
}

/// `check-tls-key`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "the_psk", required = true, multiple = false, args = ["keydata", "keyfile"])]
pub(crate) struct CheckPsk {
    #[command(flatten)]
    between: Between,
    /// The PSK, NVMeTLSkey-1:..., which other users of this machine can see while this runs
    #[arg(short = 'd', long, alias = "key", value_name = "KEY")]
    keydata: Option<String>,
    /// A file with it, or with several, one in a line
    #[arg(short = 'f', long, value_name = "FILE", value_parser = parse::given_key_file)]
    keyfile: Option<PathBuf>,
}

/// `keys`: nvme-cli 3.0's names.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KeysVerb {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Generate a secret for DH-HMAC-CHAP: `gen-dhchap-key`
    GenKxchapSecret(GenSecret),
    /// Check a secret for DH-HMAC-CHAP: `check-dhchap-key`
    CheckKxchapSecret(CheckSecret),
    /// Generate a PSK for TLS: `gen-tls-key`
    #[command(visible_alias = "gen-tls-psk")]
    GenTls(GenPsk),
    /// Check a PSK for TLS, and show its identity: `check-tls-key`
    #[command(visible_alias = "check-tls-psk")]
    CheckTls(CheckPsk),
}

impl KeysVerb {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        match self.action {
            Action::GenKxchapSecret(verb) => verb.run(global),
            Action::CheckKxchapSecret(verb) => verb.run(global),
            Action::GenTls(verb) => verb.run(global),
            Action::CheckTls(verb) => verb.run(global),
        }
    }
}

impl GenSecret {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.nqn.is_some() {
            tracing::warn!("--nqn is ignored: the text has the secret itself, and whoever uses it transforms it");
        }
        let transform = Hash::from_id(self.hmac);
        let given = self.secret.as_deref().map(parse_digits).transpose()?;
        let of_hash = transform.map_or(32, Hash::bytes);
        let length = self.key_length.or(given.as_ref().map(Vec::len)).unwrap_or(of_hash);
        let bytes = given.map_or_else(|| random(length), Ok)?;
        if bytes.len() != length {
            let message = format!("the secret has {} bytes, and --key-length is {length}", bytes.len());
            return Err(Failure::usage(message, "leave --key-length out, or give as many digits").into());
        }
        let secret = Secret::new(KeyMaterial::new(bytes), transform)
            .map_err(|_| Failure::usage(format!("a secret cannot have {length} bytes"), "32, 48 or 64 are possible"))?;
        let done = Done::with_text("gen-dhchap-key", format!("{}\n", *secret.to_text()));
        show(global, &of_secret(done.with("key", &*secret.to_text() as &str), &secret))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl CheckSecret {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let keys = given(self.key, self.keyfile)?.parsed(Secret::parse, HELP_SECRET)?;
        let told = |secret: &Secret| {
            let hash = secret.transform();
            let hash = hash.map_or("not transformed".to_owned(), |hash| format!("transformed with {hash}"));
            format!("The key is valid: {} bytes, {hash}\n", secret.key_bytes())
        };
        let text = keys.iter().map(|(line, secret)| keys_line(keys.len(), *line) + &told(secret)).collect();
        let mut done = Done::with_text("check-dhchap-key", text);
        if let Some((_, first)) = keys.first() {
            done = of_secret(done, first);
        }
        let object = |(line, secret): &(usize, Secret)| {
            let hash = u64::from(secret.transform().map_or(0, Hash::id));
            Object::new().with("line", *line as u64).with("hmac", hash).with("key_bytes", secret.key_bytes() as u64)
        };
        if keys.len() > 1 {
            done = done.with("keys", keys.iter().map(object).collect::<Vec<_>>());
        }
        show(global, &done)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn of_secret(done: Done, secret: &Secret) -> Done {
    done.with("hmac", u64::from(secret.transform().map_or(0, Hash::id))).with("key_bytes", secret.key_bytes() as u64)
}

impl GenPsk {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.between.warn();
        let hash = self.hmac;
        let bytes = self.secret.as_deref().map(parse_digits).transpose()?.map_or_else(|| random(hash.bytes()), Ok)?;
        let length = bytes.len();
        let psk = ConfiguredPsk::new(KeyMaterial::new(bytes), Some(hash)).map_err(|_| {
            let message = format!("the PSK has {length} bytes");
            Failure::usage(message, format!("with {hash} it has {}: {} digits", hash.bytes(), 2 * hash.bytes()))
        })?;
        let done = Done::with_text("gen-tls-key", format!("{}\n", *psk.to_text()));
        let done = done.with("key", &*psk.to_text() as &str);
        let done = match self.between.identity_of(&psk)? {
            Some(identity) => {
                // The key is all that is on standard output, so that a script has it.
                if global.format == OutputFormat::Normal {
                    say(&format!("note: its identity is {identity}"));
                }
                done.with("identity", identity.to_string())
            }
            None => done,
        };
        show(global, &of_psk(done, &psk))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl CheckPsk {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let keys = given(self.keydata, self.keyfile)?.parsed(ConfiguredPsk::parse, HELP_PSK)?;
        self.between.warn();
        let mut text = String::new();
        let mut objects = Vec::new();
        let mut first = None;
        for (line, psk) in &keys {
            let identity = self.between.identity_of(psk)?.map(|identity| identity.to_string());
            let told = identity.as_deref().unwrap_or("The key is valid; --subsysnqn shows its identity");
            text += &format!("{}{told}\n", keys_line(keys.len(), *line));
            let hash = u64::from(psk.hash().map_or(0, Hash::id));
            let mut object = Object::new().with("line", *line as u64).with("hmac", hash);
            if let Some(identity) = &identity {
                object.push("identity", identity.as_str());
            }
            objects.push(object);
            first.get_or_insert((psk, identity));
        }
        let mut done = Done::with_text("check-tls-key", text);
        if let Some((psk, identity)) = first {
            if let Some(identity) = identity {
                done = done.with("identity", identity);
            }
            done = of_psk(done, psk);
        }
        if keys.len() > 1 {
            done = done.with("keys", objects);
        }
        show(global, &done)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn of_psk(done: Done, psk: &ConfiguredPsk) -> Done {
    done.with("hmac", u64::from(psk.hash().map_or(0, Hash::id)))
}

impl Between {
    /// Says which options are of no use: they are about an identity, which needs a subsystem.
    fn warn(&self) {
        let given =
            [("--hostnqn", self.hostnqn.is_some()), ("--identity", self.identity.is_some()), ("--compat", self.compat)];
        let unused: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect();
        if self.subsysnqn.is_none() && !unused.is_empty() {
            let names = unused.join(", ");
            say(&format!("warning: no effect without --subsysnqn: {names} (the identity has both NQNs in it)"));
        }
    }

    /// The identity of the PSK, if it is known between whom it is.
    fn identity_of(&self, psk: &ConfiguredPsk) -> anyhow::Result<Option<Identity>> {
        let Some(subsystem) = &self.subsysnqn else { return Ok(None) };
        let subsystem = parse_nqn(subsystem, "--subsysnqn")?;
        let host = match &self.hostnqn {
            Some(host) => parse_nqn(host, "--hostnqn")?,
            None => host::identity().nqn,
        };
        let derivation = if self.compat { Derivation::Libnvme1 } else { Derivation::Specification };
        let version = if self.identity == Some(0) { IdentityVersion::V0 } else { IdentityVersion::V1 };
        let names = Names { host, subsystem };
        let retained = psk.retained(&names.host, derivation);
        // What could not be used is not shown.
        retained.for_tls(&names, version, derivation).map_err(|error| Failure::usage(error.to_string(), "`-I 1`"))?;
        Ok(Some(retained.identity(&names, version)))
    }
}

/// The hash of a PSK for TLS.
fn psk_hash(text: &str) -> Result<Hash, String> {
    match text {
        "1" => Ok(Hash::Sha256),
        "2" => Ok(Hash::Sha384),
        _ => Err("a key for TLS is made with hash 1 (SHA-256, 32 bytes) or 2 (SHA-384, 48 bytes)".to_owned()),
    }
}

const HELP_SECRET: &str = "`ebof gen-dhchap-key` makes one";
const HELP_PSK: &str = "`ebof gen-tls-key` makes one";

fn parse_nqn(text: &str, option: &str) -> anyhow::Result<Nqn> {
    let usage = |error| Failure::usage(format!("{option}: {error}"), "an NQN is like nqn.2014-08.org.example:host");
    Ok(Nqn::parse(text).map_err(usage)?)
}

/// Where several keys are, which of them a line is about.
fn keys_line(count: usize, line: usize) -> String {
    if count > 1 { format!("line {line}: ") } else { String::new() }
}

/// Keys that are checked.
struct Given {
    text: Zeroizing<String>,
    /// The file that they are in, for messages.
    file: Option<String>,
}

/// The text of a key, from the command line or from a file.
fn given(text: Option<String>, path: Option<PathBuf>) -> Result<Given, Failure> {
    match (text, path) {
        (Some(text), _) => Ok(Given { text: Zeroizing::new(text), file: None }),
        (None, Some(path)) => {
            let file = safe(&path.display().to_string());
            let read = match read_private(&path, FILE_BYTES_MAX) {
                Err(error @ (PrivateFileError::Open { .. } | PrivateFileError::Foreign { .. })) => {
                    say(&format!("warning: {file} will be refused in use: {error}"));
                    read_credential(&path, FILE_BYTES_MAX)
                }
                read => read,
            };
            Ok(Given { text: read.map_err(|error| unread(&file, &error))?, file: Some(file) })
        }
        (None, None) => Err(Failure::usage("there is no key to check", "name it, or a file with it")),
    }
}

impl Given {
    /// The keys with their lines, read as a target reads them.
    fn parsed<K>(&self, parse: fn(&str) -> Result<K, TextError>, help: &str) -> Result<Vec<(usize, K)>, Failure> {
        let Some(file) = &self.file else {
            let key = parse(&self.text).map_err(|error| Failure::usage(error.to_string(), help))?;
            return Ok(vec![(1, key)]);
        };
        let mut keys = Vec::new();
        for (line, text) in key_lines(&self.text) {
            if keys.len() == HOST_KEYS_MAX {
                let message = format!("{file}: there are more than {HOST_KEYS_MAX} keys in it");
                return Err(Failure::usage(message, "leave out those that nobody uses any more"));
            }
            let key = parse(text).map_err(|error| Failure::usage(format!("{file}: line {line}: {error}"), help))?;
            keys.push((line, key));
        }
        if keys.is_empty() {
            return Err(Failure::usage(format!("{file}: there is no key in it"), help));
        }
        if keys.len() > 1 {
            say(&format!("note: a target takes each of the keys in {file}, a host uses the first"));
        }
        Ok(keys)
    }
}

/// A file with a key that cannot be read, or that nobody would use.
fn unread(file: &str, error: &PrivateFileError) -> Failure {
    Failure::usage(format!("{file}: {error}"), "name a file of yours with the key, which nobody else may read")
}

/// The one key in a file, which is as private as whoever uses it wants.
pub(super) fn one_of_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let file = safe(&path.display().to_string());
    let text = read_private(path, FILE_BYTES_MAX).map_err(|error| unread(&file, &error))?;
    let mut keys = key_lines(&text);
    match (keys.next(), keys.next()) {
        (Some((_, key)), None) => Ok(Zeroizing::new(key.to_owned())),
        (None, _) => Err(Failure::usage(format!("{file}: there is no key in it"), "`ebof gen-dhchap-key` makes one")),
        _ => Err(Failure::usage(format!("{file}: there are several keys in it"), "name a file with one key")),
    }
}

/// What is found in a file of keys that a configuration names, if it is not what a target needs.
/// What depends on who runs the target, or on the machine, is a warning: only that does not stop
/// it.
pub(super) fn found_in_file(path: &Path, is_tls: bool, most: usize) -> Option<KeyFinding> {
    let finding = |severity, why: &dyn fmt::Display, help: &str| {
        let message = format!("{}: {why}", safe(&path.display().to_string()));
        Some(KeyFinding { severity, message, help: help.to_owned() })
    };
    let (read, foreign) = match read_private(path, FILE_BYTES_MAX) {
        Err(error @ PrivateFileError::Foreign { .. }) => (read_credential(path, FILE_BYTES_MAX), Some(error)),
        read => (read, None),
    };
    let text = match read {
        Ok(text) => text,
        Err(error @ PrivateFileError::Unreadable(_)) => {
            return finding(Severity::Warning, &error, "a target that cannot read it either does not start");
        }
        Err(error) => return finding(Severity::Error, &error, "a target does not start with it"),
    };
    let help = if is_tls { HELP_PSK } else { HELP_SECRET };
    let parse = |text: &str| if is_tls { ConfiguredPsk::parse(text).map(drop) } else { Secret::parse(text).map(drop) };
    let mut count = 0;
    for (line, text) in key_lines(&text) {
        count += 1;
        if count > most {
            return finding(
                Severity::Error,
                &format!("there are more than {most} keys in it"),
                "leave out those that nobody uses any more",
            );
        }
        if let Err(error) = parse(text) {
            return finding(Severity::Error, &format!("line {line}: {error}"), help);
        }
    }
    if count == 0 {
        return finding(Severity::Error, &"there is no key in it", help);
    }
    let error = foreign?;
    finding(Severity::Warning, &error, "unless the target is that user's, it does not start")
}

fn parse_digits(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0);
    // Nothing of it is in the message.
    let usage =
        || Failure::usage("the secret is not a number of pairs of hexadecimal digits", "two digits for each byte");
    Ok(digits.ok_or_else(usage)?.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

pub(super) fn random(length: usize) -> anyhow::Result<Vec<u8>> {
    // Longer ones are refused with the lengths that are possible.
    let mut bytes = vec![0; length.min(Hash::BYTES_MAX + 1)];
    Clock::system().fill(&mut bytes)?;
    Ok(bytes)
}
