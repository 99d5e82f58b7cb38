//! Shared by the integration tests: both engines, one request from start to end, and devices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebof_backend::{
    Buffer, Completion, Device, Engine, Error, Io, Operation, PAGE_BYTES, Request, Segment, Segments, SharedPiece,
    Spec, Submitted, open,
};
use ebof_region::SharedMapping;

/// Longer than any request takes on a busy machine; reaching it is a failure.
pub(crate) const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// An `Io` on every engine that this machine permits.
pub(crate) fn engines(entries: u32) -> Vec<Io> {
    let mut engines = vec![Io::with_engine(entries, Engine::Threads).unwrap()];
    match Io::with_engine(entries, Engine::Uring) {
        Ok(io) => engines.push(io),
        Err(error) => println!("SKIPPED on io_uring: {error}"),
    }
    engines
}

pub(crate) fn open_text(text: &str) -> Arc<dyn Device> {
    let spec: Spec = text.parse().unwrap();
    open(&spec).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs one operation to its end.
pub(crate) fn run(device: &dyn Device, io: &mut Io, operation: Operation) -> Completion {
    let completion = match device.submit(io, Request::new(42, operation)) {
        Submitted::Done(completion) => completion,
        Submitted::Pending => io.wait(LIMIT).unwrap().expect("a completion in time"),
        Submitted::Busy(_) => panic!("nothing else is in flight"),
    };
    assert_eq!(completion.tag, 42);
    completion
}

pub(crate) fn read(device: &dyn Device, io: &mut Io, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut buffer = Buffer::zeroed(len);
    // The old contents of the buffer must not be mistaken for data read.
    buffer.as_mut_slice().fill(0xEE);
    let completion = run(device, io, Operation::Read { offset, len, data: buffer.into() });
    completion.result?;
    Ok(completion.data.unwrap().into_buffer().expect("the buffer always comes back").as_slice()[..len].to_vec())
}

pub(crate) fn write(device: &dyn Device, io: &mut Io, offset: u64, bytes: &[u8], fua: bool) -> Result<(), Error> {
    let completion = run(device, io, write_of(offset, bytes, fua));
    assert!(completion.data.is_some());
    completion.result
}

pub(crate) fn write_of(offset: u64, bytes: &[u8], fua: bool) -> Operation {
    let mut buffer = Buffer::zeroed(bytes.len());
    buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    Operation::Write { offset, len: bytes.len(), data: buffer.into(), fua }
}

/// Memory for `len` bytes in pieces of `piece` bytes, each in the middle of a buffer of its own;
/// none of it is zero.
pub(crate) fn pieces(len: usize, piece: usize) -> Segments {
    let segment = |at: usize| {
        let bytes = piece.min(len - at);
        let mut buffer = Buffer::zeroed(2 * piece + bytes);
        buffer.as_mut_slice().fill(0xEE);
        Segment::new(buffer, piece..piece + bytes).expect("it has so many")
    };
    Segments::from((0..len).step_by(piece).map(segment).collect::<Vec<_>>())
}

/// Reads into such pieces.
pub(crate) fn read_pieces(
    device: &dyn Device,
    io: &mut Io,
    offset: u64,
    len: usize,
    piece: usize,
) -> Result<Vec<u8>, Error> {
    let completion = run(device, io, Operation::Read { offset, len, data: pieces(len, piece) });
    completion.result?;
    let segments = completion.data.expect("the memory always comes back").into_segments();
    let bytes = segments.iter().flat_map(|segment| segment.as_ref().to_vec()).collect();
    for segment in segments {
        let range = segment.range();
        let buffer = segment.into_buffer();
        let around = buffer.as_slice()[..range.start].iter().chain(&buffer.as_slice()[range.end..]);
        assert!(around.copied().all(|byte| byte == 0xEE), "something was read beside the pieces");
    }
    Ok(bytes)
}

/// Writes from such pieces.
pub(crate) fn write_pieces(
    device: &dyn Device,
    io: &mut Io,
    offset: u64,
    (bytes, piece): (&[u8], usize),
    fua: bool,
) -> Result<(), Error> {
    let (len, mut data) = (bytes.len(), pieces(bytes.len(), piece));
    data.scatter(bytes);
    let completion = run(device, io, Operation::Write { offset, len, data, fua });
    assert!(completion.data.is_some());
    completion.result
}

/// Memory for `len` bytes that another process could share, in pieces of `piece` bytes with `piece`
/// bytes between them, the first of them `shift` bytes from the beginning; none of it is zero.
pub(crate) fn shared(len: usize, piece: usize, shift: usize) -> (Arc<SharedMapping>, Vec<SharedPiece>) {
    let bytes = (shift + 2 * len + 2 * piece).next_multiple_of(PAGE_BYTES);
    let (_file, mapping) = SharedMapping::create("test", bytes as u64).unwrap();
    mapping.write(0, &vec![0xEE; bytes]).unwrap();
    let piece_at = |at: usize| mapping.piece(shift + 2 * at, piece.min(len - at)).unwrap();
    let pieces = (0..len).step_by(piece).map(piece_at).collect();
    (mapping, pieces)
}

/// Reads into shared memory.
pub(crate) fn read_shared(
    device: &dyn Device,
    io: &mut Io,
    offset: u64,
    len: usize,
    (piece, shift): (usize, usize),
) -> Result<Vec<u8>, Error> {
    let (mapping, pieces) = shared(len, piece, shift);
    let completion = run(device, io, Operation::Read { offset, len, data: pieces.into() });
    completion.result?;
    let pieces = completion.data.expect("the memory always comes back").into_shared().expect("as it was");
    let mut all = vec![0; mapping.length()];
    mapping.read(0, &mut all).unwrap();
    let mut bytes = Vec::new();
    for piece in pieces {
        let mut part = vec![0; piece.length()];
        piece.read(0, &mut part);
        bytes.extend(part);
        let begin = shift + 2 * (bytes.len() - piece.length());
        all[begin..begin + piece.length()].fill(0xEE);
    }
    assert!(all.iter().all(|byte| *byte == 0xEE), "something was read beside the pieces");
    Ok(bytes)
}

/// Writes from shared memory.
pub(crate) fn write_shared(
    device: &dyn Device,
    io: &mut Io,
    offset: u64,
    bytes: &[u8],
    (piece, shift): (usize, usize),
    fua: bool,
) -> Result<(), Error> {
    let (_mapping, pieces) = shared(bytes.len(), piece, shift);
    let mut data = Segments::from(pieces);
    data.scatter(bytes);
    let completion = run(device, io, Operation::Write { offset, len: bytes.len(), data, fua });
    assert!(completion.data.is_some_and(|data| data.as_shared().is_some()));
    completion.result
}

/// Whether the file system of `directory` supports direct I/O; prints a message if not.
pub(crate) fn direct_works(directory: &Path) -> bool {
    let probe = directory.join("direct-probe.img");
    let works = match open(&format!("{},size=64Ki,direct", probe.display()).parse().unwrap()) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED for direct I/O: {error}");
            false
        }
    };
    std::fs::remove_file(probe).unwrap_or_default();
    works
}

/// A loop device over a file, removed on drop.
pub(crate) struct LoopDevice {
    pub(crate) path: String,
}

impl LoopDevice {
    /// `None`, with a message, if it cannot be created: it needs root and the loop driver.
    pub(crate) fn over(file: &Path) -> Option<LoopDevice> {
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(LoopDevice { path: String::from_utf8(output.stdout).unwrap().trim().to_owned() })
            }
            Ok(output) => {
                println!("SKIPPED on a block device: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("SKIPPED on a block device: losetup: {error}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = std::process::Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(detached.unwrap().success(), "{} could not be detached", self.path);
    }
}
