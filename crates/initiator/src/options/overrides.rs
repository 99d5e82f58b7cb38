//! The connect options that a user may set, with nvme-cli's names and units: arguments of verbs
//! (feature `clap`), which an attach daemon keeps in its state file (feature `serde`). Absent ones
//! leave the default. A new option is a field here, a line in [`Overrides::apply`] and a field of
//! [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use ebof_nvme::{HostId, Nqn};
use ebof_tls::RecordsBy;

use crate::options::Options;
use crate::options::keys::{KeySource, PskSource, Tls};

/// Where Linux has the keys of NVMe over TCP.
const KEYRING: &str = ".nvme";

/// What differs from the defaults of [`Options`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Overrides {
    /// Local address to connect from
    #[cfg_attr(feature = "clap", arg(short = 'w', long, value_name = "ADDRESS"))]
    pub host_traddr: Option<String>,
    /// Network interface to connect through
    #[cfg_attr(feature = "clap", arg(short = 'f', long, value_name = "INTERFACE"))]
    pub host_iface: Option<String>,
    /// Who we say we are; /etc/nvme/hostnqn, or a name made from the machine, where nothing is said
    #[cfg_attr(feature = "clap", arg(short = 'q', long, value_name = "NQN"))]
    #[cfg_attr(feature = "serde", serde(with = "text::nqn"))]
    pub hostnqn: Option<Nqn>,
    /// Our host identifier, a UUID
    #[cfg_attr(feature = "clap", arg(short = 'I', long, value_name = "UUID", value_parser = parse::host_id))]
    #[cfg_attr(feature = "serde", serde(with = "text::host_id"))]
    pub hostid: Option<HostId>,
    /// A file with our secret for authentication (DH-HMAC-CHAP), which nobody else may read
    #[cfg_attr(feature = "clap", arg(long, alias = "kxchap-secret-file", value_name = "FILE", group = "own_secret", value_parser = parse::key_file))]
    pub dhchap_secret_file: Option<PathBuf>,
    /// A file with the subsystem's secret: the target has to prove that it has it, too
    #[cfg_attr(feature = "clap", arg(long, alias = "kxchap-ctrl-secret-file", value_name = "FILE", requires = "own_secret", value_parser = parse::key_file))]
    pub dhchap_ctrl_secret_file: Option<PathBuf>,
    /// Connect over TLS, with the key of --tls-key-file, or one of the kernel's keyring
    #[cfg_attr(feature = "clap", arg(long, group = "secured"))]
    pub tls: bool,
    /// A file with our key for TLS (a PSK), which nobody else may read
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", requires = "tls", value_parser = parse::key_file))]
    pub tls_key_file: Option<PathBuf>,
    /// The kernel's keyring with our keys for TLS [default: .nvme]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", requires = "tls", conflicts_with = "tls_key_file"))]
    pub keyring: Option<String>,
    /// The key in the keyring, by its description (a PSK identity) or number [default: the first of
    /// this host and subsystem]
    #[cfg_attr(
        feature = "clap",
        arg(long, alias = "tls_key", value_name = "KEY", requires = "tls", conflicts_with = "tls_key_file")
    )]
    pub tls_key: Option<String>,
    /// Authenticate, and go on over TLS with a key that this has generated (secure channel
    /// concatenation)
    #[cfg_attr(feature = "clap", arg(long, group = "secured", conflicts_with_all = ["tls", "tls_key_file", "keyring", "tls_key"]))]
    pub concat: bool,
    /// Who makes and opens the records of TLS: this process (own) or the kernel, where it can
    /// [default: own]
    #[cfg_attr(feature = "clap", arg(long, value_name = "own|kernel", requires = "secured", value_parser = parse::tls_records))]
    #[cfg_attr(feature = "serde", serde(with = "text::tls_records"))]
    pub tls_records: Option<RecordsBy>,
    /// I/O queues; one for each processor where nothing is said. For reads only, where there are
    /// write queues
    #[cfg_attr(feature = "clap", arg(short = 'i', long, value_name = "N", value_parser = parse::number::<u16>))]
    pub nr_io_queues: Option<u16>,
    /// Additional queues for everything but reads
    #[cfg_attr(feature = "clap", arg(short = 'W', long, value_name = "N", value_parser = parse::number::<u16>))]
    pub nr_write_queues: Option<u16>,
    /// Additional queues that are polled
    #[cfg_attr(feature = "clap", arg(short = 'P', long, value_name = "N", value_parser = parse::number::<u16>))]
    pub nr_poll_queues: Option<u16>,
    /// Entries of an I/O queue [default: 128]
    #[cfg_attr(feature = "clap", arg(short = 'Q', long, value_name = "N", value_parser = parse::number::<u16>))]
    pub queue_size: Option<u16>,
    /// Keep Alive Timeout in seconds, 0 for none [default: 5]
    #[cfg_attr(feature = "clap", arg(short = 'k', long, value_name = "S", value_parser = parse::number::<u32>))]
    pub keep_alive_tmo: Option<u32>,
    /// Seconds between attempts to reconnect [default: 10]
    #[cfg_attr(feature = "clap", arg(short = 'c', long, value_name = "S", value_parser = parse::number::<u32>))]
    pub reconnect_delay: Option<u32>,
    /// Seconds after which a lost controller is given up, -1 for never [default: 600]
    #[cfg_attr(feature = "clap", arg(short = 'l', long, value_name = "S", allow_negative_numbers = true))]
    pub ctrl_loss_tmo: Option<i64>,
    /// Seconds after which I/O fails while the connection is lost, -1 for never
    #[cfg_attr(
        feature = "clap",
        arg(short = 'F', long, alias = "fast_io_fail_tmo", value_name = "S", allow_negative_numbers = true)
    )]
    pub fast_io_fail_tmo: Option<i64>,
    /// Seconds after which I/O fails while the target says that this path does not reach the
    /// namespace (ANA), -1 for never [default: 600]
    #[cfg_attr(feature = "clap", arg(long, value_name = "S", allow_negative_numbers = true))]
    pub path_loss_tmo: Option<i64>,
    /// Seconds that writes of a lost connection wait before they are repeated, where the target
    /// does not say when it executes them no more [default: 0, as Linux]
    #[cfg_attr(feature = "clap", arg(long, value_name = "S", value_parser = parse::number::<u32>))]
    pub fence_tmo: Option<u32>,
    /// IP type of service
    #[cfg_attr(feature = "clap", arg(short = 'T', long, value_name = "TOS", value_parser = parse::number::<u8>))]
    pub tos: Option<u8>,
    /// Priority of what is sent (`SO_PRIORITY`)
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse::number::<u32>))]
    pub so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, microseconds (`SO_BUSY_POLL`)
    #[cfg_attr(
        feature = "clap",
        arg(long = "busy-poll", value_name = "US", value_parser = parse::number::<u32>)
    )]
    pub busy_poll_us: Option<u32>,
    /// Polling stands in for the network card's interrupts (`SO_PREFER_BUSY_POLL`)
    #[cfg_attr(feature = "clap", arg(long))]
    pub prefer_busy_poll: bool,
    /// Packets that one poll takes at most (`SO_BUSY_POLL_BUDGET`)
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse::number::<u16>))]
    pub busy_poll_budget: Option<u16>,
    /// Send data of writes of this size or more without a copy (`MSG_ZEROCOPY`), 4K or more: for
    /// real network cards
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", value_parser = parse::zerocopy_send))]
    pub zerocopy_send: Option<u32>,
    /// Bytes of large writes under way on each queue while small commands are sent on any, or none
    /// (0 in files): more where the network itself holds more [default: 512Ki]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE|none", value_parser = parse::bulk_bytes))]
    pub bulk_bytes: Option<u32>,
    /// Hold small requests for so many microseconds, so that more go in one send (i10)
    #[cfg_attr(
        feature = "clap",
        arg(long = "batch-timeout", value_name = "US", value_parser = parse::number::<u32>)
    )]
    pub batch_timeout_us: Option<u32>,
    /// Send held requests when there are so many [default: 16]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse::number::<u16>))]
    pub batch_nr: Option<u16>,
    /// Send held requests when they transfer so many bytes [default: 65536]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = parse::number::<u32>))]
    pub batch_bytes: Option<u32>,
    /// Header digests (CRC32C)
    #[cfg_attr(feature = "clap", arg(short = 'g', long))]
    pub hdr_digest: bool,
    /// Data digests (CRC32C)
    #[cfg_attr(feature = "clap", arg(short = 'G', long))]
    pub data_digest: bool,
    /// Submission queue flow control off
    #[cfg_attr(feature = "clap", arg(long))]
    pub disable_sqflow: bool,
    /// Over RDMA, give each command a key of its own, for a target that is not trusted
    #[cfg_attr(feature = "clap", arg(long))]
    pub memory_windows: bool,
}

