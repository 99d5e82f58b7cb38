//! Drives as arguments of the command line.

use super::*;

fn good(text: &str) -> ManagedDrive {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn drives_are_parsed_from_text() {
    let drive = good("name=d0,backing=disk.img,size=100Gi");
    let plain = ManagedDrive { size_bytes: Some(100 << 30), ..ManagedDrive::new("d0", Drive::file("disk.img")) };
    assert_eq!(drive, plain);
    let drive = good(
        "name=d0,backing=/dev/nvme0n1,direct,profile=ethernet-ssd,namespaces=1024,functions=5,overcommit,exclusive=no,overwrite,checksums,encryption=yes,key-file=a.key,read-only-if-damaged,\
         attach=everyone,manager=nqn.a:b,manager=nqn.c,quota=nqn.a:b:10Gi,quota=nqn.c:0,serial=S1,model=A B,endurance=600Ti",
    );
    let hosts = ["nqn.a:b", "nqn.c"].map(|host| Nqn::parse(host).unwrap());
    let backing = FileDrive { path: "/dev/nvme0n1".into(), direct: Some(true), ..FileDrive::default() };
    let expected = ManagedDrive {
        profile: DriveProfile::EthernetSsd,
        namespaces: Some(1024),
        functions: 5,
        overwrite: true,
        overcommit: true,
        checksums: true,
        encryption: true,
        key_file: Some("a.key".into()),
        read_only_if_damaged: true,
        attach: Attach::Everyone,
        managers: Some(hosts.to_vec()),
        quotas: [("nqn.a:b".into(), 10 << 30), ("nqn.c".into(), 0)].into(),
        serial: Some("S1".into()),
        model: Some("A B".into()),
        endurance_bytes: Some(600 << 40),
        ..ManagedDrive::new("d0", Drive::File(backing))
    };
    assert_eq!(drive, expected);
    assert_eq!(good("backing=mem:1Gi,name=m").backing, Drive::Memory { size_bytes: 1 << 30 });
    assert_eq!(good("name=m,backing=a,readonly=no").backing, Drive::file("a"));
}

#[test]
fn commas_are_written_twice_and_colons_belong_to_the_path() {
    let path = |text: &str| good(text).backing.path().map(str::to_owned);
    assert_eq!(path("name=d0,backing=a,,b=c,size=1Gi").as_deref(), Some("a,b=c"));
    assert_eq!(path("name=d0,backing=a:10Gi,size=1Gi").as_deref(), Some("a:10Gi"));
    assert_eq!(path("name=d0,backing=a:10X,size=1Gi").as_deref(), Some("a:10X"));
    assert_eq!(path("name=d0,backing=pci-0000:03:00.0-nvme-1").as_deref(), Some("pci-0000:03:00.0-nvme-1"));
}

#[test]
fn each_mistake_is_reported() {
    let many = "name=d0,backing=a,";
    for (text, message, advice) in [
        ("", "there is no `name`", DRIVE_WORDS),
        ("disk.img,size=1Gi", "`disk.img` is not an option of a drive", "accepted: name, backing, size, "),
        ("backing=a", "there is no `name`", DRIVE_WORDS),
        ("name=d0,size=1Gi", "there is no `backing`", DRIVE_WORDS),
        ("name=,backing=a", "`name` has no value", "write name=VALUE"),
        ("name=d0,backing=a,sise=1Gi", "`sise` is not an option of a drive", "did you mean `size`?"),
        ("name=d0,name=d1", "`name` is given twice", "write it once"),
        ("name=d0,backing=null:1Gi", "a drive cannot be kept in `null:1Gi`", FORGETFUL),
        ("name=d0,backing=a:10Gi", WITHOUT_SIZE, "write backing=a,size=10Gi"),
        ("name=d0,backing=a:10X", "the size `10X` has an unknown unit", "accepted: bytes, or"),
        ("name=d0,backing=mem", "`mem` needs a size", "write \"mem:1G\""),
        ("name=d0,backing=mem:1Gi,size=1Gi", "`size` is given twice", "write it once"),
        ("name=d0,backing=mem:1Gi,direct", "`direct` is for files and block devices", "leave it out"),
        ("name=d0,backing=a,readonly", "a drive cannot be read-only", READ_ONLY),
        ("name=d0,backing=a,ro", "a drive cannot be read-only", READ_ONLY),
        ("size=0", "the size is 0", "give it a size"),
        ("profile=fast", "`profile` is `fast`", "accepted: default or ethernet-ssd"),
        ("attach=all", "`attach` is `all`", "accepted: manual or everyone"),
        ("namespaces=x", "`namespaces` is `x`", "accepted: 1 to 1024"),
        ("overcommit=maybe", "`overcommit` is `maybe`", "accepted: yes or no"),
        ("manager=a b", "`manager=a b`: the NQN has a control character", "accepted: manager=NQN, such as"),
        ("quota=host", "the quota `host` has no size", "accepted: quota=NQN:SIZE, such as"),
        ("quota=nqn.a:b", "the quota `nqn.a:b` has no size", "accepted: quota=NQN:SIZE, such as"),
        ("quota=h:10X", "the size `10X` has an unknown unit", "accepted: bytes, or"),
        ("quota=:1Gi", "`quota=:1Gi`: the NQN is empty", "accepted: quota=NQN:SIZE"),
        ("quota=h:1Gi,quota=h:2Gi", "the host h has two quotas", "write it once"),
    ] {
        let error = text.parse::<ManagedDrive>().unwrap_err();
        assert!(error.to_string().starts_with(message), "{text}: {error}");
        assert!(error.advice().starts_with(advice), "{text}: {}", error.advice());
    }
    assert_eq!(good(many).name, "d0", "a trailing comma is no option");
}

/// A key that only one of the two places knows would be refused in the other.
#[test]
fn every_key_of_a_drive_is_a_word() {
    let in_words = |key: &'static str| match key {
        // One host each, and as often as there are hosts.
        "managers" => "manager",
        "quotas" => "quota",
        key => key,
    };
    let mut expected: Vec<&str> = ManagedDrive::KEYS.iter().map(|key| in_words(key.name)).collect();
    // Of the backing, which is a table in files; and the second is refused with its reason.
    expected.extend(["direct", "readonly"]);
    expected.sort_unstable();
    let mut words = KEYS.to_vec();
    words.sort_unstable();
    assert_eq!(words, expected);
}
