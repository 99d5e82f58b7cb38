//! What a host must not send: each violation has its status, and ends the connection only if no
//! command can be read.

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, QueueId, Sgl, Sqe, Status};
use ebof_rdma::FatalError;
use ebof_rdma::controller::{Connection, Limits, Location, Posting};
use ebof_rdma::private_data::{ConnectRequest, RejectStatus};
use ebof_testkit::rdma::LIMITS;
use zerocopy::IntoBytes;

const REQUEST: ConnectRequest =
    ConnectRequest { qid: QueueId(1), host_receives: 4, entries: 4, cntlid: ControllerId(0) };

fn connection() -> Connection {
    Connection::accept(&REQUEST.encode(), &LIMITS, 4).expect("a good request").connection
}

/// What a command with this SGL, and `behind` in its capsule, is answered with.
fn data(sgl: Sgl, behind: &[u8]) -> Result<Location, Status> {
    let sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(1) };
    connection().receive(&[sqe.as_bytes(), behind].concat()).expect("a command").data
}

// @test rdma.rejects
#[test]
fn requests_beyond_the_limits_are_rejected_with_the_code_for_it() {
    let status = |request: ConnectRequest, limits: &Limits| {
        Connection::accept(&request.encode(), limits, 4).map(|accepted| accepted.receives)
    };
    assert_eq!(status(REQUEST, &LIMITS), Ok(4));
    assert_eq!(status(ConnectRequest { qid: QueueId(9), ..REQUEST }, &LIMITS), Err(RejectStatus::INVALID_QID));
    for entries in [1, 129, 65536] {
        let request = ConnectRequest { entries, ..REQUEST };
        assert_eq!(status(request, &LIMITS), Err(RejectStatus::INVALID_HSQSIZE), "{entries}");
    }
    let admin = ConnectRequest { qid: QueueId::ADMIN, entries: 33, ..REQUEST };
    assert_eq!(status(admin, &LIMITS), Err(RejectStatus::INVALID_HSQSIZE));
    let mute = ConnectRequest { host_receives: 0, ..REQUEST };
    assert_eq!(status(mute, &LIMITS), Err(RejectStatus::INVALID_HRQSIZE));
    let small = Limits { send_queue_entries: 31, ..LIMITS };
    assert_eq!(status(REQUEST, &small), Err(RejectStatus::NO_RESOURCES));
}

#[test]
fn what_is_wrong_with_an_sgl_is_the_status_of_the_command() {
    let offset = Err(Status::SGL_OFFSET_INVALID.dnr());
    let kind = Err(Status::SGL_TYPE_INVALID.dnr());
    let segment = Err(Status::INVALID_SGL_SEGMENT.dnr());
    assert_eq!(data(Sgl::InCapsule { offset: 0, length: 9 }, &[0; 8]), offset);
    assert_eq!(data(Sgl::InCapsule { offset: 9, length: 0 }, &[0; 8]), offset);
    assert_eq!(data(Sgl::InCapsule { offset: u64::MAX, length: 2 }, &[0; 8]), offset);
    assert_eq!(data(Sgl::Transport { length: 512 }, &[]), kind);
    assert_eq!(data(Sgl::Unsupported { identifier: 0x20 }, &[]), kind);
    assert_eq!(data(Sgl::LastSegment { offset: 0, length: 0 }, &[0; 32]), segment);
    assert_eq!(data(Sgl::LastSegment { offset: 0, length: 24 }, &[0; 32]), segment);
    assert_eq!(data(Sgl::LastSegment { offset: 16, length: 32 }, &[0; 32]), offset);
    assert_eq!(data(Sgl::LastSegment { offset: 0, length: 32 }, &[0; 32]), kind);
    let count = Err(Status::INVALID_SGL_COUNT.dnr());
    assert_eq!(data(Sgl::LastSegment { offset: 0, length: 17 * 16 }, &[0; 17 * 16]), count);
}

#[test]
fn a_short_capsule_and_too_many_commands_end_the_connection() {
    let mut connection = connection();
    assert_eq!(connection.receive(&[0; 63]), Err(FatalError::ShortCommand { length: 63 }));
    for _ in 0..4 {
        assert!(connection.receive(&[0; 64]).is_ok());
    }
    connection.respond(&Cqe::new(Cid(0), Status::SUCCESS), None);
    assert_eq!(connection.receive(&[0; 64]), Err(FatalError::TooManyCommands { entries: 4 }), "it is not posted");
    connection.on_established();
    assert!(connection.poll_work(1).is_some());
    assert!(connection.receive(&[0; 64]).is_ok());

    let posting = connection.respond_now(None, 0, 2).expect("nothing waits");
    assert_eq!(posting, Posting { write: None, invalidate: None });
    assert!(connection.receive(&[0; 64]).is_err(), "it is not flushed");
    connection.on_flushed();
    assert!(connection.receive(&[0; 64]).is_ok());
}
