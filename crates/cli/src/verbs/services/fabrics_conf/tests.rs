//! What `nvme-fabrics.conf` means, and what is told of one that is wrong.

use super::*;

const MAIN: &str = "nvme-fabrics.conf";

fn named(files: &[(&str, &str)]) -> (Named, String) {
    let texts: Vec<_> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let mut named = Named::default();
    resolve(Path::new(MAIN), &texts, &mut named);
    let told =
        named.wrong.iter().map(|error| format!("{:#}\n", error.downcast_ref::<Diagnostics>().unwrap())).collect();
    (named, told)
}

fn of_main(text: &str) -> (Named, String) {
    named(&[(MAIN, text)])
}

/// nvme-cli's own example, in its form.
#[test]
fn what_is_more_special_counts() {
    let text = "# connections\n[Discovery Controller Defaults]\nkeep-alive-tmo = 30\nctrl-loss-tmo = 600\n\
                [I/O Controller Defaults]\nkeep-alive-tmo = 5\nctrl-loss-tmo = 0x258\nhdr-digest = yes\n\
                [Host]\nhostsymname = lab\nnr-io-queues = 0\nqueue-size=64\n\
                [Discovery Controller]\nnqn = nqn.2014-08.org.example:cdc\npersistent = auto\n\
                controller = transport=tcp;traddr=192.0.2.10;trsvcid=8009;host-iface=eth1\n\
                [Discovery Controller]\ncontroller = transport=tcp;traddr=192.0.2.11\n\
                [Subsystem]\nnqn = nqn.2014-08.org.example:a\nctrl-loss-tmo = 1800\nhdr-digest =\n\
                controller = transport=tcp;traddr=192.0.2.21;trsvcid=4420\n\
                controller = transport=rdma;traddr=192.0.2.22;trsvcid=4420;ctrl-loss-tmo=-1;queue-size=\n";
    let (found, told) = of_main(text);
    assert_eq!(told, "");
    let [first, second] = &found.services[..] else { panic!("{:?}", found.services) };
    assert_eq!(first.place.as_deref(), Some("nvme-fabrics.conf:16"));
    assert_eq!(first.fabric.nqn.as_ref().unwrap().as_str(), "nqn.2014-08.org.example:cdc");
    assert!(first.fabric.is_persistent() && !second.fabric.is_persistent());
    let keep_alive = |fabric: &FabricArgs| fabric.overrides.keep_alive_tmo;
    let listed = first.listed.as_ref().unwrap();
    assert_eq!((keep_alive(&first.fabric), keep_alive(listed)), (Some(30), Some(5)));
    assert!(!first.fabric.overrides.hdr_digest && listed.overrides.hdr_digest);
    assert_eq!(listed.overrides.host_iface.as_deref(), Some("eth1"), "through the same interface");
    assert_eq!((first.fabric.overrides.nr_io_queues, first.fabric.overrides.queue_size), (None, Some(64)));
    assert_eq!((second.fabric.trsvcid, second.fabric.nqn.clone()), (None, None));
    let [first, second] = &found.subsystems[..] else { panic!("{:?}", found.subsystems) };
    let of = |it: &NamedSubsystem| (it.fabric.overrides.ctrl_loss_tmo, it.fabric.overrides.queue_size);
    assert_eq!((of(first), of(second)), ((Some(1800), Some(64)), (Some(-1), None)));
    assert_eq!((first.fabric.transport.as_str(), second.fabric.transport.as_str()), ("tcp", "rdma"));
    assert!(!first.fabric.overrides.hdr_digest, "an empty value is the default again");
}

#[test]
fn a_file_beside_the_main_one_is_a_host_of_its_own() {
    let main = "[I/O Controller Defaults]\nkeep-alive-tmo = 7\n[Host]\nhostnqn = nqn.2014-08.org.example:main\n\
                [Subsystem]\nnqn = nqn.2014-08.org.example:a\ncontroller = transport=tcp;traddr=192.0.2.1\n";
    let beside = "[Subsystem]\nnqn = nqn.2014-08.org.example:b\ncontroller = transport=tcp;traddr=192.0.2.2\n[Host]\n\
                  hostnqn = nqn.2014-08.org.example:black\nhostid = 6c1e4c5a-0d3c-4f6c-8a2b-0123456789ab\n";
    let (found, told) = named(&[(MAIN, main), ("nvme-fabrics.conf.d/b.conf", beside)]);
    assert_eq!(told, "");
    let of = |it: &NamedSubsystem| it.fabric.overrides.hostnqn.clone().unwrap().to_string();
    assert_eq!(
        found.subsystems.iter().map(of).collect::<Vec<_>>(),
        ["nqn.2014-08.org.example:main", "nqn.2014-08.org.example:black"]
    );
    assert!(found.subsystems.iter().all(|it| it.fabric.overrides.keep_alive_tmo == Some(7)));
    for (host, expected) in [
        ("hostid = 6c1e4c5a-0d3c-4f6c-8a2b-0123456789ab", "this host has no `hostnqn`"),
        ("hostnqn = nqn.2014-08.org.example:main", "has this `hostnqn`, too"),
        (
            "hostnqn = nqn.2014-08.org.example:c\nhostid = 6C1E4C5A-0d3c-4f6c-8a2b-0123456789ab",
            "has this `hostid`, too",
        ),
        ("hostnqn = nqn.2014-08.org.example:c\nhostid = 00000000-0000-0000-0000-000000000000", "`hostid` cannot be"),
        ("hostnqn = x", "`hostnqn` cannot be `x`"),
    ] {
        let text = format!(
            "[Host]\n{host}\n[Subsystem]\nnqn = nqn.2014-08.org.example:c\ncontroller = transport=tcp;traddr=192.0.2.3\n"
        );
        let files = [(MAIN, main), ("nvme-fabrics.conf.d/b.conf", beside), ("nvme-fabrics.conf.d/c.conf", &text)];
        let (found, told) = named(&files);
        assert_eq!(found.subsystems.len(), 2, "{host}: the others go on");
        assert!(told.contains(expected) && told.contains("nothing of this file is connected"), "{host}: {told}");
    }
}

