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
