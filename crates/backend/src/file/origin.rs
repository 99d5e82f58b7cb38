//! What tells the data of a file or block device from all others, however they are called: a record
//! beside a file's data, the identifiers that a device has itself, or what the system knows of
//! them.
//!
//! Makes no identifiers of it: that is its user's.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, inotify};

use crate::DataOrigin;

/// The extended attribute with the identity of a file: `1 IDENTITY INODE BIRTH`. Programs that copy
/// attributes copy it, too, so that it says which file it was made for.
const ATTRIBUTE: &str = "user.ebof.identity";

/// More than the attribute has.
const ATTRIBUTE_BYTES_MAX: usize = 128;

/// Which file it is, as far as a copy of it is another one: its inode, and when that was made, in
/// nanoseconds; 0 where the file system does not know.
///
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Birth {
    inode: u64,
    at_ns: u128,
}

impl Birth {
    fn from_metadata(metadata: &fs::Metadata) -> Self {
        let since = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self { inode: metadata.ino(), at_ns: since.map_or(0, |since| since.as_nanos()) }
    }

    /// Whether both are the same file. Two machines that share a file system need not both know
    /// when a file was made.
    fn is_same(self, other: Self) -> bool {
        self.inode == other.inode && (self.at_ns == other.at_ns || self.at_ns == 0 || other.at_ns == 0)
    }
}

/// The origin of a regular file.
pub(crate) fn of_file(file: &File) -> DataOrigin {
    let Ok(metadata) = file.metadata() else { return DataOrigin::Unknown };
    let birth = Birth::from_metadata(&metadata);
    if let Some((identity, made_for)) = recorded(file)
        && made_for.is_same(birth)
    {
        return DataOrigin::Recorded(identity);
    }
    match birth.at_ns {
        // An inode that is used again is not known from the one before, unless by its handle.
        0 => handle(file).map_or(DataOrigin::Unknown, |handle| {
            DataOrigin::Machine(format!("file.{}.{}.{handle}", metadata.dev(), birth.inode))
        }),
        at_ns => DataOrigin::Machine(format!("file.{}.{}.{at_ns}", metadata.dev(), birth.inode)),
    }
}

/// The handle by which a file server would know the file, with the generation of its inode: of file
/// systems that do not know when a file was made, such as NFS.
fn handle(file: &File) -> Option<String> {
    use std::os::fd::AsRawFd as _;

    // What a watch is for is told with its handle.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify::add_watch(&watch, path, inotify::WatchFlags::DELETE_SELF).ok()?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", watch.as_raw_fd())).ok()?;
    handle_in(&text)
}

/// `inotify wd:1 ino:c sdev:2 mask:400 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:0c00`.
fn handle_in(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("inotify "))?;
    let value = |name: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
    Some(format!("{}.{}", value("fhandle-type:")?, value("f_handle:")?))
}

fn recorded(file: &File) -> Option<([u8; 16], Birth)> {
    let mut bytes = [0; ATTRIBUTE_BYTES_MAX];
    let length = fgetxattr(file, ATTRIBUTE, &mut bytes[..]).ok()?;
    decode(std::str::from_utf8(bytes.get(..length)?).ok()?)
}

fn decode(text: &str) -> Option<([u8; 16], Birth)> {
    let mut words = text.split(' ');
    let (version, identity, inode, at_ns) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if version != "1" || identity.len() != 32 || !identity.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let identity = u128::from_str_radix(identity, 16).ok()?.to_be_bytes();
    Some((identity, Birth { inode: inode.parse().ok()?, at_ns: at_ns.parse().ok()? }))
}

