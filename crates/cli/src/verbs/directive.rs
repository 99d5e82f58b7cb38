//! The directive options of commands that write, as in nvme-cli.

use ebof_nvme::Sqe;

use super::number;
use crate::failure::Failure;

/// Directive of a command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Directive {
    /// Directive type (DTYPE), at most 15
    #[arg(short = 'T', long, value_name = "TYPE", value_parser = number::parse::<u8>, default_value = "0")]
    dir_type: u8,
    /// Directive specific value (DSPEC)
    #[arg(long, value_name = "VALUE", value_parser = number::parse::<u16>, default_value = "0")]
    dir_spec: u16,
}

impl Directive {
    /// The command with the directive: DTYPE in dword 12, DSPEC in dword 13.
    ///
    /// # Errors
    /// The type does not fit its four bits.
    pub(super) fn apply(self, sqe: Sqe) -> Result<Sqe, Failure> {
        if self.dir_type > 0x0f {
            return Err(Failure::usage(
                format!("there is no directive type {}", self.dir_type),
                "--dir-type is 0 to 15: 1 is Streams, 2 Data Placement",
            ));
        }
        let cdw12 = sqe.cdw12.get();
        let cdw13 = sqe.cdw13.get();
        let sqe = sqe.with_cdw(12, cdw12 | u32::from(self.dir_type) << 20);
        Ok(sqe.with_cdw(13, cdw13 | u32::from(self.dir_spec) << 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::Nsid;
    use ebof_nvme::io::BlockRange;
    use ebof_nvme::opcode::nvm;

    #[test]
    fn a_directive_is_added_to_the_commands_fields() {
        let plain = BlockRange { fua: true, ..BlockRange::new(0, 2) }.encode(nvm::WRITE, Nsid(1)).with_cdw(13, 0xff);
        let sqe = Directive { dir_type: 2, dir_spec: 0xabcd }.apply(plain).unwrap();
        assert_eq!((sqe.cdw12.get(), sqe.cdw13.get()), (1 << 30 | 2 << 20 | 1, 0xabcd_00ff));
        assert_eq!(Directive::default().apply(plain).unwrap(), plain);
        assert!(Directive { dir_type: 16, dir_spec: 0 }.apply(plain).is_err());
    }
}
