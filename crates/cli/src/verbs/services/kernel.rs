//! What the kernel's own NVMe host has connected, and who owns that by nvme-cli 3's registry
//! (`/run/nvme/registry/nvme0/owner`). Only looked at: the entries are of those who write them.

use std::collections::HashMap;
use std::path::Path;

use ebof_nvme::{HostId, Nqn};

use crate::output::text::safe;

/// Bytes of a file that are looked at.
const FILE_BYTES_MAX: usize = 4096;

/// Controllers that are looked at.
const CONTROLLERS_MAX: usize = 16_384;

/// Transports of what is no connection over a network.
const LOCAL: [&str; 3] = ["pcie", "apple-nvme", "loop"];

/// The subsystems that the kernel's host has connected, with what is said of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelHost {
    subsystems: HashMap<String, String>,
}

impl KernelHost {
    /// Reads `class` (`/sys/class/nvme`) and `registry`. What cannot be read is not there.
    pub(crate) fn read(class: &Path, registry: &Path) -> Self {
        let mut subsystems: HashMap<String, String> = HashMap::new();
        let Ok(entries) = std::fs::read_dir(class) else { return Self::default() };
        for entry in entries.flatten().take(CONTROLLERS_MAX) {
            let of = |name: &str| read_word(&entry.path().join(name));
            let Some(nqn) = of("subsysnqn") else { continue };
            let transport = of("transport").unwrap_or_default();
            if transport.is_empty() || LOCAL.contains(&transport.as_str()) || of("state").as_deref() == Some("dead") {
                continue;
            }
            let device = entry.file_name().to_string_lossy().into_owned();
            let owner = read_word(&registry.join(&device).join("owner"));
            let address = of("address").unwrap_or_default();
            let advice = match &owner {
                Some(owner) => format!(", which `{}` owns (/run/nvme/registry)", safe(owner)),
                None => format!(": `nvme disconnect -d {device}` ends that"),
            };
            let said = format!("the kernel's host has it as {device} at {} {}{advice}", transport, safe(&address));
            // One that is owned says more.
            let is_first = !subsystems.contains_key(&nqn);
            if is_first || owner.is_some() {
                subsystems.insert(nqn, said);
            }
        }
        Self { subsystems }
    }

    /// What is said of a subsystem that the kernel's host has connected.
    pub(crate) fn has(&self, nqn: &str) -> Option<&str> {
        self.subsystems.get(nqn).map(String::as_str)
    }
}

/// The first line of a small file; nothing if it is empty or cannot be read.
fn read_word(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(FILE_BYTES_MAX as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let word = text.lines().next().unwrap_or_default().trim().to_owned();
    (!word.is_empty()).then_some(word)
}

/// Who connects, as exclusions name it.
pub(crate) fn host_of(nqn: Option<&Nqn>, id: Option<HostId>) -> (String, String) {
    let own = ebof_initiator::host::identity();
    let is_other = nqn.is_some_and(|nqn| *nqn != own.nqn);
    let name = nqn.map_or_else(|| own.nqn.to_string(), ToString::to_string);
    // Another host without an identifier gets one of its own.
    let id = id.or((!is_other).then_some(own.id));
    (name, id.map(|id| id.to_string()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    // @test host.registry
    #[test]
    fn what_the_kernels_host_has_is_known_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let (class, registry) = (directory.path().join("class"), directory.path().join("registry"));
        let controllers = [
            ("nvme0", "nqn.a", "tcp", "live", "traddr=192.0.2.1,trsvcid=4420"),
            ("nvme1", "nqn.a", "tcp", "live", "traddr=192.0.2.2,trsvcid=4420"),
            ("nvme2", "nqn.b", "rdma", "connecting", "traddr=192.0.2.1,trsvcid=4420"),
            ("nvme3", "nqn.c", "pcie", "live", "0000:01:00.0"),
            ("nvme4", "nqn.d", "tcp", "dead", "traddr=192.0.2.1,trsvcid=4420"),
        ];
        for (name, nqn, transport, state, address) in controllers {
            for (file, text) in [("subsysnqn", nqn), ("transport", transport), ("state", state), ("address", address)] {
                write(&class.join(name).join(file), &format!("{text}\n"));
            }
        }
        write(&registry.join("nvme1/owner"), "stas\n");
        // Of a controller that is gone.
        write(&registry.join("nvme9/owner"), "discoverd\n");
        let host = KernelHost::read(&class, &registry);
        let owned = host.has("nqn.a").unwrap();
        assert!(owned.contains("nvme1 at tcp traddr=192.0.2.2") && owned.contains("`stas` owns"), "{owned}");
        let free = host.has("nqn.b").unwrap();
        assert!(free.contains("nvme2") && free.contains("`nvme disconnect -d nvme2`"), "{free}");
        assert_eq!((host.has("nqn.c"), host.has("nqn.d"), host.has("nqn.e")), (None, None, None));
        assert!(KernelHost::read(Path::new("/nonexistent"), &registry).has("nqn.a").is_none());
    }
}
