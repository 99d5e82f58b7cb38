//! Neither do READs keep responses waiting for long, nor responses READs: what a turn posts,
//! however much there is of the other.

use std::collections::VecDeque;

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sgl, Sqe, Status};
use ebof_rdma::Segments;
use ebof_rdma::controller::{Connection, Limits, Location, SendEntry};
use ebof_rdma::private_data::ConnectRequest;
use ebof_testkit::rdma::LIMITS;
use zerocopy::IntoBytes;

const ENTRIES: u32 = 64;
/// READs that the host answers at a time.
const DEPTH: u8 = 4;

fn connection() -> Connection {
    let request = ConnectRequest { qid: QueueId(1), host_receives: 64, entries: ENTRIES, cntlid: ControllerId(0) };
    let limits = Limits { send_queue_entries: 512, ..LIMITS };
    let mut connection = Connection::accept(&request.encode(), &limits, DEPTH).expect("a good request").connection;
    connection.on_established();
    connection
}

/// Takes a command without data, which is complete at once.
fn small(connection: &mut Connection) {
    assert!(connection.receive(Sqe::new(0).as_bytes()).is_ok());
    connection.respond(&Cqe::new(Cid(0), Status::SUCCESS), None);
}

/// Takes a command with as much data as a descriptor can announce, in 16 pieces if they are a list.
fn large(connection: &mut Connection, tag: u32, is_list: bool) {
    let piece = SglDescriptor::encode(Sgl::Keyed { address: 4096, length: 1 << 23, key: 1, invalidate: false });
    let dptr = if is_list { SglDescriptor::encode(Sgl::LastSegment { offset: 0, length: 256 }) } else { piece };
    let sqe = Sqe { dptr, ..Sqe::new(1) };
    let command = connection.receive(&[sqe.as_bytes(), [piece; 16].as_bytes()].concat()).expect("a command");
    let segments = Segments::from_pointer(&command.sqe.data_pointer()).expect("data in the host's memory");
    assert_eq!(command.data, Ok(Location::Remote(segments)));
    assert!(connection.read(tag, segments, segments.length()));
}

/// What is posted in one turn.
fn turn(connection: &mut Connection) -> Vec<SendEntry> {
    std::iter::from_fn(|| connection.poll_work(256)).collect()
}

#[test]
fn a_response_is_posted_in_the_turn_in_which_it_is_ready_whatever_is_to_be_read() {
    let mut connection = connection();
    // Far more READs than are ever under way, all of them before the responses.
    (0..ENTRIES - 1).for_each(|tag| large(&mut connection, tag, tag % 2 == 0));
    let mut under_way = VecDeque::new();
    for done in 0..400 {
        small(&mut connection);
        let works = turn(&mut connection);
        let reads = works.iter().take_while(|work| matches!(work, SendEntry::Read { .. })).count();
        assert!(reads <= usize::from(DEPTH), "{reads} READs before a response");
        assert!(matches!(works[reads..], [SendEntry::Send { .. }]), "{done}: {works:?}");
        under_way.extend(works.iter().filter_map(|work| match work {
            SendEntry::Read { tag, .. } => Some(*tag),
            _ => None,
        }));
        connection.on_sent();
        // As many READs are over as may be under way, or one, or none.
        for _ in 0..[DEPTH, 1, 0][done % 3] {
            if let Some(tag) = under_way.pop_front() {
                connection.on_read_done(tag);
            }
        }
    }
}

#[test]
fn a_read_that_can_be_posted_is_posted_before_later_responses() {
    let mut connection = connection();
    (0..8).for_each(|tag| large(&mut connection, tag, true));
    let mut reads = 0;
    let mut under_way = VecDeque::new();
    while reads < 8 * 16 {
        (0..16).for_each(|_| small(&mut connection));
        let works = turn(&mut connection);
        let at = works.iter().position(|work| matches!(work, SendEntry::Read { .. }));
        assert_eq!(at, Some(0), "after {reads}");
        for work in works {
            if let SendEntry::Read { tag, .. } = work {
                reads += 1;
                under_way.push_back(tag);
            } else {
                assert!(matches!(work, SendEntry::Send { .. }));
                connection.on_sent();
            }
        }
        connection.on_read_done(under_way.pop_front().expect("some are under way"));
    }
}
