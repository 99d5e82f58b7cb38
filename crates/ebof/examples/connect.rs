//! A host within a program, in blocking calls: writes blocks of a namespace and reads them again.
//!
//! ```text
//! cargo run -p ebof --example connect nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:memory
//! ```
#![expect(clippy::print_stdout, reason = "it is an example")]

use ebof::{Controller, Nsid, Options, Uri};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).ok_or("say where: nvme+tcp://HOST:PORT/NQN")?;
    // Reconnects by itself; `options` has time limits, queues, keys and more.
    let options = Options::from_uri(&Uri::parse(&uri)?);
    let controller = Controller::connect(&options)?;
    let namespace = controller.namespace(Nsid(1))?;
    let block_bytes = namespace.block_bytes() as usize;
    println!("{} blocks of {block_bytes} bytes", namespace.blocks());

    // From block 0 on, not written through a volatile cache (FUA).
    namespace.write(0, &vec![7; 8 * block_bytes], false)?;
    namespace.flush()?;
    let mut data = vec![0; 8 * block_bytes];
    namespace.read(0, &mut data)?;
    println!("{} bytes are back: {}", data.len(), data.iter().all(|&byte| byte == 7));
    controller.disconnect();
    Ok(())
}
