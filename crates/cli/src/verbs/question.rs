//! The question before something that cannot be undone.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Asks whether to go on with what `warning` says, and has a look at the `items` that it concerns,
/// unless `force`. Whoever is no person at a terminal has to say so beforehand: a script that waits
/// ten seconds as nvme-cli does has not thought about it.
///
/// # Errors
/// The answer is not yes, or there is nobody to ask.
pub(super) fn confirm(warning: &str, items: &[String], force: bool) -> Result<(), Failure> {
    if force {
        return Ok(());
    }
    let items: String = items.iter().map(|item| format!("\n  {item}")).collect();
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let advice = "standard input is no terminal, so that nobody can be asked: say --force where it is meant";
        return Err(Failure::new("not-confirmed", format!("{warning} Nothing was done{items}"), advice));
    }
    // Nobody can be asked when standard error is gone; the answer is not yes then either.
    let _unheard = write!(std::io::stderr().lock(), "WARNING: {warning}{items}\nGo on? Type yes: ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::new("not-confirmed", "the answer was not yes: nothing was done", "--force does it without a question"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_where_force_is_said() {
        assert!(confirm("All of it goes.", &[], true).is_ok());
    }
}
