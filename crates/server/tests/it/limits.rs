//! The promised limits can be reached: queues of a controller, entries of a queue, namespaces of a
//! subsystem.

use ebof_initiator::{AdminData, Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{NQN, one_subsystem};

const QUEUES: u16 = 1024;
const NAMESPACES: u32 = 1024;

// @test limits.queues
#[test]
fn a_controller_has_1024_queues_of_1024_entries_and_1024_namespaces() {
    // Both ends of every queue are in this process.
    let descriptors = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: descriptors.maximum, maximum: descriptors.maximum }).unwrap();
    if descriptors.maximum.is_some_and(|maximum| maximum < 8 * u64::from(QUEUES)) {
        println!("SKIPPED: this process may have {:?} open files only", descriptors.maximum);
        return;
    }
    let config = one_subsystem(std::iter::repeat_n("mem:64Ki", NAMESPACES as usize));
    let target = Target::start(config, Settings { threads: Some(2), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;

    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = QUEUES;
    options.queue_size = 1024;
    let controller = Controller::connect(&options).unwrap();
    assert_eq!((controller.io_queues(), controller.queue_entries()), (QUEUES, 1024));
    let namespaces = controller.namespaces().unwrap();
    assert_eq!((namespaces.len(), namespaces[1023]), (1024, Nsid(NAMESPACES)));

    let mut queues: Vec<QueuePair<Vec<u8>>> = (0..QUEUES).map(|_| controller.queue_pair().unwrap()).collect();
    for (at, queue) in queues.iter_mut().enumerate() {
        let block = BlockRange::new(at as u64 % 128, 1).encode(nvm::WRITE, Nsid(at as u32 + 1));
        let cqe = queue.execute(block, AdminData::FromHost(&[at as u8; 512])).unwrap();
        assert!(cqe.status().is_success(), "queue {}: {}", queue.id(), cqe.status());
    }
    // One queue has its announced depth: as many commands are outstanding at once.
    let queue = &mut queues[777];
    for at in 0..queue.capacity() {
        let read = BlockRange::new(at as u64 % 128, 1).encode(nvm::READ, Nsid(at as u32 % NAMESPACES + 1));
        queue.submit(read, Data::ToHost(vec![0xff; 512]), at as u64).unwrap();
    }
    assert_eq!(queue.in_flight(), 1023);
    while queue.in_flight() > 0 {
        let completion = queue.wait(None).unwrap().unwrap();
        assert!(completion.result.unwrap().status().is_success());
        let at = completion.user as usize;
        let expected = if at < 1024 { at as u8 } else { 0 };
        assert!(completion.data.into_buffer().unwrap().iter().all(|&byte| byte == expected), "command {at}");
    }
}

/// A source range has 16 MiB at most, a Copy four such.
#[test]
fn a_host_copies_more_than_one_command_takes() {
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:160Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    let namespace = Controller::connect(&options).unwrap().namespace(Nsid(1)).unwrap();
    let data: Vec<u8> = (0..68 << 20).map(|at: usize| (at / 7 + at / 512) as u8).collect();
    namespace.write(7, &data, false).unwrap();
    let blocks = data.len() as u64 / 512;
    namespace.copy(&[(7, blocks), (9, 3)], 150_000).unwrap();
    let mut copied = vec![0; data.len() + 3 * 512];
    namespace.read(150_000, &mut copied).unwrap();
    assert!(copied == [&data, &data[2 * 512..5 * 512]].concat());
}
