//! Connecting to a subsystem by several addresses at once.

use std::fmt;
use std::sync::Arc;

use super::sameness::{AddPathError, check_names};
use super::{PATHS_MAX, Subsystem};
use crate::controller::Controller;
use crate::error::connect_error::ConnectError;
use crate::options::Options;
use crate::shared::opened::OpenedNamespaces;

/// An address that could not be connected.
#[derive(Clone, Debug)]
pub struct UnreachablePath {
    /// As [`Options::address`] says it: `127.0.0.1:4420`.
    pub address: String,
    /// What was tried, what came back, what to do.
    pub error: Arc<ConnectError>,
}

/// Why a subsystem was not connected.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectPathsError {
    /// No address was given.
    NoAddress,
    /// None of them could be connected.
    Unreachable(Vec<UnreachablePath>),
    /// This one leads somewhere else than the others.
    Path {
        /// As [`Options::address`] says it.
        address: String,
        /// How it differs, with both values.
        error: AddPathError,
    },
}

impl fmt::Display for ConnectPathsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no address was given to connect to"),
            Self::Unreachable(paths) => {
                for (number, path) in paths.iter().enumerate() {
                    let UnreachablePath { address, error } = path;
                    let (before, error) = if number == 0 { ("", error) } else { ("\n", error) };
                    if f.alternate() {
                        write!(f, "{before}{address}: {error:#}")?;
                    } else {
                        write!(f, "{before}{address}: {error}")?;
                    }
                }
                Ok(())
            }
            Self::Path { address, error } => write!(f, "{address}: {error}"),
        }
    }
}

impl std::error::Error for ConnectPathsError {}

/// See [`Subsystem::connect`].
pub(super) fn connect(addresses: &[Options]) -> Result<Subsystem, ConnectPathsError> {
    let Some(first) = addresses.first() else { return Err(ConnectPathsError::NoAddress) };
    let wrong = |options: &Options, error| ConnectPathsError::Path { address: options.address(), error };
    for options in addresses {
        check_names(first, options).map_err(|error| wrong(options, error))?;
    }
    if let Some(options) = addresses.get(PATHS_MAX) {
        return Err(wrong(options, AddPathError::TooMany));
    }
    let (mut reached, mut unreachable) = (Vec::new(), Vec::new());
    for (options, connected) in addresses.iter().zip(connect_all(addresses)) {
        match connected {
            Ok(controller) => reached.push((options, controller)),
            Err(error) => unreachable.push(UnreachablePath { address: options.address(), error: Arc::new(error) }),
        }
    }
    let mut reached = reached.into_iter();
    let Some((options, controller)) = reached.next() else {
        return Err(ConnectPathsError::Unreachable(unreachable));
    };
    let subsystem = Subsystem::with_unreachable(controller, unreachable);
    let subsystem = subsystem.map_err(|error| wrong(options, AddPathError::Queues(error)))?;
    for (options, controller) in reached {
        if let Err(error) = subsystem.join(controller) {
            subsystem.disconnect();
            return Err(wrong(options, error));
        }
    }
    Ok(subsystem)
}

/// The URIs of a list of paths: `nvme+tcp://A/NQN/1,nvme+tcp://B/NQN/1`. An NQN may have commas:
/// only one with the beginning of a URI behind it divides.
pub fn split_paths(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        let comma = commas.find(|at| text[at + 1..].trim_start().starts_with("nvme+"));
        rest = comma.map(|at| &text[at + 1..]);
        Some(comma.map_or(text, |at| &text[..at]).trim())
    })
}

/// Connects a controller by each address, side by side.
fn connect_all(addresses: &[Options]) -> Vec<Result<Controller, ConnectError>> {
    let opened = Arc::<OpenedNamespaces>::default();
    if let [only] = addresses {
        return vec![Controller::connect_beside(only, opened)];
    }
    std::thread::scope(|scope| {
        let connect = |options| {
            let opened = Arc::clone(&opened);
            let thread = std::thread::Builder::new().name("nvme-connect".to_owned());
            // Without another thread, one after the other.
            let on_thread = Arc::clone(&opened);
            match thread.spawn_scoped(scope, move || Controller::connect_beside(options, on_thread)) {
                Ok(thread) => Ok(thread),
                Err(_) => Err(Controller::connect_beside(options, opened)),
            }
        };
        let begun: Vec<_> = addresses.iter().map(connect).collect();
        let end = |begun| match begun {
            Ok(thread) => {
                let thread: std::thread::ScopedJoinHandle<'_, _> = thread;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Err(connected) => connected,
        };
        begun.into_iter().map(end).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_uris_is_divided_at_the_commas_between_them() {
        fn split(text: &str) -> Vec<&str> {
            split_paths(text).collect()
        }
        let one = "nvme+tcp://a/nqn.2014-08.org.example:a,b/1";
        assert_eq!(split(one), [one]);
        assert_eq!(split(&format!("{one},{one}, nvme+rdma://b")), [one, one, "nvme+rdma://b"]);
        assert_eq!((split(""), split("disk,nvme")), (vec![""], vec!["disk,nvme"]));
    }

    #[test]
    fn every_address_that_was_not_reached_is_told() {
        let options = Options::new("127.0.0.1", 1, ebof_nvme::Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        let error = Subsystem::connect(&[options.clone(), options]).unwrap_err();
        assert!(matches!(&error, ConnectPathsError::Unreachable(paths) if paths.len() == 2), "{error}");
        assert_eq!(error.to_string().lines().count(), 2, "{error}");
    }
}
