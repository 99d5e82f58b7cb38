//! The options for tags of end-to-end data protection, as in nvme-cli, and their encoding in the
//! namespace's format.

use ebof_nvme::identify::{Cns, NvmNamespace, ProtectionFormat};
use ebof_nvme::protection::Tags;
use ebof_nvme::{Nsid, Sqe};

use super::number;
use crate::command;
use crate::device::Device;
use crate::device::query::Identify;
use crate::failure::Failure;

/// Tags of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct TagArgs {
    /// Reference tag of the first block
    #[arg(short = 'r', long, value_name = "TAG", value_parser = number::parse::<u64>)]
    ref_tag: Option<u64>,
    /// Application tag
    #[arg(short = 'a', long, value_name = "TAG", value_parser = number::parse::<u16>)]
    app_tag: Option<u16>,
    /// Application tag mask
    #[arg(short = 'm', long, value_name = "MASK", value_parser = number::parse::<u16>)]
    app_tag_mask: Option<u16>,
    /// Storage tag
    #[arg(long, value_name = "TAG", value_parser = number::parse::<u64>)]
    storage_tag: Option<u64>,
    /// Check the storage tag
    #[arg(short = 'C', long)]
    storage_tag_check: bool,
}

impl TagArgs {
    /// The command with the tags, if there are any.
    ///
    /// # Errors
    /// They do not fit the namespace's format, or the format is unknown.
    pub(super) fn apply(&self, device: &mut dyn Device, nsid: Nsid, sqe: Sqe) -> anyhow::Result<Sqe> {
        let given = self.ref_tag.or(self.storage_tag).is_some() || self.app_tag.or(self.app_tag_mask).is_some();
        if !given && !self.storage_tag_check {
            return Ok(sqe);
        }
        let (space_bits, storage_bits) = self.layout(device, nsid)?;
        let storage = self.storage_tag.unwrap_or(0);
        let reference = self.ref_tag.unwrap_or(0);
        let reference_bits = space_bits - storage_bits;
        if !fits(reference, reference_bits) || !fits(storage, storage_bits) {
            let message = format!("the tags do not fit namespace {nsid}");
            let advice = format!("a reference tag has {reference_bits} bits there, a storage tag {storage_bits}");
            return Err(Failure::usage(message, advice).into());
        }
        let tags = Tags {
            storage_and_reference: u128::from(storage) << reference_bits | u128::from(reference),
            application: self.app_tag.unwrap_or(0),
            application_mask: self.app_tag_mask.unwrap_or(0),
            check_storage: self.storage_tag_check,
        };
        Ok(tags.encode(sqe))
    }

    /// Bits of the storage and reference space, and how many of them are the storage tag.
    fn layout(&self, device: &mut dyn Device, nsid: Nsid) -> anyhow::Result<(u32, u32)> {
        let plain = self.storage_tag.is_none() && self.ref_tag.is_none_or(|tag| u32::try_from(tag).is_ok());
        if plain {
            // Every format has the end of its reference tag in the low 32 bits.
            return Ok((32, 0));
        }
        let index = command::identify_namespace(device, nsid)?.format_index();
        let extended: Box<NvmNamespace> =
            command::identify(device, Identify::for_namespace(Cns::IOCS_NAMESPACE, nsid))?;
        let space = match extended.protection_format(index) {
            ProtectionFormat::Guard32 => 80,
            ProtectionFormat::Guard64 => 48,
            ProtectionFormat::Guard16 | ProtectionFormat::Qualified => 32,
        };
        Ok((space, u32::from(extended.storage_tag_bits(index)).min(space)))
    }
}

fn fits(tag: u64, bits: u32) -> bool {
    tag.checked_shr(bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use ebof_nvme::identify::IdentifyNamespace;
    use ebof_nvme::io::BlockRange;
    use ebof_nvme::opcode::nvm;
    use zerocopy::IntoBytes as _;

    #[test]
    fn tags_without_storage_tags_have_the_usual_fields() {
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        let mut fake = Fake::namespace(1, []);
        assert_eq!(TagArgs::default().apply(&mut fake, Nsid(1), sqe).unwrap(), sqe);
        let args = TagArgs { ref_tag: Some(5), app_tag: Some(6), app_tag_mask: Some(7), ..TagArgs::default() };
        let tagged = args.apply(&mut fake, Nsid(1), sqe).unwrap();
        assert_eq!((tagged.cdw14.get(), tagged.cdw15.get(), fake.asked.len()), (5, 0x0007_0006, 0));
    }

    #[test]
    fn storage_tags_are_above_the_reference_tag() {
        let namespace = IdentifyNamespace { nsze: 8.into(), ..IdentifyNamespace::default() };
        let mut extended = NvmNamespace::default();
        // 64-bit guards, 16 bits of storage tag.
        extended.elbaf[0].set(2 << 7 | 16);
        let answers = || [FakeAnswer::data(namespace.as_bytes()), FakeAnswer::data(extended.as_bytes())];
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        let args =
            TagArgs { ref_tag: Some(1), storage_tag: Some(0xabcd), storage_tag_check: true, ..TagArgs::default() };
        let tagged = args.apply(&mut Fake::namespace(1, answers()), Nsid(1), sqe).unwrap();
        assert_eq!((tagged.cdw3.get(), tagged.cdw14.get(), tagged.cdw12.get()), (0xabcd, 1, 1 << 24));
        let args = TagArgs { ref_tag: Some(1 << 32), ..TagArgs::default() };
        let error = args.apply(&mut Fake::namespace(1, answers()), Nsid(1), sqe).unwrap_err().to_string();
        assert!(error.contains("a reference tag has 32 bits there, a storage tag 16"), "{error}");
    }
}
