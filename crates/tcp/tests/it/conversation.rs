//! The host's end against the controller's end in memory, with the stream split at any byte.

use std::collections::BTreeSet;

use ebof_nvme::{Cid, Cqe, QueueId, Status, opcode};
use ebof_tcp::{Digest, FatalStatus, controller, host};
use ebof_testkit::random::Random;
use ebof_testkit::tcp::{Cut, Done, Host, Target, command, controller_config, exchange, host_config};

const DISK: usize = 1 << 20;

/// Both ends, initialized; the target's disk is random.
fn connected(host: host::ConnectionConfig, controller: controller::ConnectionConfig, cut: &mut Cut) -> (Host, Target) {
    let mut host = Host::new(host);
    let mut target = Target::new(controller, DISK);
    target.disk = Random::new(1).bytes(DISK);
    exchange(&mut host, &mut target, cut).expect("initialization");
    assert!(host.agreed.is_some());
    assert_eq!(host.agreed, target.connection.initialized());
    (host, target)
}

fn done(host: &mut Host, cid: u16) -> Done {
    let at = host.done.iter().position(|done| done.cid == Cid(cid)).expect("the command completed");
    host.done.remove(at)
}

/// Reads, writes in and out of the capsule, and a flush; the data are correct at both ends.
fn every_kind_of_transfer(host: &mut Host, target: &mut Target, cut: &mut Cut) {
    let data = Random::new(2).bytes(40_000);
    host.write(1, 4096, data.clone(), false);
    host.write(2, 65_536, data[..8192].to_vec(), true);
    host.write(3, 131_072, data[..1].to_vec(), true);
    host.write(6, 140_000, data[..4096].to_vec(), true);
    host.read(4, 200_000, 30_001);
    host.flush(5);
    exchange(host, target, cut).expect("nobody breaks the transport");
    for cid in [1, 2, 3, 5, 6] {
        assert_eq!(done(host, cid).status, Status::SUCCESS, "command {cid}");
    }
    assert_eq!(target.disk[4096..44_096], data);
    assert_eq!(target.disk[65_536..73_728], data[..8192]);
    assert_eq!(target.disk[131_072], data[0]);
    assert_eq!(target.disk[140_000..144_096], data[..4096]);
    let read = done(host, 4);
    assert_eq!((read.status, read.transferred), (Status::SUCCESS, 30_001));
    assert_eq!(read.data, target.disk[200_000..230_001]);
}

// @test wire.linux-parameters
#[test]
fn a_linux_like_host_reads_and_writes() {
    let mut cut = Cut::Never;
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut cut);
    every_kind_of_transfer(&mut host, &mut target, &mut cut);
    assert_eq!(host.r2ts_seen, 1);
}

// @test wire.linux-parameters
#[test]
fn digests_alignments_and_r2t_limits_combine() {
    for bits in 0..16 {
        let wanted = |bit: u32| if bits >> bit & 1 == 1 { Digest::Required } else { Digest::Allowed };
        for alignment in [4, 8, 16, 64, 100, 128] {
            let r2t_max = if bits & 4 == 0 { 1 } else { 4 };
            let host = host::ConnectionConfig { alignment, header_digest: wanted(0), data_digest: wanted(1), r2t_max };
            let pieces = if bits & 8 == 0 { 131_072 } else { 4096 };
            let controller = controller::ConnectionConfig {
                alignment: 64,
                h2c_data_max: pieces,
                r2t_bytes: 8192,
                c2h_success: bits & 8 == 0,
                ..controller_config()
            };
            let mut cut = Cut::Random(Random::new(u64::from(bits + alignment)), 3000);
            let (mut host, mut target) = connected(host, controller, &mut cut);
            let agreed = host.agreed.unwrap();
            assert_eq!((agreed.header_digest, agreed.data_digest), (bits & 1 != 0, bits & 2 != 0));
            assert_eq!(agreed.host_alignment, alignment);
            assert_eq!(agreed.controller_alignment, if alignment == 4 { 4 } else { 64 });
            target.connection.set_queue(QueueId(1), 128);
            target.connection.set_sq_flow_disabled(true);
            target.piece = 7000;
            every_kind_of_transfer(&mut host, &mut target, &mut cut);
            assert!(host.r2ts_seen <= usize::try_from(r2t_max).unwrap());
        }
    }
}

