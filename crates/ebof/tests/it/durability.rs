//! Data acknowledged after a flush or with FUA survive the end of the target during writes: by
//! `kill -9`, and by the signal with which an assertion that does not hold ends it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid, Sqe};

use crate::server::Server;

const NQN: &str = "nqn.2014-08.org.example:durable";
/// The ranges that are written, each of this many blocks of 512 bytes.
const SLOTS: usize = 200;
const BLOCKS: u32 = 8;
const SECTOR: usize = 512;
const ROUNDS: u64 = 25;

/// A file as one namespace.
fn start_plain(file: &Path) -> Server {
    Server::start(NQN, &[&format!("{},size=8Mi", file.display())])
}

/// A drive in a file, with a thin namespace that is created at the first start.
fn start_managed(file: &Path) -> Server {
    let new = !file.exists();
    let drive = format!("name=d0,backing={},size=16Mi,attach=everyone", file.display());
    let server = Server::start(NQN, &["--drive", &drive]);
    if new {
        let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}", server.port);
        let run = Command::new(env!("CARGO_BIN_EXE_ebof")).args(["create-ns", &uri, "-S", "8Mi"]).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    server
}

fn connect(server: &Server) -> Controller {
    let mut options = Options::new("127.0.0.1", server.port, Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 2; // one for verify, one for the writes
    options.queue_size = 64;
    Controller::connect(&options).unwrap()
}

/// The expected state of one range.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The oldest version that is possible.
    durable: u64,
    /// The version whose write completed last, durable or not.
    written: u64,
    /// The newest version that was sent.
    sent: u64,
    in_flight: bool,
}

/// A small random number generator: a round follows from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn content(slot: usize, version: u64) -> Vec<u8> {
    let mut data = vec![0; BLOCKS as usize * SECTOR];
    for (at, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
        sector[..8].copy_from_slice(&version.to_le_bytes());
        sector[8..16].copy_from_slice(&(slot as u64).to_le_bytes());
        let fill = (version as u8).wrapping_mul(37) ^ (slot as u8) ^ (at as u8);
        sector[16..].fill(fill);
    }
    data
}

/// An outstanding command.
enum Sent {
    Write {
        slot: usize,
        version: u64,
        fua: bool,
    },
    /// A flush, with the versions that were written when it was sent.
    Flush {
        written: Vec<u64>,
    },
}

/// Writes until `end`, and records what is acknowledged. Ends with the connection.
fn write_until_cut(
    queue: &mut QueuePair<Vec<u8>>,
    slots: &mut [Slot],
    random: &mut Random,
    mut cut: impl FnMut(usize),
) {
    let mut sent: Vec<Option<Sent>> = Vec::new();
    let mut acknowledged = 0;
    loop {
        while queue.in_flight() < 16 {
            let user = sent.len() as u64;
            let (what, sqe, data) = next_command(slots, random);
            if queue.submit(sqe, data, user).is_err() {
                return;
            }
            sent.push(Some(what));
        }
        let Ok(Some(completion)) = queue.wait(Some(Instant::now() + Duration::from_secs(20))) else { return };
        let Ok(cqe) = completion.result else { return };
        assert!(cqe.status().is_success(), "{}", cqe.status());
        match sent[completion.user as usize].take().unwrap() {
            Sent::Write { slot, version, fua } => {
                slots[slot].in_flight = false;
                slots[slot].written = version;
                if fua {
                    slots[slot].durable = version;
                }
            }
            Sent::Flush { written } => {
                for (slot, version) in slots.iter_mut().zip(written) {
                    slot.durable = slot.durable.max(version);
                }
            }
        }
        acknowledged += 1;
        cut(acknowledged);
    }
}

fn next_command(slots: &mut [Slot], random: &mut Random) -> (Sent, Sqe, Data) {
    if random.below(20) == 0 {
        let written = slots.iter().map(|slot| slot.written).collect();
        return (Sent::Flush { written }, Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), Data::None);
    }
    let slot = loop {
        let slot = random.below(slots.len() as u64) as usize;
        if !slots[slot].in_flight {
            break slot;
        }
    };
    let fua = random.below(4) == 0;
    slots[slot].in_flight = true;
    slots[slot].sent += 1;
    let version = slots[slot].sent;
    let mut range = BlockRange::new(slot as u64 * u64::from(BLOCKS), BLOCKS);
    range.fua = fua;
    let sqe = range.encode(nvm::WRITE, Nsid(1));
    (Sent::Write { slot, version, fua }, sqe, Data::FromHost(content(slot, version)))
}

/// Reads everything back; the versions found are the starting point of the next round.
fn verify(controller: &Controller, slots: &mut [Slot], round: u64) -> usize {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut checked = 0;
    for (at, slot) in slots.iter_mut().enumerate() {
        let mut data = vec![0; BLOCKS as usize * SECTOR];
        namespace.read(at as u64 * u64::from(BLOCKS), &mut data).unwrap();
        let mut oldest = u64::MAX;
        for (number, sector) in data.chunks_exact(SECTOR).enumerate() {
            let version = u64::from_le_bytes(sector[..8].try_into().unwrap());
            let allowed = slot.durable..=slot.sent;
            assert!(allowed.contains(&version), "round {round}, slot {at}: version {version}, allowed {allowed:?}");
            if version > 0 {
                let whole = content(at, version);
                let expected = &whole[number * SECTOR..][..SECTOR];
                assert!(
                    sector == expected,
                    "round {round}, slot {at}: sector {number} of version {version} is damaged"
                );
                checked += 1;
            }
            oldest = oldest.min(version);
        }
        *slot = Slot { durable: oldest, written: oldest, sent: slot.sent, in_flight: false };
    }
    checked
}

// @test data.durable-writes
#[test]
fn acknowledged_data_survive_a_killed_target() {
    let checked = survives(start_plain);
    println!("{checked} sectors compared over {ROUNDS} kills");
    assert!(checked > SLOTS);
}

/// Blocks of a drive are allocated at their first write: a kill may come before, during and after
/// its record in the journal.
#[test]
fn acknowledged_data_of_a_drive_survive_a_killed_target() {
    let checked = survives(start_managed);
    println!("{checked} sectors compared over {ROUNDS} kills");
    assert!(checked > SLOTS);
}

/// Ends a target during writes, again and again; returns how many sectors were compared.
fn survives(start: fn(&Path) -> Server) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let drive = directory.path().join("disk.img");
    let mut slots = [Slot::default(); SLOTS];
    let mut checked = 0;
    for round in 1..=ROUNDS {
        let mut random = Random(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut server = Some(start(&drive));
        let controller = connect(server.as_ref().unwrap());
        checked += verify(&controller, &mut slots, round);
        let mut queue = controller.queue_pair().unwrap();
        let kill_after = 1 + random.below(400) as usize;
        write_until_cut(&mut queue, &mut slots, &mut random, |acknowledged| {
            if acknowledged == kill_after {
                let server = server.take().unwrap();
                // As an assertion that does not hold ends it, every other time; else SIGKILL.
                if round % 2 == 0 { server.abort() } else { drop(server) }
            }
        });
        assert!(server.is_none(), "round {round}: the connection ended before the target was killed");
    }
    let server = start(&drive);
    checked += verify(&connect(&server), &mut slots, ROUNDS + 1);
    checked
}
