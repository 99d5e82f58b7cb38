//! BAR0 as a driver uses it, in order and out of order.

use ebof_nvme::QueueId;
use ebof_nvme::property::{Cap, Cc, Csts, Version};
use ebof_vfio::registers::{AdminQueues, DOORBELLS, Effect, QUEUES_MAX, Registers, doorbell_offset};
use proptest::prelude::*;

fn registers() -> Registers {
    Registers::new(Cap::new(1024, 30), Version::V2_1, 8)
}

fn read32(registers: &Registers, at: u64) -> u32 {
    let mut bytes = [0; 4];
    registers.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn read64(registers: &Registers, at: u64) -> u64 {
    let mut bytes = [0; 8];
    registers.read(at, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn put(registers: &mut Registers, at: u64, value: u32) -> Option<Effect> {
    registers.write(at, &value.to_le_bytes())
}

#[test]
fn a_controller_is_enabled_shut_down_and_reset() {
    let mut registers = registers();
    assert_eq!(read64(&registers, 0), Cap::new(1024, 30).0);
    assert_eq!(read32(&registers, 8), Version::V2_1.0);
    assert_eq!(put(&mut registers, 0x24, 0x003f_001f), None);
    // ASQ in halves, ACQ as a whole; the low 12 bits are reserved.
    assert_eq!(put(&mut registers, 0x28, 0x1234_5678), None);
    assert_eq!(put(&mut registers, 0x2c, 0x9), None);
    assert_eq!(registers.write(0x30, &0x7_8765_4fff_u64.to_le_bytes()), None);
    assert_eq!((read64(&registers, 0x28), read64(&registers, 0x30)), (0x9_1234_5000, 0x7_8765_4000));
    let admin = AdminQueues {
        submission: 0x9_1234_5000,
        submission_entries: 32,
        completion: 0x7_8765_4000,
        completion_entries: 64,
    };
    let cc = Cc::ENABLE;
    assert_eq!(put(&mut registers, 0x14, cc.0), Some(Effect::Enable { cc, admin: Some(admin) }));
    assert_eq!(put(&mut registers, 0x14, cc.0), None, "nothing changes");
    assert_eq!(read32(&registers, 0x1c), 0, "readiness is for others to say");
    registers.set_status(Csts(Csts::READY));
    assert_eq!((read32(&registers, 0x14), read32(&registers, 0x1c)), (cc.0, 1));
    // The Admin Queues stay as they are while the controller is enabled.
    put(&mut registers, 0x24, 0);
    registers.write(0x28, &[0; 8]);
    registers.write(0x30, &[0; 8]);
    assert_eq!((read32(&registers, 0x24), read64(&registers, 0x28)), (0x003f_001f, admin.submission));
    assert_eq!(read64(&registers, 0x30), admin.completion);
    let shutdown = cc.with_shutdown(1);
    assert_eq!(put(&mut registers, 0x14, shutdown.0), Some(Effect::Configure { cc: shutdown }));
    assert!(registers.open_submission(QueueId(0), 32) && registers.open_completion(QueueId(0), 64));
    assert_eq!(put(&mut registers, 0x14, 0), Some(Effect::Disable { cc: Cc(0) }));
    registers.reset_controller();
    assert_eq!((read32(&registers, 0x1c), read32(&registers, 0x24)), (0, 0x003f_001f));
    assert_eq!(put(&mut registers, 0x1000, 1), Some(Effect::InvalidDoorbell));
    assert_eq!(
        put(&mut registers, 0x14, cc.0),
        Some(Effect::Enable { cc, admin: Some(admin) }),
        "with the same queues"
    );
    registers.reset();
    assert_eq!((read32(&registers, 0x14), read32(&registers, 0x24), read64(&registers, 0x28)), (0, 0, 0));
}

#[test]
fn each_half_of_an_admin_queue_address_is_replaced_alone() {
    let mut registers = registers();
    for at in [0x28, 0x30] {
        registers.write(at, &0x5555_5555_5555_5000_u64.to_le_bytes());
        put(&mut registers, at, 0xaaaa_a000);
        assert_eq!(read64(&registers, at), 0x5555_5555_aaaa_a000, "{at:#x}");
        put(&mut registers, at + 4, 0xcccc_cccc);
        assert_eq!(read64(&registers, at), 0xcccc_cccc_aaaa_a000, "{at:#x}");
    }
    // CRTO.CRWMT is no longer than CAP.TO.
    assert_eq!(u64::from(read32(&registers, 0x68)), read64(&registers, 0) >> 24 & 0xff);
}

#[test]
fn admin_queues_of_one_entry_are_none() {
    for aqa in [0, 0x0000_001f, 0x001f_0000] {
        let mut registers = registers();
        put(&mut registers, 0x24, aqa);
        assert_eq!(put(&mut registers, 0x14, Cc::ENABLE.0), Some(Effect::Enable { cc: Cc::ENABLE, admin: None }));
    }
}

#[test]
fn a_reset_leaves_the_configuration_that_the_host_has_written_meanwhile() {
    let mut registers = registers();
    put(&mut registers, 0x24, 0x001f_001f);
    put(&mut registers, 0x14, Cc::ENABLE.0);
    put(&mut registers, 0x14, 0);
    put(&mut registers, 0x14, Cc::ENABLE.0);
    registers.reset_controller();
    assert_eq!(read32(&registers, 0x14), Cc::ENABLE.0);
    assert_eq!(put(&mut registers, 0x14, 0), Some(Effect::Disable { cc: Cc(0) }), "it can be disabled again");
}

#[test]
fn accesses_of_other_sizes_read_as_ones_and_are_ignored() {
    let mut registers = registers();
    for (at, length) in [(0, 1), (0, 2), (0, 16), (2, 4), (4, 8), (0x1000, 3), (1, 8)] {
        let mut bytes = vec![0; length];
        registers.read(at, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0xff), "{at} {length}");
    }
    assert_eq!(registers.write(0x14, &[1]), None);
    assert_eq!(registers.write(0x12, &[0xff; 4]), None);
    assert_eq!(registers.write(0x14, &[0xff; 8]), None);
    assert_eq!(registers.write(0x1000, &[0; 8]), None);
    assert_eq!(registers.write(0x1002, &[0; 4]), None);
    assert_eq!((read32(&registers, 0x14), read32(&registers, 0x10)), (0, 0));
    // What cannot be written, what is no register, and doorbells, which read as zeros.
    for at in [0, 4, 8, 0x1c, 0x20, 0x38, 0x100, 0xffc] {
        assert_eq!(put(&mut registers, at, u32::MAX), None);
    }
    assert_eq!((read64(&registers, 0), read32(&registers, 0x1c)), (Cap::new(1024, 30).0, 0));
    assert_eq!((read32(&registers, 0x38), read32(&registers, 0x1000), read32(&registers, u64::MAX - 3)), (0, 0, 0));
    // The interrupt mask is set and cleared bit by bit.
    put(&mut registers, 0xc, 0xff);
    put(&mut registers, 0x10, 0x0f);
    assert_eq!((read32(&registers, 0xc), read32(&registers, 0x10)), (0xf0, 0xf0));
}

#[test]
fn doorbells_are_those_of_queues_that_are_there() {
    let mut registers = registers();
    assert!(registers.open_submission(QueueId(3), 16) && registers.open_completion(QueueId(2), 0x1_0000));
    assert!(!registers.open_submission(QueueId(8), 16) && !registers.open_completion(QueueId(u16::MAX), 16));
    let submission = doorbell_offset(QueueId(3), false);
    let completion = doorbell_offset(QueueId(2), true);
    assert_eq!((submission, completion), (0x1018, 0x1014));
    assert_eq!(put(&mut registers, submission, 15), Some(Effect::SubmissionTail { queue: QueueId(3), tail: 15 }));
    assert_eq!(
        put(&mut registers, completion, 0xffff),
        Some(Effect::CompletionHead { queue: QueueId(2), head: 0xffff })
    );
    for value in [16, 0x1_0000, u32::MAX] {
        assert_eq!(put(&mut registers, submission, value), Some(Effect::InvalidDoorbellValue));
    }
    assert_eq!(put(&mut registers, completion, 0x1_0000), Some(Effect::InvalidDoorbellValue));
    for at in [submission + 4, completion - 4, 0x1000, 0x1040, 0x1ffc, 0x2000, u64::MAX - 3] {
        assert_eq!(put(&mut registers, at, 0), Some(Effect::InvalidDoorbell), "{at:#x}");
    }
    registers.close_submission(QueueId(3));
    registers.close_completion(QueueId(2));
    assert_eq!(put(&mut registers, submission, 1), Some(Effect::InvalidDoorbell));
    assert_eq!(put(&mut registers, completion, 1), Some(Effect::InvalidDoorbell));
    let mut most = Registers::new(Cap::new(2, 1), Version::V2_1, u16::MAX);
    assert!(most.open_completion(QueueId(QUEUES_MAX - 1), 2) && !most.open_completion(QueueId(QUEUES_MAX), 2));
    assert_eq!(doorbell_offset(QueueId(QUEUES_MAX - 1), true), 0x1ffc);
}

proptest! {
    /// Any accesses: effects are about queues that are there, and within them.
    #[test]
    fn any_accesses_are_answered(
        accesses in proptest::collection::vec(
            (prop_oneof![0_u64..0x48, 0x1000_u64..0x1060, any::<u64>()], proptest::collection::vec(any::<u8>(), 0..10), any::<bool>()),
            0..100,
        ),
    ) {
        let mut registers = registers();
        registers.open_submission(QueueId(0), 2);
        registers.open_completion(QueueId(5), 300);
        for (at, mut bytes, aligned) in accesses {
            let at = if aligned { at & !7 } else { at };
            if aligned && bytes.len() > 4 {
                bytes.resize(4, 0);
            }
            match registers.write(at, &bytes) {
                Some(Effect::SubmissionTail { queue, tail }) => prop_assert!(queue == QueueId(0) && tail < 2),
                Some(Effect::CompletionHead { queue, head }) => prop_assert!(queue == QueueId(5) && head < 300),
                Some(Effect::Enable { cc, admin: Some(admin) }) => {
                    prop_assert!(cc.enabled() && admin.submission.is_multiple_of(4096));
                    prop_assert!((2..=4096).contains(&admin.submission_entries));
                    prop_assert!((2..=4096).contains(&admin.completion_entries));
                }
                Some(Effect::Enable { cc, admin: None }) => prop_assert!(cc.enabled()),
                Some(Effect::Disable { cc }) => prop_assert!(!cc.enabled()),
                Some(Effect::Configure { cc }) => prop_assert_eq!(cc.0 & !Cc::DEFINED, 0),
                Some(Effect::InvalidDoorbell | Effect::InvalidDoorbellValue) => prop_assert!(at >= DOORBELLS),
                None => {}
            }
            registers.read(at, &mut bytes);
        }
    }
}