// @test wire.split-stream
#[test]
fn the_stream_may_be_split_at_every_byte() {
    let config = host::ConnectionConfig {
        alignment: 16,
        header_digest: Digest::Required,
        data_digest: Digest::Required,
        r2t_max: 3,
    };
    let controller = controller::ConnectionConfig { r2t_bytes: 4096, alignment: 8, ..controller_config() };
    for bytes in [1, 2, 3, 5, 7, 8, 9, 23, 24, 25, 31, 71, 72, 73, 76, 127, 128, 129] {
        let mut cut = Cut::Every(bytes);
        let (mut host, mut target) = connected(config, controller, &mut cut);
        every_kind_of_transfer(&mut host, &mut target, &mut cut);
    }
}

// @test wire.split-stream
#[test]
fn one_split_at_any_position_changes_nothing() {
    let config =
        host::ConnectionConfig { header_digest: Digest::Required, data_digest: Digest::Required, ..host_config() };
    let (mut host, _) = connected(config, controller_config(), &mut Cut::Never);
    host.write(1, 0, vec![7; 300], true);
    host.flush(2);
    let stream = host.out.clone();
    let expected = answer(config, &[&stream]);
    for at in 0..=stream.len() {
        let (front, back) = stream.split_at(at);
        assert_eq!(answer(config, &[front, back]), expected, "cut at {at}");
    }
}

/// The response of a new target to these reads after initialization.
fn answer(config: host::ConnectionConfig, reads: &[&[u8]]) -> Vec<u8> {
    let (_, mut target) = connected(config, controller_config(), &mut Cut::Never);
    for read in reads {
        target.receive(read).expect("legal bytes");
    }
    target.out
}

#[test]
fn a_successful_read_may_end_without_a_response() {
    let controller = controller::ConnectionConfig { c2h_success: true, ..controller_config() };
    let (mut host, mut target) = connected(host_config(), controller, &mut Cut::Never);
    let success = Cqe::new(Cid(1), Status::SUCCESS);
    assert!(!target.connection.success_allowed(&success), "the host may need SQHD");
    target.connection.set_sq_flow_disabled(true);
    assert!(target.connection.success_allowed(&success));
    assert!(!target.connection.success_allowed(&success.with_result(1)), "the result would be lost");
    assert!(!target.connection.success_allowed(&Cqe::new(Cid(1), Status::INVALID_FIELD)));
    host.read(1, 0, 4096);
    let request = std::mem::take(&mut host.out);
    target.receive(&request).unwrap();
    assert_eq!(target.out.len(), 24 + 4096, "one C2HData PDU and nothing else");
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 1).status, Status::SUCCESS);
}

#[test]
fn several_r2ts_are_outstanding_only_if_offered() {
    for (offered, expected) in [(1, 1), (2, 2), (3, 3), (16, 10), (u32::MAX, 10)] {
        let controller = controller::ConnectionConfig { r2t_bytes: 4096, ..controller_config() };
        let config = host::ConnectionConfig { r2t_max: offered, ..host_config() };
        let (mut host, mut target) = connected(config, controller, &mut Cut::Never);
        let data = Random::new(5).bytes(40_000);
        host.write(9, 0, data.clone(), false);
        exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
        assert_eq!(host.r2ts_seen, expected);
        assert_eq!(target.disk[..40_000], data);
    }
}

#[test]
fn digests_are_agreed_on_or_the_connection_ends() {
    use Digest::{Allowed, Refused, Required};
    for (host_wants, controller_has, expected) in [
        (Allowed, Allowed, Ok(false)),
        (Refused, Allowed, Ok(false)),
        (Required, Allowed, Ok(true)),
        (Required, Required, Ok(true)),
        (Allowed, Required, Err(11)),
        (Required, Refused, Err(11)),
    ] {
        for header in [false, true] {
            let pick = |digest| if header { (digest, Allowed) } else { (Allowed, digest) };
            let ((hh, hd), (ch, cd)) = (pick(host_wants), pick(controller_has));
            let mut host = Host::new(host::ConnectionConfig { header_digest: hh, data_digest: hd, ..host_config() });
            let controller = controller::ConnectionConfig { header_digest: ch, data_digest: cd, ..controller_config() };
            let mut target = Target::new(controller, DISK);
            match (exchange(&mut host, &mut target, &mut Cut::Never), expected) {
                (Ok(()), Ok(used)) => {
                    let agreed = host.agreed.unwrap();
                    assert_eq!(if header { agreed.header_digest } else { agreed.data_digest }, used);
                }
                (Err(error), Err(offset)) => {
                    assert_eq!(error.status, FatalStatus::UnsupportedParameter);
                    assert_eq!(error.field_offset(), Some(offset));
                }
                (got, expected) => panic!("{host_wants:?} and {controller_has:?}: {got:?} instead of {expected:?}"),
            }
        }
    }
}

