//! The targets: their command lines and configurations, each with a drive on a port of its own.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::load::{Drive, Load, Schedule, Sock, Target};
use super::process::Process;
use super::resources::Resources;

/// The NQN of every target's subsystem.
pub(crate) const NQN: &str = "nqn.2014-08.org.example:bench";
/// The same for iSCSI.
pub(crate) const IQN: &str = "iqn.2014-08.org.example:bench";
/// Bytes of a logical block.
const BLOCK: u64 = 512;
/// Memory of SPDK's target for buffers, besides its drive.
const SPDK_MIB: u64 = 512;

/// A target that is listening.
pub(crate) struct Running {
    pub(crate) process: Option<Process>,
    pub(crate) port: u16,
}

/// Starts a target and waits until it listens.
///
/// # Errors
/// It does not start.
pub(crate) fn start(
    target: Target,
    load: &Load,
    (schedule, processors): (Schedule, &[usize]),
    resources: &Resources,
    interrupted: &dyn Fn() -> bool,
) -> Result<Running> {
    if target == Target::None {
        return Ok(Running { process: None, port: 0 });
    }
    let port = free_port()?;
    let command = match target {
        Target::None => Vec::new(),
        Target::Ebof { drive, threads } => ebof(drive, load.drive_mib, threads, port, resources),
        Target::Spdk { sock, drive } => spdk(sock, drive, load.drive_mib, port, resources)?,
        Target::Nbdkit => words(&format!("nbdkit -f -i 127.0.0.1 -p {port} memory {}M", load.drive_mib)),
        Target::QemuNbd => {
            let mut command = words(&format!("qemu-nbd -f raw -t -b 127.0.0.1 -p {port}"));
            command.push(resources.memory_file(load.drive_mib)?.into());
            command
        }
        Target::Tgt => tgt(port, resources),
    };
    let mut process = Process::start(&command, schedule, processors)?;
    process.wait_listening(port, interrupted)?;
    if target == Target::Tgt {
        configure_tgt(load.drive_mib, resources)?;
    }
    Ok(Running { process: Some(process), port })
}

/// A command line of words without spaces.
pub(crate) fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let socket = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(socket.local_addr()?.port())
}

fn ebof(drive: Drive, mib: u64, threads: Option<u16>, port: u16, resources: &Resources) -> Vec<OsString> {
    let mut command = vec![resources.ebof.clone().into_os_string()];
    command.extend(words(&format!("serve --listen tcp://127.0.0.1:{port} --nqn {NQN} --block-size {BLOCK}")));
    if let Some(threads) = threads {
        command.extend(words(&format!("--threads {threads}")));
    }
    command.push(match drive {
        Drive::Memory => format!("mem:{mib}Mi").into(),
        Drive::Null => format!("null:{mib}Mi").into(),
        Drive::File => {
            let mut spec = resources.file.clone().into_os_string();
            spec.push(",direct");
            spec
        }
    });
    command
}

fn spdk(sock: Sock, drive: Drive, mib: u64, port: u16, resources: &Resources) -> Result<Vec<OsString>> {
    let program = resources.spdk("nvmf_tgt")?;
    let configuration = resources.directory.join("spdk.json");
    fs::write(&configuration, spdk_configuration(sock, drive, mib, port)?).context("the configuration of SPDK")?;
    let mut command = vec![program.into_os_string()];
    let memory = resources.spdk_memory();
    command.extend(words(&format!("{memory} -s {} -m 0x1 -r", SPDK_MIB + mib)));
    command.push(resources.directory.join("spdk.sock").into());
    command.push("-c".into());
    command.push(configuration.into());
    Ok(command)
}

/// SPDK's configuration: RPC methods with their parameters, as JSON.
fn spdk_configuration(sock: Sock, drive: Drive, mib: u64, port: u16) -> Result<String> {
    let blocks = (mib << 20) / BLOCK;
    let device = match drive {
        Drive::Memory => "bdev_malloc_create",
        Drive::Null => "bdev_null_create",
        Drive::File => bail!("SPDK is not measured on files"),
    };
    let listen = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port.to_string()});
    let method = |name: &str, params| json!({"method": name, "params": params});
    let configuration = json!({"subsystems": [
        {"subsystem": "sock", "config": [method("sock_set_default_impl", json!({"impl_name": sock.name()}))]},
        {"subsystem": "bdev", "config": [
            method(device, json!({"name": "drive0", "num_blocks": blocks, "block_size": BLOCK})),
            json!({"method": "bdev_wait_for_examine"}),
        ]},
        {"subsystem": "nvmf", "config": [
            method("nvmf_create_transport", json!({"trtype": "TCP"})),
            method("nvmf_create_subsystem", json!({"nqn": NQN, "allow_any_host": true, "serial_number": "BENCH"})),
            method("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": {"nsid": 1, "bdev_name": "drive0"}})),
            method("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": listen})),
        ]},
    ]});
    Ok(configuration.to_string())
}

/// The environment that moves the control socket of tgtd and its tool to the run's directory.
fn tgt_environment(directory: &Path) -> OsString {
    let mut variable = OsString::from("TGT_IPC_SOCKET=");
    variable.push(directory.join("tgt.sock"));
    variable
}

fn tgt(port: u16, resources: &Resources) -> Vec<OsString> {
    let mut command = vec!["env".into(), tgt_environment(&resources.directory)];
    command.extend(words(&format!("tgtd -f --iscsi portal=127.0.0.1:{port}")));
    command
}

fn configure_tgt(mib: u64, resources: &Resources) -> Result<()> {
    let file = resources.memory_file(mib)?;
    let run = |arguments: &str, file: Option<&Path>| -> Result<()> {
        let mut command = Command::new("env");
        command.arg(tgt_environment(&resources.directory)).arg("tgtadm").args(["--lld", "iscsi"]);
        command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(file) = file {
            command.arg("-b").arg(file);
        }
        let status = command.status().context("tgtadm")?;
        if status.success() { Ok(()) } else { bail!("tgtadm {arguments}: {status}") }
    };
    run(&format!("--op new --mode target --tid 1 -T {IQN}"), None)?;
    run("--op new --mode logicalunit --tid 1 --lun 1", Some(&file))?;
    run("--op bind --mode target --tid 1 -I ALL", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spdk_gets_the_same_size() {
        let text = spdk_configuration(Sock::Uring, Drive::Null, 64, 4420).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let device = &value["subsystems"][1]["config"][0];
        assert_eq!(device["method"], "bdev_null_create");
        assert_eq!(device["params"]["num_blocks"].as_u64().unwrap() * BLOCK, 64 << 20);
        assert_eq!(value["subsystems"][0]["config"][0]["params"]["impl_name"], "uring");
        assert!(spdk_configuration(Sock::Posix, Drive::File, 64, 1).is_err());
    }
}
