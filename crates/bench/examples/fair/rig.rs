//! A target whose drive has five functions, each with a namespace and a port, or five namespaces
//! and no functions; and loads of them at the same time.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ebof_bench::{Job, Mix, Report, Source, run};
use ebof_drive::{FunctionId, PortNames, Request, Share};
use ebof_initiator::{AdminData, Controller, Options};
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::identify::Csi;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, Nqn, Nsid, Sqe};
use ebof_server::{Environment, Settings, Target};
use zerocopy::IntoBytes;

use super::simulated::Made;

pub(crate) const FUNCTIONS: u16 = 5;
const NAMESPACE_BYTES: u64 = 64 << 20;
const DRIVE_BYTES: u64 = 512 << 20;
const NQN: &str = "nqn.2014-08.org.example:drive0";
const MANAGER: &str = "nqn.2014-08.org.example:manager";

/// What the drive is stored in.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    Simulated,
    Memory,
    File(PathBuf),
}

pub(crate) struct Rig {
    pub(crate) target: Target,
    address: SocketAddr,
    has_functions: bool,
    /// Hosts use the in-memory transport.
    pub(crate) in_memory: bool,
}

impl Rig {
    pub(crate) fn new(backing: &Backing, threads: usize, has_functions: bool) -> Self {
        let path = match backing {
            Backing::File(path) => path.with_extension(if has_functions { "shared" } else { "plain" }),
            Backing::Simulated | Backing::Memory => "made".into(),
        };
        let mut drive = ManagedDrive::new("d0", path.to_str().unwrap().parse().unwrap());
        drive.size_bytes = Some(DRIVE_BYTES);
        drive.functions = if has_functions { FUNCTIONS } else { 0 };
        drive.attach = if has_functions { Attach::Nobody } else { Attach::Everyone };
        drive.managers = Some(vec![Nqn::parse(MANAGER).unwrap()]);
        let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
        let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
        subsystem.allow_any_host = true;
        subsystem.ports = vec![port.name.clone()];
        let config =
            Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
        let mut settings = Settings { threads: Some(threads), pin: false, ..Settings::default() };
        if !matches!(backing, Backing::File(_)) {
            let simulated = matches!(backing, Backing::Simulated);
            let storage = Arc::new(Made { simulated, bytes: 2 * DRIVE_BYTES });
            settings.environment = Environment { storage, ..Environment::default() };
        }
        let target = Target::start(config, settings).unwrap();
        let address = target.addresses()[0].1;
        let rig = Self { target, address, has_functions, in_memory: false };
        let manager = Controller::connect(&rig.options(NQN)).unwrap();
        for function in 1..=FUNCTIONS {
            rig.make(&manager, function);
        }
        let fill = |_: &u16| Job { block_bytes: 128 << 10, depth: 16, runtime: None, ..Job::new(Mix::Write) };
        let numbers: Vec<u16> = (1..=FUNCTIONS).collect();
        rig.load(&numbers.iter().map(|number| (*number, fill(number))).collect::<Vec<_>>());
        rig
    }

    fn options(&self, nqn: &str) -> Options {
        let nqn = Nqn::parse(nqn).unwrap();
        let mut options = if self.in_memory {
            Options::loopback(self.target.loopback(&self.target.addresses()[0].0).unwrap(), nqn)
        } else {
            Options::new(self.address.ip().to_string(), self.address.port(), nqn)
        };
        options.set_host_nqn(Nqn::parse(MANAGER).unwrap());
        options
    }

    /// A namespace, and the function that has it.
    fn make(&self, manager: &Controller, function: u16) {
        let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
        let wanted = NewNamespace::new(NAMESPACE_BYTES / 512);
        let nsid = execute(manager, create.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()));
        if !self.has_functions {
            return;
        }
        let virtualize = |action, resource, count| {
            let cntlid = ControllerId(function);
            let command = VirtualizationManagement { cntlid, resource, action, count };
            execute(manager, command.encode(), AdminData::None);
        };
        for resource in [ResourceType::Queues, ResourceType::Interrupts] {
            virtualize(VirtualizationAction::Assign, resource, 9);
        }
        virtualize(VirtualizationAction::Online, ResourceType::Queues, 0);
        self.give(function, true);
        self.ask(Request::Map(Nsid(nsid), Some(FunctionId(function))));
    }

    /// Gives a function to the port, or takes it away.
    pub(crate) fn give(&self, function: u16, to_port: bool) {
        let port = to_port.then(|| self.target.addresses()[0].0.clone());
        self.ask(Request::GiveTo(FunctionId(function), PortNames::new(port).unwrap()));
    }

    fn ask(&self, request: Request) {
        self.target.ask_drive("d0", request).unwrap().unwrap();
    }

    pub(crate) fn set_share(&self, function: u16, share: Share) {
        if self.has_functions {
            self.ask(Request::SetShare(FunctionId(function), share));
        }
    }

    fn nqn(&self, function: u16) -> String {
        if self.has_functions { format!("{NQN}:vf{function}") } else { NQN.to_owned() }
    }

    /// The namespace of a function.
    fn source(&self, function: u16) -> Source {
        Source::Fabric(Box::new(self.options(&self.nqn(function))), Nsid(function.into()))
    }

    /// The same, for other programs.
    pub(crate) fn uri(&self, function: u16) -> String {
        format!("nvme+tcp://{}/{}/{function}", self.address, self.nqn(function))
    }

    /// The host that may use all of them.
    pub(crate) fn host(&self) -> &'static str {
        MANAGER
    }

    /// Runs these jobs of functions together.
    pub(crate) fn load(&self, jobs: &[(u16, Job)]) -> Vec<Report> {
        let run = |(function, job): &(u16, Job)| {
            let report = run(&self.source(*function), job, |_| ControlFlow::Continue(())).unwrap();
            assert_eq!((report.errors, &report.first_error), (0, &None));
            report
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(move || run(job))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Commands that a function has completed.
    pub(crate) fn commands(&self, function: u16) -> u64 {
        let of_function = format!(":vf{function}");
        let totals = self.target.totals();
        let mine = totals.iter().filter(|(series, _)| match self.has_functions {
            true => series.subsystem.ends_with(&of_function),
            false => series.nsid == u32::from(function),
        });
        mine.flat_map(|(_, kinds)| kinds).map(|kind| kind.commands).sum()
    }
}

/// Returns dword 0.
fn execute(controller: &Controller, sqe: Sqe, data: AdminData<'_>) -> u32 {
    let cqe = controller.admin(sqe, data, None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    u32::try_from(cqe.result() & 0xffff_ffff).unwrap()
}
