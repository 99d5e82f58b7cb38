//! What the machine's own sensors say: temperatures and fans of the kernel's hwmon class, and
//! thermal zones. What is not there is absent.

use std::fs;
use std::path::{Path, PathBuf};

use ebof_manage::enclosure::{Fan, Sensors, Temperature};

/// Where the kernel has them.
const SYSTEM: &str = "/sys/class";

/// Values of each kind that are read at most.
const VALUES_MAX: usize = 64;

/// Reads the machine's sensors.
pub(super) fn read() -> Sensors {
    read_from(Path::new(SYSTEM))
}

fn read_from(class: &Path) -> Sensors {
    let mut sensors = Sensors::default();
    for monitor in entries(&class.join("hwmon")) {
        let chip = text(&monitor.join("name")).unwrap_or_else(|| "unnamed".to_owned());
        for input in entries(&monitor) {
            let file = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(sensor) = file.strip_suffix("_input") else { continue };
            let label = text(&monitor.join(format!("{sensor}_label"))).unwrap_or_else(|| sensor.to_owned());
            let name = format!("{chip} {label}");
            if sensor.starts_with("temp") {
                let value = number(&input).filter(|value| PLAUSIBLE.contains(value));
                sensors
                    .temperatures
                    .extend(value.map(|millidegrees_celsius| Temperature { name, millidegrees_celsius }));
            } else if sensor.starts_with("fan") {
                let rpm = number(&input).and_then(|rpm| u64::try_from(rpm).ok());
                sensors.fans.extend(rpm.map(|rpm| Fan { name, rpm }));
            }
        }
    }
    for zone in entries(&class.join("thermal")) {
        let Some(name) = text(&zone.join("type")) else { continue };
        let value = number(&zone.join("temp")).filter(|value| PLAUSIBLE.contains(value));
        sensors.temperatures.extend(value.map(|millidegrees_celsius| Temperature { name, millidegrees_celsius }));
    }
    sensors.temperatures.truncate(VALUES_MAX);
    sensors.fans.truncate(VALUES_MAX);
    sensors
}

/// Thousandths of a degree that a sensor can mean: some say -273150 or 0xffff where nothing is
/// connected.
const PLAUSIBLE: std::ops::RangeInclusive<i64> = -100_000..=250_000;

/// The entries of a directory, by name; none if it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text: String = text.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    (!text.is_empty()).then_some(text)
}

fn number(path: &Path) -> Option<i64> {
    text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_are_read_and_what_is_not_there_is_absent() {
        let class = tempfile::tempdir().unwrap();
        assert_eq!(read_from(class.path()), Sensors::default());
        let files = [
            ("hwmon/hwmon0/name", "k10temp\n"),
            ("hwmon/hwmon0/temp1_input", "45125\n"),
            ("hwmon/hwmon0/temp1_label", "Tctl\n"),
            ("hwmon/hwmon0/temp2_input", "-273150\n"),
            ("hwmon/hwmon1/name", "nct6775\n"),
            ("hwmon/hwmon1/fan1_input", "1180\n"),
            ("hwmon/hwmon1/fan2_input", "broken\n"),
            ("hwmon/hwmon1/in0_input", "800\n"),
            ("thermal/thermal_zone0/type", "acpitz\n"),
            ("thermal/thermal_zone0/temp", "27800\n"),
            ("thermal/cooling_device0/type", "Processor\n"),
        ];
        for (name, content) in files {
            let path = class.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let Sensors { temperatures, fans } = read_from(class.path());
        let temperatures: Vec<_> = temperatures.into_iter().map(|it| (it.name, it.millidegrees_celsius)).collect();
        assert_eq!(temperatures, [("k10temp Tctl".to_owned(), 45_125), ("acpitz".to_owned(), 27_800)]);
        assert_eq!(fans, [Fan { name: "nct6775 fan1".to_owned(), rpm: 1180 }]);
    }
}
