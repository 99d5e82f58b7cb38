//! Keys: `gen-dhchap-key`, `check-dhchap-key`, `gen-tls-key` and `check-tls-key`, and `keys`, which
//! has nvme-cli 3.0's names for them. They only make and read texts; nothing is stored.

use std::path::PathBuf;
use std::process::ExitCode;

use ebof_authentication::psk::{Identity, IdentityVersion};
use ebof_authentication::response::Names;
use ebof_authentication::{ConfiguredPsk, Derivation, Hash, KeyMaterial, Secret};
use ebof_clock::Clock;
use ebof_initiator::host;
use ebof_nvme::Nqn;
use zeroize::Zeroizing;

use super::Outcome;
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::show;

/// The longest file with one key.
const FILE_BYTES_MAX: u64 = 4096;

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
    /// A file with it
    #[arg(short = 'f', long, value_name = "FILE")]
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
    /// Version of the identity
    #[arg(short = 'I', long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    identity: u8,
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
    #[arg(short = 'm', long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    hmac: u8,
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
    /// A file with it
    #[arg(short = 'f', long, value_name = "FILE")]
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
        let text = given(self.key, self.keyfile)?;
        let secret = Secret::parse(&text).map_err(|error| Failure::usage(error.to_string(), HELP_SECRET))?;
        let hash = secret.transform().map_or("not transformed".to_owned(), |hash| format!("transformed with {hash}"));
        let text = format!("The key is valid: {} bytes, {hash}\n", secret.key_bytes());
        show(global, &of_secret(Done::with_text("check-dhchap-key", text), &secret))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn of_secret(done: Done, secret: &Secret) -> Done {
    done.with("hmac", u64::from(secret.transform().map_or(0, Hash::id))).with("key_bytes", secret.key_bytes() as u64)
}

impl GenPsk {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let hash = Hash::from_id(self.hmac).unwrap_or(Hash::Sha256);
        let bytes = self.secret.as_deref().map(parse_digits).transpose()?.map_or_else(|| random(hash.bytes()), Ok)?;
        let length = bytes.len();
        let psk = ConfiguredPsk::new(KeyMaterial::new(bytes), Some(hash)).map_err(|_| {
            let message = format!("the PSK has {length} bytes");
            Failure::usage(message, format!("with {hash} it has {}: {} digits", hash.bytes(), 2 * hash.bytes()))
        })?;
        let done = Done::with_text("gen-tls-key", format!("{}\n", *psk.to_text()));
        let done = done.with("key", &*psk.to_text() as &str);
        let done = match self.between.identity_of(&psk)? {
            Some(identity) => done.with("identity", identity.to_string()),
            None => done,
        };
        show(global, &of_psk(done, &psk))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl CheckPsk {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let text = given(self.keydata, self.keyfile)?;
        let psk = ConfiguredPsk::parse(&text).map_err(|error| Failure::usage(error.to_string(), HELP_PSK))?;
        let identity = self.between.identity_of(&psk)?;
        let text = match &identity {
            Some(identity) => format!("{identity}\n"),
            None => "The key is valid; --subsysnqn shows its identity\n".to_owned(),
        };
        let done = Done::with_text("check-tls-key", text);
        let done = match identity {
            Some(identity) => done.with("identity", identity.to_string()),
            None => done,
        };
        show(global, &of_psk(done, &psk))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn of_psk(done: Done, psk: &ConfiguredPsk) -> Done {
    done.with("hmac", u64::from(psk.hash().map_or(0, Hash::id)))
}

impl Between {
    /// The identity of the PSK, if it is known between whom it is.
    fn identity_of(&self, psk: &ConfiguredPsk) -> anyhow::Result<Option<Identity>> {
        let Some(subsystem) = &self.subsysnqn else { return Ok(None) };
        let subsystem = parse_nqn(subsystem, "--subsysnqn")?;
        let host = match &self.hostnqn {
            Some(host) => parse_nqn(host, "--hostnqn")?,
            None => host::identity().nqn,
        };
        let derivation = if self.compat { Derivation::Libnvme1 } else { Derivation::Specification };
        let version = if self.identity == 0 { IdentityVersion::V0 } else { IdentityVersion::V1 };
        let names = Names { host, subsystem };
        let retained = psk.retained(&names.host, derivation);
        // What could not be used is not shown.
        retained.for_tls(&names, version, derivation).map_err(|error| Failure::usage(error.to_string(), "`-I 1`"))?;
        Ok(Some(retained.identity(&names, version)))
    }
}

const HELP_SECRET: &str = "`ebof gen-dhchap-key` makes one";
const HELP_PSK: &str = "`ebof gen-tls-key` makes one";

fn parse_nqn(text: &str, option: &str) -> anyhow::Result<Nqn> {
    let usage = |error| Failure::usage(format!("{option}: {error}"), "an NQN is like nqn.2014-08.org.example:host");
    Ok(Nqn::parse(text).map_err(usage)?)
}

/// The text of a key, from the command line or from a file.
fn given(text: Option<String>, path: Option<PathBuf>) -> anyhow::Result<Zeroizing<String>> {
    match (text, path) {
        (Some(text), _) => Ok(Zeroizing::new(text)),
        (None, Some(path)) => Ok(Zeroizing::new(file::read_text(&path, "the key", FILE_BYTES_MAX, file::Kind::Any)?)),
        (None, None) => Err(Failure::usage("there is no key to check", "name it, or a file with it").into()),
    }
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
