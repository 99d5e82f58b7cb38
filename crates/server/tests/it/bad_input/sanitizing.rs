//! Commands while the drive is sanitized.

use ebof_nvme::feature::Fid;
use ebof_nvme::log::{Lid, SanitizeLog, SanitizeState};
use ebof_nvme::media::{Sanitize, SanitizeAction};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Status};
use zerocopy::FromBytes;

use super::Becomes::{Ignored, Later};
use super::Data::{Drive, Host};
use super::To::{Admin, Io};
use super::{Case, Data, Line, blocks, check, cmd, drive, run, words};
use crate::drive_rig::{errors, wait};

#[test]
fn commands_while_the_drive_is_sanitized() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, line) = drive(directory.path());
    line.host.namespace(Nsid(1)).unwrap().write(0, &[7; 1 << 20], false).unwrap();
    let overwrite = Sanitize { overwrite_passes: 16, ..Sanitize::new(SanitizeAction::Overwrite) };
    assert!(run(&line, Admin, overwrite.encode(), &Data::None).status().is_success());
    let page = |lid: Lid, bytes: u32| (bytes / 4 - 1) << 16 | u32::from(lid.0);
    let later = Later(Status::SANITIZE_IN_PROGRESS, None);
    let cases: Vec<Case> = vec![
        ("read", Io, blocks(nvm::READ, 1, 9, 1), Host(512), later),
        ("write", Io, blocks(nvm::WRITE, 1, 0, 1), Drive(vec![1; 512]), later),
        ("flush", Io, cmd(nvm::FLUSH, 1, &[]), Data::None, Ignored),
        ("verify", Io, blocks(nvm::VERIFY, 1, 0, 1), Data::None, later),
        ("write uncorrectable", Io, blocks(nvm::WRITE_UNCORRECTABLE, 1, 0, 1), Data::None, later),
        ("deallocate", Io, cmd(nvm::DATASET_MANAGEMENT, 1, &[0, 4]), words(&[0, 1, 0, 0]), later),
        ("reservation report", Io, cmd(nvm::RESERVATION_REPORT, 1, &[15, 1]), Host(64), later),
        ("sanitize", Admin, overwrite.encode(), Data::None, later),
        ("format", Admin, cmd(admin::FORMAT_NVM, 1, &[0]), Data::None, later),
        ("create", Admin, cmd(admin::NAMESPACE_MANAGEMENT, 0, &[0]), Drive(vec![0; 4096]), later),
        ("attach", Admin, cmd(admin::NAMESPACE_ATTACHMENT, 2, &[0]), Drive(vec![0; 4096]), later),
        ("self-test", Admin, cmd(admin::DEVICE_SELF_TEST, 0, &[1]), Data::None, later),
        ("LBA status", Admin, cmd(admin::GET_LBA_STATUS, 1, &[0, 0, 5, 0x1100_0000]), Host(24), later),
        ("firmware", Admin, cmd(admin::FIRMWARE_DOWNLOAD, 0, &[1023, 0]), Drive(vec![0; 4096]), later),
        ("commit", Admin, cmd(admin::FIRMWARE_COMMIT, 0, &[2 << 3 | 1]), Data::None, later),
        (
            "write protection",
            Admin,
            cmd(admin::SET_FEATURES, 1, &[u32::from(Fid::WRITE_PROTECTION.0), 1]),
            Data::None,
            later,
        ),
        (
            "persistent events",
            Admin,
            cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::PERSISTENT_EVENT, 512)]),
            Host(512),
            later,
        ),
        ("telemetry", Admin, cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::TELEMETRY_CONTROLLER, 512)]), Host(512), later),
        ("identify", Admin, cmd(admin::IDENTIFY, 0, &[1]), Host(4096), Ignored),
        ("health", Admin, cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::SMART_HEALTH, 512)]), Host(512), Ignored),
    ];
    let state = || {
        SanitizeLog::read_from_bytes(&{
            let mut page = vec![0; 512];
            line.host.log_page(Nsid::ALL, Lid::SANITIZE_STATUS.0, 0, &mut page).unwrap();
            page
        })
        .unwrap()
        .state()
    };
    for case in &cases {
        // During a sanitize the log does not reveal LBAs.
        check_without_blocks(&line, case);
    }
    assert_eq!(state(), SanitizeState::InProgress, "16 passes over 64 MiB take longer than these commands");
    wait("sanitizing", || (state() == SanitizeState::Succeeded).then_some(()));
    for case in cases.iter().filter(|case| case.1 == Io && case.0 != "flush").take(2) {
        assert!(run(&line, case.1, case.2, &case.3).status().is_success(), "{} when it is over", case.0);
    }
}

fn check_without_blocks(line: &Line, case: &Case) {
    match case.1 {
        Io if !matches!(case.4, Ignored) => {
            let cqe = run(line, Io, case.2, &case.3);
            assert_eq!(cqe.status(), Status::SANITIZE_IN_PROGRESS.more(), "{}", case.0);
            let entry = errors(&line.host, 1)[0];
            assert_eq!((entry.cid.get(), entry.lba.get(), entry.nsid.get()), (cqe.cid().0, 0, 1), "{}", case.0);
            assert_eq!(entry.status(), cqe.status(), "{}", case.0);
        }
        _ => check(line, case),
    }
}
