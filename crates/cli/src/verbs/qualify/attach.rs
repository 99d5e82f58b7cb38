//! Block devices of namespaces, for a file system on them: made by this program's own `connect`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ebof_qualify::device::{Device, Kind};
use ebof_qualify::file_system::{Attach, AttachedNamespace};
use serde_json::Value;

/// Connects by running this program.
#[derive(Default)]
pub(super) struct Connecting;

/// A connection that is ended when this is dropped.
struct Connected(String);

impl Attach for Connecting {
    fn attach(&self, device: &Device) -> Result<AttachedNamespace, String> {
        let Kind::Namespace(options, nsid) = &device.kind else { return Err("it is no namespace".to_owned()) };
        let port = options.trsvcid.to_string();
        let (transport, nqn) = (options.transport.protocol().name(), options.nqn.to_string());
        let host = options.host_nqn.to_string();
        let arguments =
            ["connect", "-t", transport, "-a", &options.traddr, "-s", &port, "-n", &nqn, "--hostnqn", &host, "-D"];
        let document = ebof(&arguments)?;
        let name = document["device"].as_str().ok_or("ebof connect names no device")?.to_owned();
        let connected = Connected(name);
        let namespaces = document["namespaces"].as_array().into_iter().flatten();
        let mut of_this = namespaces.filter(|namespace| namespace["nsid"].as_u64() == Some(nsid.0.into()));
        let path = of_this.find_map(|namespace| namespace["path"].as_str().map(PathBuf::from));
        let path = path.ok_or("this machine offers no block device for it (ublk, or FUSE and a loop device)")?;
        Ok(AttachedNamespace { path, guard: Box::new(connected) })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // What remains connected is shown by `ebof list`.
        let _still_connected = ebof(&["disconnect", "-d", &self.0]);
    }
}

/// What this program prints as JSON, or why it failed.
fn ebof(arguments: &[&str]) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = ebof_state::hand_on_runtime_directory(&mut Command::new(program))
        .args(["-o", "json"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if output.status.success() {
        return Ok(document);
    }
    let why = document["error"]["message"].as_str().unwrap_or("it failed");
    Err(format!("ebof {}: {why}", arguments.join(" ")))
}
