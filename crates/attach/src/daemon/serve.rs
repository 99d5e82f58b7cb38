//! The daemon's end of the control socket: one thread per client, up to a maximum. Commands are run
//! here; requests that change devices are sent to the main thread.

use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ebof_initiator::AdminData;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, Sqe};
use zerocopy::{FromBytes, IntoBytes};

use super::{Message, PendingDisconnect, Shared, paths, start_thread};
use crate::block_queue::counting;
use crate::control::stats::Stats;
use crate::control::{self, Answer, Call, DATA_MAX_BYTES};
use crate::error::Error;

/// The most clients at a time; further ones are closed at once.
const CLIENTS_MAX: usize = 64;

/// How long to wait for the controller to be live after a reset.
const RESET_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a disconnect may wait until the main thread begins with it. Less than a client waits.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes the socket in the instance's directory and serves it.
pub(super) fn listen(directory: &Path, shared: &Arc<Shared>) -> Result<(), Error> {
    let path = directory.join("control.sock");
    let problem = |error| Error::io(format!("listening on {}", path.display()), error);
    let listener = UnixListener::bind(&path).map_err(problem)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(problem)?;
    let shared = Arc::clone(shared);
    let clients = Arc::new(AtomicUsize::new(0));
    start_thread("control", move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => welcome(stream, &shared, &clients),
                Err(error) => {
                    tracing::warn!(%error, "accepting a client");
                    // Most likely out of descriptors, until clients leave.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })
}

fn welcome(stream: UnixStream, shared: &Arc<Shared>, clients: &Arc<AtomicUsize>) {
    if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::AcqRel);
        tracing::warn!("too many clients: one is closed");
        return;
    }
    let shared = Arc::clone(shared);
    let mine = Arc::clone(clients);
    let started = start_thread("client", move || {
        if let Err(error) = converse(stream, &shared) {
            tracing::debug!(%error, "a client is gone");
        }
        mine.fetch_sub(1, Ordering::AcqRel);
    });
    if let Err(error) = started {
        clients.fetch_sub(1, Ordering::AcqRel);
        tracing::warn!(%error, "a client is closed");
    }
}

fn converse(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let received = match control::receive::<Call>(&mut stream) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            Err(error) => {
                let message = format!("the call is not understood: {error}");
                return control::send(stream.get_mut(), &Answer::Failed { message }, &[]);
            }
        };
        let (call, mut data) = received;
        let answer = match call {
            Call::Disconnect { force } => return farewell(stream.get_mut(), shared, force),
            Call::Status => status(shared),
            Call::Admin { sqe, read_bytes, timeout_ms } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                let controller = shared.subsystem.controller();
                let run = |sqe, data: AdminData<'_>| controller.admin(sqe, data, timeout);
                command(&sqe, read_bytes, &mut data, run)
            }
            Call::Io { sqe, read_bytes } => {
                command(&sqe, read_bytes, &mut data, |sqe, data| io_command(shared, sqe, data))
            }
            Call::Stats => counted(shared, &mut data),
            Call::Reset => {
                data.clear();
                reset(shared)
            }
            Call::Rescan => {
                data.clear();
                rescan(shared)
            }
            Call::AddPath { request } => {
                data.clear();
                paths::add(shared, *request)
            }
            Call::RemovePath { path } => {
                data.clear();
                paths::remove(shared, &path)
            }
            Call::SetPaths { policy, prefer, enable, disable } => {
                data.clear();
                paths::set(shared, &paths::PathChange { policy, prefer, enable, disable })
            }
            Call::Reauthenticate => {
                data.clear();
                reauthenticate(shared)
            }
        };
        control::send(stream.get_mut(), &answer, &data)?;
    }
}

/// Resets the controller and waits until it is live, as Linux does.
fn reset(shared: &Shared) -> Answer {
    let controller = shared.subsystem.controller();
    controller.reset();
    if controller.wait_live(Some(Instant::now() + RESET_TIMEOUT)) {
        return Answer::Done;
    }
    let state = controller.state().name();
    let message = format!(
        "the controller did not come back within {} s: it is {state}; see with `ebof discover` whether the target still \
         runs and is reached",
        RESET_TIMEOUT.as_secs()
    );
    Answer::Failed { message }
}

fn status(shared: &Shared) -> Answer {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
    paths::refresh(&mut state, shared);
    Answer::Status { state: Box::new(state) }
}

/// Puts what the threads have counted into `data`.
fn counted(shared: &Shared, data: &mut Vec<u8>) -> Answer {
    let sums = counting::sums(&shared.tallies);
    match serde_json::to_vec(&Stats::from_counted(&sums, &shared.subsystem.paths(), shared.subsystem.troubles())) {
        Ok(told) => *data = told,
        Err(error) => return Answer::Failed { message: error.to_string() },
    }
    Answer::Counted
}

