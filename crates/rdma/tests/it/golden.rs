//! Every record of private data and every capsule, byte by byte: the ends send the bytes of
//! `testdata`, and decode them. The vectors were written by hand from the specification's tables.

use ebof_nvme::{Cid, ControllerId, Cqe, Nsid, QueueId, Sqe, Status};
use ebof_rdma::controller::{Connection, Limits, Location, SendEntry};
use ebof_rdma::private_data::{ConnectAccept, ConnectReject, ConnectRequest, RejectStatus};
use ebof_rdma::{Remote, Segments, capsule, host};
use ebof_testkit::hex;

macro_rules! golden {
    ($name:literal) => {
        hex::read(include_str!(concat!("../../testdata/", $name, ".hex")))
    };
}

const LIMITS: Limits = Limits {
    admin_entries: 32,
    io_entries: 128,
    io_queues: 8,
    in_capsule_bytes: 4096,
    reads: 16,
    send_queue_entries: 1024,
};

fn host() -> host::Connection {
    host::Connection::new(host::ConnectionConfig { queue: QueueId(3), entries: 128, cntlid: ControllerId(0x1234) })
}

fn controller() -> Connection {
    let mut connection = Connection::accept(&golden!("request"), &LIMITS, 16).expect("a good request").connection;
    connection.on_established();
    connection
}

fn command(opcode: u8, cid: u16) -> Sqe {
    let sqe = Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, 8);
    Sqe { cid: cid.into(), ..sqe }
}

// @test rdma.encoding
#[test]
fn request_and_accept() {
    let mut host = host();
    assert_eq!(host.request().as_slice(), golden!("request"));
    assert_eq!(host.receives(), 128);
    let accepted = Connection::accept(&golden!("request"), &LIMITS, 16).unwrap();
    assert_eq!(
        accepted.request,
        ConnectRequest { qid: QueueId(3), host_receives: 128, entries: 128, cntlid: ControllerId(0x1234) }
    );
    assert_eq!(accepted.reply.as_slice(), golden!("accept"));
    assert_eq!(ConnectAccept::decode(&golden!("accept")), Ok(ConnectAccept { controller_receives: 128 }));
    assert_eq!(host.on_accepted(&accepted.reply), Ok(host::Accepted { commands: 128 }));
}

// @test rdma.encoding
#[test]
fn reject() {
    let reject = ConnectReject { status: RejectStatus::NO_RESOURCES };
    assert_eq!(reject.encode().as_slice(), golden!("reject"));
    assert_eq!(ConnectReject::decode(&golden!("reject")), Ok(reject));
}

// @test rdma.encoding
#[test]
fn a_command_with_a_keyed_descriptor_and_its_response() {
    let remote = Remote { address: 0xdcba_9876_5432_1000, key: 0x1122_3344 };
    let mut capsule = [0xff; 64];
    let transfer = host::CommandData::Keyed { remote, length: 4096, invalidate: true };
    let mut host = host();
    assert_eq!(host.send_command(&mut command(2, 0x1234), transfer, &mut capsule), 64);
    assert_eq!(capsule.as_slice(), golden!("command_read"));

    let mut controller = controller();
    let received = controller.receive(&capsule).unwrap();
    let Ok(Location::Remote(segments)) = received.data else { panic!("{received:?}") };
    assert_eq!((received.in_capsule, segments.length()), (0, 4096));
    assert_eq!(Segments::from_pointer(&received.sqe.data_pointer()), Some(segments));
    let cqe = Cqe::new(Cid(0x1234), Status::SUCCESS).with_result(42).with_sqhd(7);
    controller.respond_with_data(9, segments, 4096, &cqe);
    assert_eq!(controller.poll_work(2), Some(SendEntry::Write { tag: 9, offset: 0, length: 4096, remote }));
    assert_eq!(controller.poll_work(1), Some(SendEntry::Send { cqe, invalidate: Some(0x1122_3344), tag: Some(9) }));
    assert_eq!(capsule::encode_response(&cqe).as_slice(), golden!("response"));
    assert_eq!(host.on_sent(Cid(0x1234)), None);
    let finished = host.receive(&golden!("response"), Some(0x1122_3344));
    assert_eq!(finished, Ok(Some(host::FinishedCommand { cqe, valid_key: None })));
}

// @test rdma.encoding
#[test]
fn a_command_with_its_data_in_the_capsule() {
    let payload = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut capsule = [0xff; 80];
    let transfer = host::CommandData::InCapsule { payload: &payload };
    assert_eq!(host().send_command(&mut command(1, 0x1235), transfer, &mut capsule), 72);
    assert_eq!(capsule[..72], golden!("command_write"));
    let received = controller().receive(&capsule[..72]).unwrap();
    assert_eq!((received.in_capsule, received.data), (8, Ok(Location::InCapsule { offset: 64, length: 8 })));
}

// @test rdma.encoding
#[test]
fn a_command_with_a_list_of_descriptors() {
    let mut controller = controller();
    let received = controller.receive(&golden!("command_list")).unwrap();
    let Ok(Location::Remote(segments)) = received.data else { panic!("{received:?}") };
    assert_eq!(segments.length(), 4096);
    assert_eq!(Segments::from_pointer(&received.sqe.data_pointer()), Some(segments));
    let cqe = Cqe::new(Cid(0x1236), Status::SUCCESS);
    controller.respond_with_data(9, segments, 4096, &cqe);
    assert_eq!(controller.poll_work(0), None);
    let [first, second] = [Remote { address: 0x1000, key: 1 }, Remote { address: 0x8000, key: 2 }];
    assert_eq!(controller.poll_work(3), Some(SendEntry::Write { tag: 9, offset: 0, length: 3072, remote: first }));
    assert_eq!(controller.poll_work(2), Some(SendEntry::Write { tag: 9, offset: 3072, length: 1024, remote: second }));
    assert_eq!(controller.poll_work(1), Some(SendEntry::Send { cqe, invalidate: Some(2), tag: Some(9) }));
    assert_eq!(controller.poll_work(9), None);
}
