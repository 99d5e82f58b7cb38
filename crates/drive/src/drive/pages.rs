//! The log pages that a drive keeps, and the Persistent Event Log, which is read in pieces.

use alloc::vec::Vec;

use ebof_nvme::log::Lid;
use ebof_nvme::{Nqn, Nsid, Status};
use zerocopy::IntoBytes;

use super::Drive;
use super::decision::Decision;
use super::request::LogQuery;
use crate::change::State;
use crate::logs::event_log::{Contexts, Reply, Subsystem};
use crate::maintenance::firmware::Personality;
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

/// Whether the running firmware offers a log page.
#[must_use]
pub fn is_offered(personality: &Personality, lid: Lid) -> bool {
    match lid {
        Lid::DEVICE_SELF_TEST => personality.device_self_test,
        Lid::SANITIZE_STATUS => personality.sanitize,
        Lid::TELEMETRY_HOST | Lid::TELEMETRY_CONTROLLER => personality.telemetry,
        _ => true,
    }
}

/// A whole page, of those that are not read in pieces.
pub(super) fn whole_page(drive: &Drive, query: &LogQuery) -> Result<Vec<u8>, Refusal> {
    let state = drive.state();
    Ok(match query.lid {
        Lid::ERROR_INFORMATION => {
            // Base, Admin Command Processing Restrictions: no LBAs during a sanitize operation.
            let hide_lba = drive.restriction().is_some();
            state.errors.page(drive.settings().error_entries, query.transport, hide_lba)
        }
        Lid::SMART_HEALTH => {
            let nsid = if query.nsid == Nsid::ALL { Nsid::NONE } else { query.nsid };
            let page = state.health.page(nsid, &drive.condition(), &query.thresholds, &drive.endurance());
            page.as_bytes().to_vec()
        }
        Lid::FIRMWARE_SLOTS => state.firmware.page(&drive.firmware_limits()).as_bytes().to_vec(),
        Lid::ENDURANCE_GROUP => {
            // There is one group.
            if query.identifier != 1 {
                return Err(Refusal::at(Status::INVALID_FIELD, CDW11 + 2));
            }
            state.health.endurance_page(&drive.condition(), &drive.endurance()).as_bytes().to_vec()
        }
        Lid::DEVICE_SELF_TEST => state.self_test.page().as_bytes().to_vec(),
        Lid::SANITIZE_STATUS => drive.sanitize_page().as_bytes().to_vec(),
        _ => return Err(Refusal::at(Status::INVALID_LOG_PAGE, CDW10)),
    })
}

/// The Persistent Event Log of a drive with this NQN.
pub(super) fn persistent_events(
    contexts: &mut Contexts,
    state: &State,
    nqn: &str,
    query: &LogQuery,
    origin: &Origin,
    input: &DecisionInput,
) -> Result<Decision, Refusal> {
    let nqn = Nqn::parse(nqn).unwrap_or_else(|_| Nqn::discovery());
    let subsystem = Subsystem {
        serial: &state.identity.serial,
        model: &state.identity.model,
        nqn: &nqn,
        power_on_hours: state.health.power_on_hours().into(),
        power_cycles: state.health.power_cycles,
    };
    let reply = contexts.execute(&state.events, query.parameter, origin.cntlid, &subsystem, input)?;
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

/// Offset of dword 10 in a command: the Log Page Identifier.
const CDW10: u8 = 40;
/// Offset of dword 11: the Log Specific Identifier.
const CDW11: u8 = 44;
/// Offset of dword 12 in a command: the Log Page Offset.
const CDW12: u8 = 48;
