//! What earlier versions have stored is opened by this one: the media and the state directory of
//! each release, as a stop and a crash leave them. They are kept packed in `testdata/versions`, a
//! directory for each version, made by `keep_what_this_version_stores` with that version.

use std::path::{Path, PathBuf};
use std::process::Command;

use ebof_initiator::{Controller, Options};
use ebof_nvme::{HostId, Nqn, Nsid, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::program::ebof;
use crate::server::Server;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:earlier";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const HOST_ID: &str = "11111111-2222-3333-4444-555555555555";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:stored";
const BLOCK: usize = 4096;
/// More than a crash shall find written.
const WRITES: u64 = 48;

/// How the drives came to be as they are.
const STATES: [&str; 2] = ["stopped", "killed"];

/// What was acknowledged to hosts, and so has to be there.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Promised {
    /// Blocks from the first on that were written durably.
    blocks: u64,
    /// The namespace's NGUID, of each drive.
    nguids: Vec<String>,
    /// Keys of the registrants, of each drive.
    registrants: Vec<Value>,
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/versions")
}

fn tar(arguments: &[&str], directory: &Path, archive: &Path) {
    let run = Command::new("tar").args(arguments).arg(archive).arg("-C").arg(directory).arg(".").output().unwrap();
    assert!(run.status.success(), "{}: {}", archive.display(), String::from_utf8_lossy(&run.stderr));
}

/// The two drives of a directory: one as simple as can be, and one with everything.
fn serve(directory: &Path) -> Server {
    let at = |name: &str| directory.join(name).display().to_string();
    let plain = format!("name=plain,backing={},size=32Mi,attach=everyone", at("plain.img"));
    let sealed = format!(
        "name=sealed,backing={},size=32Mi,attach=everyone,checksums,encryption,key-file={},functions=2",
        at("sealed.img"),
        at("drive.key")
    );
    Server::start(NQN, &["--drive", &plain, "--drive", &sealed])
}

const DRIVES: [&str; 2] = ["plain", "sealed"];

fn verb(server: &Server, drive: &str, arguments: &[&str]) -> String {
    let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}:{drive}/1", server.port);
    let (verb, rest) = arguments.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
    command.args([verb, uri.as_str(), "--hostnqn", HOST, "--hostid", HOST_ID]).args(rest);
    let run = command.output().unwrap();
    assert!(run.status.success(), "{drive}: {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

fn connect(server: &Server, drive: &str) -> Controller {
    let mut options = Options::new("127.0.0.1", server.port, Nqn::parse(&format!("{NQN}:{drive}")).unwrap());
    options.nr_io_queues = 1;
    (options.host_nqn, options.host_id) = (Nqn::parse(HOST).unwrap(), HostId(Uuid::parse(HOST_ID).unwrap().0));
    Controller::connect(&options).unwrap()
}

fn content(block: u64) -> Vec<u8> {
    (0..BLOCK as u64).map(|at| (block * 31 + at * 7 + at / 256) as u8).collect()
}

/// What a host sees of the drives, apart from their data.
fn promised(server: &Server, blocks: u64) -> Promised {
    let json = |drive: &str, verbs: &[&str]| -> Value {
        serde_json::from_str(&verb(server, drive, &[verbs, &["-o", "json"]].concat())).unwrap()
    };
    let nguids = DRIVES.map(|drive| json(drive, &["id-ns"])["nguid"].as_str().unwrap().to_owned());
    let registrants = DRIVES.map(|drive| json(drive, &["resv-report", "--eds"])["regctlext"].clone());
    Promised { blocks, nguids: nguids.into(), registrants: registrants.into() }
}

/// Two drives with a namespace, a reservation that outlives power, and `WRITES` durable blocks.
fn make_drives(directory: &Path, state: &str) -> Promised {
    std::fs::write(directory.join("drive.key"), [7; 32]).unwrap();
    let server = serve(directory);
    for drive in DRIVES {
        verb(&server, drive, &["create-ns", "-S", "16Mi", "-b", "4096", "--nmic", "1"]);
        verb(&server, drive, &["resv-register", "--nrkey", "0x1234", "--cptpl", "3"]);
        verb(&server, drive, &["resv-acquire", "--crkey", "0x1234", "--rtype", "1"]);
    }
    let hosts = DRIVES.map(|drive| connect(&server, drive));
    let namespaces = hosts.each_ref().map(|host| host.namespace(Nsid(1)).unwrap());
    for block in 0..WRITES {
        for namespace in &namespaces {
            namespace.write(block, &content(block), true).unwrap();
        }
    }
    let promised = promised(&server, WRITES);
    if state == "killed" {
        // Writes are under way, of blocks behind those that were promised.
        for (drive, first) in
            DRIVES.into_iter().flat_map(|drive| (WRITES..2 * WRITES).step_by(8).map(move |lba| (drive, lba)))
        {
            let namespace = connect(&server, drive).namespace(Nsid(1)).unwrap();
            let mut blocks = (first..first + 8).cycle();
            std::thread::spawn(move || blocks.all(|lba| namespace.write(lba, &[9; BLOCK], false).is_ok()));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        server.abort();
    } else {
        drop((namespaces, hosts));
        server.terminate();
    }
    promised
}

/// A target that goes by its state directory, with something of everything in it. Gives what it has
/// in force.
fn make_state(directory: &Path) -> Value {
    let serving = start_state(directory);
    serving.told(&["target", "add", "port", "tcp://127.0.0.1:0", "--name", "a"]);
    serving.told(&["target", "add", "subsystem", SUBSYSTEM, "--host", HOST]);
    serving.told(&["target", "add", "namespace", SUBSYSTEM, "mem:1Mi"]);
    serving.told(&["target", "add", "key", HOST, "--output-file", "one.key"]);
    serving.told(&["target", "add", "key", HOST, "--kind", "tls", "--output-file", "two.key"]);
    std::fs::write(directory.join("password"), "Correct-Horse-9\n").unwrap();
    let account = ["target", "account", "add", "olga", "--role", "Operator", "--new-password-file", "password"];
    serving.told(&account);
    serving.told(&["target", "set", "port", "a", "ana.2=non-optimized"]);
    let told = in_force(&serving);
    // Killed.
    drop(serving);
    told
}

fn start_state(directory: &Path) -> Serving {
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--control", "control.sock", "--state", "state", "--https", "127.0.0.1:0"]);
    Serving::start(command, directory)
}

/// The configuration, the keys' names and the accounts.
fn in_force(serving: &Serving) -> Value {
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&serving.told(&[arguments, &["-o", "json"]].concat())).unwrap()
    };
    let exported = json(&["config", "export"])["configuration"].clone();
    serde_json::json!({
        "generation": exported["generation"],
        "revision": exported["revision"],
        "keys": json(&["target", "show", "keys"])["keys"],
        "accounts": json(&["target", "account", "list"])["accounts"],
    })
}

