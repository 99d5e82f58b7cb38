//! The view of a discovery log (`discover`).

use std::fmt::Write as _;

use ebof_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;

/// A discovery log.
pub(crate) struct DiscoveryView {
    generation: u64,
    entries: Vec<DiscoveryEntry>,
    /// Header and entries as they are on the wire.
    bytes: Vec<u8>,
}

impl DiscoveryView {
    pub(crate) fn new(generation: u64, record_format: u16, entries: Vec<DiscoveryEntry>) -> Self {
        let header = DiscoveryHeader {
            genctr: generation.into(),
            numrec: (entries.len() as u64).into(),
            recfmt: record_format.into(),
            ..DiscoveryHeader::default()
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(entries.as_bytes());
        Self { generation, entries, bytes }
    }
}

/// The fields of an entry in nvme-cli's words and order.
fn named(entry: &DiscoveryEntry) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("trtype", entry.transport().name().to_owned()),
        ("adrfam", if entry.address().is_empty() { String::new() } else { entry.address_family().name().to_owned() }),
        ("subtype", entry.subsystem_type().name().to_owned()),
        ("treq", entry.requirements().name().to_owned()),
        ("portid", entry.portid.to_string()),
        ("trsvcid", entry.service_id().to_string()),
        ("subnqn", entry.subsystem_nqn().to_string()),
        ("traddr", entry.address().to_string()),
        ("eflags", entry.flags().name().to_owned()),
    ];
    if let Some(security) = entry.security() {
        fields.push(("sectype", security.name().to_owned()));
    }
    if let Some(rdma) = entry.rdma_address() {
        fields.push(("rdma_prtype", rdma.provider.name().to_owned()));
        fields.push(("rdma_qptype", rdma.queue_pair.name().to_owned()));
        fields.push(("rdma_cms", if rdma.connection_management == 1 { "rdma-cm" } else { "unrecognized" }.to_owned()));
        fields.push(("rdma_pkey", format!("{:#06x}", rdma.partition_key)));
    }
    fields
}

impl View for DiscoveryView {
    fn text(&self, verbose: bool) -> String {
        let records = self.entries.len();
        let generation = self.generation;
        let mut text = format!("\nDiscovery Log Number of Records {records}, Generation counter {generation}\n");
        for (index, entry) in self.entries.iter().enumerate() {
            let _infallible = writeln!(text, "=====Discovery Log Entry {index}======");
            for (name, value) in named(entry) {
                let line = format!("{:<8} {value}", format!("{name}:"));
                text += line.trim_end();
                text.push('\n');
            }
            if verbose {
                let cntlid = entry.cntlid;
                let asqsz = entry.asqsz;
                let _infallible = write!(text, "cntlid:  {cntlid:#x}\nasqsz:   {asqsz}\n");
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let record = |entry: &DiscoveryEntry| {
            let fields = named(entry).into_iter().fold(Object::new(), |object, (name, value)| match name {
                "portid" => object.with(name, entry.portid.get()),
                _ => object.with(name, value),
            });
            fields.with("cntlid", entry.cntlid.get()).with("asqsz", entry.asqsz.get())
        };
        Object::document("discover", 1)
            .with("genctr", self.generation)
            .with("records", self.entries.iter().map(record).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}
