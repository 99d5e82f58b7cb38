//! A terminal that a table is drawn on again and again, and whose keys are read one by one. It is
//! left as it was.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    before: Termios,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A letter.
    Char(char),
    /// Ctrl-C, Ctrl-D, or the terminal has gone.
    End,
}

/// Another screen, without a cursor, so that what was there before comes back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    /// The terminal of standard input and output; `None` where one of them is none.
    ///
    /// # Errors
    /// It cannot be set up.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        let (input, output) = (io::stdin(), io::stdout());
        if !input.is_terminal() || !output.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        // Output stays as it is: a new line begins at the left.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        let screen = Self { before };
        output.lock().write_all(ENTER.as_bytes())?;
        Ok(Some(screen))
    }

    /// Its rows and columns.
    pub(crate) fn size(&self) -> io::Result<(usize, usize)> {
        let size = tcgetwinsize(io::stdout())?;
        // Serial lines do not know theirs.
        let or = |size: u16, other: usize| if size == 0 { other } else { usize::from(size) };
        Ok((or(size.ws_row, 24), or(size.ws_col, 80)))
    }

    /// Shows a text, as far as there is room.
    pub(crate) fn draw(&mut self, text: &str) -> io::Result<()> {
        let (rows, columns) = self.size()?;
        let frame = frame(text, rows, columns);
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }

    /// The next key, if one is pressed in time.
    pub(crate) fn key(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        let input = io::stdin();
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // One byte at a time: what standard input keeps, `poll` does not see.
        let mut byte = [0];
        match rustix::io::read(&input, &mut byte) {
            Ok(0) => Ok(Some(Key::End)),
            Ok(_) => Ok(Some(match byte[0] {
                3 | 4 => Key::End,
                byte => Key::Char(char::from(byte)),
            })),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        let mut out = io::stdout().lock();
        let _gone = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    }
}

/// What is written to show a text on a screen of this size: lines are cut, and what was there is
/// cleared.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let mut frame = "\x1b[H".to_owned();
    for (at, line) in text.lines().take(rows).enumerate() {
        if at > 0 {
            frame += "\r\n";
        }
        frame.extend(line.chars().take(columns));
        frame += "\x1b[K";
    }
    frame + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_on_the_screen() {
        let shown = frame("one line\ntwo\nthree\n", 2, 5);
        assert_eq!(shown, "\x1b[Hone l\x1b[K\r\ntwo\x1b[K\x1b[J");
        assert_eq!(frame("", 24, 80), "\x1b[H\x1b[J");
    }
}
