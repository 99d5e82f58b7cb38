//! What could not be had at the start is tried again until it is there: devices and addresses of
//! the target, and the endpoints of the program beside it.
//!
//! Owns how often. What is missing, and how it comes in, is the target's.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::api::MissingKind;
use ebof_server::Target;

/// How long after the start, or after something was found, the first look is.
const FIRST: Duration = Duration::from_secs(1);

/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(30);

/// Has something another time.
type Attempt = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

/// The endpoints that could not be had.
pub(crate) struct Late {
    is_strict: bool,
    target: Arc<Target>,
    attempts: Vec<(MissingKind, String, Attempt)>,
}

impl Late {
    pub(crate) fn new(is_strict: bool, target: &Arc<Target>) -> Self {
        Self { is_strict, target: Arc::clone(target), attempts: Vec::new() }
    }

    /// What was had; if it was not, it is tried again by `attempt`.
    ///
    /// # Errors
    /// It was not, and the start is strict.
    pub(crate) fn or_later<T>(
        &mut self,
        had: anyhow::Result<T>,
        kind: MissingKind,
        name: String,
        attempt: impl FnMut() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        match had {
            Ok(had) => Ok(Some(had)),
            Err(error) if self.is_strict => Err(error),
            Err(error) => {
                self.target.tell_missing(kind, &name, Some(reason(&error)));
                self.attempts.push((kind, name, Box::new(attempt)));
                Ok(None)
            }
        }
    }

    /// Starts looking, if anything is missing.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn watch(self) -> anyhow::Result<()> {
        if self.target.missing().is_empty() {
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("ebof-missing".to_owned());
        thread.spawn(move || self.run()).context("starting the thread that looks for what is missing")?;
        Ok(())
    }

    fn run(mut self) {
        let mut pause = FIRST;
        loop {
            let before = self.target.missing().len();
            if before == 0 {
                return;
            }
            std::thread::sleep(pause);
            self.check();
            let has_found = self.target.missing().len() < before;
            pause = if has_found { FIRST } else { (pause * 2).min(LONGEST) };
        }
    }

    fn check(&mut self) {
        self.target.look_for_missing();
        let target = &self.target;
        self.attempts.retain_mut(|(kind, name, attempt)| {
            let reason = attempt().err().map(|error| reason(&error));
            let is_missing = reason.is_some();
            target.tell_missing(*kind, name, reason);
            is_missing
        });
    }
}

/// In one line.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
