//! A host within an async program that has several paths to a namespace, here with tokio: each
//! command takes the best one, and goes on over another one when that is lost.
//!
//! ```text
//! cargo run -p ebof --example paths nvme+tcp://192.168.1.10/NQN nvme+tcp://192.168.2.10/NQN
//! ```
#![expect(clippy::print_stdout, reason = "it is an example")]

use ebof::{AsyncNamespace, Nsid, Options, PathPolicy, Subsystem, Uri};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uris = std::env::args().skip(1).map(|uri| Uri::parse(&uri)).collect::<Result<Vec<_>, _>>()?;
    if uris.is_empty() {
        return Err("say where, once for each path: nvme+tcp://HOST:PORT/NQN nvme+tcp://HOST:PORT/NQN".into());
    }
    // All at once: those that do not answer cost their time-out once.
    let addresses: Vec<Options> = uris.iter().map(Options::from_uri).collect();
    let subsystem = Subsystem::connect_async(&addresses).await?;
    for path in subsystem.unreachable() {
        println!("{} is not there: {}", path.address, path.error);
    }
    subsystem.set_policy(PathPolicy::RoundRobin);
    let namespace = AsyncNamespace::open_paths(&subsystem, Nsid(1)).await?;
    let block_bytes = namespace.info().block_bytes() as usize;
    let mut reads = tokio::task::JoinSet::new();
    for block in 0..32 {
        let namespace = namespace.clone();
        reads.spawn(async move { namespace.read(block, vec![0; block_bytes]).await.map(|data| data.len()) });
    }
    let mut bytes = 0;
    while let Some(read) = reads.join_next().await {
        bytes += read??;
    }
    println!("{bytes} bytes were read over {} paths", subsystem.paths().len());
    Ok(())
}
