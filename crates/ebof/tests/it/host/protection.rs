//! Namespaces with protection information and the verbs `create-ns`, `format`, `read`, `write`,
//! `compare`, `verify`, `write-zeroes` and `copy`, block devices and `bench`.

use super::devices::can_attach;
use super::drive::{ALICE, NQN, Rig, until};

/// Alice's namespace of 4096 blocks.
fn create(rig: &Rig, args: &[&str]) {
    rig.host(ALICE, "create-ns", "", &[&["-s", "4096", "-c", "4096"], args].concat()).ok();
    rig.host(ALICE, "attach-ns", "", &["-n", "1", "-c", "0"]).ok();
}

#[test]
fn the_verbs_insert_check_and_strip_protection_information() {
    let rig = Rig::new("64Mi", "");
    // A separate buffer for metadata is not possible over fabrics; the hint says what is.
    let refused = rig.host(ALICE, "create-ns", "", &["-s", "8", "-c", "8", "-f", "2"]);
    assert!(refused.failed().contains("Invalid Format (SCT 1h, SC 0ah"), "{}", refused.stderr);
    assert!(refused.stderr.contains("0x10 of --flbas"), "{}", refused.stderr);
    create(&rig, &["-f", "0x12", "-d", "1"]);
    let id = rig.json(ALICE, "id-ns", "/1", &[]);
    assert_eq!((&id["flbas"], &id["dps"], &id["mc"], &id["dpc"]), (&0x12.into(), &1.into(), &1.into(), &0x1f.into()));
    assert_eq!(id["lbafs"].as_array().unwrap().len(), 4, "{id}");

    // A block without protection information, which the controller inserts, and one with it.
    let file = |name: &str, data: &[u8]| {
        let path = rig.directory.path().join(name);
        std::fs::write(&path, data).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let run = |verb: &str, words: &str| {
        let args: Vec<&str> = words.split(' ').collect();
        rig.host(ALICE, verb, "/1", &args)
    };
    let data = file("data", &[0x5a; 512]);
    run("write", &format!("-s 9 --prinfo 8 --ref-tag 9 --app-tag 0x1234 -d {data}")).ok();
    assert_eq!(run("read", "-s 9 --prinfo 12").stdout, [0x5a; 512]);
    let block = run("read", "-s 9 --prinfo 7 --ref-tag 9 --app-tag 0x1234 --app-tag-mask 0xffff").stdout;
    assert_eq!((block.len(), &block[..512], &block[514..]), (520, &[0x5a; 512][..], &[0x12, 0x34, 0, 0, 0, 9][..]));
    let extended = file("extended", &block);
    run("write", &format!("-s 9 --prinfo 7 -r 9 -a 0x1234 -m 0xffff -d {extended}")).ok();
    run("compare", &format!("-s 9 --prinfo 5 --ref-tag 9 -d {extended}")).ok();
    run("verify", "-s 9 --prinfo 5 --ref-tag 9").ok();

    // A mismatch is refused with the status and an explanation.
    for (verb, words, status, sentence) in [
        (
            "read",
            "-s 9 --prinfo 1 --ref-tag 8",
            "Invalid Protection Information (SCT 1h, SC 81h",
            "type 1 has its first",
        ),
        (
            "read",
            "-s 9 --prinfo 2 -a 0x1235 -m 0xffff",
            "Application Tag Check Error (SCT 2h, SC 83h",
            "--app-tag-mask",
        ),
        ("verify", "-s 9 --prinfo 8", "Invalid Protection Information", "compare and verify insert nothing"),
    ] {
        let refused = run(verb, words);
        assert!(refused.failed().contains(status) && refused.stderr.contains(sentence), "{}", refused.stderr);
    }
    let mut wrong = block.clone();
    wrong[100] ^= 1;
    let wrong = file("wrong", &wrong);
    assert!(
        run("write", &format!("-s 9 --prinfo 4 -d {wrong}")).failed().contains("Guard Check Error (SCT 2h, SC 82h")
    );
    assert_eq!(run("read", "-s 9 -z 520").stdout, block);
    run("write", &format!("-s 9 -d {wrong}")).ok();
    assert!(run("read", "-s 9 --prinfo 12").failed().contains("Guard Check Error"));
    let errors = rig.json(ALICE, "error-log", "", &["-e", "1"]);
    assert_eq!((&errors["errors"][0]["lba"], &errors["errors"][0]["nsid"]), (&9.into(), &1.into()), "{errors}");

    run("write-zeroes", "-s 9 -c 1 --prinfo 8 --ref-tag 9 --app-tag 7").ok();
    let zeros = run("read", "-s 9 -c 1 --prinfo 5 --ref-tag 9").stdout;
    assert_eq!(
        (&zeros[..512], &zeros[512..520], &zeros[1036..]),
        (&[0; 512][..], &[0, 0, 0, 7, 0, 0, 0, 9][..], &[0, 0, 0, 10][..])
    );
    run("copy", "-d 20 -s 9 -b 1 --prinfor 13 --expected-ref-tags 9 --prinfow 8 --ref-tag 20 --app-tag 8").ok();
    assert_eq!(run("read", "-s 21 -z 520").stdout[512..], [0, 0, 0, 8, 0, 0, 0, 21]);

    // Another format; unwritten blocks have FFh, and are not checked.
    run("format", "-l 3 --ms 1 --pi 3 --force").ok();
    let id = rig.json(ALICE, "id-ns", "/1", &[]);
    assert_eq!((&id["flbas"], &id["dps"], &id["nsze"]), (&0x13.into(), &3.into(), &512.into()));
    let block = run("read", "-s 9 --prinfo 6 -a 5 -m 0xffff -z 4104").stdout;
    assert_eq!((&block[..4096], &block[4096..]), (&[0; 4096][..], &[0xff; 8][..]));
    let no_type = run("format", "-l 3 --pi 3 --force");
    assert!(no_type.failed().contains("Invalid Format") && no_type.stderr.contains("--ms 1"), "{}", no_type.stderr);
}

#[test]
fn bench_verifies_protected_namespaces_and_refuses_other_metadata() {
    let rig = Rig::new("64Mi", "");
    let drive = rig.uri("");
    let uri = rig.uri("/1");
    rig.run(&["create-ns", &drive, "-s", "4096", "-c", "4096", "-f", "0x13", "-d", "2"]).ok();
    rig.run(&["attach-ns", &drive, "-n", "1", "-c", "0"]).ok();
    let bench = || {
        let args = [
            "bench",
            &uri,
            "--rw",
            "write",
            "--bs",
            "16k",
            "--size",
            "4M",
            "--iodepth",
            "8",
            "--runtime",
            "1",
            "--overwrite",
        ];
        rig.run(&[&args[..], &["--verify"]].concat())
    };
    let run = bench();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    rig.run(&["verify", &uri, "-c", "1023", "--prinfo", "5"]).ok();
    rig.run(&["format", &uri, "-l", "3", "--ms", "1", "--force"]).ok();
    let refused = bench();
    assert!(refused.stderr.contains("its blocks carry metadata"), "{}", refused.stderr);
}

#[test]
fn a_block_device_leaves_protection_information_to_the_controller() {
    if !can_attach() {
        eprintln!("skipped: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new("64Mi", "");
    let connected = rig.attach();
    let nvme = connected["device"].as_str().unwrap();
    rig.run(&["create-ns", nvme, "-s", "0x4000", "-c", "0x4000", "-f", "0x12", "-d", "1"]).ok();
    rig.run(&["attach-ns", nvme, "-n", "1", "-c", "0"]).ok();
    let disks = || rig.run(&["list", "-o", "json"]).json()["Devices"].as_array().unwrap().clone();
    until("the disk of the new namespace appears", || disks().iter().any(|disk| disk["DevicePath"].is_string()));
    let node = disks()[0]["DevicePath"].as_str().unwrap().to_owned();
    let pattern: Vec<u8> = (0..1_u32 << 20).map(|at| u8::try_from(at % 251).unwrap()).collect();
    std::fs::write(&node, &pattern).unwrap();
    std::fs::File::open(&node).unwrap().sync_all().unwrap();
    let read = rig.run(&["read", &rig.uri("/1"), "-z", "1048576", "--prinfo", "13"]);
    assert!(read.stdout == pattern, "what the disk has is in the namespace, with its tags: {}", read.stderr);
    assert_eq!(rig.run(&["disconnect", "-n", NQN]).ok(), format!("NQN:{NQN} disconnected 1 controller(s)\n"));
}

#[test]
fn a_namespace_with_metadata_becomes_a_block_device_as_the_message_says() {
    if !can_attach() {
        println!("SKIPPED: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let rig = Rig::new("64Mi", "");
    let drive = rig.uri("");
    for (nsid, format) in [("1", "0x12"), ("2", "0")] {
        rig.run(&["create-ns", &drive, "-s", "4096", "-c", "4096", "-f", format]).ok();
        rig.run(&["attach-ns", &drive, "-n", nsid, "-c", "0"]).ok();
    }
    let attached = rig.attach();
    let [with, without] = attached["namespaces"].as_array().unwrap().as_slice() else { panic!("{attached}") };
    let problem = with["problem"].as_str().unwrap_or_else(|| panic!("{attached}"));
    assert!(problem.contains("attach another namespace, or format it without: all its data are lost"), "{problem}");
    assert!(with["path"].is_null() && without["path"].is_string(), "{attached}");
    rig.run(&["disconnect-all"]).ok();
    rig.run(&["format", &rig.uri("/1"), "-l", "0", "--force"]).ok();
    let attached = rig.attach();
    assert!(attached["namespaces"][0]["path"].is_string(), "{attached}");
    rig.run(&["disconnect-all"]).ok();
}
