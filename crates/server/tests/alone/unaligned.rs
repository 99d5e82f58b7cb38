//! A guest whose data are not where a device with direct I/O can use them: they are in buffers of
//! the pool, which has a limit, and no memory is taken for each command.

use ebof_nvme::Status;
use ebof_server::{Settings, Target};
use stats_alloc::Region;

use crate::allocation::ALLOCATOR;
use crate::direct_rig::{DATA, Guest, transfer, with_direct_port};
use crate::is_alone;

const BLOCKS: u32 = 256;
const COMMANDS: u64 = 60;

#[test]
fn buffers_for_pieces_of_blocks_are_the_pools() {
    if !is_alone("unaligned::buffers_for_pieces_of_blocks_are_the_pools") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("direct.sock"), folder.path().join("drive"));
    std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    // Two of the commands at a time.
    let settings = Settings { threads: Some(1), pin: false, connection_buffer_bytes: 256 << 10, ..Settings::default() };
    let drive = format!("{},direct=yes", file.display());
    let target = Target::start(with_direct_port(&socket, [drive.as_str()]), settings).unwrap();
    let mut guest = Guest::enabled(&socket);
    let mut io = guest.create(1, 64);
    // Pages one after the other; the first is entered at four bytes, so that one more is needed.
    let (list, data) = (DATA, DATA + 4096);
    let pages: Vec<u64> = (1..=u64::from(BLOCKS) / 8).map(|at| data + at * 4096).collect();
    guest.put64(list, &pages);
    for opcode in [0x01, 0x02] {
        let content: Vec<u8> = (0..BLOCKS * 512).map(|at| (at % 251) as u8).collect();
        if opcode == 0x01 {
            guest.put(data + 4, &content);
        } else {
            guest.memory.clear((data - crate::direct_rig::RAM) as usize, content.len() + 4096).unwrap();
        }
        for warm in [true, false] {
            let region = Region::new(ALLOCATOR);
            let before = io.tail;
            for _ in 0..COMMANDS {
                guest.push(&mut io, transfer(opcode, 0, BLOCKS, data + 4, list));
            }
            guest.ring(&io, before);
            for _ in 0..COMMANDS {
                assert_eq!(guest.take(&mut io).status(), Status::SUCCESS);
            }
            let allocated = region.change().bytes_allocated;
            let data_bytes = COMMANDS as usize * BLOCKS as usize * 512;
            assert!(warm || allocated < data_bytes / 4, "{opcode}: {allocated} bytes for {data_bytes} of data");
        }
        assert!(guest.get(data + 4, content.len()) == content);
    }
    drop(guest);
    drop(target);
}
