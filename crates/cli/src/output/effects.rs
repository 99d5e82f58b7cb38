//! Views of what a controller supports: `effects-log` and `supported-log-pages`.

use std::fmt::Write as _;

use ebof_nvme::log::{CommandEffects, CommandsSupportedAndEffects, Lid, Submission, SupportedLogPages, lsp};
use ebof_nvme::opcode::{admin_name, nvm_name};
use zerocopy::IntoBytes as _;

use super::View;
use super::json::Object;
use super::text::hex;

/// Commands Supported and Effects.
pub(crate) struct EffectsView {
    /// The log page.
    pub(crate) data: Box<CommandsSupportedAndEffects>,
    /// The requested I/O command set.
    pub(crate) csi: u8,
}

impl View for EffectsView {
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

    fn json(&self, _verbose: bool) -> Object {
        let set = |admin: bool, prefix: &str| {
            self.supported(admin).fold(Object::new(), |object, (opcode, name, effects)| {
                object.with(format!("{prefix}_{opcode} ({name})"), effects.0)
            })
        };
        Object::document("effects-log", 1)
            .with("command_set_identifier", self.csi)
            .with("admin_cmd_set", set(true, "ACS"))
            .with("io_cmd_set", set(false, "IOCS"))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl EffectsView {
    fn supported(&self, admin: bool) -> impl Iterator<Item = (u8, &'static str, CommandEffects)> {
        (0..=u8::MAX).filter_map(move |opcode| {
            let effects = if admin { self.data.admin(opcode) } else { self.data.io(opcode) };
            let name = if admin { admin_name(opcode) } else { nvm_name(opcode) };
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
            Object::new().with("lid", lid.0).with("name", lid.name()).with("support", support.0)
        };
        Object::document("supported-log-pages", 1)
            .with("supported_logs", self.data.iter().map(page).collect::<Vec<_>>())
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}