// @test wire.data-digest
#[test]
fn a_wrong_data_digest_fails_the_command_and_not_the_connection() {
    let config = host::ConnectionConfig { data_digest: Digest::Required, r2t_max: 2, ..host_config() };
    let controller = controller::ConnectionConfig { r2t_bytes: 4096, ..controller_config() };
    let (mut host, mut target) = connected(config, controller, &mut Cut::Never);
    let before = target.disk.clone();

    host.write(1, 0, vec![1; 512], true);
    let last = host.out.len() - 1;
    host.out[last] ^= 1;
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 1).status, Status::TRANSIENT_TRANSPORT_ERROR);

    // Three R2Ts' worth: the first PDU is damaged, the second R2T is already out, the third is
    // never sent.
    host.answers = false;
    host.write(2, 0, vec![2; 12_288], false);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    host.answer_r2ts();
    host.out[24] ^= 1;
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    let write = done(&mut host, 2);
    assert_eq!((write.status, write.transferred), (Status::TRANSIENT_TRANSPORT_ERROR, 8192));
    assert_eq!(target.disk, before, "damaged data are not stored");

    host.answers = true;
    host.read(3, 0, 4096);
    let request = std::mem::take(&mut host.out);
    target.receive(&request).unwrap();
    target.out[1000] ^= 1;
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 3).status, Status::TRANSIENT_TRANSPORT_ERROR);

    every_kind_of_transfer(&mut host, &mut target, &mut Cut::Never);
}

#[test]
fn data_of_an_abandoned_command_are_dropped() {
    let controller = controller::ConnectionConfig { r2t_bytes: 4096, ..controller_config() };
    for cut in [1, 100, 1_000_000] {
        let config = host::ConnectionConfig { r2t_max: 2, data_digest: Digest::Required, ..host_config() };
        let (mut host, mut target) = connected(config, controller, &mut Cut::Never);
        let before = target.disk.clone();
        host.answers = false;
        host.write(1, 0, vec![0xee; 20_000], false);
        exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
        host.answer_r2ts();
        let late = std::mem::take(&mut host.out);

        // The target aborts in the middle of the first PDU and completes; the CID is reused
        // immediately.
        let (front, back) = late.split_at(cut.min(2000));
        target.receive(front).unwrap();
        target.connection.abandon(Cid(1));
        target.awaiting.clear();
        target.connection.send_response(&Cqe::new(Cid(1), Status::ABORT_REQUESTED), &mut target.out);
        let response = std::mem::take(&mut target.out);
        host.receive(&response).unwrap();
        assert_eq!(done(&mut host, 1).status, Status::ABORT_REQUESTED);
        host.answers = true;
        host.write(1, 50_000, vec![0xaa; 9000], false);
        host.out.splice(0..0, back.iter().copied());
        exchange(&mut host, &mut target, &mut Cut::Every(cut)).unwrap();
        assert_eq!(done(&mut host, 1).status, Status::SUCCESS);
        assert_eq!(target.disk[50_000..59_000], [0xaa; 9000]);
        assert_eq!(target.disk[..50_000], before[..50_000], "no byte of the abandoned write was stored");
    }
}

/// A command is abandoned while data of another one arrive: those go on.
#[test]
fn abandoning_a_command_leaves_the_data_of_others() {
    for in_capsule in [false, true] {
        let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
        let before = target.disk.clone();
        host.answers = false;
        if !in_capsule {
            host.write(1, 0, vec![0xaa; 8000], false);
        }
        host.write(2, 50_000, vec![0xbb; 8000], false);
        exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
        if in_capsule {
            host.write(1, 0, vec![0xaa; 8000], true);
        }
        host.answer_r2ts();
        let (front, back) = host.out.split_at(2000);
        target.receive(front).unwrap();
        target.connection.abandon(Cid(2));
        target.awaiting.remove(&2);
        target.receive(back).unwrap();
        assert_eq!(target.disk[..8000], [0xaa; 8000], "in the capsule: {in_capsule}");
        assert_eq!(target.disk[8000..], before[8000..], "nothing of the abandoned write was stored");
    }
}

