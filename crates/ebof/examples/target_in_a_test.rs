//! A target for the tests of a program that is a host: each test has its own, in its own process,
//! on a free port. Run it with `cargo test -p ebof --example target_in_a_test`.

use std::time::Duration;

use ebof::{Controller, Nsid, Options, Target, Uri};

/// What is tested: marks a drive as one of ours.
///
/// # Errors
/// The drive cannot be reached or written.
fn mark(drive: &str) -> Result<(), Box<dyn std::error::Error>> {
    let controller = Controller::connect(&Options::from_uri(&Uri::parse(drive)?))?;
    let namespace = controller.namespace(Nsid(1))?;
    let mut block = vec![0; namespace.block_bytes() as usize];
    block[..4].copy_from_slice(b"mine");
    namespace.write(0, &block, false)?;
    controller.disconnect();
    Ok(())
}

/// A target with one drive in memory, and the drive's URI.
///
/// # Errors
/// It cannot be started.
fn target() -> Result<(Target, String), Box<dyn std::error::Error>> {
    const NQN: &str = "nqn.2014-08.org.example:tested";
    let target = Target::start_text(&format!(
        "[[ports]]\nname = \"test\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n"
    ))?;
    let (_port, address) = target.addresses().first().cloned().ok_or("it listens")?;
    Ok((target, format!("nvme+tcp://{address}/{NQN}")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (target, drive) = target()?;
    mark(&drive)?;
    target.stop(Duration::from_secs(5));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_marked_in_its_first_block() {
        let (target, drive) = target().unwrap();
        mark(&drive).unwrap();
        let controller = Controller::connect(&Options::from_uri(&Uri::parse(&drive).unwrap())).unwrap();
        let mut block = vec![0; 4096];
        let namespace = controller.namespace(Nsid(1)).unwrap();
        block.resize(namespace.block_bytes() as usize, 0);
        namespace.read(0, &mut block).unwrap();
        assert!(block.starts_with(b"mine"));
        controller.disconnect();
        target.stop(Duration::from_secs(5));
    }
}