/// Runs a command that sends `data`, or whose result replaces `data`.
fn command(
    sqe: &str,
    read_bytes: u32,
    data: &mut Vec<u8>,
    run: impl FnOnce(Sqe, AdminData<'_>) -> Result<Cqe, ebof_initiator::Error>,
) -> Answer {
    let sent = std::mem::take(data);
    let Some(sqe) = control::from_hex::<64>(sqe).and_then(|bytes| Sqe::read_from_bytes(&bytes).ok()) else {
        return Answer::Failed { message: "the submission queue entry is not 64 bytes in hexadecimal".to_owned() };
    };
    if read_bytes > DATA_MAX_BYTES || (read_bytes > 0 && !sent.is_empty()) {
        let message = "a command sends data or returns data, at most 16 MiB".to_owned();
        return Answer::Failed { message };
    }
    let mut returned = vec![0; read_bytes as usize];
    let borrowed = match (read_bytes, sent.as_slice()) {
        (0, []) => AdminData::None,
        (0, sent) => AdminData::FromHost(sent),
        _ => AdminData::ToHost(&mut returned),
    };
    match run(sqe, borrowed) {
        Ok(cqe) => {
            *data = returned;
            Answer::Completed { cqe: control::to_hex(cqe.as_bytes()) }
        }
        Err(error) => Answer::Failed { message: error.to_string() },
    }
}

fn io_command(shared: &Shared, sqe: Sqe, data: AdminData<'_>) -> Result<Cqe, ebof_initiator::Error> {
    let mut queue = shared.passthrough.lock().unwrap_or_else(PoisonError::into_inner);
    if let (
        nvm::RESERVATION_REGISTER | nvm::RESERVATION_ACQUIRE | nvm::RESERVATION_RELEASE,
        AdminData::FromHost(data),
    ) = (sqe.opcode, &data)
    {
        // Its queue is the one that the call takes.
        drop(queue.take());
        return reserve(shared, sqe, data);
    }
    // The queue pair of a controller that is gone goes.
    queue.take_if(|(controller, _)| controller.state() != ebof_initiator::State::Live);
    let (_, queue) = match queue.as_mut() {
        Some(queue) => queue,
        None => {
            let controller = shared.subsystem.controller();
            let pair = controller.queue_pair()?;
            queue.insert((controller, pair))
        }
    };
    queue.execute(sqe, data)
}

/// Runs a command that changes reservations, for all paths.
fn reserve(shared: &Shared, sqe: Sqe, data: &[u8]) -> Result<Cqe, ebof_initiator::Error> {
    let done = shared.subsystem.namespace(sqe.nsid()).and_then(|namespace| namespace.reservations().execute(sqe, data));
    shared.subsystem.release_queues();
    match done {
        Ok(()) => Ok(Cqe::default()),
        Err(ebof_initiator::Error::Status { status, .. }) => Ok(Cqe::new(Cid(0), status)),
        Err(error) => Err(error),
    }
}

fn reauthenticate(shared: &Shared) -> Answer {
    match shared.subsystem.controller().reauthenticate() {
        Ok(done) => Answer::Authenticated {
            hash: done.hash.to_string(),
            group: done.group.to_string(),
            mutual: done.is_mutual,
            tls_key_replaced: done.has_replaced_psk,
        },
        Err(error) => Answer::Failed { message: error.to_string() },
    }
}

pub(super) fn rescan(shared: &Shared) -> Answer {
    let (answer, answered) = sync_channel(1);
    let sender = shared.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let ending = |_| Answer::Failed { message: "the attach daemon is ending".to_owned() };
    match sender.send(Message::Rescan { answer }) {
        Ok(()) => answered.recv().unwrap_or_else(|error| ending(error.to_string())),
        Err(error) => ending(error.to_string()),
    }
}

fn farewell(stream: &mut UnixStream, shared: &Shared, force: bool) -> io::Result<()> {
    let (farewell, answered) = sync_channel(1);
    let wanted = Arc::new(PendingDisconnect::of(stream)?);
    let sender = shared.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // When it is ending already, the client sees the connection close, and the lock go.
    if sender.send(Message::Disconnect { force, wanted: Arc::clone(&wanted), farewell }).is_err() {
        return Ok(());
    }
    let answer = match answered.recv_timeout(BEGIN_TIMEOUT) {
        // The main thread waits for a target that hangs.
        Err(RecvTimeoutError::Timeout) if wanted.give_up() => return control::send(stream, &Answer::Busy, &[]),
        Err(RecvTimeoutError::Timeout) => answered.recv().ok(),
        answer => answer.ok(),
    };
    match answer {
        Some(last) => control::send(stream, &last.answer, &[]),
        // It is ending.
        None => Ok(()),
    }
}
