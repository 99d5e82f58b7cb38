//! The log pages that a drive keeps.

use alloc::vec::Vec;

use ebof_nvme::log::Lid;
use ebof_nvme::{Nqn, Nsid, Status};
use zerocopy::IntoBytes;

use super::{Decision, Drive, LogQuery};
use crate::event_log::{Reply, Subsystem};
use crate::request::{Answer, DecisionInput, Origin, Refusal};

/// Whether the drive keeps this log page, and not each of its controllers.
#[must_use]
pub fn keeps_page(lid: Lid) -> bool {
    matches!(
        lid,
        Lid::ERROR_INFORMATION
            | Lid::SMART_HEALTH
            | Lid::FIRMWARE_SLOTS
            | Lid::ENDURANCE_GROUP
            | Lid::PERSISTENT_EVENT
            | Lid::DEVICE_SELF_TEST
            | Lid::SANITIZE_STATUS
            | Lid::TELEMETRY_HOST
            | Lid::TELEMETRY_CONTROLLER
    )
}

impl Drive {
    pub(super) fn log(
        &mut self,
        query: &LogQuery,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        let whole = |data: Vec<u8>| Ok(Decision { answer: Answer::Data(data), ..Decision::nothing() });
        match query.lid {
            Lid::ERROR_INFORMATION => {
                // Base, Admin Command Processing Restrictions: no LBAs during a sanitize operation.
                let hide_lba = self.restriction().is_some();
                whole(self.state.errors.page(self.settings.error_entries, query.transport, hide_lba))
            }
            Lid::SMART_HEALTH => whole(self.smart(query, origin)?),
            Lid::FIRMWARE_SLOTS => whole(self.state.firmware.page(&self.firmware_limits()).as_bytes().to_vec()),
            Lid::ENDURANCE_GROUP => {
                // There is one group.
                if query.identifier != 1 {
                    return Err(Refusal::at(Status::INVALID_FIELD, CDW11 + 2));
                }
                let condition = self.condition();
                whole(self.state.health.endurance_page(&condition, &self.endurance()).as_bytes().to_vec())
            }
            Lid::DEVICE_SELF_TEST => whole(self.state.self_test.page().as_bytes().to_vec()),
            Lid::SANITIZE_STATUS => whole(self.sanitize_page().as_bytes().to_vec()),
            Lid::TELEMETRY_HOST => self.host_telemetry(query, origin, input),
            Lid::TELEMETRY_CONTROLLER => self.own_telemetry(query, origin),
            Lid::PERSISTENT_EVENT => self.persistent_events(query, origin, input),
            _ => Err(Refusal::at(Status::INVALID_LOG_PAGE, CDW10)),
        }
    }

    fn smart(&self, query: &LogQuery, origin: &Origin) -> Result<Vec<u8>, Refusal> {
        if query.nsid.names_one() {
            self.find_attached(query.nsid, origin)?;
        }
        let nsid = if query.nsid == Nsid::ALL { Nsid::NONE } else { query.nsid };
        let page = self.state.health.page(nsid, &self.condition(), &query.thresholds, &self.endurance());
        Ok(page.as_bytes().to_vec())
    }

    fn persistent_events(
        &mut self,
        query: &LogQuery,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        let nqn = Nqn::parse(&self.settings.subsystem).unwrap_or_else(|_| Nqn::discovery());
        let identity = &self.state.identity;
        let health = &self.state.health;
        let subsystem = Subsystem {
            serial: &identity.serial,
            model: &identity.model,
            nqn: &nqn,
            power_on_hours: health.power_on_hours().into(),
            power_cycles: health.power_cycles,
        };
        let reply = self.contexts.execute(&self.state.events, query.parameter, origin.cntlid, &subsystem, input)?;
        let part = match reply {
            Reply::Nothing => Vec::new(),
            Reply::Header(mut header) => {
                header.truncate(usize::try_from(query.bytes).unwrap_or(usize::MAX));
                header
            }
            Reply::Page(page) => {
                let offset = usize::try_from(query.offset).ok().filter(|&offset| offset <= page.len());
                let offset = offset.ok_or(Refusal::at(Status::INVALID_FIELD, CDW12))?;
                page.read(offset, usize::try_from(query.bytes).unwrap_or(usize::MAX))
            }
        };
        Ok(Decision { answer: Answer::Part(part), ..Decision::nothing() })
    }
}

/// Offset of dword 10 in a command: the Log Page Identifier.
const CDW10: u8 = 40;
/// Offset of dword 11: the Log Specific Identifier.
const CDW11: u8 = 44;
/// Offset of dword 12: the Log Page Offset.
const CDW12: u8 = 48;
