//! `sanitize-ns`, which destroys the data of one namespace.

use ebof_initiator::AdminData;
use ebof_nvme::Sqe;
use ebof_nvme::media::{Sanitize, SanitizeAction};

use super::Outcome;
use super::guard::confirm_loss;
use super::media::sanitize_action;
use super::on_device::NamespaceArgs;
use crate::command;
use crate::command::explain::SANITIZE_NAMESPACE;
use crate::device::{Device, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;

/// Sanitizes a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SanitizeNs {
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// The action: exit-failure, start-crypto-erase or exit-media-verification, or its number
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = of_namespace)]
    sanact: SanitizeAction,
    /// Allow unrestricted exit from failure mode (AUSE)
    #[arg(short = 'u', long)]
    ause: bool,
    /// Enter the media verification state afterwards
    #[arg(short = 'e', long)]
    emvs: bool,
    /// Do not ask, and proceed even if its block device is in use
    #[arg(long)]
    force: bool,
}

/// The actions that a single namespace has.
fn of_namespace(text: &str) -> Result<SanitizeAction, String> {
    match sanitize_action(text) {
        Ok(action @ (SanitizeAction::ExitFailure | SanitizeAction::CryptoErase | SanitizeAction::ExitVerification)) => {
            Ok(action)
        }
        _ => Err("want 1 exit-failure, 4 start-crypto-erase or 5 exit-media-verification".to_owned()),
    }
}

impl SanitizeNs {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.sanact != SanitizeAction::CryptoErase && (self.ause || self.emvs) {
            let message = format!("--ause and --emvs start something, {} does not", self.sanact.name());
            return Err(Failure::usage(message, "leave them away").into());
        }
        self.namespace.on_namespace(Needs::Admin, global, |device, nsid| self.run_on(device, nsid))
    }

    fn run_on(&self, device: &mut dyn Device, nsid: ebof_nvme::Nsid) -> anyhow::Result<Done> {
        if self.sanact == SanitizeAction::CryptoErase {
            let warning = format!("Sanitize Namespace takes the data of namespace {nsid} away for ever.");
            confirm_loss("sanitize-ns", &warning, device, nsid, self.force)?;
        }
        let dwords = Sanitize {
            allow_unrestricted_exit: self.ause,
            overwrite_passes: 0,
            enter_verification: self.emvs,
            ..Sanitize::new(self.sanact)
        };
        let sqe = Sqe::new(SANITIZE_NAMESPACE).with_nsid(nsid).with_cdw(10, dwords.encode().cdw10.get());
        command::admin(device, &sqe, AdminData::None)?;
        let line = format!("Success, {}", self.sanact.name());
        let done = Done::new("sanitize-ns", device.name(), &line).with("nsid", nsid.0);
        Ok(done.with("sanact", self.sanact.encode()).with("action", self.sanact.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::verbs::line::{parse, try_parse};
    use ebof_nvme::{Nsid, Status};

    #[test]
    fn it_is_sent_as_nvme_cli_does_with_the_namespace() {
        let verb: SanitizeNs = parse("x nvme0n3 -a start-crypto-erase -u --emvs --force");
        let mut fake = Fake::namespace(3, []);
        verb.run_on(&mut fake, Nsid(3)).unwrap();
        let sqe = fake.last().sqe;
        assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get()), (0x8c, Nsid(3), 0x40c));
        assert!(try_parse::<SanitizeNs>("x nvme0n3 -a start-overwrite").is_err());
    }

    #[test]
    fn nothing_is_sent_while_it_is_in_use_and_a_refusal_says_what_there_is() {
        let verb: SanitizeNs = parse("x nvme0n3 -a 4");
        let mut fake = Fake::namespace(3, []).with_local_device(3, Some("/mnt"));
        assert!(verb.run_on(&mut fake, Nsid(3)).is_err() && fake.asked.is_empty());
        let verb: SanitizeNs = parse("x nvme0n3 -a 4 --force");
        let mut fake = Fake::namespace(3, [FakeAnswer::status(Status::INVALID_OPCODE.dnr())]);
        let error = verb.run_on(&mut fake, Nsid(3)).err().unwrap().to_string();
        assert!(error.contains("does not sanitize single namespaces"), "{error}");
    }
}