/// Writes an identity beside the data of a file; whether that was possible.
pub(crate) fn record(file: &File, identity: [u8; 16]) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let Birth { inode, at_ns } = Birth::from_metadata(&metadata);
    let text = format!("1 {} {inode} {at_ns}", hex(&identity));
    fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()).is_ok()
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// The origin of the block device with this number.
pub(crate) fn of_device(number: u64) -> DataOrigin {
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let Ok(directory) = fs::canonicalize(format!("/sys/dev/block/{number}")) else { return DataOrigin::Unknown };
    let text = |path: &str| fs::read_to_string(path).ok();
    let system =
        System { boot: text("/proc/sys/kernel/random/boot_id"), udev: text(&format!("/run/udev/data/b{number}")) };
    of_directory(&directory, &system)
}

/// What the system says besides the device's directory.
#[derive(Default)]
struct System {
    /// Which start of the machine this is.
    boot: Option<String>,
    /// What udev knows of the device.
    udev: Option<String>,
}

/// The origin of the block device that has this directory of sysfs, where links are resolved.
fn of_directory(directory: &Path, system: &System) -> DataOrigin {
    let read = |name: &str| word(&directory.join(name));
    if read("partition").is_some() {
        // Where it begins on its disk. What it is called and numbered may change.
        let (Some(disk), Some(start)) = (directory.parent(), read("start")) else { return DataOrigin::Unknown };
        return part_of(of_directory(disk, &System { udev: None, boot: system.boot.clone() }), &start);
    }
    if let Ok(file) = fs::read(directory.join("loop/backing_file")) {
        if let Some(origin) = of_loop(&file, read("loop/offset").as_deref()) {
            return origin;
        }
    } else if let Some(origin) = named(directory, system) {
        return origin;
    }
    match (read("diskseq"), &system.boot) {
        (Some(number), Some(boot)) => DataOrigin::Boot(format!("disk.{}.{number}", boot.trim())),
        _ => DataOrigin::Unknown,
    }
}

/// A loop device has the data of its file. `None` where the file cannot be seen.
fn of_loop(file: &[u8], offset: Option<&str>) -> Option<DataOrigin> {
    use std::os::unix::ffi::OsStrExt as _;

    let path = Path::new(std::ffi::OsStr::from_bytes(file.trim_ascii_end()));
    let file = File::open(path).ok()?;
    let origin = file.metadata().ok()?.is_file().then(|| of_file(&file))?;
    match offset.unwrap_or("0") {
        "0" => Some(origin),
        offset => Some(part_of(origin, offset)),
    }
}

/// What tells a part of the data from all others.
fn part_of(whole: DataOrigin, which: &str) -> DataOrigin {
    match whole {
        DataOrigin::Recorded(identity) => DataOrigin::Everywhere(format!("file.{}+{which}", hex(&identity))),
        DataOrigin::Everywhere(name) => DataOrigin::Everywhere(format!("{name}+{which}")),
        DataOrigin::Machine(name) => DataOrigin::Machine(format!("{name}+{which}")),
        DataOrigin::Boot(name) => DataOrigin::Boot(format!("{name}+{which}")),
        DataOrigin::Unknown => DataOrigin::Unknown,
    }
}

/// The identifier that a device has itself.
fn named(directory: &Path, system: &System) -> Option<DataOrigin> {
    let read = |name: &str| word(&directory.join(name));
    if directory.join("dm").is_dir() {
        let name = read("dm/uuid")?;
        let is_random = ["LVM-", "CRYPT-LUKS"].iter().any(|prefix| name.starts_with(prefix)) || name.contains("mpath-");
        return Some(if is_random { DataOrigin::Everywhere(name) } else { DataOrigin::Machine(name) });
    }
    if directory.join("md").is_dir() {
        let of_udev = || {
            let text = system.udev.as_deref()?;
            text.lines().find_map(|line| Some(line.strip_prefix("E:MD_UUID=")?.to_owned()))
        };
        return Some(DataOrigin::Everywhere(format!("md.{}", read("md/uuid").or_else(of_udev)?)));
    }
    // NVMe has it beside the disk, SCSI beside its device.
    if let Some(name) = read("wwid").or_else(|| read("device/wwid")) {
        // Registered numbers. What else there is was chosen by a manufacturer, or by whoever runs a
        // virtual machine, which often have the same everywhere.
        let is_registered = ["eui.", "uuid.", "naa.2", "naa.5", "naa.6"].iter().any(|kind| name.starts_with(kind));
        return Some(if is_registered { DataOrigin::Everywhere(name) } else { DataOrigin::Machine(name) });
    }
    if let (Some(cluster), Some(pool), Some(image)) =
        (read("device/cluster_fsid"), read("device/pool_id"), read("device/image_id"))
    {
        let snapshot = read("device/current_snap").unwrap_or_default();
        return Some(DataOrigin::Everywhere(format!("rbd.{cluster}.{pool}.{image}.{snapshot}")));
    }
    read("serial").map(|serial| DataOrigin::Machine(format!("serial.{serial}")))
}