impl Overrides {
    /// The first of the set options that NVMe/RDMA does not have: they are about sockets and
    /// digests. Linux refuses the same, or has none of that name.
    #[must_use]
    pub fn tcp_option(&self) -> Option<&'static str> {
        let set = [
            ("--host-iface", self.host_iface.is_some()),
            ("--so-priority", self.so_priority.is_some()),
            ("--busy-poll", self.busy_poll_us.is_some()),
            ("--prefer-busy-poll", self.prefer_busy_poll),
            ("--busy-poll-budget", self.busy_poll_budget.is_some()),
            ("--zerocopy-send", self.zerocopy_send.is_some()),
            ("--bulk-bytes", self.bulk_bytes.is_some()),
            ("--hdr-digest", self.hdr_digest),
            ("--data-digest", self.data_digest),
            ("--tls", self.tls),
            ("--concat", self.concat),
            ("--tls-records", self.tls_records.is_some()),
        ];
        set.into_iter().find(|(_, set)| *set).map(|(option, _)| option)
    }

    /// The same without the options of [`Overrides::tcp_option`], but for `--tls` and `--concat`:
    /// a connection that cannot have TLS fails, and is not made without.
    #[must_use]
    pub fn without_tcp_options(&self) -> Self {
        Self {
            host_iface: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            busy_poll_budget: None,
            zerocopy_send: None,
            bulk_bytes: None,
            tls_records: None,
            hdr_digest: false,
            data_digest: false,
            ..self.clone()
        }
    }

    fn psk_source(&self) -> PskSource {
        match &self.tls_key_file {
            Some(path) => PskSource::File(path.clone()),
            None => PskSource::Keyring {
                name: self.keyring.clone().unwrap_or_else(|| KEYRING.to_owned()),
                key: self.tls_key.clone(),
            },
        }
    }

    /// The first of the set options that only NVMe/RDMA has.
    #[must_use]
    pub fn rdma_option(&self) -> Option<&'static str> {
        self.memory_windows.then_some("--memory-windows")
    }

    /// The same without the options of [`Overrides::rdma_option`].
    #[must_use]
    pub fn without_rdma_options(&self) -> Self {
        Self { memory_windows: false, ..self.clone() }
    }

    /// Sets the given options. Another host NQN without a Host Identifier gets one of its own:
    /// Linux refuses one identifier with two NQNs.
    pub fn apply(&self, options: &mut Options) {
        if let Some(nqn) = &self.hostnqn {
            options.set_host_nqn(nqn.clone());
        }
        set(&mut options.host_id, self.hostid);
        options.dhchap_key = self.dhchap_secret_file.clone().map(KeySource::File);
        options.dhchap_ctrl_key = self.dhchap_ctrl_secret_file.clone().map(KeySource::File);
        options.tls = self.tls.then(|| Tls::new(self.psk_source()));
        options.concat = self.concat;
        set(&mut options.tls_records, self.tls_records);
        options.host_traddr.clone_from(&self.host_traddr);
        options.host_iface.clone_from(&self.host_iface);
        set(&mut options.nr_io_queues, self.nr_io_queues);
        set(&mut options.nr_write_queues, self.nr_write_queues);
        set(&mut options.nr_poll_queues, self.nr_poll_queues);
        set(&mut options.queue_size, self.queue_size);
        let ms = |seconds: u32| seconds.saturating_mul(1000);
        set(&mut options.keep_alive_ms, self.keep_alive_tmo.map(ms));
        set(&mut options.reconnect_delay_ms, self.reconnect_delay.map(ms));
        let limit = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
        set(&mut options.ctrl_loss_tmo, self.ctrl_loss_tmo.map(limit));
        set(&mut options.fast_io_fail_tmo, self.fast_io_fail_tmo.map(limit));
        set(&mut options.path_loss_tmo, self.path_loss_tmo.map(limit));
        set(&mut options.fence_tmo, self.fence_tmo.map(|seconds| Duration::from_secs(u64::from(seconds))));
        options.tos = self.tos;
        options.so_priority = self.so_priority;
        options.busy_poll_us = self.busy_poll_us;
        options.prefer_busy_poll = self.prefer_busy_poll;
        options.busy_poll_budget = self.busy_poll_budget;
        options.zerocopy_send = self.zerocopy_send;
        set(&mut options.bulk_bytes, self.bulk_bytes.map(|bytes| (bytes > 0).then_some(bytes)));
        set(&mut options.batch_timeout_us, self.batch_timeout_us);
        set(&mut options.batch_nr, self.batch_nr);
        set(&mut options.batch_bytes, self.batch_bytes);
        options.hdr_digest = self.hdr_digest;
        options.data_digest = self.data_digest;
        options.disable_sqflow = self.disable_sqflow;
        options.memory_windows = self.memory_windows;
    }
}

