//! Commands by their fields, properties, and verbs without other tests: against a target, by URI
//! and by a connected device.

use super::devices::can_attach;
use super::drive::Server;
use super::{NQN, Rig, write};

/// Identify Controller by its fields.
const IDENTIFY: [&str; 6] = ["-O", "6", "-4", "1", "-l", "4096"];

// @test output.any-command
#[test]
fn any_command_can_be_sent_by_its_fields() {
    let rig = Rig::new();
    passes_commands(&rig, &rig.uri(NQN, ""), &rig.uri(NQN, "/1"));
}

// @test output.any-command
#[test]
fn a_connected_device_accepts_any_command_and_shows_its_topology() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new();
    let address = rig.address("any");
    let port = address.port().to_string();
    let connect = ["connect", "-a", "127.0.0.1", "-s", &port, "-n", NQN, "-i", "1", "--front", "loop", "-o", "json"];
    let connected = rig.run(&connect).json();
    let nvme = connected["device"].as_str().unwrap();
    let name = connected["namespaces"][0]["name"].as_str().unwrap();
    let node = connected["namespaces"][0]["path"].as_str().unwrap();
    passes_commands(&rig, nvme, name);
    assert_eq!(rig.run(&["get-ns-id", node]).ok(), format!("{node}: namespace-id: 1\n"));

    let text = rig.run(&["show-topology"]).ok();
    let way = format!("{nvme} tcp traddr=127.0.0.1,trsvcid={port} live optimized {node}");
    assert!(text.contains(&format!("NQN={NQN}\n")) && text.contains(&format!(" +- ns 1\n \\\n  +- {way}\n")), "{text}");
    let text = rig.run(&["show-topology", "--ranking", "ctrl"]).ok();
    assert!(text.contains(&format!("  +- ns 1 live optimized {node}\n")), "{text}");
    let json = rig.run(&["show-topology", "-o", "json"]).json();
    assert_eq!(json[0]["Subsystems"][0]["Namespaces"][1]["NSID"], 2, "{json}");
    assert_eq!(json[0]["Subsystems"][0]["Namespaces"][0]["Paths"][0]["DevicePath"], node, "{json}");
    rig.run(&["disconnect", "-d", nvme]).ok();
}