#[test]
#[ignore = "writes testdata/versions: to be run once, by the last commit of a release"]
fn keep_what_this_version_stores() {
    let version = kept().join(env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(&version).unwrap();
    let pack = |directory: &Path, name: &str| {
        tar(&["--sparse", "--sort=name", "-cJf"], directory, &version.join(format!("{name}.tar.xz")));
    };
    for state in STATES {
        let directory = tempfile::tempdir().unwrap();
        let promised = make_drives(directory.path(), state);
        std::fs::write(directory.path().join("promised.json"), serde_json::to_vec(&promised).unwrap()).unwrap();
        pack(directory.path(), state);
    }
    let directory = tempfile::tempdir().unwrap();
    let told = make_state(directory.path());
    std::fs::write(directory.path().join("promised.json"), told.to_string()).unwrap();
    pack(directory.path(), "state");
}

/// The versions that were kept, each unpacked: what `name` is.
fn unpacked(name: &str) -> Vec<(String, tempfile::TempDir)> {
    let versions: Vec<_> = std::fs::read_dir(kept()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!versions.is_empty(), "no version is kept");
    let unpack = |version: &PathBuf| {
        let directory = tempfile::tempdir().unwrap();
        tar(&["-xJf"], directory.path(), &version.join(format!("{name}.tar.xz")));
        (version.file_name().unwrap().to_str().unwrap().to_owned(), directory)
    };
    versions.iter().map(unpack).collect()
}

// @test drive.earlier-versions
#[test]
fn drives_of_earlier_versions_have_what_was_promised() {
    for state in STATES {
        for (version, directory) in unpacked(state) {
            let text = std::fs::read(directory.path().join("promised.json")).unwrap();
            let expected: Promised = serde_json::from_slice(&text).unwrap();
            // Twice: what this version makes of it stays good, too.
            for start in 0..2 {
                let server = serve(directory.path());
                let what = format!("{state} by {version}, start {start}");
                assert_eq!(promised(&server, expected.blocks), expected, "{what}");
                for drive in DRIVES {
                    let host = connect(&server, drive);
                    let namespace = host.namespace(Nsid(1)).unwrap();
                    let mut data = [0; BLOCK];
                    for block in 0..expected.blocks {
                        namespace.read(block, &mut data).unwrap();
                        assert!(data[..] == content(block), "{what}: block {block} of {drive}");
                    }
                    namespace.write(0, &content(0), true).unwrap();
                }
                server.terminate();
            }
        }
    }
}

// @test drive.earlier-versions
#[test]
fn state_directories_of_earlier_versions_are_gone_by() {
    for (version, directory) in unpacked("state") {
        let text = std::fs::read(directory.path().join("promised.json")).unwrap();
        let expected: Value = serde_json::from_slice(&text).unwrap();
        let serving = start_state(directory.path());
        assert_eq!(in_force(&serving), expected, "{version}");
        let listening = serving.started["listening"][0].as_str().unwrap();
        let mut host = ebof(directory.path());
        host.args(["id-ctrl", &format!("nvme+{listening}/{SUBSYSTEM}"), "--hostnqn", HOST]);
        host.args(["--dhchap-secret-file", "one.key"]);
        assert!(host.status().unwrap().success(), "{version}: its key is good");
        assert!(serving.told(&["target", "audit", "--verify"]).contains("as they were written"), "{version}");
        serving.told(&["config", "rollback", "2", "--yes"]);
    }
}
