//! Tests: states, progress and restrictions as hosts see them.

use super::*;
use alloc::vec::Vec;
use ebof_nvme::feature::Fid;
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{FABRICS, admin, nvm};
use ebof_nvme::{HostId, Nqn};

const CAPABILITIES: Capabilities = Capabilities {
    crypto_erase: false,
    crypto_erases_all: true,
    block_erase: true,
    overwrite: true,
    no_deallocate_inhibited: false,
    total_bytes: 1_000_000,
    // 1 s for everything by erasing, and 2 s by overwriting.
    speed: SanitizeSpeed {
        erase: Measurement { bytes: 500_000, micros: 500_000 },
        overwrite: Measurement { bytes: 1000, micros: 2000 },
    },
};

fn origin() -> Origin {
    let host = Nqn::parse("nqn.2014-08.org.example:host").unwrap();
    Origin::host(ControllerId(3), host, HostId([1; 16]))
}

fn command(action: SanitizeAction) -> Command {
    Command::new(action)
}

fn try_with(state: &Sanitize, command: Command, preconditions: Preconditions) -> Result<Done, Status> {
    let done = state.execute(&origin(), &command, &CAPABILITIES, &preconditions);
    done.map_err(|refusal| refusal.status)
}

fn try_to(state: &Sanitize, command: Command) -> Result<Done, Status> {
    try_with(state, command, Preconditions::default())
}

/// A started operation, as a restart finds it.
#[track_caller]
fn started(state: &Sanitize, command: Command) -> Sanitize {
    let done = try_to(state, command).unwrap();
    assert!(done.started);
    serde_json::from_slice(&serde_json::to_vec(&done.next.unwrap()).unwrap()).unwrap()
}

fn states(state: &Sanitize, done_bytes: u64) -> (SanitizeState, u16) {
    let page = state.page(&CAPABILITIES, done_bytes);
    (page.state(), page.sprog.get())
}

#[test]
fn a_block_erase_starts_continues_and_succeeds() {
    let new = Sanitize::default();
    assert_eq!(states(&new, 0), (SanitizeState::Never, 0xffff));
    assert!(new.page(&CAPABILITIES, 0).global_data_erased());
    let written = new.written().unwrap();
    assert_eq!((written.is_erased(), written.written()), (false, None));
    let running = started(&written, command(SanitizeAction::BlockErase));
    assert_eq!(states(&running, 0), (SanitizeState::InProgress, 0));
    assert_eq!(states(&running, 500_000), (SanitizeState::InProgress, 0x8000));
    assert_eq!(states(&running, u64::MAX), (SanitizeState::InProgress, 0xfffe));
    let work = Work { method: Method::Erase, pass: 0, passes: 1, deallocate: true };
    assert_eq!((running.work(&CAPABILITIES), running.pass_done()), (Some(work), None));
    let ended = running.complete(&CAPABILITIES).unwrap();
    assert_eq!(ended.event, (ControllerId(3), AsyncEvent::SANITIZE_COMPLETED));
    let page = ended.next.page(&CAPABILITIES, 0);
    assert_eq!((page.state(), page.sprog.get(), page.global_data_erased()), (SanitizeState::Succeeded, 0xffff, true));
    assert_eq!((page.scdw10.get() & 7, page.passes()), (2, 0));
    assert_eq!((ended.next.work(&CAPABILITIES), ended.next.restriction()), (None, None));
    assert!(ended.next.complete(&CAPABILITIES).is_none() && ended.next.fail().is_none());
}

#[test]
fn overwriting_writes_the_patterns_of_the_figure() {
    let patterns = |passes, invert_pattern| {
        let pattern = 0x1234_5678;
        let command =
            Command { overwrite_passes: passes, invert_pattern, pattern, ..command(SanitizeAction::Overwrite) };
        let mut state = started(&Sanitize::default(), command);
        let mut patterns = Vec::new();
        loop {
            let work = state.work(&CAPABILITIES).unwrap();
            assert_eq!((usize::from(work.pass), work.passes), (patterns.len(), passes));
            let Method::Overwrite(pattern) = work.method else { panic!("an overwrite") };
            patterns.push(pattern);
            let Some(next) = state.pass_done() else { break };
            state = serde_json::from_slice(&serde_json::to_vec(&next).unwrap()).unwrap();
        }
        assert_eq!(state.complete(&CAPABILITIES).unwrap().next.page(&CAPABILITIES, 0).passes(), passes);
        patterns
    };
    let (plain, inverted) = (0x1234_5678, !0x1234_5678);
    assert_eq!(patterns(1, false), [plain]);
    assert_eq!(patterns(3, false), [plain; 3]);
    assert_eq!(patterns(3, true), [plain, inverted, plain]);
    assert_eq!(patterns(4, true), [inverted, plain, inverted, plain]);
    assert_eq!(patterns(16, false), [plain; 16]);
}

