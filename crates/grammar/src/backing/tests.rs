//! Accepted and refused texts, with their messages, and round trips of printed drives.

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    let error = text.parse::<Spec>().unwrap_err();
    format!("{error}; {}", error.advice())
}

fn file(path: &str, size_bytes: Option<u64>, direct: Option<bool>) -> Source {
    Source::Path { path: path.into(), size_bytes, direct }
}

#[test]
fn the_forms_of_the_manual_are_read() {
    assert_eq!(spec("disk.img"), Spec::path("disk.img"));
    assert_eq!(spec("/dev/nvme0n1"), Spec::path("/dev/nvme0n1"));
    assert_eq!(spec("disk2.img:10Gi").source, file("disk2.img", Some(10 << 30), None));
    assert_eq!(spec("mem:1Gi"), Spec::memory(1 << 30));
    assert_eq!(spec("null:1Ti"), Spec::null(1 << 40));
    assert_eq!(spec("mem,size=64Mi,block=4096").block_bytes, Some(BlockBytes::B4096));
    let all = spec("disk.img,size=10Gi,direct,readonly,block=512");
    assert_eq!(all.source, file("disk.img", Some(10 << 30), Some(true)));
    assert!(all.read_only);
    assert_eq!(all.block_bytes, Some(BlockBytes::B512));
    assert_eq!(spec("/dev/sda,direct=no,ro=off").source, file("/dev/sda", None, Some(false)));
}

#[test]
fn colons_and_commas_may_be_part_of_a_path() {
    let by_path = "/dev/disk/by-path/pci-0000:00:1f.2-ata-1";
    assert_eq!(spec(by_path).source, file(by_path, None, None));
    assert_eq!(
        spec("/dev/disk/by-path/pci-0000:00:04.0").source,
        file("/dev/disk/by-path/pci-0000:00:04.0", None, None)
    );
    assert_eq!(spec("a:7,size=1Mi").source, file("a:7", Some(1 << 20), None));
    assert_eq!(spec("a,,b:1Mi").source, file("a,b", Some(1 << 20), None));
    assert_eq!(spec("./mem").source, file("./mem", None, None));
}

/// The texts that both earlier grammars, of configuration and devices, accepted.
#[test]
fn texts_of_both_earlier_grammars_are_accepted() {
    let taken = [
        ("disk.img:10Gi", "disk.img,size=10Gi"),
        ("disk.img:1.5T", "disk.img,size=1500G"),
        ("a,ro=off,direct=no", "a,direct=no"),
        ("a,direct=1", "a,direct"),
        ("a,nested", "a,nested"),
        ("a,block=4K", "a,block=4096"),
        ("memory:1Gi", "mem:1Gi"),
        ("mem,size=64Mi", "mem:64Mi"),
        ("mem:1G,readonly", "mem:1G,readonly"),
        ("nullx:1G", "nullx,size=1G"),
        ("./mem", "./mem"),
        ("a:", "a:"),
        ("a:b", "a:b"),
        ("a:7", "a,size=7"),
        ("a:7,size=1Mi", "a:7,size=1Mi"),
        ("a,,b:1Mi", "a,,b,size=1Mi"),
        ("a:8191Pi", "a,size=8191Pi"),
        ("a:10G ", "a:10G "),
        ("/dev/disk/by-path/pci-0000:00:04.0", "/dev/disk/by-path/pci-0000:00:04.0"),
    ];
    for (text, printed) in taken {
        assert_eq!(spec(text).to_string(), printed, "{text}");
    }
}

