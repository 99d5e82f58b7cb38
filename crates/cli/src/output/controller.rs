//! The view of Identify Controller (`id-ctrl`): nvme-cli's names, in its order.

use ebof_nvme::Uuid;
use ebof_nvme::identify::{IdentifyController, PowerState, field};

use super::structure::{FieldTable, LineFormat, StructureView, numbered, table};
use super::text::{digits, dump, si, temperature};

/// Identify Controller; with its vendor specific area if that is wanted.
pub(crate) fn controller_view(
    data: Box<IdentifyController>,
    vendor_specific: bool,
) -> StructureView<IdentifyController> {
    let states = data.power_states().iter();
    let (states, lines) = numbered(states, |state| POWER_STATE.json(state, false), power_state_text);
    let vs = vendor_specific.then(|| (digits(&data.vs), format!("vs[]:\n{}", dump(&data.vs))));
    let view = StructureView::new(&CONTROLLER, "id-ctrl", 1, "NVME Identify Controller:\n", data);
    let view = view.list("psds", states, &lines);
    match vs {
        Some((digits, lines)) => view.list("vs", digits, &lines),
        None => view,
    }
}

static CONTROLLER: FieldTable<IdentifyController> = table! { LineFormat::wide(10), IdentifyController:
    vid.hex(), ssvid.hex(), sn.ascii(), mn.ascii(), fr.ascii(), rab,
    ieee.written(|ieee| format!("{ieee:06x}")),
    cmic.hex().explained(field::cmic::BITS),
    mdts.below(|data| match data.max_transfer_bytes(4096) {
        Some(bytes) => format!("  {bytes} bytes with a minimum page size of 4 KiB"),
        None => "  without limit".to_owned(),
    }),
    cntlid.hex(),
    ver.hex().below(|data| format!("  {}", data.version())),
    rtd3r.hex(), rtd3e.hex(), oaes.hex().explained(field::oaes::BITS),
    ctratt.hex().explained(field::ctratt::BITS), rrls.hex(), bpcap.hex(), nssl.hex(), plsi,
    cntrltype.below(|data| format!("  {}", data.controller_type().name())),
    fguid.shown(|data| Uuid(data.fguid).to_string()),
    crdt1, crdt2, crdt3, crcap, ciu, cirn.shown(|data| format!("{:016x}", data.cirn.get())), nvmsr, vwci, mec, oacs.hex().explained(field::oacs::BITS),
    acl.below(|data| format!("  {} Abort commands at a time", data.abort_limit())),
    aerl.below(|data| format!("  {} Asynchronous Event Requests at a time", data.async_event_limit())),
    frmw.hex().explained(field::frmw::BITS), lpa.hex().explained(field::lpa::BITS),
    elpe.below(|data| format!("  {} error log entries", data.error_log_entries())),
    npss, avscc.hex(), apsta.hex(),
    wctemp.below(|data| threshold(data.wctemp.get())),
    cctemp.below(|data| threshold(data.cctemp.get())),
    mtfa.below(|data| format!("  {} ms", u32::from(data.mtfa.get()) * 100)),
    hmpre, hmmin,
    tnvmcap.below(|data| format!("  {}", si(data.tnvmcap.get()))),
    unvmcap.below(|data| format!("  {}", si(data.unvmcap.get()))),
    rpmbs.hex().explained(field::rpmbs::BITS),
    edstt.below(|data| format!("  {} minutes", data.edstt)),
    dsto.explained(field::dsto::BITS),
    fwug.below(|data| match data.fwug {
        0 => "  granularity of firmware not said".to_owned(),
        0xff => "  firmware in pieces of any size".to_owned(),
        units => format!("  firmware in pieces of {} bytes", u32::from(units) * 4096),
    }),
    kas.below(|data| match data.keep_alive_granularity_ms() {
        Some(ms) => format!("  Keep Alive in steps of {ms} ms"),
        None => "  no Keep Alive".to_owned(),
    }),
    hctma.hex().explained(field::hctma::BITS), mntmt, mxtmt, sanicap.hex().explained(field::sanicap::BITS),
    hmminds, hmmaxd, nsetidmax, endgidmax, anatt, anacap.explained(field::anacap::BITS), anagrpmax,
    nanagrpid,
    pels
        .below(|data| format!("  a persistent event log of {} bytes at most", u64::from(data.pels.get()) << 16)),
    domainid, kpioc, mptfawr, megcap, tmpthha.hex(),
    cqt.below(|data| match data.cqt.get() {
        0 => "  not said".to_owned(),
        ms => format!("  {ms} ms after the host is lost, none of its commands is executed"),
    }),
    sqes.hex().below(|data| entry_bytes(data.sqes)),
    cqes.hex().below(|data| entry_bytes(data.cqes)),
    maxcmd, nn, oncs.hex().explained(field::oncs::BITS), fuses.hex().explained(field::fuses::BITS),
    fna.hex().explained(field::fna::BITS), vwc.hex().explained(field::vwc::BITS), awun, awupf, icsvscc,
    nwpc.explained(field::nwpc::BITS), acwu, cdfs as "ocfs" .hex().explained(field::cdfs::BITS),
    sgls.hex().explained(field::sgls::BITS), mnan, maxdna, maxcna, oaqd, rhiri, hirt, cmmrtd, nmmrtd,
    minmrtg, maxmrtg, trattr, mcudmq, mnsudmq, mcmr, nmcmr, mcdqpc, subnqn.ascii(),
    ioccsz
        .below(|data| format!("  {} bytes of data in an I/O command capsule", data.in_capsule_data_bytes())),
    iorcsz, icdoff, fcatt.hex().explained(field::fcatt::BITS), msdbd, ofcs.explained(field::ofcs::BITS), dctype,
    ccrl.below(|data| match data.ccrl {
        0 => "  no Cross-Controller Reset".to_owned(),
        most => format!("  {most} Cross-Controller Resets at a time"),
    }),
};

fn threshold(kelvin: u16) -> String {
    if kelvin == 0 { "  not said".to_owned() } else { format!("  {}", temperature(kelvin)) }
}

/// Sizes of queue entries: powers of two, the least in bits 3:0, the most in bits 7:4.
fn entry_bytes(sizes: u8) -> String {
    format!("  entries of {} to {} bytes", 1_u32 << (sizes & 0xf), 1_u32 << (sizes >> 4))
}

/// A power state's keys; its text is `power_state_text`.
static POWER_STATE: FieldTable<PowerState> = table! { LineFormat::wide(0), PowerState:
    mp as "max_power", flags, flags as "max_power_scale" .bits(0, 0),
    flags as "non-operational_state" .bits(1, 1), enlat as "entry_lat", exlat as "exit_lat",
    rrt as "read_tput", rrl as "read_lat", rwt as "write_tput", rwl as "write_lat",
    idlp as "idle_power", ips as "idle_scale" .bits(7, 6), actp as "active_power",
    apws as "active_power_work" .bits(2, 0), apws as "active_scale" .bits(7, 6),
    epfrt as "emerg_power_fail_recover_time",
    epfr_fqv_ts as "emerg_power_fail_recover_scale" .bits(3, 0), fqvt as "force_quiesce_vault_time",
    epfr_fqv_ts as "force_quiesce_vault_scale" .bits(7, 4), epfvt as "emerg_power_fail_vault_time",
    epfvts as "emerg_power_fail_vault_scale" .bits(3, 0),
};

fn power_state_text(index: usize, state: &&PowerState) -> String {
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
