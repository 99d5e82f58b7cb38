//! A connection request and its result: plain values, sent to the attach daemon and written to the
//! state file.

use std::path::PathBuf;

use ebof_initiator::{KeyText, Overrides};
use ebof_manage::config::{Measure, Measures};
use serde::{Deserialize, Serialize};

/// The kind of block device to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// ublk if the kernel has it, else FUSE and a loop device.
    #[default]
    Auto,
    /// Only ublk.
    Ublk,
    /// Only FUSE and a loop device.
    Loop,
}

/// A connection to make, with the words and units of nvme-cli's `connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Transport: `tcp` or `rdma`.
    pub transport: String,
    /// Host name or address of the port.
    pub traddr: String,
    /// Port (TRSVCID).
    pub trsvcid: u16,
    /// The subsystem.
    pub nqn: String,
    /// Connect options that differ from the defaults. Their fields are beside the others in the
    /// file.
    #[serde(flatten)]
    pub overrides: Overrides,
    /// Connect even if this subsystem is connected at this address, and make block devices even of
    /// namespaces that have one.
    pub duplicate_connect: bool,
    /// The kind of block device.
    pub kind: Kind,
    /// What the daemon gives up. It opens what it needs by paths that are not known before, and
    /// looks at other processes: [`Measure::Paths`] is not for it.
    #[serde(skip_serializing_if = "is_usual")]
    pub confine: Measures,
    /// Who has connected it, for those who disconnect only what they have connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// This host's secret for authentication, where it was given and not named: the daemon reads it
    /// from a file of its own.
    #[serde(skip)]
    pub dhchap_secret: Option<KeyText>,
    /// The subsystem's, likewise.
    #[serde(skip)]
    pub dhchap_ctrl_secret: Option<KeyText>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            transport: "tcp".to_owned(),
            traddr: String::new(),
            trsvcid: 4420,
            nqn: String::new(),
            overrides: Overrides::default(),
            duplicate_connect: false,
            kind: Kind::Auto,
            confine: Self::CONFINE,
            owner: None,
            dhchap_secret: None,
            dhchap_ctrl_secret: None,
        }
    }
}

fn is_usual(measures: &Measures) -> bool {
    *measures == Request::CONFINE
}

impl Request {
    /// What a daemon gives up unless something else is asked for: all that it can.
    pub const CONFINE: Measures = Measures::ALL.without(Measure::Paths);

    /// The address for messages: `tcp://192.0.2.1:4420`.
    #[must_use]
    pub fn address(&self) -> String {
        address(&self.transport, &self.traddr, self.trsvcid)
    }
}

/// The address for messages: `tcp://192.0.2.1:4420`.
pub(crate) fn address(transport: &str, traddr: &str, trsvcid: u16) -> String {
    let host = if traddr.contains(':') { format!("[{traddr}]") } else { traddr.to_owned() };
    format!("{transport}://{host}:{trsvcid}")
}

/// One namespace as a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// The namespace.
    pub nsid: u32,
    /// The block device: `/dev/loop0` or `/dev/ublkb0`; absent while it is being made, or if that
    /// failed.
    pub path: Option<PathBuf>,
    /// Why there is no path.
    pub problem: Option<String>,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// Bytes of metadata of each block, which the controller inserts and strips.
    #[serde(default)]
    pub metadata_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// It is write-protected.
    pub read_only: bool,
    /// NGUID, EUI-64 and UUID, those that it has.
    #[serde(default)]
    pub identifiers: String,
    /// The unique name of the file behind a loop device: see [`crate::device::Front::file`]. `None`
    /// for other devices, and in files of earlier versions.
    #[serde(default)]
    pub file: Option<String>,
}

/// A controller with its devices, as [`crate::connect`] made them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its name: `nvme0`.
    pub name: String,
    /// The path that was added to it, if there were others: `nvme0c1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its namespaces.
    pub devices: Vec<Device>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As earlier versions wrote it, when all options were fields of `Request`.
    #[test]
    fn files_of_earlier_versions_are_read() {
        let written = r#"{"transport":"tcp","traddr":"192.0.2.1","trsvcid":4421,"nqn":"nqn.2014-08.org.example:a",
            "host_traddr":"192.0.2.7","host_iface":null,"hostnqn":"nqn.2014-08.org.example:host",
            "hostid":"00112233-4455-6677-8899-aabbccddeeff","nr_io_queues":2,"nr_write_queues":1,"nr_poll_queues":null,
            "queue_size":64,"keep_alive_tmo":7,"reconnect_delay":3,"ctrl_loss_tmo":-1,"fast_io_fail_tmo":9,"tos":184,
            "so_priority":4,"busy_poll_us":50,"prefer_busy_poll":true,"busy_poll_budget":8,"zerocopy_send":65536,
            "batch_timeout_us":20,"batch_nr":4,"batch_bytes":8192,"hdr_digest":true,"data_digest":true,
            "disable_sqflow":true,"duplicate_connect":true,"kind":"loop"}"#;
        let request: Request = serde_json::from_str(written).unwrap();
        let o = &request.overrides;
        assert_eq!((request.trsvcid, request.duplicate_connect, request.kind), (4421, true, Kind::Loop));
        assert_eq!((o.host_traddr.as_deref(), o.host_iface.as_deref()), (Some("192.0.2.7"), None));
        assert_eq!(o.hostnqn.as_ref().unwrap().as_str(), "nqn.2014-08.org.example:host");
        assert_eq!(o.hostid.unwrap().to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(
            (o.nr_io_queues, o.nr_write_queues, o.nr_poll_queues, o.queue_size),
            (Some(2), Some(1), None, Some(64))
        );
        assert_eq!(
            (o.keep_alive_tmo, o.reconnect_delay, o.ctrl_loss_tmo, o.fast_io_fail_tmo),
            (Some(7), Some(3), Some(-1), Some(9))
        );
        assert_eq!((o.tos, o.so_priority, o.busy_poll_us, o.busy_poll_budget), (Some(184), Some(4), Some(50), Some(8)));
        assert_eq!(
            (o.zerocopy_send, o.batch_timeout_us, o.batch_nr, o.batch_bytes),
            (Some(65536), Some(20), Some(4), Some(8192))
        );
        assert!(o.prefer_busy_poll && o.hdr_digest && o.data_digest && o.disable_sqflow);
        let (mut old, new): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(written).unwrap(), serde_json::to_value(&request).unwrap());
        // Options that they did not have are off.
        old["memory_windows"] = false.into();
        old["bulk_bytes"] = serde_json::Value::Null;
        old["path_loss_tmo"] = serde_json::Value::Null;
        old["fence_tmo"] = serde_json::Value::Null;
        old["dhchap_secret_file"] = serde_json::Value::Null;
        old["dhchap_ctrl_secret_file"] = serde_json::Value::Null;
        old["tls"] = false.into();
        old["tls_key_file"] = serde_json::Value::Null;
        old["keyring"] = serde_json::Value::Null;
        old["tls_key"] = serde_json::Value::Null;
        old["concat"] = false.into();
        old["tls_records"] = serde_json::Value::Null;
        assert_eq!(old, new);
        let least: Request = serde_json::from_str(r#"{"traddr":"a"}"#).unwrap();
        assert_eq!(least, Request { traddr: "a".to_owned(), ..Request::default() });
    }
}