// @test host.fabrics-conf
#[test]
fn a_mistake_leaves_its_entry_out_and_the_others_go_on() {
    let good = "[Subsystem]\nnqn = nqn.2014-08.org.example:good\ncontroller = transport=tcp;traddr=192.0.2.1\n";
    let entry = |keys: &str, line: &str| {
        format!("[Subsystem]\nnqn = nqn.2014-08.org.example:bad\n{keys}controller = {line}\n{good}")
    };
    let address = "transport=tcp;traddr=192.0.2.2";
    for (text, expected) in [
        (entry("keep-alive-tmo = soon\n", address), "`keep-alive-tmo` cannot be `soon`"),
        (entry("hdr-digest = 2\n", address), "`hdr-digest` cannot be `2`"),
        (entry("word\n", address), "this is neither a section nor `key = value`"),
        (entry("hostnqn = nqn.2014-08.org.example:h\n", address), "`hostnqn` does not belong here"),
        (entry("persistent = auto\n", address), "`persistent` does not belong here"),
        (entry("tls = yes\nconcat = yes\n", address), "cannot be used with"),
        (entry("tls-key-identity = x\ntls = yes\n", address), "--tls-key-identity cannot be used"),
        (entry("nqn = x\n", address), "`x` is no NQN"),
        (entry("", "transport=tcp"), "the address has no `traddr`"),
        (entry("", "traddr=192.0.2.2"), "the address has no `transport`"),
        (entry("", "transport=tcp;traddr=192.0.2.2;port=4420"), "there is no key `port`"),
        (entry("", "transport=tcp;traddr=192.0.2.2;tls=yes"), "`tls` does not belong to one address"),
        (entry("", "transport=tcp;traddr=192.0.2.2;traddr=192.0.2.3"), "`traddr` is here twice"),
        (entry("", "transport=tcp;traddr=192.0.2.2;trsvcid=70000"), "invalid value '70000'"),
        (entry("", "transport=fc;traddr=x"), "fc"),
        (entry("", "transport=rdma;traddr=192.0.2.2;hdr-digest=1"), "--hdr-digest is an option of TCP"),
        (format!("[Subsystem]\ncontroller = {address}\n{good}"), "this subsystem has no `nqn`"),
        (
            format!("[Subsystem\nnqn = nqn.2014-08.org.example:bad\ncontroller = {address}\n{good}"),
            "`controller` does not belong here",
        ),
    ] {
        let (found, told) = of_main(&text);
        let places: Vec<_> = found.subsystems.iter().map(|it| it.fabric.nqn.as_ref().unwrap().as_str()).collect();
        assert_eq!(places, ["nqn.2014-08.org.example:good"], "{text}: {told}");
        assert!(told.contains(expected) && told.contains("--> nvme-fabrics.conf:"), "{text}: {told}");
        assert!(told.starts_with("error: "), "{told}");
    }
    // What nvme-cli passes over with a warning.
    let (found, told) = of_main(&format!("[Colours]\nred = 1\n{good}colour = red\n"));
    assert_eq!(found.subsystems.len(), 1);
    assert!(told.contains("warning: the section [Colours]") && told.contains("there is no key `colour`"), "{told}");
    assert!(!told.contains("error: "), "{told}");
    // What counts for all.
    for head in ["[Host]\nhostnqn = x\n", "[Host]\n[Host]\n", "[I/O Controller Defaults]\nqueue-size = x\n"] {
        let (found, told) = of_main(&format!("{head}{good}"));
        assert!(found.subsystems.is_empty() && told.contains("nothing of this file is connected"), "{told}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let text = "[Subsystem]\nnqn = nqn.2014-08.org.example:a\nkxchap-secret = abcdefgh\n\
                controller = transport=tcp;traddr=192.0.2.2;kxchap-secret=abcdefgh\n";
    let (_, told) = of_main(text);
    assert!(told.contains("`kxchap-secret` does not belong") && !told.contains("abcdefgh"), "{told}");
    let (_, told) = of_main(
        "[Subsystem]\nnqn = nqn.2014-08.org.example:a\nkxchap-secret = abcdefgh\ncontroller = transport=tcp;traddr=192.0.2.2\n",
    );
    assert!(told.contains("is no secret") && !told.contains("abcdefgh"), "{told}");
}

#[test]
fn there_are_not_too_many() {
    let line = "controller = transport=tcp;traddr=192.0.2.2\n".repeat(SERVICES_MAX + 3);
    let (found, told) = of_main(&format!("[Subsystem]\nnqn = nqn.2014-08.org.example:a\n{line}"));
    assert_eq!(found.subsystems.len(), SERVICES_MAX);
    assert_eq!(told.matches("error: ").count(), 1, "{told}");
}
