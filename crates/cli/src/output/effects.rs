//! Views of what a controller supports: `effects-log`, `fid-support-effects-log` and
//! `supported-log-pages`.

use std::fmt::Write as _;

use ebof_nvme::feature::Fid;
use ebof_nvme::log::{
    CommandEffects, CommandsSupportedAndEffects, FeatureEffects, FeaturesSupportedAndEffects, Lid, Submission,
    SupportedLogPages, lsp, scope,
};
use ebof_nvme::opcode::{FABRICS, admin_name, nvm_name};
use zerocopy::IntoBytes as _;

use super::json::Object;
use super::text::hex;
use super::{ListView, View};

/// Commands Supported and Effects.
pub(crate) struct EffectsView {
    /// The log page.
    pub(crate) data: Box<CommandsSupportedAndEffects>,
    /// The requested I/O command set.
    pub(crate) csi: u8,
}

impl ListView for EffectsView {
    fn text(&self, verbose: bool) -> String {
        let set = if self.csi == 0 { "NVM".to_owned() } else { format!("I/O ({:02x}h)", self.csi) };
        let mut text = format!("{set} Command Set Log Page\n{}\n", "-".repeat(80));
        for (title, admin, range) in [
            ("Admin Commands", true, 0_u8..=0xbf),
            ("Vendor Specific Admin Commands", true, 0xc0..=0xff),
            ("I/O Commands", false, 0..=0x7f),
            ("Vendor Specific I/O Commands", false, 0x80..=0xff),
        ] {
            let commands: Vec<_> = self.supported(admin).filter(|(opcode, ..)| range.contains(opcode)).collect();
            if commands.is_empty() {
                continue;
            }
            let _infallible = writeln!(text, "{title}");
            for (opcode, name, effects) in commands {
                let opcode = if admin { format!("ACS{opcode:<6}") } else { format!("IOCS{opcode:<5}") };
                let _infallible = write!(text, "{opcode}[{name:<32}] {:08x}", effects.0);
                text += &if verbose { explain(effects) } else { "\n".to_owned() };
            }
            text.push('\n');
        }
        text
    }