#[test]
fn progress_is_that_of_all_passes() {
    let command = Command { overwrite_passes: 4, ..command(SanitizeAction::Overwrite) };
    let state = started(&Sanitize::default(), command).pass_done().unwrap();
    assert_eq!(states(&state, 0).1, 0x4000);
    assert_eq!(states(&state, 500_000).1, 0x6000);
    assert_eq!(state.page(&CAPABILITIES, 0).passes(), 1);
}

#[test]
fn unsupported_operations_are_refused() {
    let new = Sanitize::default();
    let start = command(SanitizeAction::BlockErase);
    let actions = [
        SanitizeAction::CryptoErase,
        SanitizeAction::ExitVerification,
        SanitizeAction::Reserved(0),
        SanitizeAction::Reserved(7),
    ];
    for action in actions {
        assert!(try_to(&new, command(action)).unwrap_err().is(Status::INVALID_FIELD), "{action:?}");
    }
    assert!(try_to(&new, Command { enter_verification: true, ..start }).unwrap_err().is(Status::INVALID_FIELD));
    let preconditions = Preconditions { write_protected: true, ..Preconditions::default() };
    assert!(try_with(&new, start, preconditions).unwrap_err().is(Status::NAMESPACE_WRITE_PROTECTED));
    let preconditions = Preconditions { firmware_pending: true, ..Preconditions::default() };
    assert!(try_with(&new, start, preconditions).unwrap_err().is(Status::FIRMWARE_NEEDS_RESET));
    // There is no failure to exit from.
    assert_eq!(try_to(&new, command(SanitizeAction::ExitFailure)), Ok(Done { next: None, started: false }));
    let running = started(&new, start);
    for action in [SanitizeAction::BlockErase, SanitizeAction::ExitFailure, SanitizeAction::Reserved(0)] {
        assert!(try_to(&running, command(action)).unwrap_err().is(Status::SANITIZE_IN_PROGRESS));
    }
}

#[test]
fn no_deallocate_is_executed_refused_or_ignored() {
    let keep = Command { no_deallocate: true, ..command(SanitizeAction::BlockErase) };
    assert!(!started(&Sanitize::default(), keep).work(&CAPABILITIES).unwrap().deallocate);
    let inhibited = Capabilities { no_deallocate_inhibited: true, ..CAPABILITIES };
    let refused = Sanitize::default().execute(&origin(), &keep, &inhibited, &Preconditions::default()).unwrap_err();
    assert!(refused.status.is(Status::INVALID_FIELD));
    let warn = Preconditions { warn_about_deallocation: true, ..Preconditions::default() };
    let running = Sanitize::default().execute(&origin(), &keep, &inhibited, &warn).unwrap().next.unwrap();
    assert!(running.work(&inhibited).unwrap().deallocate);
    let ended = running.complete(&inhibited).unwrap();
    assert_eq!(ended.event.1, AsyncEvent::SANITIZE_COMPLETED_DEALLOCATED);
    assert_eq!(ended.next.page(&inhibited, 0).state(), SanitizeState::SucceededDeallocated);
    // Whoever has not asked to keep blocks, or has them kept, has what he asked for.
    for (command, capabilities) in [(command(SanitizeAction::BlockErase), &inhibited), (keep, &CAPABILITIES)] {
        let ended = started(&Sanitize::default(), command).complete(capabilities).unwrap();
        assert_eq!(ended.event.1, AsyncEvent::SANITIZE_COMPLETED);
        assert_eq!(ended.next.page(capabilities, 0).state(), SanitizeState::Succeeded);
    }
}

#[test]
fn a_restricted_failure_is_only_left_by_a_restricted_operation() {
    let start = command(SanitizeAction::Overwrite);
    let failed = started(&Sanitize::default(), start).fail().unwrap().next;
    assert_eq!(states(&failed, 0), (SanitizeState::Failed, 0xffff));
    let unrestricted = Command { allow_unrestricted_exit: true, ..start };
    for command in [command(SanitizeAction::ExitFailure), unrestricted] {
        assert!(try_to(&failed, command).unwrap_err().is(Status::SANITIZE_FAILED));
    }
    assert!(try_to(&failed, command(SanitizeAction::ExitVerification)).unwrap_err().is(Status::INVALID_FIELD));
    let again = started(&failed, start).complete(&CAPABILITIES).unwrap().next;
    assert_eq!((states(&again, 0).0, again.restriction()), (SanitizeState::Succeeded, None));
}

