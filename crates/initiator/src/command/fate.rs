//! What may be done with a command whose connection was lost before its completion came: whether
//! the controller has executed it, or still will, is unknown. One table for every way to send
//! commands that repeats them. docs/paths.md has it in words.

use ebof_nvme::opcode::nvm;

/// What may be done with a command whose fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be repeated at once, over any path: executed twice, or late, it changes nothing.
    Repeat,
    /// It may be repeated once the controller that had it executes it no more: late, it would undo
    /// what was written since.
    Wait,
    /// It is not repeated: a second execution has another result than the first.
    Fail,
}

impl Fate {
    /// Of an NVM command, by its opcode. `is_fused`: it is one of a fused pair, of which the other
    /// may have been executed.
    #[must_use]
    pub const fn of(opcode: u8, is_fused: bool) -> Self {
        match opcode {
            _ if is_fused => Self::Fail,
            // Flush makes durable what has been acknowledged, and changes no block.
            nvm::READ | nvm::COMPARE | nvm::VERIFY | nvm::FLUSH | nvm::RESERVATION_REPORT => Self::Repeat,
            nvm::WRITE | nvm::WRITE_ZEROES | nvm::WRITE_UNCORRECTABLE | nvm::DATASET_MANAGEMENT => Self::Wait,
            // Copy reads what the first execution may have overwritten. The second execution of a
            // reservation's command finds another state than the first, and fails for that.
            _ => Self::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test paths.fate
    #[test]
    fn what_is_unknown_is_repeated_at_once_later_or_never() {
        for opcode in [nvm::READ, nvm::COMPARE, nvm::VERIFY, nvm::FLUSH, nvm::RESERVATION_REPORT] {
            assert_eq!(Fate::of(opcode, false), Fate::Repeat, "{opcode:02x}h");
        }
        for opcode in [nvm::WRITE, nvm::WRITE_ZEROES, nvm::WRITE_UNCORRECTABLE, nvm::DATASET_MANAGEMENT] {
            assert_eq!(Fate::of(opcode, false), Fate::Wait, "{opcode:02x}h");
        }
        let once = [nvm::COPY, nvm::RESERVATION_REGISTER, nvm::RESERVATION_ACQUIRE, nvm::RESERVATION_RELEASE, 0xff];
        for opcode in once {
            assert_eq!(Fate::of(opcode, false), Fate::Fail, "{opcode:02x}h");
        }
        for opcode in [nvm::COMPARE, nvm::WRITE] {
            assert_eq!(Fate::of(opcode, true), Fate::Fail, "fused: {opcode:02x}h");
        }
    }
}
