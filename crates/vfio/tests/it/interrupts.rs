//! Interrupt vectors, as a client connects them and a guest reads their pending bits.

use ebof_nvme::property::{Cap, Version};
use ebof_vfio::interrupts::VectorChange::{self, Connect, Disconnect, Signal};
use ebof_vfio::interrupts::{MSIX, Vectors};
use ebof_vfio::message::{InterruptAction, InterruptData, SetInterrupts};
use ebof_vfio::pci::{Identity, PENDING_BITS, VECTOR_TABLE};
use ebof_vfio::{Errno, PciFunction};

fn set(
    vectors: &mut Vectors,
    range: (u32, u32),
    action: InterruptAction,
    data: InterruptData<'_>,
) -> Vec<VectorChange> {
    let mut changes = Vec::new();
    let descriptors = if data == InterruptData::Descriptors { range.1 as usize } else { 0 };
    let set = SetInterrupts { index: MSIX, start: range.0, count: range.1, action, data };
    vectors.set(&set, descriptors, &mut changes).unwrap();
    changes
}

#[test]
fn connected_vectors_are_signalled_and_others_are_pending() {
    let mut vectors = Vectors::new(4);
    assert!(!vectors.raise(1) && !vectors.raise(4) && !vectors.raise(u16::MAX));
    let changes = set(&mut vectors, (0, 3), InterruptAction::Trigger, InterruptData::Descriptors);
    assert_eq!(changes, [Connect(0), Connect(1), Signal(1), Connect(2)], "nothing is lost");
    assert!(vectors.raise(0) && vectors.raise(1) && !vectors.raise(3));
    // Masked, and what was raised meanwhile is delivered once.
    assert_eq!(set(&mut vectors, (0, 2), InterruptAction::Mask, InterruptData::Bools(&[0, 1])), []);
    assert!(vectors.raise(0) && !vectors.raise(1) && !vectors.raise(1));
    assert_eq!(set(&mut vectors, (0, 3), InterruptAction::Unmask, InterruptData::None), [Signal(1)]);
    assert_eq!(set(&mut vectors, (0, 3), InterruptAction::Unmask, InterruptData::None), []);
    // A client may ask for one.
    assert_eq!(set(&mut vectors, (2, 1), InterruptAction::Trigger, InterruptData::None), [Signal(2)]);
    // Of none nothing is masked, unmasked or signalled: that is not how vectors are disconnected.
    for action in [InterruptAction::Mask, InterruptAction::Unmask] {
        assert_eq!(set(&mut vectors, (0, 0), action, InterruptData::None), [], "{action:?}");
    }
    for data in [InterruptData::Bools(&[]), InterruptData::Descriptors] {
        assert_eq!(set(&mut vectors, (0, 0), InterruptAction::Trigger, data), [], "{data:?}");
    }
    // Another descriptor in place of one.
    assert_eq!(set(&mut vectors, (2, 1), InterruptAction::Trigger, InterruptData::Descriptors), [Connect(2)]);
    assert_eq!(
        set(&mut vectors, (0, 0), InterruptAction::Trigger, InterruptData::None),
        [Disconnect(0), Disconnect(1), Disconnect(2)]
    );
    assert!(!vectors.raise(0));
}

#[test]
fn without_descriptors_vectors_are_disconnected() {
    let mut vectors = Vectors::new(4);
    set(&mut vectors, (1, 2), InterruptAction::Trigger, InterruptData::Descriptors);
    let mut changes = Vec::new();
    let all = SetInterrupts {
        index: MSIX,
        start: 0,
        count: 4,
        action: InterruptAction::Trigger,
        data: InterruptData::Descriptors,
    };
    vectors.set(&all, 0, &mut changes).unwrap();
    assert_eq!(changes, [Disconnect(1), Disconnect(2)]);
    for (index, start, count) in [(MSIX, 0, 5), (MSIX, 4, 1), (MSIX, u32::MAX, 1), (0, 0, 1), (5, 0, 0), (3, 0, 2)] {
        let wrong = SetInterrupts { index, start, count, ..all };
        assert_eq!(vectors.set(&wrong, 0, &mut changes), Err(Errno::INVALID), "{index} {start} {count}");
    }
    // The interrupt that tells of errors, which never comes.
    vectors.set(&SetInterrupts { index: 3, start: 0, count: 1, ..all }, 1, &mut changes).unwrap();
    assert_eq!(changes.len(), 2);
}

#[test]
fn a_reset_forgets_interrupts_and_keeps_connections() {
    let mut vectors = Vectors::new(2);
    set(&mut vectors, (0, 2), InterruptAction::Trigger, InterruptData::Descriptors);
    set(&mut vectors, (0, 2), InterruptAction::Mask, InterruptData::None);
    assert!(!vectors.raise(1));
    vectors.reset();
    assert_eq!(set(&mut vectors, (0, 2), InterruptAction::Unmask, InterruptData::None), []);
    assert!(vectors.raise(1));
}

#[test]
fn the_table_is_memory_and_pending_bits_are_read_only() {
    let identity = Identity { vendor: 0xeb0f, device: 1, revision: 1 };
    let mut function = PciFunction::new(identity, Cap::new(64, 1), Version::V2_1, 70, 8);
    let read = |function: &PciFunction, at: u64, length: usize| {
        let mut bytes = vec![0xee; length];
        function.read(0, at, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(&function, VECTOR_TABLE + 12, 4), [1, 0, 0, 0], "masked");
    function.write(0, VECTOR_TABLE + 16, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(read(&function, VECTOR_TABLE + 16, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    function.write(0, VECTOR_TABLE + 16 * 70, &[1; 8]).unwrap();
    assert_eq!(read(&function, VECTOR_TABLE + 16 * 70, 8), [0; 8], "behind the last one");
    for vector in [0, 9, 69] {
        assert!(!function.vectors.raise(vector));
    }
    function.write(0, PENDING_BITS, &[0xff; 8]).unwrap();
    assert_eq!(read(&function, PENDING_BITS, 16), [1, 2, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&function, PENDING_BITS + 0xff8, 8), [0; 8]);
}
