//! What is read, what is refused with which words, and that printing a drive reads back as the same drive.

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    text.parse::<Spec>().unwrap_err().to_string()
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

#[test]
fn what_is_wrong_is_said_with_what_is_accepted() {
    let cases = [
        ("", "drive ``: a path, `mem:SIZE` or `null:SIZE` is expected"),
        (",direct", "drive `,direct`: a path, `mem:SIZE` or `null:SIZE` is expected"),
        (":1Gi", "drive `:1Gi`: a path, `mem:SIZE` or `null:SIZE` is expected"),
        ("mem", "drive `mem`: `mem` needs a size, for example `mem:1G`; for a file of that name write `./mem`"),
        (
            "a:10X",
            "drive `a:10X`: `10X` is not a size: bytes, or a number with K, M, G, T or P (powers of 1000) or Ki, Mi, Gi, Ti or Pi (powers of 1024)",
        ),
        (
            "a:0",
            "drive `a:0`: a drive of size 0 is of no use: give bytes, or a number with K, M, G, T or P (powers of 1000) or Ki, Mi, Gi, Ti or Pi (powers of 1024)",
        ),
        ("null:9000Pi", "drive `null:9000Pi`: `9000Pi` is too large: a drive has at most 8191Pi"),
        ("mem:1Gi,size=2Gi", "drive `mem:1Gi,size=2Gi`: the size is given twice"),
        ("a,direct,direct=no", "drive `a,direct,direct=no`: the option `direct` is given twice"),
        (
            "a,dierct",
            "drive `a,dierct`: unknown option `dierct`; accepted: size=SIZE, direct[=yes|no], readonly[=yes|no], \
             block=512|4096 (a comma in a path is written twice)",
        ),
        ("a,block=1024", "drive `a,block=1024`: `block=1024`: accepted: 512, 4096"),
        ("a,readonly=maybe", "drive `a,readonly=maybe`: `readonly=maybe`: accepted: yes, no"),
        (
            "a,size",
            "drive `a,size`: the option `size` needs a value: size=SIZE, direct[=yes|no], readonly[=yes|no], \
             block=512|4096",
        ),
        (
            "mem:1Gi,direct",
            "drive `mem:1Gi,direct`: `direct` is for files and block devices; `mem` has no page cache to bypass",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn sizes_mean_what_they_mean_in_nvme_cli() {
    for (text, bytes) in [
        ("512", 512),
        ("1Ki", 1 << 10),
        ("1K", 1000),
        ("10G", 10_000_000_000),
        ("10GB", 10_000_000_000),
        ("1.5G", 1_500_000_000),
        ("1B", 1),
        ("3mi", 3 << 20),
        ("10GiB", 10 << 30),
        ("1Ti", 1 << 40),
        ("8191Pi", 8191 << 50),
        ("9223372036854775807", i64::MAX.unsigned_abs()),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["1.5", "1.G", ".5G", "G", "", "-1", "+1", "1 G", "0x10", "1KK", "1iB"] {
        assert!(matches!(parse_size(text), Err(SpecProblem::BadSize { .. })), "{text}");
    }
    for text in ["9223372036854775808", "8192Pi", "99999999999999999999999"] {
        assert!(matches!(parse_size(text), Err(SpecProblem::HugeSize { .. })), "{text}");
    }
    assert!(refusal("a:1.5X").contains("`1.5X` is not a size"));
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let size = 1..=i64::MAX.unsigned_abs();
    let round = (1_u64..1024, 0_u32..51).prop_map(|(number, shift)| number << shift);
    let size = prop_oneof![size, round];
    let path = "[a-z,:.0-9/=]{1,20}";
    let source = prop_oneof![
        size.clone().prop_map(|size_bytes| Source::Memory { size_bytes }),
        size.clone().prop_map(|size_bytes| Source::Null { size_bytes }),
        // A name that ends like a size is told apart by the option, so only with one.
        (path, size, any::<Option<bool>>()).prop_map(|(path, size, direct)| file(&path, Some(size), direct)),
        ("[a-z,./=]{1,20}", any::<Option<bool>>()).prop_map(|(path, direct)| file(&path, None, direct)),
    ];
    let block = prop_oneof![Just(None), Just(Some(BlockBytes::B512)), Just(Some(BlockBytes::B4096))];
    (source, any::<bool>(), block).prop_map(|(source, read_only, block_bytes)| Spec { source, read_only, block_bytes })
}

proptest! {
    #[test]
    fn a_printed_drive_reads_back_as_the_same(original in any_spec()) {
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

    #[test]
    fn every_size_reads_back(bytes in 1..=i64::MAX.unsigned_abs()) {
        prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
    }
}
