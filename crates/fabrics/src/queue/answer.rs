//! Commands that a drive or the target has answered.

use ebof_drive::{Answer, Refusal};
use ebof_nvme::opcode::admin;

use super::Queue;
use crate::admin::{lba_status, log};
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault};
use crate::task::step::Step;

impl Queue {
    /// Goes on with a [`Task::Drive`] that the drive has answered.
    pub fn answer(&mut self, executing: Executing, answer: Result<Answer, Refusal>) -> Step {
        let length = executing.length();
        let outcome = match answer {
            Ok(Answer::Done(result)) => Ok(Decision::Done(result)),
            Ok(Answer::Warned(status, result)) => Err(Fault::transient(status).with_result(result)),
            Ok(Answer::Part(part)) if part.is_empty() => Ok(Decision::Done(0)),
            Ok(Answer::Part(part)) => Ok(Decision::Go(Task::Reply(part), length)),
            Ok(Answer::Data(page)) if executing.opcode() == admin::GET_LOG_PAGE => {
                log::part(&log::command_of(&executing), page).map(|part| Decision::Go(Task::Reply(part), length))
            }
            Ok(Answer::Data(mut data)) => {
                data.truncate(length as usize);
                Ok(Decision::Go(Task::Reply(data), length))
            }
            Err(refusal) => Err(refusal.into()),
        };
        self.conclude(executing, outcome)
    }

    /// Goes on with a [`Task::LbaStatus`]: the ranges (first block, blocks) that were found, and
    /// whether all of what was asked for was looked at. What there is no room for is left out, and
    /// the host told.
    pub fn lba_status(&mut self, executing: Executing, ranges: &[(u64, u64)], complete: bool) -> Step {
        let length = executing.length();
        let data = lba_status::list(length as usize, ranges, complete);
        self.conclude(executing, Ok(Decision::Go(Task::Reply(data), length)))
    }
}
