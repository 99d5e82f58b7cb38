//! The view of the Asymmetric Namespace Access log.

use std::fmt::Write as _;

use super::View;
use super::json::Object;

/// A group of namespaces that change their state together.
#[derive(Debug)]
struct Group {
    id: u32,
    changes: u64,
    state: u8,
    nsids: Vec<u32>,
}

impl Group {
    /// ANA State (NVM Express Base, "ANA Group Descriptor").
    fn state(&self) -> &'static str {
        match self.state {
            0x1 => "optimized",
            0x2 => "non-optimized",
            0x3 => "inaccessible",
            0x4 => "persistent-loss",
            0xf => "change",
            _ => "invalid state",
        }
    }
}

/// The log.
#[derive(Debug)]
pub(crate) struct AnaView {
    device: String,
    changes: u64,
    groups: Vec<Group>,
    data: Vec<u8>,
}

/// Takes bytes off the front.
fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl AnaView {
    /// Reads the log page.
    ///
    /// # Errors
    /// It has more than `data`.
    pub(crate) fn new(device: &str, data: Vec<u8>) -> Result<Self, String> {
        let mut rest = data.as_slice();
        let beyond = || format!("the log goes beyond the {} bytes that were read", data.len());
        let header = take(&mut rest, 16).ok_or_else(beyond)?;
        let changes = number(&header[..8]);
        let mut groups = Vec::new();
        for _ in 0..number(&header[8..10]) {
            let descriptor = take(&mut rest, 32).ok_or_else(beyond)?;
            let count = usize::try_from(number(&descriptor[4..8])).map_err(|_large| beyond())?;
            let list = take(&mut rest, count.checked_mul(4).ok_or_else(beyond)?).ok_or_else(beyond)?;
            let small = |bytes: &[u8]| u32::try_from(number(bytes)).unwrap_or_default();
            groups.push(Group {
                id: small(&descriptor[..4]),
                changes: number(&descriptor[8..16]),
                state: descriptor[16] & 0xf,
                nsids: list.chunks_exact(4).map(small).collect(),
            });
        }
        Ok(Self { device: device.to_owned(), changes, groups, data })
    }
}

impl View for AnaView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = format!("Asymmetric Namespace Access Log for NVMe device: {}\n", self.device);
        let _infallible = writeln!(text, "ANA LOG HEADER :-\nchgcnt	:	{}\nngrps	:	{}", self.changes, self.groups.len());
        text += "ANA Log Desc :-\n";
        for group in &self.groups {
            let id = group.id;
            let count = group.nsids.len();
            let changes = group.changes;
            let state = group.state();
            let _infallible = writeln!(text, "grpid	:	{id}\nnnsids	:	{count}\nchgcnt	:	{changes}\nstate	:	{state}");
            for nsid in &group.nsids {
                let _infallible = writeln!(text, "	nsid	:	{nsid}");
            }
            text.push('\n');
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let group = |group: &Group| {
            Object::new()
                .with("grpid", group.id)
                .with("nnsids", group.nsids.len() as u64)
                .with("chgcnt", group.changes)
                .with("state", group.state())
                .with("nsids", group.nsids.clone())
        };
        Object::document("ana-log", 1)
            .with("device", self.device.as_str())
            .with("chgcnt", self.changes)
            .with("ngrps", self.groups.len() as u64)
            .with("groups", self.groups.iter().map(group).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