/// The tags of R2Ts that are outstanding are distinct however many entries a queue has.
#[test]
fn as_many_r2ts_are_outstanding_as_have_tags() {
    for (entries, expected) in [(128, 16), (4096, 16), (16_384, 4), (65_535, 1)] {
        let controller = controller::ConnectionConfig { r2t_bytes: 4096, ..controller_config() };
        let config = host::ConnectionConfig { r2t_max: 16, ..host_config() };
        let (_, mut target) = connected(config, controller, &mut Cut::Never);
        target.connection.set_queue(QueueId(1), entries);
        let mut out = Vec::new();
        target.connection.request_data(Cid(9), 80_000, &mut out).unwrap();
        let tags: BTreeSet<&[u8]> = out.chunks(24).map(|r2t| &r2t[10..12]).collect();
        assert_eq!((tags.len(), out.len()), (expected, expected * 24), "{entries} entries");
    }
}

/// The size of the queue comes while data are awaited: their tag stays good.
#[test]
fn a_transfer_outlives_the_size_of_its_queue() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    host.answers = false;
    host.write(1, 0, vec![0xaa; 8000], false);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    target.connection.set_queue(QueueId(1), 1024);
    host.answer_r2ts();
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 1).status, Status::SUCCESS);
    assert_eq!(target.disk[..8000], [0xaa; 8000]);
}

/// Bytes are counted as data of a command only once it was said where they belong.
#[test]
fn data_are_not_taken_before_they_are_announced() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    host.write(1, 0, vec![7; 512], true);
    let mut input = &host.out[..];
    let command = target.connection.poll_event(&mut input).unwrap();
    assert!(matches!(command, Some(controller::Event::Command { in_capsule: 512, .. })), "{command:?}");
    assert_eq!((target.connection.data_wanted(), target.connection.data_received(input)), (0, 0));
    let data = target.connection.poll_event(&mut input).unwrap();
    assert_eq!(data, Some(controller::Event::Data { cid: Cid(1), offset: 0, length: 512 }));
    assert_eq!((target.connection.data_wanted(), target.connection.data_received(input)), (512, 512));
    let end = target.connection.poll_event(&mut &input[512..]).unwrap();
    assert_eq!(end, Some(controller::Event::DataEnd { cid: Cid(1), digest_ok: true, complete: true }));
}

/// A command's number is in use until its completion, and so is each that shares its place.
#[test]
fn a_host_tells_which_commands_are_outstanding() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    host.flush(5);
    host.read(6, 0, 512);
    let outstanding = |host: &Host| [4, 5, 6, 7].map(|cid| host.connection.is_outstanding(Cid(cid)));
    assert_eq!(outstanding(&host), [false, true, true, false]);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(outstanding(&host), [false; 4]);
}

#[test]
fn abandoning_before_the_data_drops_them() {
    for in_capsule in [false, true] {
        let config = host::ConnectionConfig { data_digest: Digest::Required, ..host_config() };
        let (mut host, mut target) = connected(config, controller_config(), &mut Cut::Never);
        target.abandons.push(Cid(1));
        host.write(1, 0, vec![1; 4096], in_capsule);
        host.flush(2);
        exchange(&mut host, &mut target, &mut Cut::Every(50)).unwrap();
        assert_eq!(done(&mut host, 1).status, Status::ABORT_REQUESTED);
        assert_eq!(done(&mut host, 2).status, Status::SUCCESS);
    }
}

#[test]
fn a_stopped_transfer_ends_when_the_requested_data_have_arrived() {
    let controller = controller::ConnectionConfig { r2t_bytes: 4096, ..controller_config() };
    let config = host::ConnectionConfig { r2t_max: 2, ..host_config() };
    let (mut host, mut target) = connected(config, controller, &mut Cut::Never);
    host.answers = false;
    host.write(1, 0, vec![3; 40_000], false);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert!(target.connection.stop_requesting(Cid(1)));
    assert!(!target.connection.stop_requesting(Cid(2)), "nothing is outstanding for a command without data");
    host.answers = true;
    host.answer_r2ts();
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 1).transferred, 8192);
}