    fn json(&self, _verbose: bool) -> Vec<Object> {
        let set = |admin: bool, prefix: &str| {
            self.supported(admin).fold(Object::new(), |object, (opcode, name, effects)| {
                object.with(format!("{prefix}_{opcode} ({name})"), effects.0)
            })
        };
        let document = Object::document("effects-log", 2)
            .with("command_set_identifier", self.csi)
            .with("admin_cmd_set", set(true, "ACS"))
            .with("io_cmd_set", set(false, "IOCS"));
        vec![document]
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl EffectsView {
    fn supported(&self, admin: bool) -> impl Iterator<Item = (u8, &'static str, CommandEffects)> {
        (0..=u8::MAX).filter_map(move |opcode| {
            let effects = if admin { self.data.admin(opcode) } else { self.data.io(opcode) };
            // nvme-cli's words, of which JSON has keys.
            let name = match (admin, opcode) {
                (true, FABRICS) => Some("Fabrics Commands"),
                (true, _) => admin_name(opcode),
                (false, _) => nvm_name(opcode),
            };
            effects.contains(CommandEffects::CSUPP).then(|| (opcode, name.unwrap_or("Unknown"), effects))
        })
    }
}

fn explain(effects: CommandEffects) -> String {
    let flags = [
        ("CSUPP", CommandEffects::CSUPP),
        ("LBCC", CommandEffects::LBCC),
        ("NCC", CommandEffects::NCC),
        ("NIC", CommandEffects::NIC),
        ("CCC", CommandEffects::CCC),
        ("USS", CommandEffects::USS),
    ];
    let sign = |flag| if effects.contains(flag) { '+' } else { '-' };
    let flags: String = flags.iter().map(|(name, flag)| format!("  {name}{}", sign(*flag))).collect();
    let relaxations = match effects.relaxations() {
        0 => "No CSER defined",
        1 => "No admin command for any namespace",
        _ => "Reserved CSER",
    };
    let submission = match effects.submission() {
        Submission::Free => "No command restriction",
        Submission::AloneInNamespace => "No other command for same namespace",
        Submission::Alone => "No other command for any namespace",
        Submission::Reserved(_) => "Reserved CSE",
    };
    format!("{flags}  {relaxations}\n  {submission}\n")
}

/// Feature Identifiers Supported and Effects.
pub(crate) struct FeatureEffectsView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<FeaturesSupportedAndEffects>,
}

/// What a feature's scope may be, by bit.
const SCOPES: [(u32, &str); 7] = [
    (scope::NAMESPACE, "namespace"),
    (scope::CONTROLLER, "controller"),
    (scope::NVM_SET, "NVM set"),
    (scope::ENDURANCE_GROUP, "endurance group"),
    (scope::DOMAIN, "domain"),
    (scope::SUBSYSTEM, "NVM subsystem"),
    (scope::CONTROLLER_DATA_QUEUE, "controller data queue"),
];

impl FeatureEffectsView {
    fn supported(&self) -> impl Iterator<Item = (Fid, FeatureEffects)> {
        let effects = (0..=u8::MAX).map(|fid| (Fid(fid), self.data.feature(Fid(fid))));
        effects.filter(|(_, effects)| effects.contains(FeatureEffects::FSUPP))
    }
}

impl View for FeatureEffectsView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("FID Supports Effects Log for device: {}\n", self.device);
        for (fid, effects) in self.supported() {
            let name = fid.name().unwrap_or("Unknown");
            let _infallible = write!(text, "FID {:02x} -> Support Effects Log: {:08x}", fid.0, effects.0);
            if verbose {
                let flags = [
                    ("UDCC", FeatureEffects::UDCC),
                    ("NCC", FeatureEffects::NCC),
                    ("NIC", FeatureEffects::NIC),
                    ("CCC", FeatureEffects::CCC),
                    ("USS", FeatureEffects::USS),
                ];
                let sign = |flag| if effects.contains(flag) { '+' } else { '-' };
                let flags: String = flags.iter().map(|(name, flag)| format!("  {name}{}", sign(*flag))).collect();
                let scopes = SCOPES.iter().filter(|(bit, _)| effects.scope() & bit != 0).map(|(_, name)| *name);
                let scopes = scopes.collect::<Vec<_>>().join(", ");
                let _infallible = write!(text, " ({name})\n  FSUPP+{flags}  scope: {scopes}");
            }
            text.push('\n');
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let feature = |(fid, effects): (Fid, FeatureEffects)| {
            let object = Object::new().with(format!("fid_{}", fid.0), effects.0);
            object.with("fid", fid.0).with("name", fid.name()).with("support", effects.0)
        };
        Object::document("fid-support-effects-log", 1)
            .with("fid_support", self.supported().map(feature).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

/// Supported Log Pages.
pub(crate) struct SupportedView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) data: Box<SupportedLogPages>,
}

impl View for SupportedView {
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("Support Log Pages Details for {}:\n", self.device);
        for (lid, support) in self.data.iter() {
            let _infallible = writeln!(text, "LID {} - {}", hex(lid.0), lid.name().unwrap_or("Unknown"));
            if !verbose {
                continue;
            }
            let word = |set: bool| if set { "supported" } else { "not supported" };
            let _infallible = write!(text, "  LSUPP is supported\n  IOS is {}\n", word(support.0 & 2 != 0));
            if lid == Lid::DISCOVERY {
                for (name, bit) in [
                    ("Extended Discovery Log Page Entry", lsp::EXTENDED),
                    ("Port Local Entries Only", lsp::PORT_LOCAL),
                    ("All NVM Subsystem Entries", lsp::ALL_SUBSYSTEMS),
                ] {
                    let _infallible = writeln!(text, "  {name} is {}", word(support.parameter() & u16::from(bit) != 0));
                }
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let page = |(lid, support): (Lid, ebof_nvme::log::LidSupport)| {
            let object = Object::new().with("lid", lid.0).with("name", lid.name()).with("support", support.0);
            // nvme-cli's key has the blank, too.
            object.with(format!("lid_{:#x} ", lid.0), support.0)
        };
        Object::document("supported-log-pages", 1)
            .with("supported_logs", self.data.iter().map(page).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
