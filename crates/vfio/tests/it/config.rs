//! The configuration space, as a bus driver uses it.

use ebof_vfio::pci::{CONFIG_BYTES, ConfigEffect, ConfigSpace, Identity, VECTORS_MAX};
use ebof_vfio::{Errno, pci};
use proptest::prelude::*;

const IDENTITY: Identity = Identity { vendor: 0xeb0f, device: 1, revision: 3 };

fn space() -> ConfigSpace {
    ConfigSpace::new(IDENTITY, 16)
}

fn read32(space: &ConfigSpace, at: u64) -> u32 {
    let mut bytes = [0; 4];
    space.read(at, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

#[test]
fn it_is_an_nvme_controller_with_one_bar() {
    let space = space();
    assert_eq!(read32(&space, 0), 0x0001_eb0f);
    assert_eq!(read32(&space, 8), 0x0108_0203);
    assert_eq!(read32(&space, 0xc) & 0xff_0000, 0, "an ordinary header");
    assert_eq!(read32(&space, 0x10), 4, "64 bits");
    assert_eq!(read32(&space, 0x2c), 0x0001_eb0f);
    assert_eq!(read32(&space, 0x3c) & 0xff00, 0, "no interrupt pin");
}

#[test]
fn the_size_of_the_bar_is_found_by_writing_ones() {
    let mut space = space();
    for (at, effect) in [(0x10, Some(ConfigEffect::Found)), (0x14, None), (0x18, None), (0x30, None)] {
        assert_eq!(space.write(at, &[0xff; 4]), Ok(effect));
    }
    let size = u64::from(read32(&space, 0x10) & !0xf) | u64::from(read32(&space, 0x14)) << 32;
    assert_eq!((!size).wrapping_add(1), pci::BAR_BYTES);
    assert_eq!((read32(&space, 0x10) & 0xf, read32(&space, 0x18), read32(&space, 0x30)), (4, 0, 0));
    space.write(0x10, &0xfebd_4321_u32.to_le_bytes()).unwrap();
    assert_eq!(read32(&space, 0x10), 0xfebd_4004);
}

#[test]
fn capabilities_are_a_list_that_ends() {
    let space = space();
    assert!(read32(&space, 4) >> 16 & 1 << 4 != 0, "there is a list");
    let mut found = Vec::new();
    let mut at = read32(&space, 0x34) & 0xff;
    while at != 0 && found.len() < 48 {
        let head = read32(&space, at.into());
        found.push((head & 0xff, at));
        at = head >> 8 & 0xff;
    }
    assert_eq!(found, [(0x01, 0x40), (0x11, 0x50), (0x10, 0x60)]);
    assert_eq!(read32(&space, 0x50) >> 16 & 0x7ff, 15, "vectors, 0's based");
    assert_eq!((read32(&space, 0x54), read32(&space, 0x58)), (0x2000, 0x3000));
    assert!(read32(&space, 0x64) & 1 << 28 != 0, "function-level reset");
    assert_eq!(ConfigSpace::new(IDENTITY, 0).vectors(), 1);
    assert_eq!(ConfigSpace::new(IDENTITY, u16::MAX).vectors(), VECTORS_MAX);
    assert!(16 * u64::from(VECTORS_MAX) <= pci::PENDING_BITS - pci::VECTOR_TABLE, "the table has room");
}

#[test]
fn a_function_level_reset_is_an_effect_and_leaves_nothing() {
    let mut space = space();
    assert_eq!(space.write(4, &[6, 4]), Ok(Some(ConfigEffect::BusMaster(true))));
    assert_eq!(space.write(0x10, &[0, 0x40, 0xbd, 0xfe]), Ok(None));
    assert_eq!(space.write(0x52, &[0, 0x80]), Ok(None));
    assert!(space.is_bus_master() && space.is_memory_enabled() && space.delivers_vectors());
    // By one byte, by two, and by four that begin before it.
    for (at, bytes) in [(0x69, &[0x80][..]), (0x68, &[0, 0x80]), (0x68, &[0, 0x80, 0, 0]), (0x67, &[0, 0, 0x80, 0])] {
        let mut space = space.clone();
        assert_eq!(space.write(at, bytes), Ok(Some(ConfigEffect::FunctionReset)), "{at:#x} {bytes:?}");
        assert!(!space.is_bus_master() && !space.is_memory_enabled() && !space.delivers_vectors());
        assert_eq!((read32(&space, 0x10), read32(&space, 0x68) & 0x8000), (4, 0));
    }
    assert_eq!(space.write(0x68, &[0xff, 0x7f]), Ok(None));
    assert_eq!(space.write(4, &[2, 4]), Ok(Some(ConfigEffect::BusMaster(false))));
}

#[test]
fn a_bus_driver_that_asks_for_the_size_has_found_the_function() {
    let mut space = space();
    for (at, bytes) in [(0x10, &[0xff; 4][..]), (0x10, &[0xff; 8])] {
        assert_eq!(space.write(at, bytes), Ok(Some(ConfigEffect::Found)));
        assert_eq!(read32(&space, 0x10), 0xffff_c004);
    }
    // What was read is put back, before a reset and after it; and other registers are no BAR0.
    for (at, bytes) in [
        (0x10, &0xffff_c004_u32.to_le_bytes()[..]),
        (0x10, &[0; 4]),
        (0x10, &[0xff; 2]),
        (0x14, &[0xff; 4]),
        (0x0c, &[0xff; 8]),
        (0x30, &[0xff; 4]),
    ] {
        assert_eq!(space.write(at, bytes), Ok(None), "{at:#x} {bytes:?}");
    }
}

#[test]
fn a_function_in_d3_is_no_bus_master() {
    let mut space = space();
    assert_eq!(space.write(0x44, &[3, 0]), Ok(None));
    assert_eq!(space.write(4, &[6, 4]), Ok(None));
    assert_eq!(space.write(0x44, &[0, 0]), Ok(Some(ConfigEffect::BusMaster(true))));
    assert_eq!(space.write(0x44, &[3, 0]), Ok(Some(ConfigEffect::BusMaster(false))));
    assert!(!space.is_bus_master());
    // D1 and D2, which it does not have.
    for state in [1, 2] {
        assert_eq!(space.write(0x44, &[state, 0]), Ok(None));
        assert_eq!(read32(&space, 0x44) & 3, 3);
    }
    assert_eq!(space.write(0x44, &[0]), Ok(Some(ConfigEffect::BusMaster(true))));
    assert_eq!(space.write(0x44, &[1]), Ok(None));
    assert!(space.is_bus_master() && read32(&space, 0x44) & 3 == 0);
}

proptest! {
    /// What was written is read where it can be changed, and the rest stays: whatever the sizes of
    /// accesses, and also outside.
    #[test]
    fn writes_change_what_can_be_changed(
        writes in proptest::collection::vec((prop_oneof![9 => 0_u64..270, 1 => any::<u64>()], proptest::collection::vec(any::<u8>(), 0..9)), 0..40),
    ) {
        let mut space = space();
        let initial: Vec<u8> = all(&space);
        let mut writable = vec![0; CONFIG_BYTES];
        {
            // What can be changed is what changes when ones and zeros are written, reset aside.
            let mut probe = self::space();
            for at in (0..CONFIG_BYTES as u64).filter(|at| *at != 0x69) {
                probe.write(at, &[0xff]).unwrap();
                let mut ones = [0];
                probe.read(at, &mut ones).unwrap();
                probe.write(at, &[0]).unwrap();
                let mut zeros = [0];
                probe.read(at, &mut zeros).unwrap();
                writable[usize::try_from(at).unwrap()] = ones[0] & !zeros[0];
            }
            writable[0x69] = 0x7f;
        }
        let mut model = initial.clone();
        for (at, bytes) in writes {
            let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= CONFIG_BYTES as u64);
            let effect = space.write(at, &bytes);
            let Some(_) = end else {
                prop_assert_eq!(effect, Err(Errno::INVALID));
                prop_assert_eq!(space.read(at, &mut vec![0; bytes.len()]), Err(Errno::INVALID));
                continue;
            };
            if effect == Ok(Some(ConfigEffect::FunctionReset)) {
                model.clone_from(&initial);
            } else {
                let power = model[0x44];
                for (at, byte) in (usize::try_from(at).unwrap()..).zip(&bytes) {
                    model[at] = model[at] & !writable[at] | byte & writable[at];
                }
                if matches!(model[0x44] & 3, 1 | 2) {
                    model[0x44] = power;
                }
            }
            prop_assert_eq!(&all(&space), &model);
        }
    }
}

fn all(space: &ConfigSpace) -> Vec<u8> {
    let mut bytes = vec![0; CONFIG_BYTES];
    space.read(0, &mut bytes).unwrap();
    bytes
}
