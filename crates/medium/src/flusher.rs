//! Flushes of namespaces about which the journal has something new to say: when they are over, the medium is told what is durable
//! now, and only then are they answered.
//!
//! They are done on a thread of their own, several at a time: a flush may take seconds, and the drive's thread has others to serve.
//! All other flushes go to the backing device at once, on the thread of the request.

use std::sync::Arc;
use std::thread::JoinHandle;

use ebof_backend::{Engine, Vital};

use crate::disk::Disk;
use crate::journal::Point;
use crate::shared::{Message, Shared};
use crate::thin::stopped;

/// Starts the thread; it ends when the drive's thread has.
pub(crate) fn start(shared: &Arc<Shared>, engine: Engine) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("ebof-flush".to_owned()).spawn(move || run(&shared, engine))
}

fn run(shared: &Arc<Shared>, engine: Engine) {
    // Who waits for a flush would wait for ever, and what it makes durable be forgotten.
    let _vital = Vital::new();
    let mut disk = Disk::new(Arc::clone(&shared.base), engine);
    if let Err(error) = &disk {
        tracing::warn!("flushes wait for the drive's thread: {error}");
    }
    while let Some(errands) = shared.take_flushes() {
        let Ok(disk) = &mut disk else {
            for errand in errands {
                if let Err(errand) = shared.send(errand) {
                    errand.finish(Err(stopped));
                }
            }
            continue;
        };
        // Everything that these flushes are to make durable was over when they were asked for, and so is in here.
        let point = Point::unpack(shared.journal.position());
        match disk.flush() {
            Ok(()) => {
                // The drive's thread answers them, also when it is about to end.
                if let Err(Message::Flushed(_, errands)) = shared.post_or_give_back(Message::Flushed(point, errands)) {
                    errands.into_iter().for_each(|errand| errand.answer(Ok(())));
                }
            }
            Err(error) => {
                shared.saw(&error);
                let mut error = Some(error);
                for errand in errands {
                    let error = error.take().unwrap_or_else(|| {
                        let reason = "it cannot be brought to the medium: see the log";
                        crate::thin::refused(&errand.request.operation, ebof_backend::Class::MediumWrite, reason)
                    });
                    errand.answer(Err(error));
                }
            }
        }
    }
}