fn passes_commands(rig: &Rig, controller: &str, namespace: &str) {
    let run = |verb: &str, device: &str, args: &[&str]| rig.run(&[&[verb, device], args].concat());
    // The data are those of id-ctrl.
    let identify = run("admin-passthru", controller, &[&IDENTIFY[..], &["-b"]].concat());
    assert_eq!((identify.code, identify.stdout.len()), (Some(0), 4096), "{}", identify.stderr);
    assert!(identify.stdout[..72] == rig.run(&["id-ctrl", controller, "-b"]).stdout[..72], "vendor to revision");
    assert!(identify.stderr.contains("admin-passthru: Identify Success, result: 0x0"), "{}", identify.stderr);
    let text = run("admin-passthru", controller, &IDENTIFY).ok();
    assert!(text.contains("0000: ") && text.lines().count() == 257, "{text}");
    // Get Features, Number of Queues: the result is in the completion.
    let json = run("admin-passthru", controller, &["-O", "0xa", "--cdw10", "7", "-o", "json"]).json();
    assert_eq!(json["name"], "Get Features", "{json}");
    assert!(json["result"].as_u64().unwrap() > 0 && json["data_size"] == 0, "{json}");

    let out = rig.path("out");
    let back = rig.path("back");
    write(&out, &[0x5a; 300]);
    let args = ["-O", "1", "-l", "512", "-i", &out, "-p", "0xee", "--cdw10", "5", "-s", "-T"];
    let sent = run("io-passthru", namespace, &args);
    assert_eq!(sent.ok(), "io-passthru: Write Success, result: 0x0\n");
    assert!(sent.stderr.contains("cdw10        : 00000005") && sent.stderr.contains("latency: io-passthru: "));
    run("io-passthru", namespace, &["-O", "2", "-l", "512", "-i", &back, "-4", "5"]).ok();
    let expected = [[0x5a; 300].as_slice(), &[0xee; 212]].concat();
    assert!(std::fs::read(&back).unwrap() == expected, "what was written is read, --prefill behind it");

    // Shown and not sent: the block is unchanged.
    let shown = run("io-passthru", namespace, &["-O", "8", "-4", "5", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    assert!(shown.ok().starts_with("opcode       : 08\nflags        : 00\nnsid         : 00000001\n"));
    assert!(run("io-passthru", namespace, &["-O", "2", "-l", "512", "-4", "5", "-b"]).stdout == expected);
    for (verb, args) in [
        ("admin-passthru", ["-O", "0xff"].as_slice()),
        ("admin-passthru", &["-O", "6", "-4", "0xff", "-l", "4096"]),
        ("io-passthru", &["-O", "2", "-4", "99999999", "-l", "512"]),
    ] {
        assert!(run(verb, namespace, args).failed().contains("the controller answered"), "{verb} {args:?}");
    }
    shows_properties(rig, controller, namespace);
}

fn shows_properties(rig: &Rig, controller: &str, namespace: &str) {
    assert_eq!(rig.run(&["get-ns-id", namespace]).ok(), format!("{namespace}: namespace-id: 1\n"));
    assert!(rig.run(&["get-ns-id", controller]).misused().contains("names a controller"));
    let get = |args: &[&str]| rig.run(&[&["get-property", controller], args].concat());
    assert_eq!(get(&["-O", "0x14"]).ok(), "property: 0x14 (Controller Configuration), value: 460001\n");
    assert!(get(&["-O", "0x1c", "-H"]).ok().contains("Ready (RDY)"));
    let cap = get(&["-O", "0", "-o", "json"]).json();
    assert_eq!((&cap["symbol"], &cap["offset"]), (&"cap".into(), &0.into()));
    assert!(cap["number"].as_u64().unwrap() > u64::from(u32::MAX), "all 64 bits: {cap}");
    assert_eq!(cap["value"], format!("{:x}", cap["number"].as_u64().unwrap()), "as in nvme-cli: {cap}");
    assert!(get(&["-O", "0x20"]).failed().contains("no property at offset 0x20"));
    // CC as it is: nothing changes.
    let set = rig.run(&["set-property", controller, "-O", "0x14", "-V", "0x460001"]);
    assert_eq!(set.ok(), "set-property: 0x14 (Controller Configuration), value: 460001\n");
    let refused = rig.run(&["set-property", controller, "-O", "8", "-V", "1"]);
    assert!(refused.failed().contains("Invalid Field in Command"), "{}", refused.stderr);
    let reset = rig.run(&["subsystem-reset", controller]);
    assert!(reset.failed().contains("CAP.NSSRS is 0. Nothing was sent"), "{}", reset.stderr);
    let ana = rig.run(&["ana-log", controller, "-o", "json"]).json();
    assert_eq!((&ana["groups"][0]["grpid"], &ana["groups"][0]["state"]), (&1.into(), &"optimized".into()), "{ana}");
}

/// `ebof serve` with these arguments on a free port; its message if it does not start.
fn serve_refuses(rig: &Rig, args: &[&str]) -> String {
    let run = rig.run(&[&["serve", "--threads", "1"], args].concat());
    // 2 for errors of the command line, 1 for errors of a file; other tests check which.
    if run.code == Some(2) { run.misused().to_owned() } else { run.failed().to_owned() }
}

/// Each hint works as printed.
// @test output.serve-advice
#[test]
fn hints_of_serve_work() {
    let rig = Rig::new();
    let serves = |args: &[&str]| drop(Server::start(NQN, &[args, &["--threads", "1"]].concat()));
    let path = |name: &str| rig.path(name);

    // A file that may not be written: with `readonly`, as the message says.
    let read_only = path("read-only.img");
    write(&read_only, &[0; 8192]);
    let mut permissions = std::fs::metadata(&read_only).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&read_only, permissions).unwrap();
    let told = serve_refuses(&rig, &[&read_only]);
    assert!(told.contains(&format!("`{read_only},readonly`")), "{told}");
    serves(&[&format!("{read_only},readonly")]);

    // Not a multiple of the block size: smaller blocks, or a larger file.
    let small = path("small.img");
    write(&small, &[0; 4608]);
    let told = serve_refuses(&rig, &[&small, "--block-size", "4096"]);
    assert!(told.contains("serve: `--block-size 512`") && told.contains("`truncate -s '>8192' "), "{told}");
    serves(&[&small, "--block-size", "512"]);
    let told = serve_refuses(&rig, &[&format!("{small},block=512")]);
    assert!(told.contains("--block-size 512 or 4096"), "{told}");
    std::fs::OpenOptions::new().write(true).open(&small).unwrap().set_len(8192).unwrap();
    serves(&[&small, "--block-size", "4096"]);

    // A size in the backing, a missing file, a size of the wrong unit.
    let backing = path("z.img");
    let told = serve_refuses(&rig, &["--drive", &format!("name=d0,backing={backing}:16Mi")]);
    assert!(told.contains(&format!("write backing={backing},size=16Mi")), "{told}");
    serves(&["--drive", &format!("name=d0,backing={backing},size=16Mi")]);
    let missing = path("missing.img");
    let told = serve_refuses(&rig, &[&missing]);
    assert!(told.contains(&format!("(for example {missing}:10G)")), "{told}");
    serves(&[&format!("{missing}:10G")]);
    let binary = path("binary.img");
    serves(&[&format!("{binary}:1Mi")]);
    let told = serve_refuses(&rig, &[&format!("{binary}:1M")]);
    assert!(told.contains("write the size as 1Mi or leave it out"), "{told}");
    serves(&[&format!("{binary}:1Mi")]);
    serves(&[&binary]);

    // The requested port stays in the example.
    let told = serve_refuses(&rig, &["mem:1M", "--listen", "tcp://localhost:0"]);
    assert!(told.contains("write \"tcp://127.0.0.1:0\""), "{told}");
    // That is what each of these listens on.
    serves(&["mem:1M"]);
    let told = serve_refuses(&rig, &["mem"]);
    assert!(told.contains("write \"mem:1G\""), "{told}");
    serves(&["mem:1G"]);
}

#[test]
fn mistakes_on_the_command_line_have_no_position_in_a_file() {
    let rig = Rig::new();
    let told = serve_refuses(&rig, &["mem:1M", "--serial", "123456789012345678901"]);
    assert!(told.starts_with("`serial` has 21 characters\n  accepted: 1 to 20"), "{told}");
    let told =
        told + &serve_refuses(&rig, &["mem:1M", "--listen", "tcp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"]);
    assert!(told.contains("is used twice") && !told.contains("line 1"), "{told}");
    assert!(!told.contains("command line:") && !told.contains(" | "), "{told}");
}

#[test]
fn a_target_without_managed_namespaces_reports_that() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let run = rig.run(&["create-ns", &controller, "-S", "1M"]);
    assert!(run.failed().contains("does not manage namespaces: its target offers fixed ones"), "{}", run.stderr);
    assert!(run.stderr.contains("`ebof serve --drive name=d0,backing=PATH,size=SIZE`"), "{}", run.stderr);
    assert_eq!(rig.run(&["flush", &controller]).ok(), "flush: Success\n");
}

