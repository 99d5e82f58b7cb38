//! Cross-Controller Reset: the command, its completion and its log page.

use ebof_nvme::command::{ControllerInstance, IMMEDIATE_RESET, is_reset_at_once};
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::log::{
    CrossControllerResetEntry, CrossControllerResetState, ccrf, cross_controller_reset_log,
    read_cross_controller_reset_log,
};
use ebof_nvme::opcode::{Direction, admin, admin_name};
use ebof_nvme::{Cid, ControllerId, Cqe, Sqe, Status};
use ebof_testkit::hex;
use proptest::prelude::*;
use zerocopy::IntoBytes;

const LOG: &str = include_str!("../../testdata/cross_controller_reset.hex");

fn entry(icid: u16, ciu: u8, state: CrossControllerResetState) -> CrossControllerResetEntry {
    CrossControllerResetEntry {
        icid: icid.into(),
        ciu,
        acid: CrossControllerResetEntry::NO_ALTERNATE.0.into(),
        ccrs: state.encode(),
        ccrf: ccrf::VALIDATED | ccrf::INITIATED,
        ..CrossControllerResetEntry::default()
    }
}

#[test]
fn the_command_names_the_instance_of_a_controller() {
    let instance = ControllerInstance { id: ControllerId(0x0102), uniquifier: 0x03, random: 0x0405_0607_0809_0a0b };
    let sqe = instance.reset_command();
    assert_eq!((sqe.opcode, sqe.nsid.get()), (0x38, 0));
    assert_eq!(sqe.as_bytes()[40..56], [2, 1, 3, 0, 0, 0, 0, 0, 0x0b, 0x0a, 9, 8, 7, 6, 5, 4]);
    assert_eq!(ControllerInstance::decode(&sqe), instance);
    assert_eq!(Direction::from_opcode(sqe.opcode, 0), Direction::None);
    assert_eq!(admin_name(admin::CROSS_CONTROLLER_RESET), Some("Cross-Controller Reset"));
    let id = IdentifyController {
        cntlid: 0x0102.into(),
        ciu: 3,
        cirn: 0x0405_0607_0809_0a0b.into(),
        ..IdentifyController::default()
    };
    assert_eq!(id.instance(), Some(instance));
}

#[test]
fn the_completion_says_whether_the_reset_is_done() {
    let accepted = Cqe::new(Cid(1), Status::SUCCESS);
    assert!(!is_reset_at_once(&accepted) && !is_reset_at_once(&accepted.with_result(2)));
    assert!(is_reset_at_once(&accepted.with_result(IMMEDIATE_RESET.into())));
}

// @test wire.structures
#[test]
fn a_log_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(LOG);
    let entries =
        [entry(0x0102, 7, CrossControllerResetState::InProgress), entry(3, 255, CrossControllerResetState::Successful)];
    assert_eq!(cross_controller_reset_log(entries), golden);
    assert_eq!(read_cross_controller_reset_log(&golden), Some(entries.as_slice()));
    assert!(entries[1].is_about(ControllerId(3), 255) && !entries[1].is_about(ControllerId(3), 254));
    assert_eq!(entries.map(|entry| entry.state().name()), ["in progress", "successful"]);
}

#[test]
fn a_log_has_as_many_entries_as_fit() {
    let log = cross_controller_reset_log((0..600).map(|id| entry(id, 1, CrossControllerResetState::Failed)));
    assert_eq!(log.len(), 4096);
    assert_eq!(read_cross_controller_reset_log(&log).map(<[_]>::len), Some(511));
    assert_eq!(read_cross_controller_reset_log(&log[..24]).map(<[_]>::len), Some(2));
    assert_eq!(read_cross_controller_reset_log(&log[..23]).map(<[_]>::len), Some(1));
    assert_eq!(read_cross_controller_reset_log(&log[..7]), None);
}

proptest! {
    #[test]
    fn any_command_names_somebody(dwords in any::<[u32; 3]>()) {
        let sqe = Sqe::default().with_cdw(10, dwords[0]).with_cdw(12, dwords[1]).with_cdw(13, dwords[2]);
        let again = ControllerInstance::decode(&sqe).reset_command();
        prop_assert_eq!(again.cdw10.get(), dwords[0] & 0x00ff_ffff);
        prop_assert_eq!([again.cdw12.get(), again.cdw13.get()], [dwords[1], dwords[2]]);
    }

    #[test]
    fn any_log_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let read = read_cross_controller_reset_log(&bytes);
        prop_assert_eq!(read.is_some(), bytes.len() >= 8);
        prop_assert!(read.unwrap_or_default().len() * 8 + 8 <= bytes.len().max(8));
    }
}
