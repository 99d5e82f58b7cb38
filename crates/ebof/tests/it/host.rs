//! The host verbs as users and scripts see them: the program against a target over loopback.

mod advice;
mod commands;
mod devices;
mod drive;
mod errors;
mod nvme_cli;
mod permissions;
mod protection;
mod schema;
mod services;
mod space;
mod verbs;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ebof_manage::config::{BlockSize, Digest, Host, ManagedDrive, Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_server::{Settings, Target};

pub(crate) use devices::can_attach;

const NQN: &str = "nqn.2014-08.org.example:drive0";
const PRIVATE_NQN: &str = "nqn.2014-08.org.example:private";
const SINGLE_NQN: &str = "nqn.2014-08.org.example:single";
const FRIEND_NQN: &str = "nqn.2014-08.org.example:friend";
/// Blocks of namespace 1, of 512 bytes.
const BLOCKS: u64 = 16_384;

/// A running target, and a state directory of its own.
struct Rig {
    target: Target,
    state: tempfile::TempDir,
}

/// The result of a run of the program.
struct Run {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Rig {
    /// A target with one drive, whose namespaces hosts manage.
    fn of_drive(backing: &str) -> Self {
        let drive = ManagedDrive::new("d0", backing.parse().unwrap());
        let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
        subsystem.allow_any_host = true;
        subsystem.ports = vec!["any".to_owned()];
        let mut port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
        "any".clone_into(&mut port.name);
        let config =
            Config { ports: vec![port], drives: vec![drive], subsystems: vec![subsystem], ..Config::default() };
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        Self { target: Target::start(config, settings).unwrap(), state: tempfile::tempdir().unwrap() }
    }

    fn new() -> Self {
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        Self { target: Target::start(config(), settings).unwrap(), state: tempfile::tempdir().unwrap() }
    }

    /// The address of a port: `any`, `discovery` or `plain` (without digests).
    fn address(&self, port: &str) -> SocketAddr {
        self.target.addresses().into_iter().find(|(name, _)| name == port).unwrap().1
    }

    /// The URI of a subsystem on the port `any`, with a suffix.
    fn uri(&self, nqn: &str, rest: &str) -> String {
        format!("nvme+tcp://{}/{nqn}{rest}", self.address("any"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
        command.args(args).env("EBOF_RUNTIME_DIR", self.state.path()).env_remove("EBOF_LOG").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        self.command(args).output().unwrap().into()
    }

    fn run_with_input(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }

    fn path(&self, name: &str) -> String {
        self.state.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Rig {
    /// A failed test must not leave an attach daemon behind, which would outlive the test run.
    fn drop(&mut self) {
        let _ended = self.command(&["disconnect-all", "--force"]).output();
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Run {
    /// The standard output of a successful run.
    fn ok(&self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The message of a failed run.
    #[track_caller]
    fn failed(&self) -> &str {
        self.ended_with(1)
    }

    /// The message of a run with an invalid command line.
    #[track_caller]
    fn misused(&self) -> &str {
        self.ended_with(2)
    }

    #[track_caller]
    fn ended_with(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stdout.is_empty());
        self.stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("{}", self.stderr))
    }

    /// The JSON document on standard output.
    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stderr))
    }
}

fn config() -> Config {
    let port = |id, name: &str| {
        let mut port = Port::new(id, Listen::new([127, 0, 0, 1].into(), 0));
        name.clone_into(&mut port.name);
        port
    };
    let discovery = Port { discovery_only: true, ..port(2, "discovery") };
    let plain = Port { header_digest: Digest::Off, data_digest: Digest::Off, ..port(3, "plain") };
    let friend = Nqn::parse(FRIEND_NQN).unwrap();
    let subsystem = |nqn: &str, ports: &[&str]| {
        let mut subsystem = Subsystem::new(Nqn::parse(nqn).unwrap());
        subsystem.allow_any_host = true;
        subsystem.ports = ports.iter().map(|&port| port.to_owned()).collect();
        subsystem
    };
    let mut drive = subsystem(NQN, &["any", "plain"]);
    for (nsid, size, block_size) in [(1, "mem:8Mi", BlockSize::B512), (2, "mem:16Mi", BlockSize::B4096)] {
        let mut namespace = Namespace::new(nsid, size.parse().unwrap());
        namespace.block_size = Some(block_size);
        namespace.write_protect = nsid == 2;
        drive.namespaces.push(namespace);
    }
    let mut private = subsystem(PRIVATE_NQN, &["any"]);
    private.allow_any_host = false;
    private.allowed_hosts = vec![friend.clone()];
    let mut single = subsystem(SINGLE_NQN, &["any"]);
    single.cntlid_min = 1;
    single.cntlid_max = 1;
    Config {
        ports: vec![port(1, "any"), discovery, plain],
        hosts: vec![Host::new(friend)],
        subsystems: vec![drive, private, single],
        ..Config::default()
    }
}

fn write(path: &str, bytes: &[u8]) {
    std::fs::write(Path::new(path), bytes).unwrap();
}
