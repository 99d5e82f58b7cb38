//! Which responses can be posted at once, without being queued.

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sgl, Sqe, Status};
use ebof_rdma::controller::{Connection, Location, Posting, SendEntry};
use ebof_rdma::private_data::ConnectRequest;
use ebof_rdma::{Remote, Segments};
use ebof_testkit::rdma::LIMITS;
use zerocopy::IntoBytes;

const PIECE: Sgl = Sgl::Keyed { address: 0x1000, length: 4096, key: 7, invalidate: true };

fn connection() -> Connection {
    let request = ConnectRequest { qid: QueueId(1), host_receives: 4, entries: 4, cntlid: ControllerId(0) };
    Connection::accept(&request.encode(), &LIMITS, 4).expect("a good request").connection
}

/// Takes a command, whose data are where `sgl` says.
fn receive(connection: &mut Connection, sgl: Sgl, behind: &[SglDescriptor]) -> Segments {
    let sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(1) };
    let command = connection.receive(&[sqe.as_bytes(), behind.as_bytes()].concat()).expect("a command");
    let Location::Remote(segments) = command.data.expect("a good SGL") else { unreachable!("they are elsewhere") };
    segments
}

#[test]
fn a_response_is_posted_at_once_where_there_is_room() {
    let mut connection = connection();
    let segments = receive(&mut connection, PIECE, &[]);
    assert_eq!(connection.respond_now(Some(segments), 512, 9), None, "it is not established");
    connection.on_established();
    assert_eq!(connection.respond_now(Some(segments), 512, 1), None, "an RDMA WRITE and a message");
    let posting = |write: Option<u32>, invalidate| {
        let write = write.map(|length| (length, Remote { address: 0x1000, key: 7 }));
        Some(Posting { write, invalidate })
    };
    assert_eq!(connection.respond_now(Some(segments), 512, 2), posting(Some(512), Some(7)));
    let segments = receive(&mut connection, PIECE, &[]);
    assert_eq!(connection.respond_now(Some(segments), 9999, 2), posting(Some(4096), Some(7)), "the rest is left out");
    let segments = receive(&mut connection, PIECE, &[]);
    assert_eq!(connection.respond_now(Some(segments), 0, 2), posting(None, Some(7)));
    assert_eq!(connection.respond_now(None, 0, 2), posting(None, None));
    assert_eq!(connection.respond_now(None, 0, 2), None, "the host has four receives");
    connection.on_sent();
    assert_eq!(connection.respond_now(None, 0, 2), posting(None, None));
}

#[test]
fn a_response_is_not_posted_before_what_waits() {
    let mut connection = connection();
    connection.on_established();
    let piece = receive(&mut connection, PIECE, &[]);
    let lists = Sgl::LastSegment { offset: 0, length: 32 };
    let list = receive(&mut connection, lists, &[SglDescriptor::encode(PIECE); 2]);
    assert_eq!(connection.respond_now(Some(list), 512, 9), None, "there are several pieces");
    connection.respond(&Cqe::new(Cid(0), Status::SUCCESS), Some(list));
    assert_eq!(connection.respond_now(None, 0, 9), None, "another one comes first");
    assert!(matches!(connection.poll_work(9), Some(SendEntry::Send { .. })));
    assert!(connection.read(1, piece, 512));
    assert_eq!(connection.respond_now(None, 0, 9), None, "an RDMA READ comes first");
    assert!(matches!(connection.poll_work(9), Some(SendEntry::Read { .. })));
    assert!(connection.respond_now(None, 0, 9).is_some());
}
