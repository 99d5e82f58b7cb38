//! The thread that writes the log: records are handed over without waiting, and whoever has made a
//! change is told when its record is on the medium. A disk that is full or hangs stops nobody; what
//! is missing for it is in the log afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use ebof_state::StateDirectory;

use crate::chain::ChainHead;
use crate::files;
use crate::log::{AuditError, AuditLog, Sizes};
use crate::record::{NewRecord, RecordKind, RecordOutcome};
use crate::suppressed::Suppressed;
use crate::syslog::Syslog;

/// Records that are handed over and not taken yet, at most.
const QUEUE_MAX: usize = 4096;

/// Records that wait for a disk that does not take them, at most.
const WAITING_MAX: usize = 1024;

/// Records that are written at once, at most.
const BATCH_MAX: usize = 256;

/// How often what nobody hands over is looked for, and a disk that takes nothing is tried again.
const TURN: Duration = Duration::from_secs(1);

/// What happened, that nobody hands over: asked for in each turn.
pub type Feed = Box<dyn FnMut() -> Vec<NewRecord> + Send>;

/// What is called once a record is written, or cannot be.
type Done = Box<dyn FnOnce() + Send>;

enum Message {
    Record(NewRecord, Option<Done>),
    Look(Option<Done>),
    End,
}

/// What a log is written with.
pub struct AuditSettings {
    /// How much is kept.
    pub sizes: Sizes,
    /// Where records are sent to as well.
    pub syslog: Option<Syslog>,
    /// What else is recorded.
    pub feed: Feed,
    /// Called with what is to be known at once: the disk takes no records, or does again; the files
    /// were changed.
    pub tell: Box<dyn Fn(&str) + Send>,
    /// Called with what somebody should look at: a stored head that is missing, files that others
    /// may read or change.
    pub warn: Box<dyn Fn(&str) + Send>,
}

impl fmt::Debug for AuditSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditSettings")
            .field("sizes", &self.sizes)
            .field("syslog", &self.syslog)
            .finish_non_exhaustive()
    }
}

/// A log that is written by a thread of its own. Dropping it writes what was handed over.
pub struct Audit {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    directory: Arc<StateDirectory>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    head: Mutex<ChainHead>,
    /// Records that were not taken: the queue was full.
    dropped: AtomicU64,
}

impl Audit {
    /// Opens the log of a state directory, and begins to write it.
    ///
    /// # Errors
    /// It cannot be read, or there is no thread.
    pub fn start(directory: Arc<StateDirectory>, settings: AuditSettings) -> Result<Self, AuditError> {
        let (log, notes) = AuditLog::open(Arc::clone(&directory), settings.sizes)?;
        for note in &notes {
            let text = format!("the audit log: {}: {}", note.what, note.detail);
            match note.what.as_str() {
                // Whoever starts it says so, with where.
                "began" => {}
                "head-missing" => (settings.warn)(&text),
                _ => (settings.tell)(&text),
            }
        }
        for text in files::open_to_others(&*directory)? {
            (settings.warn)(&format!("the audit log: {text}"));
        }
        let shared = Arc::new(Shared { head: Mutex::new(log.head()), dropped: AtomicU64::new(0) });
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let writer = Writer {
            log,
            settings,
            shared: Arc::clone(&shared),
            waiting: VecDeque::from(notes),
            suppressed: Suppressed::default(),
            gap: None,
            began: Instant::now(),
        };
        let run = move || writer.run(&receiver);
        let thread = std::thread::Builder::new().name("ebof-audit".to_owned()).spawn(run).map_err(AuditError::from)?;
        Ok(Self { sender, shared, directory, thread: Some(thread) })
    }

    /// Hands over a record. It is written soon.
    pub fn note(&self, content: NewRecord) {
        self.send(Message::Record(content, None));
    }

    /// Hands over the record of a change. `done` is called once it is on the medium, or could not
    /// be put there; by then the log has a gap.
    pub fn change(&self, content: NewRecord, done: impl FnOnce() + Send + 'static) {
        self.send(Message::Record(content, Some(Box::new(done))));
    }

    /// Has what nobody hands over be looked for. Returns at once, whatever the disk does.
    pub fn wake(&self) {
        // There will be a turn soon in any case.
        let _full = self.sender.try_send(Message::Look(None));
    }

    /// Has all be written that was handed over or has happened, and waits for that as long.
    pub fn flush(&self, wait: Duration) {
        let (sender, receiver) = sync_channel(1);
        let done = Box::new(move || {
            let _late = sender.send(());
        });
        if self.sender.try_send(Message::Look(Some(done))).is_ok() {
            let _late = receiver.recv_timeout(wait);
        }
    }