fn set<T>(option: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *option = given;
    }
}

/// Parsers of arguments.
#[cfg(feature = "clap")]
pub mod parse {
    use std::path::PathBuf;

    use ebof_grammar::keys::is_key;
    use ebof_grammar::units::{format_size, parse_size};
    use ebof_nvme::HostId;
    use ebof_tls::RecordsBy;

    pub use ebof_grammar::units::parse_number as number;

    /// Parses a Host Identifier.
    ///
    /// # Errors
    /// It is neither a UUID nor 32 hexadecimal digits.
    pub fn host_id(text: &str) -> Result<HostId, String> {
        HostId::parse(text).ok_or_else(|| "want a UUID such as 00112233-4455-6677-8899-aabbccddeeff".to_owned())
    }

    /// Parses the path of a file with a key: one that a process with another working directory
    /// understands, too.
    ///
    /// # Errors
    /// It is empty or a key itself, or there is no working directory.
    pub fn key_file(text: &str) -> Result<PathBuf, String> {
        let path = given_key_file(text)?;
        std::path::absolute(path).map_err(|error| error.to_string())
    }

    /// Parses the path of a file with a key, and leaves it as it is.
    ///
    /// # Errors
    /// It is a key itself.
    pub fn given_key_file(text: &str) -> Result<PathBuf, String> {
        if is_key(text) {
            let advice = "put it into a file that nobody else may read (`chmod 600`), and name that; others on this \
                          machine can see what is on a command line";
            return Err(format!("this is a key itself, and the path of its file belongs here: {advice}"));
        }
        Ok(text.into())
    }

