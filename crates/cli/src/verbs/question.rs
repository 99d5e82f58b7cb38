//! The confirmation of something that cannot be undone, or that others notice.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// What to do where nobody can be asked.
const NOBODY: &str = "standard input is no terminal, so that nobody can be asked: do it in a terminal";

/// Prints `warning` with the affected `items` and asks for confirmation, unless `force` is set.
/// Without a terminal, as in a script, `force` is required; nvme-cli waits ten seconds instead.
///
/// # Errors
/// The answer is not yes, or there is no terminal.
pub(super) fn confirm(warning: &str, items: &[String], force: bool) -> Result<(), Failure> {
    if force { Ok(()) } else { ask(&format!("WARNING: {warning}"), items, "--force") }
}

/// Asks whether what `message` tells is to be done with these `items`; without a terminal, `option`
/// has to be given instead.
///
/// # Errors
/// The answer is not yes, or there is no terminal.
pub(super) fn ask(message: &str, items: &[String], option: &str) -> Result<(), Failure> {
    let items: String = items.iter().map(|item| format!("\n  {item}")).collect();
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let advice = format!("{NOBODY}, or say {option} where it is meant");
        let message = message.trim_start_matches("WARNING: ");
        return Err(Failure::new("not-confirmed", format!("{message} Nothing was done{items}"), advice));
    }
    // If standard error is closed, the question is not seen, and the answer will not be yes.
    let _unheard = write!(std::io::stderr().lock(), "{message}{items}\nGo on? Type yes: ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    let advice = format!("whoever means it answers yes; a script says {option}");
    Err(Failure::new("not-confirmed", "the answer was not yes: nothing was done", advice))
}

/// Asks for the `name` of what is to be destroyed, as a person types it, unless it was `given`.
/// `instead` is what to say on the command line for that.
///
/// # Errors
/// Another name was given or typed, or there is no terminal.
pub(crate) fn ask_for_name(
    message: &str,
    items: &[String],
    instead: &str,
    name: &str,
    given: Option<&str>,
) -> Result<(), Failure> {
    let items: String = items.iter().map(|item| format!("\n  {item}")).collect();
    match given {
        Some(given) if given == name => return Ok(()),
        Some(given) => {
            let message = format!("{given} is another one than {name}: nothing was done");
            let advice = format!("look which of the two is meant: {instead} is for {name}");
            return Err(Failure::new("not-confirmed", message, advice));
        }
        None => {}
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let advice = format!("{NOBODY}, or say {instead} where it is meant");
        let message = message.trim_start_matches("WARNING: ");
        return Err(Failure::new("not-confirmed", format!("{message} Nothing was done{items}"), advice));
    }
    // If standard error is closed, the question is not seen, and the answer will not be the name.
    let _unheard = write!(std::io::stderr().lock(), "{message}{items}\nGo on? Type {name}: ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == name {
        return Ok(());
    }
    let advice = format!("whoever means it answers {name}; a script says {instead}");
    Err(Failure::new("not-confirmed", format!("the answer was not {name}: nothing was done"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_given_has_to_be_the_right_one() {
        let ask = |given| ask_for_name("WARNING: gone.", &["d3/ns4".into()], "--yes d3/ns4", "d3/ns4", given);
        assert!(ask(Some("d3/ns4")).is_ok());
        let refused = ask(Some("d3/ns5")).unwrap_err().to_string();
        assert!(refused.contains("d3/ns5 is another one than d3/ns4"), "{refused}");
    }

    #[test]
    fn force_suppresses_the_question() {
        assert!(confirm("All of it goes.", &[], true).is_ok());
    }
}
