//! Writes the hand-made part of the fuzz corpus: whole conversations, and the golden bytes of the
//! other crates. Run from the repository's root: `cargo run -p ebof-testkit --example fuzz_seeds`.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::{fs, io};

use ebof_authentication::{Hash, KeyMaterial};
use ebof_nvme::connect::{Connect, Property, disconnect};
use ebof_nvme::io::{BlockRange, Dsm};
use ebof_nvme::{Nsid, QueueId, Sqe};
use ebof_testkit::{fuzz, hex};
use ebof_tls::{ClientHandshake, TlsPsk};
use zerocopy::IntoBytes;

fn main() -> io::Result<()> {
    let corpus = Path::new("fuzz/corpus");
    for (index, seed) in fuzz::controller_seeds().iter().enumerate().step_by(3) {
        write(corpus, "tcp_controller", &format!("conversation-{index:02}"), seed)?;
    }
    for (index, seed) in fuzz::host_seeds().iter().enumerate().step_by(3) {
        write(corpus, "tcp_host", &format!("conversation-{index:02}"), seed)?;
    }
    for (index, seed) in fuzz::rdma_conversation_seeds().iter().enumerate() {
        write(corpus, "rdma_conversation", &format!("random-{index}"), seed)?;
    }
    for (index, seed) in fuzz::rdma_target_seeds().iter().enumerate() {
        write(corpus, "rdma_target", &format!("commands-{index}"), seed)?;
    }
    let hello = client_hello()?;
    write(corpus, "tls_client_hello", "of-our-host", &hello)?;
    write(corpus, "tls_client_hello", "cut", &hello[..hello.len() - 1])?;
    for part in [0, 3, 255_u8] {
        // Every action with several lengths, then the same with something wrong in the middle.
        let acts = |acts: std::ops::Range<u8>| acts.flat_map(|act| [act, act % 7]).collect::<Vec<u8>>();
        let seed = [vec![part, 1], acts(0..3), acts(4..6), acts(8..11), acts(0..255)].concat();
        write(corpus, "tls_records", &format!("acts-{part}"), &seed)?;
    }
    for (index, seed) in fuzz::vfio_messages_seeds().iter().enumerate() {
        write(corpus, "vfio_messages", &format!("client-{index}"), seed)?;
    }
    for (index, seed) in fuzz::vfio_pointer_seeds().iter().enumerate() {
        write(corpus, "vfio_pointer", &format!("lists-{index}"), seed)?;
    }
    for shadow in 0..2_u8 {
        let acts = (0..=255_u8).flat_map(|act| [act, act / 8 % 9, 0]);
        let seed: Vec<u8> = [6, 4, shadow].into_iter().chain(acts).collect();
        write(corpus, "vfio_rings", &format!("acts-{shadow}"), &seed)?;
    }
    for (name, sqe) in commands() {
        write(corpus, "nvme_command", name, sqe.as_bytes())?;
    }
    for (name, text) in [
        ("discovery", "nqn.2014-08.org.nvmexpress.discovery"),
        ("uuid-nqn", "nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef"),
        ("uuid", "01234567-89ab-cdef-0123-456789abcdef"),
        ("uri", "nvme+tcp://[::1]:4420/nqn.2014-08.org.example:a%2Fb/1"),
        ("rdma-uri", "nvme+rdma://host.example/nqn.2014-08.org.example:drive0"),
    ] {
        write(corpus, "nvme_names", name, text.as_bytes())?;
    }
    // Every template once on every queue, each followed by a device's answer; and the same with all
    // else that happens.
    for queue in 0..4_u8 {
        let plain: Vec<u8> = (0..32).flat_map(|template| [template << 2 | queue, 1, 2, template, 0x80, 0]).collect();
        let busy = plain
            .chunks(6)
            .zip((0x80..=0xff_u8).step_by(4))
            .flat_map(|(act, other)| [act, &[other, other << 1 | 0x80]].concat());
        write(corpus, "fabrics_submit", &format!("busy-{queue}"), &busy.collect::<Vec<u8>>())?;
        write(corpus, "fabrics_submit", &format!("every-template-{queue}"), &plain)?;
    }
    golden(corpus)
}

/// The first bytes of a host, as it sends them.
fn client_hello() -> io::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    socket.set_nonblocking(true)?;
    let identity = "NVMe0R01 nqn.2014-08.org.example:host nqn.2014-08.org.example:sub".to_owned();
    let psk = TlsPsk::new(identity, Hash::Sha256, KeyMaterial::new(vec![7; 32])).map_err(io::Error::other)?;
    let mut handshake = ClientHandshake::new(socket, psk);
    handshake.advance().map_err(io::Error::other)?;
    let mut bytes = vec![0; 4096];
    let count = listener.accept()?.0.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn commands() -> Vec<(&'static str, Sqe)> {
    let connect = Connect { recfmt: 0, qid: QueueId(1), entries: 128, cattr: 4, kato_ms: 5000 };
    vec![
        ("connect", connect.encode()),
        ("property-get", Property::get(0, 8)),
        ("property-set", Property::set(0x14, 0x0046_0001)),
        ("disconnect", disconnect()),
        ("read", BlockRange::new(8, 16).encode(2, Nsid(1))),
        ("dsm", Dsm { ranges: 3, deallocate: true, integral_write: false, integral_read: false }.encode(Nsid(1))),
    ]
}

/// The golden bytes of the crates go to the targets that decode them.
fn golden(corpus: &Path) -> io::Result<()> {
    for (directory, targets) in [
        (
            "crates/nvme/testdata",
            &[
                ("identify", "nvme_identify"),
                ("independent", "nvme_identify"),
                ("nvm", "nvme_identify"),
                ("discovery", "nvme_discovery"),
                ("namespace_descriptors", "nvme_descriptors"),
                ("", "nvme_logs"),
            ][..],
        ),
        ("crates/tcp/testdata", &[("", "tcp_pdu")][..]),
        (
            "crates/rdma/testdata",
            &[("command", "rdma_controller"), ("response", "rdma_host"), ("", "rdma_private_data")][..],
        ),
    ] {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if let Some((_, target)) = targets.iter().find(|(prefix, _)| name.starts_with(prefix)) {
                let mut bytes = hex::read(&fs::read_to_string(&path)?);
                match *target {
                    "rdma_controller" => bytes.insert(0, u8::try_from(bytes.len()).unwrap_or(u8::MAX)),
                    "rdma_host" => bytes.insert(0, 0),
                    _ => {}
                }
                write(corpus, target, &name, &bytes)?;
            }
        }
    }
    Ok(())
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = corpus.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), bytes)
}