#[test]
fn the_slot_of_an_abandoned_command_is_reused_only_after_its_data() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    target.connection.set_queue(QueueId(1), 1);
    host.answers = false;
    host.write(1, 0, vec![1; 1000], false);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    host.answer_r2ts();
    let late = std::mem::take(&mut host.out);
    target.receive(&late[..100]).unwrap();
    target.connection.abandon(Cid(1));
    assert!(target.connection.request_data(Cid(2), 512, &mut target.out).is_err(), "its data are arriving");
    target.receive(&late[100..]).unwrap();
    target.connection.request_data(Cid(2), 512, &mut target.out).unwrap();
    let first = target.out.split_off(0);

    // Reused before any data arrived: the new R2T has another tag, and the late data end the
    // connection.
    target.connection.abandon(Cid(2));
    target.connection.request_data(Cid(3), 512, &mut target.out).unwrap();
    assert_ne!(first[10..12], target.out[10..12]);
    let mut late = late[..24 + 512].to_vec();
    late[4..20].copy_from_slice(&[24, 2, 0, 0, 2, 0, first[10], first[11], 0, 0, 0, 0, 0, 2, 0, 0]);
    let error = target.receive(&late).unwrap_err();
    assert_eq!((error.status, error.information), (FatalStatus::InvalidHeaderField, 8));
}

#[test]
fn more_writes_than_the_queue_holds_are_refused_one_by_one() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    host.connection.set_queue_entries(64);
    host.answers = false;
    for cid in 0..40 {
        host.write(cid, u32::from(cid) * 100, vec![1; 100], false);
    }
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(host.done.len(), 8, "32 have room before Connect told the queue's size");
    host.answers = true;
    host.answer_r2ts();
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(host.done.iter().filter(|done| done.status == Status::SUCCESS).count(), 32);
    host.done.clear();
    target.connection.set_queue(QueueId(1), 64);
    for cid in 0..64 {
        host.write(cid, u32::from(cid) * 100, vec![1; 100], false);
    }
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert!(host.done.iter().all(|done| done.status == Status::SUCCESS));
}

// @test limits.in-capsule
#[test]
fn in_capsule_limits_differ_between_queues_and_commands() {
    let controller = controller::ConnectionConfig { in_capsule_bytes: 4096, ..controller_config() };
    let (mut host, mut target) = connected(host_config(), controller, &mut Cut::Never);
    host.write(1, 0, vec![1; 8192], true);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    assert_eq!(done(&mut host, 1).status, Status::SUCCESS);
    target.connection.set_queue(QueueId(3), 32);
    host.write(1, 0, vec![1; 4096], true);
    exchange(&mut host, &mut target, &mut Cut::Never).unwrap();
    // Fabrics commands (authentication, for one) may always carry 8192 bytes.
    let mut fabrics = command(opcode::FABRICS, 3, 0);
    host.connection.send_command(&mut fabrics, host::CommandData::InCapsule { payload: &[0; 8192] }, &mut host.out);
    host.out.extend([0; 8192]);
    let sent = std::mem::take(&mut host.out);
    target.receive(&sent).expect("within the limit");
    target.out.clear();
    host.write(2, 0, vec![1; 4097], true);
    let error = exchange(&mut host, &mut target, &mut Cut::Never).unwrap_err();
    assert_eq!(error.status, FatalStatus::LimitExceeded);
}

#[test]
fn a_term_req_is_received_and_ends_the_connection() {
    let (mut host, mut target) = connected(host_config(), controller_config(), &mut Cut::Never);
    host.out.extend([9; 64]);
    let error = exchange(&mut host, &mut target, &mut Cut::Never).unwrap_err();
    assert_eq!((error.status, error.information), (FatalStatus::InvalidHeaderField, 0));
    assert_eq!(target.receive(&[1; 100]), Ok(()), "what comes after is ignored");
    exchange(&mut host, &mut target, &mut Cut::Every(1)).unwrap();
    let termination = host.terminated.expect("the C2HTermReq arrived");
    assert_eq!((termination.status, termination.information), (1, 0));
    assert_eq!(host.receive(&[0xff; 10]), Ok(()), "what comes after is ignored");
}