    /// Parses the limit of large writes' bytes under way; 0 is none.
    ///
    /// # Errors
    /// It is neither a size from 4 KiB to less than 4 GiB nor `none`.
    pub fn bulk_bytes(text: &str) -> Result<u32, String> {
        if text == "none" {
            return Ok(0);
        }
        let bytes = parse_size(text).map_err(|error| format!("it {error}: want a size such as 512Ki, or none"))?;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes >= BULK_BYTES_MIN);
        bytes.ok_or_else(|| "want 4Ki to 4095Mi, or none".to_owned())
    }

    /// The least limit of large writes' bytes: in less there is nothing large.
    const BULK_BYTES_MIN: u32 = 4 << 10;

    /// Parses who makes the records of TLS.
    ///
    /// # Errors
    /// It is neither `own` nor `kernel`.
    pub fn tls_records(text: &str) -> Result<RecordsBy, String> {
        RecordsBy::named(text).ok_or_else(|| "want own or kernel".to_owned())
    }

    /// Parses the minimum size of zero-copy sends.
    ///
    /// # Errors
    /// It is no size, or out of range.
    pub fn zerocopy_send(text: &str) -> Result<u32, String> {
        let limits = ebof_pinned::SEND_MIN..=ebof_pinned::SEND_MIN_MAX;
        let bytes = parse_size(text).map_err(|error| error.to_string())?;
        u32::try_from(bytes).ok().filter(|bytes| limits.contains(bytes)).ok_or_else(|| {
            let min = format_size((*limits.start()).into());
            let max = format_size((*limits.end()).into());
            format!("want {min} to {max}: less than a page is copied faster than it is pinned")
        })
    }
}

/// Serializes names and identifiers as text.
#[cfg(feature = "serde")]
mod text {
    pub(super) mod nqn {
        use ebof_nvme::Nqn;
        use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

        #[expect(clippy::ref_option, reason = "serde hands references")]
        pub(crate) fn serialize<S: Serializer>(nqn: &Option<Nqn>, serializer: S) -> Result<S::Ok, S::Error> {
            match nqn {
                Some(nqn) => serializer.collect_str(nqn),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nqn>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| Nqn::parse(&text).map_err(D::Error::custom)).transpose()
        }
    }

    pub(super) mod tls_records {
        use ebof_tls::RecordsBy;
        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

