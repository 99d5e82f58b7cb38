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
//! # Async
//!
//! The futures need no particular runtime. A buffer goes with each call, and comes back with its
//! result.
//!
//! ```
//! # let target = ebof::Target::start_text(
//! #     "[[ports]]\nname = \"here\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\n\
//! #      nqn = \"nqn.2014-08.org.example:drive0\"\nallow_any_host = true\nnamespaces = [\"mem:64Mi\"]\n",
//! # )?;
//! # let uri = format!("nvme+tcp://{}/nqn.2014-08.org.example:drive0", target.addresses()[0].1);
//! use ebof::{AsyncNamespace, Controller, Nsid, Options, Uri};
//!
//! async fn first_block(uri: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//!     let controller = Controller::connect_async(&Options::from_uri(&Uri::parse(uri)?)).await?;
//!     let namespace = AsyncNamespace::open(&controller, Nsid(1)).await?;
//!     let block = vec![0; namespace.info().block_bytes() as usize];
//!     Ok(namespace.read(0, block).await?)
//! }
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! assert_eq!(runtime.block_on(first_block(&uri))?, [0; 512]);
//! # target.stop(std::time::Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several paths
//!
//! A [`Subsystem`] has several addresses of one subsystem. A [`PathNamespace`] has the calls of a
//! [`Namespace`], which go over the best path and go on over another one when it is lost.
//!
//! ```
//! # let target = ebof::Target::start_text(
//! #     "[[ports]]\nname = \"here\"\nlisten = \"tcp://127.0.0.1:0\"\n\
//! #      [[ports]]\nname = \"there\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\n\
//! #      nqn = \"nqn.2014-08.org.example:drive0\"\nallow_any_host = true\nnamespaces = [\"mem:64Mi\"]\n",
//! # )?;
//! # let uris = target.addresses().into_iter();
//! # let uris = uris.map(|(_, address)| format!("nvme+tcp://{address}/nqn.2014-08.org.example:drive0"));
//! # let uris: Vec<String> = uris.collect();
//! use ebof::{Nsid, Options, Subsystem, Uri};
//!
//! let uris = [Uri::parse(&uris[0])?, Uri::parse(&uris[1])?];
//! let subsystem = Subsystem::connect(&uris.each_ref().map(Options::from_uri))?;
//! assert!(subsystem.unreachable().is_empty() && subsystem.paths().len() == 2);
//! let namespace = subsystem.namespace(Nsid(1))?;
//! namespace.write(0, &[7; 4096], false)?;
//! let mut data = [0; 4096];
//! namespace.read(0, &mut data)?;
//! assert_eq!(data, [7; 4096]);
//!
//! subsystem.disconnect();
//! # target.stop(std::time::Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`AsyncNamespace::open_paths`] has the same as futures, and [`PathNamespace::reservations`] the
//! reservations of the host, which are one for all paths.
//!
//! # Without a socket
//!
//! A host in the process of its target reaches it in memory: in tests, and where a program serves
//! what it uses itself.
//!
//! ```
//! # let target = ebof::Target::start_text(
//! #     "[[ports]]\nname = \"here\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\n\
//! #      nqn = \"nqn.2014-08.org.example:drive0\"\nallow_any_host = true\nnamespaces = [\"mem:64Mi\"]\n",
//! # )?;
//! use ebof::{Controller, Nqn, Options, discover};
//!
//! let port = target.loopback("here").ok_or("no such port")?;
//! let drive = Nqn::parse("nqn.2014-08.org.example:drive0")?;
//! let controller = Controller::connect(&Options::loopback(port.clone(), drive.clone()))?;
//!
//! // What the target offers this host, as any discovery service tells it.
//! let log = discover(&Options::loopback(port, Nqn::discovery()))?;
//! assert!(log.entries.iter().any(|entry| entry.subsystem_nqn().to_string() == drive.as_str()));
//! # controller.disconnect();
//! # target.stop(std::time::Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A configuration in several steps
//!
//! [`Target::start_text`] reads and starts at once. In two steps a program sees what is remarkable,
//! and may change the [`Config`] and the [`Settings`] in between. Mistakes are [`Diagnostics`],
//! with the lines that they are in.
//!
//! ```
//! use ebof::{Config, Diagnostics, manage};
//!
//! fn read(text: &str) -> Result<Config, Diagnostics> {
//!     Ok(manage::load("drives.toml", text)?.config)
//! }
//!
//! let mistakes = read("[[subsystems]]\nnqn = 7\n").unwrap_err();
//! assert!(format!("{mistakes:#}").contains("--> drives.toml:2"));
//! ```
//!
//! # Errors
//!
//! Errors are one line as text (`{}`); with `{:#}` they also say what was tried, what came back and
//! what to do, or show the lines of a configuration. The crate is the program's, too: who embeds it
//! takes it with `default-features = false`, which leaves out what only the program needs. The
//! modules are ebof's crates in full.
#![forbid(unsafe_code)]

pub use ebof_initiator::{
    AddPathError, AsyncNamespace, Completion, ConnectError, ConnectPathsError, Controller, Data, DiscoveryLog, Error,
    Namespace, Options, PathId, PathNamespace, PathPolicy, PathReport, PathReservations, QueuePair, Queues, Subsystem,
    UnreachablePath, discover,
};
pub use ebof_manage::{Config, Diagnostics};
pub use ebof_nvme::uri::Uri;
pub use ebof_nvme::{Nqn, Nsid, Sqe};
pub use ebof_server::{Settings, StartError, Target, TextError};
pub use {ebof_initiator as initiator, ebof_manage as manage, ebof_nvme as nvme, ebof_server as target};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
