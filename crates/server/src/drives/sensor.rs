//! The temperature of what a drive's backing device really is, where the system has a sensor for
//! it.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A temperature sensor of a disk.
#[derive(Clone, Debug)]
pub(crate) struct Sensor {
    /// A file with thousandths of a degree Celsius.
    input: PathBuf,
}

impl Sensor {
    /// The sensor of the disk that holds `path`, or that it names. `None` where there is none to be
    /// found: memory, network file systems, virtual disks.
    pub(crate) fn for_path(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let block_device = metadata.st_mode() & 0o170_000 == 0o060_000;
        let number = if block_device { metadata.st_rdev() } else { metadata.st_dev() };
        let major = rustix::fs::major(number);
        let minor = rustix::fs::minor(number);
        let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // A partition's disk is the directory above; a disk's driver may have the sensor one or two
        // further up.
        device
            .ancestors()
            .take(4)
            .find_map(|directory| sensor_in(directory).or_else(|| sensor_in(&directory.join("device"))))
    }

    /// Kelvin now.
    pub(crate) fn kelvin(&self) -> Option<u16> {
        let text = fs::read_to_string(&self.input).ok()?;
        let thousandths: i64 = text.trim().parse().ok()?;
        u16::try_from((thousandths + 273_150) / 1000).ok()
    }
}

fn sensor_in(directory: &Path) -> Option<Sensor> {
    let in_monitor = |monitor: &Path| {
        let input = monitor.join("temp1_input");
        input.is_file().then_some(Sensor { input })
    };
    let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let monitors = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("hwmon"));
    monitors.map(|entry| entry.path()).find_map(|path| {
        // `hwmon/hwmon3` with most drivers, `hwmon3` with others.
        in_monitor(&path).or_else(|| {
            let inner = fs::read_dir(&path).ok()?.filter_map(Result::ok);
            inner.map(|entry| entry.path()).find_map(|path| in_monitor(&path))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_is_read_in_kelvin_and_invalid_values_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let monitor = directory.path().join("hwmon").join("hwmon3");
        fs::create_dir_all(&monitor).unwrap();
        fs::write(monitor.join("temp1_input"), "36850\n").unwrap();
        let sensor = sensor_in(directory.path()).unwrap();
        assert_eq!(sensor.kelvin(), Some(310));
        for nonsense in ["", "hot", "-300000", "99999999999"] {
            fs::write(monitor.join("temp1_input"), nonsense).unwrap();
            assert_eq!(sensor.kelvin(), None, "{nonsense}");
        }
        assert!(Sensor::for_path(Path::new("/proc/self/status")).is_none());
    }
}
