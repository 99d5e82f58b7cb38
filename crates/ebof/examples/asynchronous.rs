//! A host within an async program, here with tokio: many reads at the same time by one task.
//!
//! ```text
//! cargo run -p ebof --example asynchronous nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:memory
//! ```
#![expect(clippy::print_stdout, reason = "it is an example")]

use ebof::{AsyncNamespace, Controller, Nsid, Options, Uri};

// The futures need no runtime of their own: any executor polls them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).ok_or("say where: nvme+tcp://HOST:PORT/NQN")?;
    let controller = Controller::connect_async(&Options::from_uri(&Uri::parse(&uri)?)).await?;
    let namespace = AsyncNamespace::open(&controller, Nsid(1)).await?;
    let block_bytes = namespace.info().block_bytes() as usize;

    // A buffer goes with each call, and comes back with its result.
    let mut reads = tokio::task::JoinSet::new();
    for block in 0..32 {
        let namespace = namespace.clone();
        reads.spawn(async move { namespace.read(block, vec![0; block_bytes]).await.map(|data| data.len()) });
    }
    let mut bytes = 0;
    while let Some(read) = reads.join_next().await {
        bytes += read??;
    }
    println!("{bytes} bytes were read");
    Ok(())
}