#[test]
fn help_version_and_the_page_of_a_verb_are_shown() {
    let rig = Rig::new();
    assert_eq!(rig.run(&["help"]).ok(), rig.run(&["--help"]).ok());
    assert_eq!(rig.run(&["help", "connect"]).ok(), rig.run(&["connect", "--help"]).ok());
    assert_eq!(rig.run(&["version"]).ok(), rig.run(&["--version"]).ok());
    let unknown = rig.run(&["help", "conect"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("'connect'"), "{}", unknown.stderr);
    let page = rig.run(&["man", "connect"]).ok();
    assert!(page.contains(".TH ebof-connect 1") && page.contains("\\-\\-traddr"), "{page}");
    assert!(rig.run(&["man"]).ok().contains(".TH ebof 1"));
}

#[test]
fn dataset_management_accepts_all_bits_of_dword_11() {
    let rig = Rig::new();
    let uri = rig.uri(NQN, "/1");
    let dsm = |attributes: &[&str]| {
        let run = rig.run(&[&["dsm", uri.as_str(), "-s", "0", "-b", "8", "-o", "json"], attributes].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.json()["deallocate"].as_bool().unwrap()
    };
    assert!(dsm(&["--cdw11", "4"]) && dsm(&["-c", "0x7"]) && !dsm(&["-c", "3"]));
    assert_eq!(rig.run(&["dsm", &uri, "-s", "0", "-b", "8", "-d", "-c", "4"]).code, Some(2));
    // Values are sent as given.
    let shown = rig.run(&["dsm", &uri, "-s", "0", "-b", "8", "-c", "0x104", "--dry-run"]).ok();
    assert!(shown.contains("00000104"), "{shown}");
}
