//! What a function does with tasks that it cannot carry out.

use super::*;

const RAM: u64 = 1 << 32;

/// A function with 64 KiB of memory and so many I/O queues.
fn function(io_queues: u16) -> (DirectFunction, Arc<SharedMapping>) {
    let mut function = DirectFunction::new(Cap(0), Version::V2_1, io_queues);
    let (file, memory) = SharedMapping::create("guest", 64 << 10).unwrap();
    let direction = ebof_vfio::message::Direction { readable: true, writable: true };
    let map = ebof_vfio::message::DmaMap { address: RAM, size: 64 << 10, offset: 0, direction };
    function.memory.map(&map, Some(std::os::fd::AsFd::as_fd(&file))).unwrap();
    (function, memory)
}

fn create(id: u16) -> [RingTask; 2] {
    let id = QueueId(id);
    [
        RingTask::CreateCompletionQueue { id, entries: 16, base: RAM, vector: None },
        RingTask::CreateSubmissionQueue { id, entries: 16, base: RAM + 4096, completion: QueueId(1) },
    ]
}

#[test]
fn a_queue_without_a_doorbell_leaves_nothing_behind() {
    let (mut function, memory) = function(8);
    let (doorbells, event_indexes) = (RAM + 0x2000, RAM + 0x3000);
    function.change_rings(&RingTask::ShadowDoorbells { doorbells, event_indexes }).unwrap();
    // Pages behind the two, which are the guest's own.
    let fill = [0xa5; 0x4000];
    memory.write(0x4000, &fill).unwrap();
    for id in [9, 512, 1024, u16::MAX] {
        for task in create(id) {
            assert_eq!(function.change_rings(&task), Err(Status::INTERNAL_ERROR), "{task:?}");
        }
    }
    assert!(function.submission.is_empty() && function.completion.is_empty());
    let mut bytes = [0; 0x4000];
    memory.read(0x4000, &mut bytes).unwrap();
    assert_eq!(bytes, fill);
    create(8).iter().for_each(|task| function.change_rings(task).unwrap());
}

#[test]
fn a_queue_whose_shadow_is_no_memory_any_more_has_no_doorbell() {
    let (mut function, _memory) = function(8);
    let (doorbells, event_indexes) = (RAM + 0x2000, RAM + 0x3000);
    function.change_rings(&RingTask::ShadowDoorbells { doorbells, event_indexes }).unwrap();
    drop(function.memory.clear());
    for task in create(1) {
        assert_eq!(function.change_rings(&task), Err(Status::INTERNAL_ERROR), "{task:?}");
    }
    assert!(function.submission.is_empty() && function.completion.is_empty());
    for is_completion in [false, true] {
        let rung = function.pci.registers.doorbell(1, is_completion, 1);
        assert_eq!(rung, ebof_vfio::registers::Effect::InvalidDoorbell);
    }
}

// @test limits.guest-pages
#[test]
fn little_memory_is_left_to_those_who_use_it_already() {
    let (mut function, memory) = function(8);
    let pointer = |address: u64| {
        let mut sqe = Sqe { flags: 0, dptr: zerocopy::FromZeros::new_zeroed(), ..Sqe::new(2) };
        zerocopy::IntoBytes::as_mut_bytes(&mut sqe.dptr)[..8].copy_from_slice(&address.to_le_bytes());
        sqe.data_pointer()
    };
    let (used, unused) = (pointer(RAM + 0x4000), pointer(RAM + 0x8000));
    memory.write(0x4000, &[1]).unwrap();
    function.footing = Footing::without_credit();
    assert!(function.memory_of(&used, 512, Way::ToHost).is_ok());
    assert_eq!(function.memory_of(&unused, 512, Way::ToHost).unwrap_err(), Status::DATA_TRANSFER_ERROR, "retry");
    assert_eq!(function.send(&unused, &[1; 512]), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(function.fetch(&unused, &mut [0; 512]), Err(Status::DATA_TRANSFER_ERROR));
    // The guest uses it.
    memory.write(0x8000, &[1]).unwrap();
    assert_eq!(function.send(&unused, &[2; 512]), Ok(()));
    function.footing = Footing::new();
    assert!(function.memory_of(&pointer(RAM + 0xc000), 512, Way::ToHost).is_ok(), "there is enough");
}
