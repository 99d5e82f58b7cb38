//! The view of the Asymmetric Namespace Access log.

use ebof_nvme::log::{AnaGroupHeader, AnaGroups, AnaHeader, AnaState};

use super::View;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, table};

/// The log.
#[derive(Debug)]
pub(crate) struct AnaView {
    device: String,
    header: AnaHeader,
    groups: Vec<(AnaGroupHeader, Vec<u32>)>,
    data: Vec<u8>,
}

const LINE: LineFormat = LineFormat { before: "", width: 0, between: "\t:\t" };

static HEADER: FieldTable<AnaHeader> = table! { LINE, AnaHeader:
    chgcnt, nagd as "ngrps",
};

static GROUP: FieldTable<AnaGroupHeader> = table! { LINE, AnaGroupHeader:
    agid as "grpid", nnv as "nnsids", chgcnt,
    anas as "state" .shown(|group| state(group.state()).to_owned()),
};

/// In nvme-cli's words.
const fn state(state: AnaState) -> &'static str {
    match state {
        AnaState::OPTIMIZED
        | AnaState::NON_OPTIMIZED
        | AnaState::INACCESSIBLE
        | AnaState::PERSISTENT_LOSS
        | AnaState::CHANGE => state.name(),
        AnaState(_) => "invalid state",
    }
}

impl AnaView {
    /// Reads the log page.
    ///
    /// # Errors
    /// It has more than `data`.
    pub(crate) fn new(device: &str, data: Vec<u8>) -> Result<Self, String> {
        let beyond = || format!("the log goes beyond the {} bytes that were read", data.len());
        let (header, mut groups) = AnaGroups::new(&data).ok_or_else(beyond)?;
        let header = *header;
        let read = groups.by_ref().map(|group| (*group.header, group.nsids.iter().map(|nsid| nsid.get()).collect()));
        let read = read.collect();
        if groups.missing() > 0 {
            return Err(beyond());
        }
        Ok(Self { device: device.to_owned(), header, groups: read, data })
    }
}

impl View for AnaView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Asymmetric Namespace Access Log for NVMe device: {}\n", self.device);
        text += &format!("ANA LOG HEADER :-\n{}ANA Log Desc :-\n", HEADER.text(&self.header, verbose));
        for (group, nsids) in &self.groups {
            text += &GROUP.text(group, verbose);
            nsids.iter().for_each(|nsid| text += &format!("\tnsid\t:\t{nsid}\n"));
            text.push('\n');
        }
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let group =
            |(group, nsids): &(AnaGroupHeader, Vec<u32>)| GROUP.json(group, verbose).with("nsids", nsids.clone());
        Object::document("ana-log", 1)
            .with("device", self.device.as_str())
            .extend(HEADER.json(&self.header, verbose))
            .with("groups", self.groups.iter().map(group).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
