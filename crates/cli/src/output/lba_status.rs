//! The view of the result of Get LBA Status (`get-lba-status`).

use std::fmt::Write as _;

use ebof_nvme::Nsid;
use ebof_nvme::lba_status::{CompletionCondition, StatusDescriptor, read_status_list};

use super::View;
use super::json::Object;
use super::text::hex;

/// An LBA Status Descriptor List.
pub(crate) struct LbaStatusView {
    /// The namespace.
    pub(crate) nsid: Nsid,
    /// The list as the controller returned it.
    pub(crate) data: Vec<u8>,
}

fn condition(condition: CompletionCondition) -> &'static str {
    match condition {
        CompletionCondition::NotSaid => "no indication of the completion condition",
        CompletionCondition::Incomplete => "there is more than could be returned, or the scan did not complete",
        CompletionCondition::Complete => "all of the range is covered",
        CompletionCondition::Reserved(_) => "reserved",
    }
}

impl View for LbaStatusView {
    fn text(&self, _verbose: bool) -> String {
        let Some((header, descriptors)) = read_status_list(&self.data) else { return String::new() };
        let mut text = format!("Number of LBA Status Descriptors(NLSD): {}\n", header.nlsd);
        let _infallible =
            write!(text, "Completion Condition(CMPC): {}\n\t{}\n", header.cmpc, condition(header.condition()));
        for one in &descriptors {
            let first = one.dslba.get();
            let blocks = one.nlb.get();
            let _infallible =
                writeln!(text, "{{ DSLBA: {first:#016x}, NLB: {blocks:#08x}, Status: {} }}", hex(one.status));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let object = Object::document("get-lba-status", 1).with("nsid", self.nsid.0);
        let Some((header, descriptors)) = read_status_list(&self.data) else {
            return object.with("descriptors", Vec::<Object>::new());
        };
        let descriptor = |one: &StatusDescriptor| {
            Object::new().with("dslba", one.dslba.get()).with("nlb", one.nlb.get()).with("status", one.status)
        };
        object
            .with("nlsd", header.nlsd.get())
            .with("cmpc", header.cmpc)
            .with("cmpc-definition", condition(header.condition()))
            .with("descriptors", descriptors.iter().map(descriptor).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
