//! The engine's options as set by the user, and the connect options made of them.

use std::fmt;

use ebof_initiator::{Options, Overrides};
use ebof_nvme::{HostId, Nqn};

use crate::address::NamespaceAddress;

/// The options of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobSettings {
    pub(crate) uri: Option<String>,
    pub(crate) host_nqn: Option<String>,
    pub(crate) host_id: Option<String>,
    pub(crate) host_traddr: Option<String>,
    pub(crate) host_iface: Option<String>,
    pub(crate) hdr_digest: bool,
    pub(crate) data_digest: bool,
    /// Entries; 0 follows the job's iodepth.
    pub(crate) queue_size: u32,
    /// 256 leaves the system's.
    pub(crate) tos: u32,
    pub(crate) keep_alive_s: u32,
    /// Never sleep while waiting.
    pub(crate) poll: bool,
    pub(crate) spin_us: u32,
    /// Send when so many commands are waiting; 0 sends when fio waits.
    pub(crate) batch: u32,
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fewest entries of a queue unless the user sets them: large blocks are several commands.
const ENTRIES_MIN: u16 = 128;

impl JobSettings {
    /// The options to connect to `address` for a job of depth `depth`; with 0, for admin commands
    /// only.
    pub(crate) fn options(&self, address: &NamespaceAddress, depth: usize) -> Result<Options, SettingsError> {
        let mut options = Options::new(address.traddr.clone(), address.trsvcid, address.nqn.clone());
        options.transport = address.transport.into();
        let host_nqn = self
            .host_nqn
            .as_ref()
            .map(|text| Nqn::parse(text).map_err(|error| SettingsError(format!("hostnqn={text}: {error}"))));
        let host_id = self.host_id.as_ref().map(|text| {
            HostId::parse(text).ok_or_else(|| {
                SettingsError(format!("hostid={text}: want a UUID such as 00112233-4455-6677-8899-aabbccddeeff"))
            })
        });
        let queue_size = match u16::try_from(self.queue_size) {
            Ok(0) => {
                u16::try_from(depth).unwrap_or(u16::MAX).saturating_add(1).clamp(ENTRIES_MIN, Options::QUEUE_SIZE_MAX)
            }
            entries => entries.unwrap_or(u16::MAX).clamp(Options::QUEUE_SIZE_MIN, Options::QUEUE_SIZE_MAX),
        };
        let overrides = Overrides {
            hostnqn: host_nqn.transpose()?,
            hostid: host_id.transpose()?,
            host_traddr: self.host_traddr.clone(),
            host_iface: self.host_iface.clone(),
            hdr_digest: self.hdr_digest,
            data_digest: self.data_digest,
            tos: u8::try_from(self.tos).ok(),
            keep_alive_tmo: Some(self.keep_alive_s),
            queue_size: Some(queue_size),
            nr_io_queues: Some(u16::from(depth > 0)),
            ..Overrides::default()
        };
        overrides.apply(&mut options);
        options.spin_us = if self.poll { u32::MAX } else { self.spin_us };
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> NamespaceAddress {
        NamespaceAddress::find("nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.example:a/2", None).unwrap().remove(0)
    }

    #[test]
    fn the_queue_size_follows_the_depth_unless_it_is_set() {
        let entries = |queue_size, depth| {
            JobSettings { queue_size, ..JobSettings::default() }.options(&address(), depth).unwrap().queue_size
        };
        assert_eq!([entries(0, 1), entries(0, 127), entries(0, 200), entries(0, 5000)], [128, 128, 201, 1024]);
        assert_eq!([entries(32, 200), entries(1, 1), entries(70_000, 1)], [32, 2, 1024]);
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_option() {
        let wrong = JobSettings { host_nqn: Some("x".repeat(300)), ..JobSettings::default() };
        assert!(wrong.options(&address(), 1).unwrap_err().to_string().starts_with("hostnqn=xxx"));
        let wrong = JobSettings { host_id: Some("x".to_owned()), ..JobSettings::default() };
        assert!(wrong.options(&address(), 1).unwrap_err().to_string().starts_with("hostid=x: "));
    }

    #[test]
    fn options_reach_the_connection() {
        let settings = JobSettings {
            host_nqn: Some("nqn.2014-08.org.example:host".to_owned()),
            hdr_digest: true,
            tos: 184,
            keep_alive_s: 7,
            poll: true,
            ..JobSettings::default()
        };
        let options = settings.options(&address(), 0).unwrap();
        assert_eq!(options.host_nqn.as_str(), "nqn.2014-08.org.example:host");
        assert_eq!((options.hdr_digest, options.data_digest, options.tos), (true, false, Some(184)));
        assert_eq!((options.keep_alive_ms, options.spin_us, options.io_queues()), (7000, u32::MAX, 0));
        let none = JobSettings { tos: 256, ..JobSettings::default() }.options(&address(), 3).unwrap();
        assert_eq!((none.tos, none.io_queues()), (None, 1));
    }
}