/// The text of a small file; `None` where it has none.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_in(path: &Path) -> DataOrigin {
        of_file(&File::open(path).unwrap())
    }

    #[test]
    fn a_file_has_its_record_and_a_copy_with_attributes_has_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a.img"), directory.path().join("b.img"));
        fs::write(&path, "a").unwrap();
        let DataOrigin::Machine(before) = recorded_in(&path) else { panic!("{:?}", recorded_in(&path)) };
        assert!(record(&File::open(&path).unwrap(), [7; 16]), "a file system with attributes is needed");
        assert_eq!(recorded_in(&path), DataOrigin::Recorded([7; 16]));
        // Another name of it.
        fs::hard_link(&path, &other).unwrap();
        assert_eq!(recorded_in(&other), DataOrigin::Recorded([7; 16]));
        fs::remove_file(&path).unwrap();
        assert_eq!(recorded_in(&other), DataOrigin::Recorded([7; 16]));
        // `cp -a`.
        let text = format!("1 {} {} {}", hex(&[7; 16]), fs::metadata(&other).unwrap().ino(), 1);
        fs::write(&path, "a").unwrap();
        fsetxattr(File::open(&path).unwrap(), ATTRIBUTE, text.as_bytes(), XattrFlags::empty()).unwrap();
        let DataOrigin::Machine(copy) = recorded_in(&path) else { panic!("{:?}", recorded_in(&path)) };
        assert_ne!(copy, before);
        // Its own record takes the place of the copied one.
        assert!(record(&File::open(&path).unwrap(), [8; 16]));
        assert_eq!(recorded_in(&path), DataOrigin::Recorded([8; 16]));
    }

    #[test]
    fn a_file_that_is_made_again_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let made = || {
            fs::write(&path, "a").unwrap();
            let origin = recorded_in(&path);
            fs::remove_file(&path).unwrap();
            origin
        };
        let first = made();
        // The clock of files may tick every 10 ms; the inode is often the same.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while made() == first {
            assert!(std::time::Instant::now() < deadline, "{first:?}");
        }
    }

    #[test]
    fn a_record_that_is_not_understood_is_none() {
        let good = format!("1 {} 12 1700000000000000000", "0a".repeat(16));
        let birth = Birth { inode: 12, at_ns: 1_700_000_000_000_000_000 };
        assert_eq!(decode(&good), Some(([10; 16], birth)));
        for (from, to) in [("1 ", "2 "), ("0a", "+a"), ("0a", "a"), (" 12 ", " x "), ("0000", "")] {
            let text = good.replacen(from, to, 1);
            assert!(decode(&text).is_none_or(|it| it.1 != birth), "{text}");
        }
        assert_eq!(decode(""), None);
        assert!(birth.is_same(Birth { at_ns: 0, ..birth }) && !birth.is_same(Birth { inode: 13, ..birth }));
        assert!(!birth.is_same(Birth { at_ns: 1, ..birth }));
    }

    #[test]
    fn a_file_has_a_handle_of_its_own_also_where_nobody_knows_when_it_was_made() {
        let text = "pos:\t0\nflags:\t02000000\ninotify wd:1 ino:c sdev:fe mask:400 ignored_mask:0 fhandle-bytes:8 \
                    fhandle-type:1 f_handle:0c00000001020304\n";
        assert_eq!(handle_in(text).as_deref(), Some("1.0c00000001020304"));
        assert_eq!(handle_in("pos:\t0\n"), None);
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let [one, two] = files.each_ref().map(handle);
        assert!(one.is_some() && one != two && one == handle(&files[0]), "{one:?} {two:?}");
    }

    /// A device's directory with these files.
    fn device(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    // @test output.identity
    #[test]
    fn a_block_device_has_the_best_identifier_that_it_tells() {
        let system = System { boot: Some("b00t\n".into()), udev: Some("S:md/0\nE:MD_UUID=7:8\n".into()) };
        let everywhere = |name: &str| DataOrigin::Everywhere(name.into());
        let machine = |name: &str| DataOrigin::Machine(name.into());
        let boot = |name: &str| DataOrigin::Boot(name.into());
        for (files, origin) in [
            (&[("wwid", "eui.0025\n"), ("serial", "S\n"), ("diskseq", "9\n")][..], everywhere("eui.0025")),
            (&[("wwid", "nvme.1b36-61-62-00000001\n")], machine("nvme.1b36-61-62-00000001")),
            (&[("device/wwid", "naa.5000c500\n")], everywhere("naa.5000c500")),
            (&[("device/wwid", "naa.3000c500\n")], machine("naa.3000c500")),
            (&[("device/wwid", "t10.ATA     QEMU HARDDISK   QM00001\n")], machine("t10.ATA QEMU HARDDISK QM00001")),
            (&[("dm/uuid", "LVM-abc\n"), ("diskseq", "9\n")], everywhere("LVM-abc")),
            (&[("dm/uuid", "mine\n")], machine("mine")),
            (&[("dm/uuid", "\n"), ("diskseq", "9\n")], boot("disk.b00t.9")),
            (&[("md/uuid", "1:2\n")], everywhere("md.1:2")),
            (&[("md/level", "raid1\n")], everywhere("md.7:8")),
            (
                &[("device/cluster_fsid", "c\n"), ("device/pool_id", "1\n"), ("device/image_id", "i\n")],
                everywhere("rbd.c.1.i."),
            ),
            (&[("serial", "vol-1\n"), ("diskseq", "9\n")], machine("serial.vol-1")),
            (&[("serial", "\n"), ("diskseq", "9\n")], boot("disk.b00t.9")),
            (&[("size", "9\n")], DataOrigin::Unknown),
        ] {
            assert_eq!(of_directory(device(files).path(), &system), origin, "{files:?}");
        }
    }

    // @test output.identity
    #[test]
    fn a_partition_is_a_part_of_its_disk_and_a_loop_device_has_the_data_of_its_file() {
        let system = System::default();
        let disk = device(&[("wwid", "eui.1\n"), ("p1/partition", "1\n"), ("p1/start", "2048\n")]);
        assert_eq!(of_directory(&disk.path().join("p1"), &system), DataOrigin::Everywhere("eui.1+2048".into()));
        let file = tempfile::NamedTempFile::new().unwrap();
        let backing = format!("{}\n", file.path().display());
        let at = |offset: &str| {
            of_directory(device(&[("loop/backing_file", &backing), ("loop/offset", offset)]).path(), &system)
        };
        assert_eq!(at("0\n"), recorded_in(file.path()));
        assert!(record(file.as_file(), [9; 16]));
        assert_eq!(
            (at("0\n"), at("512\n")),
            (DataOrigin::Recorded([9; 16]), DataOrigin::Everywhere(format!("file.{}+512", "09".repeat(16))),)
        );
        let gone = device(&[("loop/backing_file", "/nowhere/a.img (deleted)\n"), ("diskseq", "3\n")]);
        let system = System { boot: Some("b".into()), udev: None };
        assert_eq!(of_directory(gone.path(), &system), DataOrigin::Boot("disk.b.3".into()));
    }
}
