//! A target within a program: serves memory over NVMe/TCP until its standard input ends.
//!
//! ```text
//! cargo run -p ebof --example serve
//! ```
#![expect(clippy::print_stdout, reason = "it is an example")]

use std::io::Read as _;
use std::time::Duration;

use ebof::Target;

const NQN: &str = "nqn.2014-08.org.example:memory";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The text of a configuration, as `ebof serve --config` reads it; port 0 is any free one.
    let target = Target::start_text(&format!(
        r#"
        [[ports]]
        name = "here"
        listen = "tcp://127.0.0.1:0"
        [[subsystems]]
        nqn = "{NQN}"
        allow_any_host = true
        namespaces = ["mem:64Mi"]
        "#
    ))?;
    for (_port, address) in target.addresses() {
        println!("nvme+tcp://{address}/{NQN}");
    }
    // Threads of the target serve meanwhile.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Hosts have that time to end what they have begun.
    target.stop(Duration::from_secs(5));
    Ok(())
}
