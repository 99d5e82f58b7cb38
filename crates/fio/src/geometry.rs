//! Sizes of namespaces before a job begins: fio plans a job by the sizes of its files, in a process
//! or thread that does no I/O on them. Each namespace is queried once, over a temporary connection.

use std::sync::{Mutex, PoisonError};

use ebof_initiator::{Controller, Error};

use crate::address::NamespaceAddress;
use crate::failure::JobFailure;
use crate::settings::JobSettings;

/// Queried namespaces and their sizes.
static KNOWN: Mutex<Vec<(Queried, u64)>> = Mutex::new(Vec::new());

/// The paths to a namespace, and how they were connected.
type Queried = (Vec<NamespaceAddress>, JobSettings);

/// The size in bytes of the namespace `name`.
pub(crate) fn size_bytes(name: &str, settings: &JobSettings) -> Result<u64, JobFailure> {
    let paths = NamespaceAddress::find(name, settings.uri.as_deref())?;
    let key = (paths, settings.clone());
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|one| one.0 == key).map(|one| one.1);
    if let Some(size) = known {
        return Ok(size);
    }
    // Without the lock: fio may fork at any time.
    let size = query_paths(&key.0, &key.1)?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push((key, size));
    Ok(size)
}

/// By the first path that can be connected.
fn query_paths(paths: &[NamespaceAddress], settings: &JobSettings) -> Result<u64, JobFailure> {
    let mut failed = None;
    for address in paths {
        match query(address, settings) {
            Ok(size) => return Ok(size),
            Err(failure) => {
                failed.get_or_insert(failure);
            }
        }
    }
    Err(failed.unwrap_or_else(|| JobFailure::new(libc::EINVAL, "ebof: no namespace")))
}

fn query(address: &NamespaceAddress, settings: &JobSettings) -> Result<u64, JobFailure> {
    let controller = Controller::connect(&settings.options(address, 0)?)?;
    let told = controller.identify_namespace(address.nsid);
    // Waits for the controller's thread, which must not exist at a fork.
    controller.disconnect();
    let identify = told.map_err(|error| JobFailure::of_error("Identify Namespace", address, &error))?;
    let unusable = Error::Format { nsid: address.nsid, reason: "its block size is not legal" };
    let block = identify
        .format()
        .block_bytes()
        .ok_or_else(|| JobFailure::of_error("Identify Namespace", address, &unusable))?;
    Ok(identify.nsze.get().saturating_mul(u64::from(block)))
}
