//! Structures of virtualization against golden bytes.

use ebof_nvme::virtualization::{
    INTERRUPT_RESOURCES, ONLINE, PrimaryCapabilities, QUEUE_RESOURCES, ResourceCapabilities, SecondaryController,
    SecondaryControllerList,
};
use ebof_testkit::hex;
use zerocopy::{FromBytes, IntoBytes};

#[test]
fn primary_capabilities() {
    let golden = hex::read(include_str!("../../testdata/primary_capabilities.hex"));
    let [queues, interrupts] = [(325, 14, 7, 3, 129, 1), (326, 5, 6, 4, 130, 2)].map(
        |(frt, rfa, rfap, prt, frsm, gran): (u32, u32, u16, u16, u16, u16)| ResourceCapabilities {
            frt: frt.into(),
            rfa: rfa.into(),
            rfap: rfap.into(),
            prt: prt.into(),
            frsm: frsm.into(),
            gran: gran.into(),
            ..ResourceCapabilities::default()
        },
    );
    let crt = QUEUE_RESOURCES | INTERRUPT_RESOURCES;
    let ours = PrimaryCapabilities { portid: 0x102.into(), crt, queues, interrupts, ..PrimaryCapabilities::zeroed() };
    assert_eq!(ours.as_bytes(), golden);
    assert_eq!(*PrimaryCapabilities::ref_from_bytes(&golden).unwrap(), ours);
}

#[test]
fn secondary_controllers() {
    let golden = hex::read(include_str!("../../testdata/secondary_controllers.hex"));
    let entry = |scid: u16, pcid: u16, scs, vfn: u16, nvq: u16, nvi: u16| SecondaryController {
        scid: scid.into(),
        pcid: pcid.into(),
        scs,
        vfn: vfn.into(),
        nvq: nvq.into(),
        nvi: nvi.into(),
        ..SecondaryController::default()
    };
    let ours = SecondaryControllerList::new([entry(1, 0, ONLINE, 1, 9, 8), entry(127, 0x203, 0, 0x102, 0x304, 0x506)]);
    assert_eq!(ours.as_bytes(), golden);
    assert_eq!(SecondaryControllerList::ref_from_bytes(&golden).unwrap().used(), ours.used());
}
