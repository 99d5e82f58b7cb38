//! The view of Identify Controller (`id-ctrl`): nvme-cli's names, in its order.

use ebof_nvme::Uuid;
use ebof_nvme::identify::{IdentifyController, PowerState, Text};
use zerocopy::IntoBytes as _;

use super::View;
use super::controller_bits as bits;
use super::fields::Fields;
use super::json::{Json, Object};
use super::text::{digits, dump, si, temperature};

/// Identify Controller.
pub(crate) struct ControllerView {
    /// The data structure.
    pub(crate) data: Box<IdentifyController>,
    /// Whether the vendor specific area is shown, too.
    pub(crate) vendor_specific: bool,
}

/// The width of names in text.
const NAME_WIDTH: usize = 10;

impl View for ControllerView {
    fn text(&self, verbose: bool) -> String {
        let mut text = "NVME Identify Controller:\n".to_owned();
        text += &self.fields().to_text(NAME_WIDTH, verbose);
        for (index, state) in self.data.power_states().iter().enumerate() {
            text += &power_state_text(index, state);
        }
        if self.vendor_specific {
            text += "vs[]:\n";
            text += &dump(&self.data.vs);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let states = self.data.power_states().iter().map(power_state_json).collect::<Vec<Object>>();
        let mut object = Object::document("id-ctrl", 1).extend(self.fields().to_json()).with("psds", states);
        if self.vendor_specific {
            object.push("vs", digits(&self.data.vs));
        }
        object
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(self.data.as_bytes())
    }
}

impl ControllerView {
    fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        self.identity(&mut fields);
        self.admin(&mut fields);
        self.capacity_and_power(&mut fields);
        self.commands(&mut fields);
        self.fabrics(&mut fields);
        fields
    }

    fn identity(&self, fields: &mut Fields) {
        let data = &self.data;
        let [low, middle, high] = data.ieee;
        fields.hex("vid", data.vid.get()).hex("ssvid", data.ssvid.get());
        padded(fields, "sn", &data.sn);
        padded(fields, "mn", &data.mn);
        padded(fields, "fr", &data.fr);
        fields.dec("rab", data.rab);
        let ieee = u64::from(high) << 16 | u64::from(middle) << 8 | u64::from(low);
        fields.push("ieee", format!("{ieee:06x}"), ieee);
        fields.hex("cmic", data.cmic).bits(data.cmic, bits::CMIC);
        fields.dec("mdts", data.mdts).detail(match data.max_transfer_bytes(4096) {
            Some(bytes) => format!("  {bytes} bytes with a minimum page size of 4 KiB"),
            None => "  without limit".to_owned(),
        });
        fields.hex("cntlid", data.cntlid.get());
        fields.hex("ver", data.ver.get()).detail(format!("  {}", data.version()));
        fields.hex("rtd3r", data.rtd3r.get()).hex("rtd3e", data.rtd3e.get());
        fields.hex("oaes", data.oaes.get()).bits(data.oaes.get(), bits::OAES);
        fields.hex("ctratt", data.ctratt.get()).bits(data.ctratt.get(), bits::CTRATT);
        fields.hex("rrls", data.rrls.get()).hex("bpcap", data.bpcap).hex("nssl", data.nssl.get());
        fields.dec("plsi", data.plsi);
        fields.dec("cntrltype", data.cntrltype).detail(format!("  {}", data.controller_type().name()));
        fields.text("fguid", Uuid(data.fguid).to_string());
        fields.dec("crdt1", data.crdt1.get()).dec("crdt2", data.crdt2.get()).dec("crdt3", data.crdt3.get());
        fields.dec("crcap", data.crcap).dec("nvmsr", data.nvmsr).dec("vwci", data.vwci).dec("mec", data.mec);
    }

    fn admin(&self, fields: &mut Fields) {
        let data = &self.data;
        fields.hex("oacs", data.oacs.get()).bits(data.oacs.get(), bits::OACS);
        fields.dec("acl", data.acl).detail(format!("  {} Abort commands at a time", data.abort_limit()));
        fields.dec("aerl", data.aerl);
        fields.detail(format!("  {} Asynchronous Event Requests at a time", data.async_event_limit()));
        fields.hex("frmw", data.frmw).bits(data.frmw, bits::FRMW);
        fields.hex("lpa", data.lpa).bits(data.lpa, bits::LPA);
        fields.dec("elpe", data.elpe).detail(format!("  {} error log entries", data.error_log_entries()));
        fields.dec("npss", data.npss);
        fields.hex("avscc", data.avscc).hex("apsta", data.apsta);
        for (name, kelvin) in [("wctemp", data.wctemp.get()), ("cctemp", data.cctemp.get())] {
            fields.dec(name, kelvin);
            fields.detail(if kelvin == 0 { "  not said".to_owned() } else { format!("  {}", temperature(kelvin)) });
        }
        fields.dec("mtfa", data.mtfa.get()).detail(format!("  {} ms", u32::from(data.mtfa.get()) * 100));
        fields.dec("hmpre", data.hmpre.get()).dec("hmmin", data.hmmin.get());
    }

