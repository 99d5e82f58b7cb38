//! A buffer in place of shared memory that direct I/O cannot use: pieces that do not begin and end
//! at multiples of the file's blocks, as a host may describe them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Buffer, Completion, CompletionHook, Operation, Request, Segments};

/// The hook that puts the shared memory back, after it has copied to it what was read.
#[derive(Debug)]
pub(crate) struct Bounce {
    shared: Mutex<Option<Segments>>,
    /// Bytes to copy back.
    read: usize,
    /// The hook that the request had before.
    above: Option<Arc<dyn CompletionHook>>,
}

impl Bounce {
    /// Gives a read or write a buffer in place of its memory, with the data of a write.
    pub(crate) fn begin(request: &mut Request) -> Option<Arc<Bounce>> {
        let (buffer, data, read) = match &mut request.operation {
            Operation::Read { len, data, .. } => (Buffer::zeroed(*len), data, *len),
            Operation::Write { len, data, .. } => (data.gather(*len), data, 0),
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => return None,
        };
        let shared = std::mem::replace(data, buffer.into());
        let bounce = Arc::new(Bounce { shared: Mutex::new(Some(shared)), read, above: request.hook.take() });
        request.hook = Some(Arc::clone(&bounce) as Arc<dyn CompletionHook>);
        Some(bounce)
    }

    /// The request has not begun, and gets back what it had.
    pub(crate) fn undo(&self, request: &mut Request) {
        request.hook.clone_from(&self.above);
        if let Operation::Read { data, .. } | Operation::Write { data, .. } = &mut request.operation {
            *data = self.take();
        }
    }

    /// The shared memory. A request either ends once or has not begun.
    fn take(&self) -> Segments {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.take().expect("a request gets its memory back once")
    }
}

impl CompletionHook for Bounce {
    fn finish(&self, completion: &mut Completion) {
        let mut shared = self.take();
        if completion.result.is_ok() && self.read > 0 {
            let buffer = completion.data.as_ref().and_then(Segments::as_buffer);
            let buffer = buffer.expect("a request ends with the memory that it was given");
            shared.write(0, &buffer.as_slice()[..self.read]);
        }
        completion.data = Some(shared);
        if let Some(above) = &self.above {
            above.finish(completion);
        }
    }
}