    /// The last record that is on the medium.
    #[must_use]
    pub fn head(&self) -> ChainHead {
        *self.shared.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the log is.
    #[must_use]
    pub const fn directory(&self) -> &Arc<StateDirectory> {
        &self.directory
    }

    fn send(&self, message: Message) {
        match self.sender.try_send(message) {
            Ok(()) | Err(TrySendError::Full(Message::Look(_) | Message::End)) => {}
            Err(
                TrySendError::Full(Message::Record(_, done)) | TrySendError::Disconnected(Message::Record(_, done)),
            ) => {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                if let Some(done) = done {
                    done();
                }
            }
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // Waits for room: the thread takes what is there.
        let _ended = self.sender.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("head", &self.head()).finish_non_exhaustive()
    }
}

/// That records are missing, since when and why.
struct Gap {
    since_unix_ms: u64,
    why: String,
    lost: u64,
}

struct Writer {
    log: AuditLog,
    settings: AuditSettings,
    shared: Arc<Shared>,
    /// To be written, the oldest first.
    waiting: VecDeque<NewRecord>,
    suppressed: Suppressed,
    gap: Option<Gap>,
    began: Instant,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let (mut done, mut is_over) = (Vec::new(), false);
            let mut next = match receiver.recv_timeout(TURN) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Message::End),
            };
            while let Some(message) = next {
                match message {
                    Message::Record(content, waits) => {
                        self.take(content);
                        done.extend(waits);
                    }
                    Message::Look(waits) => done.extend(waits),
                    Message::End => is_over = true,
                }
                next = if is_over || self.waiting.len() >= BATCH_MAX { None } else { receiver.try_recv().ok() };
            }
            self.turn(is_over);
            done.into_iter().for_each(|done| done());
            if let Err(error) = self.log.store_head() {
                self.broken(&error);
            }
            if is_over {
                return;
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, content: NewRecord) {
        let now_ms = self.now_ms();
        if self.suppressed.admits(&content, now_ms) {
            self.waiting.push_back(content);
        }
    }

    fn turn(&mut self, is_last: bool) {
        for content in (self.settings.feed)() {
            self.take(content);
        }
        let now_ms = self.now_ms();
        let left_out = if is_last { self.suppressed.all() } else { self.suppressed.due(now_ms) };
        self.waiting.extend(left_out);
        let dropped = self.shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let detail = "more was to be recorded at once than there is room for";
            self.waiting
                .push_back(NewRecord::new(RecordKind::Log, "gap", RecordOutcome::Failed).detail(detail).count(dropped));
        }
        while !self.waiting.is_empty() {
            let batch: Vec<NewRecord> = self.waiting.iter().take(BATCH_MAX).cloned().collect();
            if let Err(error) = self.write(&batch) {
                self.broken(&error);
                return;
            }
            self.waiting.drain(..batch.len());
            self.mended();
        }
    }

    fn write(&mut self, batch: &[NewRecord]) -> io::Result<()> {
        let records = self.log.append(unix_ms_now(), batch)?;
        // What was found of the files comes first.
        for found in &records[..records.len().saturating_sub(batch.len())] {
            (self.settings.tell)(&format!("the audit log: {}: {}", found.what, found.detail));
        }
        *self.shared.head.lock().unwrap_or_else(PoisonError::into_inner) = self.log.head();
        let now_ms = self.now_ms();
        let missed = self.settings.syslog.as_mut().and_then(|syslog| syslog.send(&records, now_ms));
        self.waiting.extend(missed);
        Ok(())
    }

    /// The disk takes no records: some wait, and the rest is counted.
    fn broken(&mut self, error: &io::Error) {
        if self.gap.is_none() {
            (self.settings.tell)(&format!("the audit log cannot be written, and has a gap from now on: {error}"));
        }
        let begin = || Gap { since_unix_ms: unix_ms_now(), why: error.to_string(), lost: 0 };
        let gap = self.gap.get_or_insert_with(begin);
        while self.waiting.len() > WAITING_MAX {
            // What is refused goes first.
            let at = self.waiting.iter().position(NewRecord::is_by_strangers).unwrap_or(0);
            gap.lost += self.waiting.remove(at).map_or(0, |content| content.count);
        }
    }

    fn mended(&mut self) {
        let Some(Gap { since_unix_ms, why, lost }) = self.gap.take() else { return };
        (self.settings.tell)("the audit log is written again");
        let since = crate::time::date_time(since_unix_ms);
        let detail =
            format!("from {since} on records were written later than what they tell of, and {lost} not at all: {why}");
        self.waiting.push_back(
            NewRecord::new(RecordKind::Log, "gap", RecordOutcome::Failed).detail(&detail).count(lost.max(1)),
        );
    }
}

fn unix_ms_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