    fn capacity_and_power(&self, fields: &mut Fields) {
        let data = &self.data;
        fields.dec("tnvmcap", data.tnvmcap.get()).detail(format!("  {}", si(data.tnvmcap.get())));
        fields.dec("unvmcap", data.unvmcap.get()).detail(format!("  {}", si(data.unvmcap.get())));
        fields.hex("rpmbs", data.rpmbs.get()).bits(data.rpmbs.get(), bits::RPMBS);
        fields.dec("edstt", data.edstt.get()).detail(format!("  {} minutes", data.edstt));
        fields.dec("dsto", data.dsto).bits(data.dsto, bits::DSTO);
        fields.dec("fwug", data.fwug).detail(match data.fwug {
            0 => "  granularity of firmware not said".to_owned(),
            0xff => "  firmware in pieces of any size".to_owned(),
            units => format!("  firmware in pieces of {} bytes", u32::from(units) * 4096),
        });
        fields.dec("kas", data.kas.get()).detail(match data.keep_alive_granularity_ms() {
            Some(ms) => format!("  Keep Alive in steps of {ms} ms"),
            None => "  no Keep Alive".to_owned(),
        });
        fields.hex("hctma", data.hctma.get()).bits(data.hctma.get(), bits::HCTMA);
        fields.dec("mntmt", data.mntmt.get()).dec("mxtmt", data.mxtmt.get());
        fields.hex("sanicap", data.sanicap.get()).bits(data.sanicap.get(), bits::SANICAP);
        fields.dec("hmminds", data.hmminds.get()).dec("hmmaxd", data.hmmaxd.get());
        fields.dec("nsetidmax", data.nsetidmax.get()).dec("endgidmax", data.endgidmax.get());
        fields.dec("anatt", data.anatt);
        fields.dec("anacap", data.anacap).bits(data.anacap, bits::ANACAP);
        fields.dec("anagrpmax", data.anagrpmax.get()).dec("nanagrpid", data.nanagrpid.get());
        fields.dec("pels", data.pels.get());
        fields.detail(format!("  a persistent event log of {} bytes at most", u64::from(data.pels.get()) << 16));
        fields.dec("domainid", data.domainid.get()).dec("kpioc", data.kpioc);
        fields.dec("mptfawr", data.mptfawr.get()).dec("megcap", data.megcap.get());
        fields.hex("tmpthha", data.tmpthha).dec("cqt", data.cqt.get());
    }

    fn commands(&self, fields: &mut Fields) {
        let data = &self.data;
        for (name, sizes) in [("sqes", data.sqes), ("cqes", data.cqes)] {
            let least = 1_u32 << (sizes & 0xf);
            let most = 1_u32 << (sizes >> 4);
            fields.hex(name, sizes).detail(format!("  entries of {least} to {most} bytes"));
        }
        fields.dec("maxcmd", data.maxcmd.get()).dec("nn", data.nn.get());
        fields.hex("oncs", data.oncs.get()).bits(data.oncs.get(), bits::ONCS);
        fields.hex("fuses", data.fuses.get()).bits(data.fuses.get(), bits::FUSES);
        fields.hex("fna", data.fna).bits(data.fna, bits::FNA);
        fields.hex("vwc", data.vwc).bits(data.vwc, bits::VWC);
        fields.dec("awun", data.awun.get()).dec("awupf", data.awupf.get());
        fields.dec("icsvscc", data.icsvscc);
        fields.dec("nwpc", data.nwpc).bits(data.nwpc, bits::NWPC);
        fields.dec("acwu", data.acwu.get());
        fields.hex("ocfs", data.cdfs.get()).bits(data.cdfs.get(), bits::OCFS);
        fields.hex("sgls", data.sgls.get()).bits(data.sgls.get(), bits::SGLS);
        fields.dec("mnan", data.mnan.get()).dec("maxdna", data.maxdna.get()).dec("maxcna", data.maxcna.get());
        fields.dec("oaqd", data.oaqd.get()).dec("rhiri", data.rhiri).dec("hirt", data.hirt);
        fields.dec("cmmrtd", data.cmmrtd.get()).dec("nmmrtd", data.nmmrtd.get());
        fields.dec("minmrtg", data.minmrtg).dec("maxmrtg", data.maxmrtg).dec("trattr", data.trattr);
        fields.dec("mcudmq", data.mcudmq.get()).dec("mnsudmq", data.mnsudmq.get());
        fields.dec("mcmr", data.mcmr.get()).dec("nmcmr", data.nmcmr.get()).dec("mcdqpc", data.mcdqpc.get());
    }