        #[expect(clippy::ref_option, reason = "serde hands references")]
        pub(crate) fn serialize<S: Serializer>(records: &Option<RecordsBy>, serializer: S) -> Result<S::Ok, S::Error> {
            records.map(RecordsBy::name).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RecordsBy>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| RecordsBy::named(&text).ok_or_else(|| D::Error::custom("neither own nor kernel")))
                .transpose()
        }
    }

    pub(super) mod host_id {
        use ebof_nvme::HostId;
        use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

        #[expect(clippy::ref_option, reason = "serde hands references")]
        pub(crate) fn serialize<S: Serializer>(id: &Option<HostId>, serializer: S) -> Result<S::Ok, S::Error> {
            match id {
                Some(id) => serializer.collect_str(id),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HostId>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| HostId::parse(&text).ok_or_else(|| D::Error::custom("not a UUID"))).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(overrides: &Overrides) -> Options {
        let mut options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        overrides.apply(&mut options);
        options
    }

    #[test]
    fn absent_overrides_keep_the_defaults() {
        let nqn = Nqn::parse("nqn.2014-08.org.example:a").unwrap();
        let defaults = Options::new("127.0.0.1", 4420, nqn);
        assert_eq!(format!("{:?}", applied(&Overrides::default())), format!("{defaults:?}"));
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "two lines for each option")]
    fn overrides_are_converted_to_the_options_units() {
        let host = Nqn::parse("nqn.2014-08.org.example:host").unwrap();
        let id = HostId::parse("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        let all = Overrides {
            host_traddr: Some("127.0.0.2".to_owned()),
            host_iface: Some("lo".to_owned()),
            hostnqn: Some(host.clone()),
            hostid: Some(id),
            dhchap_secret_file: Some("/a".into()),
            dhchap_ctrl_secret_file: Some("/b".into()),
            tls: true,
            tls_key_file: Some("/c".into()),
            keyring: None,
            tls_key: None,
            concat: true,
            tls_records: Some(RecordsBy::Kernel),
            nr_io_queues: Some(3),
            nr_write_queues: Some(4),
            nr_poll_queues: Some(5),
            queue_size: Some(64),
            keep_alive_tmo: Some(7),
            reconnect_delay: Some(8),
            ctrl_loss_tmo: Some(-1),
            fast_io_fail_tmo: Some(9),
            path_loss_tmo: Some(11),
            fence_tmo: Some(12),
            tos: Some(184),
            so_priority: Some(2),
            busy_poll_us: Some(50),
            prefer_busy_poll: true,
            busy_poll_budget: Some(6),
            zerocopy_send: Some(8192),
            bulk_bytes: Some(0),
            batch_timeout_us: Some(20),
            batch_nr: Some(10),
            batch_bytes: Some(4096),
            hdr_digest: true,
            data_digest: true,
            disable_sqflow: true,
            memory_windows: true,
        };
        assert_eq!((all.rdma_option(), all.without_rdma_options().rdma_option()), (Some("--memory-windows"), None));
        let rest = all.without_tcp_options();
        assert_eq!((all.tcp_option(), rest.tcp_option(), rest.tos), (Some("--host-iface"), Some("--tls"), Some(184)));
        let options = applied(&all);
        let expected = Options {
            host_traddr: Some("127.0.0.2".to_owned()),
            host_iface: Some("lo".to_owned()),
            host_nqn: host.clone(),
            host_id: id,
            dhchap_key: Some(KeySource::File("/a".into())),
            dhchap_ctrl_key: Some(KeySource::File("/b".into())),
            tls: Some(Tls::new(PskSource::File("/c".into()))),
            concat: true,
            tls_records: RecordsBy::Kernel,
            nr_io_queues: 3,
            nr_write_queues: 4,
            nr_poll_queues: 5,
            queue_size: 64,
            keep_alive_ms: 7000,
            reconnect_delay_ms: 8000,
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: Some(Duration::from_secs(9)),
            path_loss_tmo: Some(Duration::from_secs(11)),
            fence_tmo: Duration::from_secs(12),
            tos: Some(184),
            so_priority: Some(2),
            busy_poll_us: Some(50),
            prefer_busy_poll: true,
            busy_poll_budget: Some(6),
            zerocopy_send: Some(8192),
            bulk_bytes: None,
            batch_timeout_us: 20,
            batch_nr: 10,
            batch_bytes: 4096,
            hdr_digest: true,
            data_digest: true,
            disable_sqflow: true,
            memory_windows: true,
            ..applied(&Overrides::default())
        };
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
        let keyring = Overrides { tls: true, tls_key: Some("7".to_owned()), ..Overrides::default() };
        let source = PskSource::Keyring { name: ".nvme".to_owned(), key: Some("7".to_owned()) };
        assert_eq!(applied(&keyring).tls, Some(Tls::new(source)));
        let named = applied(&Overrides { hostnqn: Some(host.clone()), ..Overrides::default() });
        assert_eq!(named.host_id, crate::options::host::id_for(&host));
    }
}
