//! NVMe/RDMA: private data of both directions, capsules of a hostile host and of a hostile
//! controller, and whole conversations in any order.

use std::collections::BTreeMap;
use std::hint::black_box;

use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sqe, Status};
use ebof_rdma::controller::{Connection, Location, SendEntry};
use ebof_rdma::host::{self, CommandData};
use ebof_rdma::private_data::{ConnectAccept, ConnectReject, ConnectRequest};
use ebof_rdma::{FatalError, Remote, Segments};

use crate::rdma::{Act, Conversation, LIMITS, Size};

/// Private data of both directions.
pub fn rdma_private_data(data: &[u8]) {
    if let Ok(request) = ConnectRequest::decode(data) {
        assert_eq!(ConnectRequest::decode(&request.encode()), Ok(request));
    }
    if let Ok(accept) = ConnectAccept::decode(data) {
        assert_eq!(ConnectAccept::decode(&accept.encode()), Ok(accept));
    }
    if let Ok(reject) = ConnectReject::decode(data) {
        black_box((reject.status.to_string(), reject.status.meaning()));
    }
    let reads = data.last().copied().unwrap_or_default();
    match Connection::accept(data, &LIMITS, reads) {
        Ok(accepted) => {
            assert!(accepted.sends > 0 && accepted.sends + accepted.operations <= LIMITS.send_queue_entries);
            assert!((1..=LIMITS.reads).contains(&accepted.reads) && accepted.receives >= 2);
        }
        Err(status) => assert!(status.name().is_some(), "a code that no host understands"),
    }
}

/// Conversations in which everything comes in any order.
pub fn rdma_conversation(data: &[u8]) {
    let [entries, reads, room, acts @ ..] = data else { return };
    let size =
        Size { entries: 2 + u16::from(entries % 30), reads: reads % 20, send_queue_entries: 32 + u32::from(room % 64) };
    let mut conversation = Conversation::new(size);
    for act in acts.chunks_exact(2).take(2000) {
        conversation.act(Act::from_bytes([act[0], act[1]]));
    }
    conversation.finish_all();
}

/// Capsules of a host. Each is preceded by its length; what happens to the commands follows from
/// their CIDs.
pub fn rdma_controller(mut data: &[u8]) {
    let request = ConnectRequest { qid: QueueId(1), host_receives: 8, entries: 16, cntlid: ControllerId(0) };
    let mut connection = Connection::accept(&request.encode(), &LIMITS, 4).expect("a good request").connection;
    connection.on_established();
    let mut lengths = BTreeMap::new();
    let mut tag = 0;
    while let [length, rest @ ..] = data {
        let (capsule, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        let command = match connection.receive(capsule) {
            Ok(command) => command,
            Err(FatalError::ShortCommand { length }) => {
                assert!(length == capsule.len() && length < 64);
                continue;
            }
            Err(error) => {
                assert_eq!(error, FatalError::TooManyCommands { entries: 16 });
                return;
            }
        };
        tag += 1;
        let cid = command.sqe.cid();
        match command.data {
            Err(status) => {
                assert!(!status.is_success());
                connection.respond(&Cqe::new(cid, status), None);
            }
            Ok(Location::None) => connection.respond(&Cqe::new(cid, Status::SUCCESS), None),
            Ok(Location::InCapsule { offset, length }) => {
                assert!(
                    offset >= 64 && capsule.get(offset as usize..).is_some_and(|data| data.len() >= length as usize)
                );
                connection.respond(&Cqe::new(cid, Status::SUCCESS), None);
            }
            Ok(Location::Remote(segments)) => {
                assert_eq!(Segments::from_pointer(&command.sqe.data_pointer()), Some(segments));
                lengths.insert(tag, segments.length());
                if cid.0 & 1 == 0 {
                    assert!(connection.read(tag, segments, segments.length()));
                }
                if cid.0 & 2 == 0 {
                    connection.cancel(tag);
                    connection.respond_with_data(tag, segments, segments.length(), &Cqe::new(cid, Status::SUCCESS));
                }
            }
        }
        while cid.0 & 4 == 0
            && let Some(work) = connection.poll_work(usize::from(cid.0 & 1))
        {
            done(&mut connection, &lengths, &work);
        }
    }
}

/// The adapter does what was posted.
fn done(connection: &mut Connection, lengths: &BTreeMap<u32, u32>, work: &SendEntry) {
    match *work {
        SendEntry::Read { tag, offset, length, .. } | SendEntry::Write { tag, offset, length, .. } => {
            assert!(length > 0 && u64::from(offset) + u64::from(length) <= u64::from(lengths[&tag]));
            if let SendEntry::Read { .. } = work {
                assert!(connection.reads_under_way() <= 4);
                connection.on_read_done(tag);
            }
        }
        SendEntry::Send { .. } => connection.on_sent(),
    }
}

/// Response capsules of a controller, each with a byte that says what else happens.
pub fn rdma_host(data: &[u8]) {
    let config = host::ConnectionConfig { queue: QueueId(1), entries: 8, cntlid: ControllerId(0) };
    let mut connection = host::Connection::new(config);
    let mut out = [0; 64];
    for cid in 0..8_u16 {
        let remote = Remote { address: 0x1000, key: cid.into() };
        let transfer = CommandData::Keyed { remote, length: 512, invalidate: cid & 1 == 0 };
        connection.send_command(&mut Sqe { cid: cid.into(), ..Sqe::new(2) }, transfer, &mut out);
    }
    let mut outstanding = 8;
    for piece in data.chunks(17) {
        let (&what, capsule) = piece.split_first().expect("a chunk is not empty");
        outstanding -= usize::from(connection.on_sent(Cid(u16::from(what & 7))).is_some());
        let invalidated = (what & 8 != 0).then_some(u32::from(what >> 4));
        match connection.receive(capsule, invalidated) {
            Ok(completion) => outstanding -= usize::from(completion.is_some()),
            Err(FatalError::ResponseLength { length }) => assert!(length == capsule.len() && length != 16),
            Err(FatalError::WrongKey { key, .. }) => assert_eq!(Some(key), invalidated),
            Err(error) => assert!(matches!(error, FatalError::UnknownCommand { .. })),
        }
    }
    assert_eq!((0..8).filter(|cid| connection.is_outstanding(Cid(*cid))).count(), outstanding);
}

/// Inputs of [`rdma_conversation`].
#[must_use]
pub fn rdma_conversation_seeds() -> Vec<Vec<u8>> {
    let acts = |seed: u64| {
        let mut random = crate::random::Random::new(seed);
        random.bytes(403)
    };
    (0..8).map(acts).collect()
}