    fn fabrics(&self, fields: &mut Fields) {
        let data = &self.data;
        fields.text("subnqn", data.subsystem_nqn().to_string());
        fields.dec("ioccsz", data.ioccsz.get());
        fields.detail(format!("  {} bytes of data in an I/O command capsule", data.in_capsule_data_bytes()));
        fields.dec("iorcsz", data.iorcsz.get()).dec("icdoff", data.icdoff.get());
        fields.hex("fcatt", data.fcatt).bits(data.fcatt, bits::FCATT);
        fields.dec("msdbd", data.msdbd);
        fields.dec("ofcs", data.ofcs.get()).bits(data.ofcs.get(), bits::OFCS);
        fields.dec("dctype", data.dctype);
    }
}

/// An ASCII field: in text and JSON without the padding.
fn padded(fields: &mut Fields, name: &'static str, field: &[u8]) {
    fields.text(name, Text::new(field).to_string());
}

fn power_state_text(index: usize, state: &PowerState) -> String {
    let tenths = state.max_power_tenth_mw();
    let power = if state.flags & 1 == 0 {
        format!("{}.{:02}W", tenths / 10_000, tenths % 10_000 / 100)
    } else {
        format!("{}.{:04}W", tenths / 10_000, tenths % 10_000)
    };
    let operational = if state.is_operational() { "operational" } else { "non-operational" };
    let idle = power_field(state.idlp.get(), state.ips);
    let active = power_field(state.actp.get(), state.apws);
    let workload = match state.apws & 7 {
        0 => "-",
        1 => "1MiB 32 RW, 30s idle",
        2 => "80K 128KiB SW",
        _ => "reserved",
    };
    format!(
        "ps   {index:4} : mp:{power} {operational} enlat:{} exlat:{} rrt:{} rrl:{}\n            \
         rwt:{} rwl:{} idle_power:{idle} active_power:{active}\n            active_power_workload:{workload}\n",
        state.enlat, state.exlat, state.rrt, state.rrl, state.rwt, state.rwl
    )
}

/// Idle or active power: the scale is in bits 7:6, 1 for 0.1 mW and 2 for 10 mW; otherwise it is
/// not reported.
fn power_field(power: u16, scale: u8) -> String {
    match scale >> 6 {
        1 => format!("{}.{:04}W", power / 10_000, power % 10_000),
        2 => format!("{}.{:02}W", power / 100, power % 100),
        _ => "-".to_owned(),
    }
}

fn power_state_json(state: &PowerState) -> Object {
    let number = |value: u16| Json::from(value);
    Object::new()
        .with("max_power", number(state.mp.get()))
        .with("flags", state.flags)
        .with("max_power_scale", state.flags & 1)
        .with("non-operational_state", state.flags >> 1 & 1)
        .with("entry_lat", state.enlat.get())
        .with("exit_lat", state.exlat.get())
        .with("read_tput", state.rrt)
        .with("read_lat", state.rrl)
        .with("write_tput", state.rwt)
        .with("write_lat", state.rwl)
        .with("idle_power", number(state.idlp.get()))
        .with("idle_scale", state.ips >> 6)
        .with("active_power", number(state.actp.get()))
        .with("active_power_work", state.apws & 7)
        .with("active_scale", state.apws >> 6)
        .with("emerg_power_fail_recover_time", state.epfrt)
        .with("emerg_power_fail_recover_scale", state.epfr_fqv_ts & 0xf)
        .with("force_quiesce_vault_time", state.fqvt)
        .with("force_quiesce_vault_scale", state.epfr_fqv_ts >> 4)
        .with("emerg_power_fail_vault_time", state.epfvt)
        .with("emerg_power_fail_vault_scale", state.epfvts & 0xf)
}
