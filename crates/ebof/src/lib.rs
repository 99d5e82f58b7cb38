//! ebof as a library: a target and hosts for programs of your own, in one crate.
//!
//! ```
//! use ebof::{Controller, Nsid, Options, Target, Uri};
//!
//! // A target from the text of a configuration; port 0 is any free one.
//! let target = Target::start_text(
//!     r#"
//!     [[ports]]
//!     name = "here"
//!     listen = "tcp://127.0.0.1:0"
//!     [[subsystems]]
//!     nqn = "nqn.2014-08.org.example:drive0"
//!     allow_any_host = true
//!     namespaces = ["mem:64Mi"]
//!     "#,
//! )?;
//! let (_, address) = &target.addresses()[0];
//!
//! // A host in blocking calls; `AsyncNamespace` has the same as futures.
//! let uri = Uri::parse(&format!("nvme+tcp://{address}/nqn.2014-08.org.example:drive0"))?;
//! let controller = Controller::connect(&Options::from_uri(&uri))?;
//! let namespace = controller.namespace(Nsid(1))?;
//! namespace.write(0, &[7; 4096], false)?;
//! let mut data = [0; 4096];
//! namespace.read(0, &mut data)?;
//! assert_eq!(data, [7; 4096]);
//!
//! controller.disconnect();
//! target.stop(std::time::Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Errors are one line as text (`{}`); with `{:#}` they also say what was tried, what came back and
//! what to do, or show the lines of a configuration. The crate is the program's, too: who embeds it
//! takes it with `default-features = false`, which leaves out what only the program needs. The
//! modules are ebof's crates in full.
#![forbid(unsafe_code)]

pub use ebof_initiator::{
    AsyncNamespace, Completion, ConnectError, Controller, Data, DiscoveryLog, Error, Namespace, Options, QueuePair,
    Queues, discover,
};
pub use ebof_manage::{Config, Diagnostics};
pub use ebof_nvme::uri::Uri;
pub use ebof_nvme::{Nqn, Nsid, Sqe};
pub use ebof_server::{Settings, StartError, Target, TextError};
pub use {ebof_initiator as initiator, ebof_manage as manage, ebof_nvme as nvme, ebof_server as target};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