#[test]
fn an_unrestricted_failure_can_be_left() {
    let start = Command { allow_unrestricted_exit: true, ..command(SanitizeAction::BlockErase) };
    let failed = started(&Sanitize::default().written().unwrap(), start).fail().unwrap();
    assert_eq!(failed.event, (ControllerId(3), AsyncEvent::SANITIZE_COMPLETED));
    let left = try_to(&failed.next, command(SanitizeAction::ExitFailure)).unwrap();
    let left = left.next.unwrap();
    assert_eq!((states(&left, 0).0, left.restriction()), (SanitizeState::Failed, None));
    assert!(!left.is_erased());
    // Or another operation of either kind is started.
    started(&failed.next, start);
    started(&failed.next, command(SanitizeAction::BlockErase));
}

#[test]
fn commands_that_access_data_are_refused_during_a_sanitize() {
    let running = started(&Sanitize::default(), command(SanitizeAction::BlockErase));
    let failed = running.fail().unwrap().next;
    for (state, status) in [(running, Status::SANITIZE_IN_PROGRESS), (failed, Status::SANITIZE_FAILED)] {
        let restriction = state.restriction().unwrap();
        assert!(restriction.status().is(status));
        let allowed = [
            (admin::ABORT, 0),
            (admin::ASYNC_EVENT_REQUEST, 0),
            (admin::CREATE_IO_CQ, 0x003f_0001),
            (admin::CREATE_IO_SQ, 0x003f_0001),
            (admin::DELETE_IO_CQ, 1),
            (admin::DELETE_IO_SQ, 1),
            (admin::DOORBELL_BUFFER_CONFIG, 0),
            (admin::GET_FEATURES, 0x84),
            (admin::IDENTIFY, 1),
            (admin::KEEP_ALIVE, 0),
            (admin::SANITIZE, 1),
            (admin::SET_FEATURES, 0x8000_000b),
            (admin::GET_LOG_PAGE, u32::from(Lid::ERROR_INFORMATION.0)),
            (admin::GET_LOG_PAGE, 0x007f_0000 | u32::from(Lid::SANITIZE_STATUS.0)),
            (FABRICS, 0),
        ];
        for (opcode, cdw10) in allowed {
            assert!(restriction.check_admin(opcode, cdw10).is_ok(), "{opcode:02x} {cdw10:x}");
        }
        let refused = [
            (admin::NAMESPACE_MANAGEMENT, 0),
            (admin::NAMESPACE_ATTACHMENT, 0),
            (admin::FORMAT_NVM, 0),
            (admin::DEVICE_SELF_TEST, 1),
            (admin::FIRMWARE_COMMIT, 0),
            (admin::FIRMWARE_DOWNLOAD, 0),
            (admin::SECURITY_SEND, 0),
            (admin::GET_LBA_STATUS, 0),
            (admin::SET_FEATURES, u32::from(Fid::WRITE_PROTECTION.0)),
            (admin::GET_LOG_PAGE, u32::from(Lid::PERSISTENT_EVENT.0)),
            (admin::GET_LOG_PAGE, u32::from(Lid::TELEMETRY_HOST.0)),
        ];
        for (opcode, cdw10) in refused {
            let refusal = restriction.check_admin(opcode, cdw10).unwrap_err();
            assert!(refusal.status.is(status), "{opcode:02x} {cdw10:x}");
        }
        for opcode in 0..=u8::MAX {
            assert_eq!(restriction.check_io(opcode).is_ok(), opcode == nvm::FLUSH);
        }
    }
}

#[test]
fn estimates_and_capabilities_are_announced() {
    let page = Sanitize::default().page(&CAPABILITIES, 0);
    assert_eq!((page.eto.get(), page.etbe.get(), page.etce.get()), (32, 1, u32::MAX));
    let mut speed = SanitizeSpeed::default();
    speed.add(Method::NewKeys, 1, 1);
    let unknown = Capabilities { speed, crypto_erase: true, ..CAPABILITIES };
    let page = Sanitize::default().page(&unknown, 0);
    assert_eq!((page.eto.get(), page.etbe.get(), page.etce.get()), (u32::MAX, u32::MAX, 1));
    speed.add(Method::Erase, 10, 10_000_000_000);
    speed.add(Method::Overwrite(0), 1, u64::MAX);
    let page = Sanitize::default().page(&Capabilities { speed, ..CAPABILITIES }, 0);
    assert_eq!((page.eto.get(), page.etbe.get()), (u32::MAX - 1, 1_000_000_000));
    assert_eq!(CAPABILITIES.sanicap(), 0x4000_0006);
    assert_eq!(unknown.sanicap(), 0x4000_0007);
    assert_eq!(Capabilities::default().sanicap(), 0);
}
