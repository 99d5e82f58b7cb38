//! What becomes of commands that a drive or the target has answered.

use alloc::vec::Vec;

use ebof_drive::{Answer, Refusal};
use ebof_nvme::opcode::admin;

use crate::admin::{lba_status, log};
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome};

/// The drive has answered.
pub(super) fn of_drive(executing: &Executing, answer: Result<Answer, Refusal>) -> Outcome {
    let length = executing.length();
    match answer {
        Ok(Answer::Done(result)) => Ok(Decision::Done(result)),
        Ok(Answer::Warned(status, result)) => Err(Fault::transient(status).with_result(result)),
        Ok(Answer::Part(part)) if part.is_empty() => Ok(Decision::Done(0)),
        Ok(Answer::Part(part)) => Ok(Decision::Go(Task::Reply(part), length)),
        Ok(Answer::Data(page)) if executing.opcode() == admin::GET_LOG_PAGE => {
            log::part(&log::command_of(executing), page).map(|part| Decision::Go(Task::Reply(part), length))
        }
        Ok(Answer::Data(data)) => Ok(reply(data, length)),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The target has found these ranges.
pub(super) fn of_lba_status(executing: &Executing, ranges: &[(u64, u64)], complete: bool) -> Outcome {
    let length = executing.length();
    Ok(Decision::Go(Task::Reply(lba_status::list(length as usize, ranges, complete)), length))
}

/// As much of the data as the host wants.
fn reply(mut data: Vec<u8>, length: u32) -> Decision {
    data.truncate(length as usize);
    Decision::Go(Task::Reply(data), length)
}