#[test]
fn errors_say_what_is_accepted() {
    let path = "accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE";
    let cases = [
        ("", format!("the drive is empty; {path}")),
        (",direct", format!("the drive is empty; {path}")),
        (":1Gi", format!("the drive is empty; {path}")),
        ("a\0b", format!("the path has a NUL character; {path}")),
        ("mem", "`mem` needs a size; write \"mem:1G\", or \"./mem\" for a file of that name".to_owned()),
        ("null:", "`null` needs a size; write \"null:1G\", or \"./null\" for a file of that name".to_owned()),
        ("a:10X", format!("the size `10X` has an unknown unit; accepted: {SIZE_FORM}")),
        ("mem:-1", format!("the size `-1` is not a number with an optional unit; accepted: {SIZE_FORM}")),
        ("a,size", format!("the size `` has no number; accepted: {SIZE_FORM}")),
        ("null:9000Pi", format!("the size `9000Pi` is too large; accepted: {SIZE_FORM}")),
        ("a:0", "the size is 0; give it a size of at least one block".to_owned()),
        ("mem:1Gi,size=2Gi", "`size` is given twice; write it once".to_owned()),
        ("a,direct,direct=no", "`direct` is given twice; write it once".to_owned()),
        ("a,block=1024", "`block` is `1024`; accepted: 512 or 4096".to_owned()),
        ("a,readonly=maybe", "`readonly` is `maybe`; accepted: yes or no".to_owned()),
        ("mem:1Gi,direct", "`direct` is for files and block devices; leave it out".to_owned()),
        ("mem:1Gi,nested", "`nested` is for files and block devices; leave it out".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected, "{text:?}");
    }
    assert!(refusal("a,dierct").starts_with("`dierct` is not an option of a drive; accepted: size=SIZE"));
}

#[test]
fn a_scheme_is_one_only_where_the_program_knows_it() {
    let parse = |text: &str| Spec::parse(text, &["shelf", "nvme+tcp"]);
    let named = |scheme: &str, name: &str| {
        let source = Source::Named { scheme: scheme.into(), name: name.into() };
        Spec { source, read_only: false, nested: false, block_bytes: None }
    };
    assert_eq!(parse("shelf:a/b@c"), Ok(named("shelf", "a/b@c")));
    assert_eq!(parse("nvme+tcp://host:4420/nqn/1"), Ok(named("nvme+tcp", "//host:4420/nqn/1")));
    let with_options = Spec { read_only: true, block_bytes: Some(BlockBytes::B4096), ..named("shelf", "a,b:1G") };
    assert_eq!(parse("shelf:a,,b:1G,readonly,block=4096"), Ok(with_options.clone()));
    assert_eq!(parse(&with_options.to_string()), Ok(with_options));
    for text in ["shelf", "./shelf:a", "shelf2:a", "mem:1G", "disk.img:10G"] {
        assert_eq!(parse(text), text.parse(), "{text}");
    }
    assert_eq!(spec("shelf:a/b@c"), Spec::path("shelf:a/b@c"));
    assert_eq!(parse("shelf:"), Err(BackingError::Empty));
    for option in ["size=1G", "direct", "nested"] {
        let option = option.split_once('=').map_or(option, |(option, _)| option);
        let text = format!("shelf:a,{option}=1");
        assert_eq!(parse(&text), Err(BackingError::FileOption { option }), "{text}");
    }
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let size = 1..=i64::MAX.unsigned_abs();
    let round = (1_u64..1024, 0_u32..51).prop_map(|(number, shift)| number << shift);
    let size = prop_oneof![size, round];
    let path = "[a-z,:.0-9/=]{1,20}";
    let source = prop_oneof![
        size.clone().prop_map(|size_bytes| Source::Memory { size_bytes }),
        size.clone().prop_map(|size_bytes| Source::Null { size_bytes }),
        // A path that ends like a size is unambiguous only if a size is given.
        (path, size, any::<Option<bool>>()).prop_map(|(path, size, direct)| file(&path, Some(size), direct)),
        ("[a-z,./=]{1,20}", any::<Option<bool>>()).prop_map(|(path, direct)| file(&path, None, direct)),
    ];
    let block = prop_oneof![Just(None), Just(Some(BlockBytes::B512)), Just(Some(BlockBytes::B4096))];
    (source, any::<bool>(), any::<bool>(), block).prop_map(|(source, read_only, nested, block_bytes)| {
        // Only backings with a path can be nested.
        let nested = nested && matches!(source, Source::Path { .. });
        Spec { source, read_only, nested, block_bytes }
    })
}

proptest! {
    #[test]
    fn a_printed_drive_round_trips(original in any_spec()) {
        let mut read: Spec = original.to_string().parse().unwrap();
        // A file called `mem` is printed with `./` in front, which names the same file.
        if let (Source::Path { path, .. }, Source::Path { path: written, .. }) = (&mut read.source, &original.source)
            && *path == Path::new("./").join(written) {
            path.clone_from(written);
        }
        prop_assert_eq!(read, original);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,40}") {
        let _parsed = text.parse::<Spec>();
    }
}
