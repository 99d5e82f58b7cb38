//! Messages and their replies, byte by byte, as the protocol's tables lay them out.

use ebof_nvme::property::{Cap, Version};
use ebof_testkit::hex;
use ebof_testkit::vfio::message;
use ebof_vfio::function::{Action, Event};
use ebof_vfio::message::{
    Command, Decoder, Direction, DmaMap, DmaUnmap, InterruptAction, InterruptData, Proposal, SetInterrupts,
};
use ebof_vfio::pci::{ConfigEffect, Identity};
use ebof_vfio::{Errno, PciFunction};

fn function() -> PciFunction {
    let identity = Identity { vendor: 0xeb0f, device: 1, revision: 1 };
    PciFunction::new(identity, Cap::new(1024, 30), Version::V2_1, 9, 8)
}

/// A decoder behind VERSION.
fn open() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.push(&message(0, 1, 0, &[0; 4]), 0);
    assert!(matches!(decoder.poll().unwrap().unwrap().command, Ok(Command::Version(_))));
    decoder
}

/// What a function answers to one command.
fn answer(bytes: &[u8], maps_doorbells: bool) -> Vec<u8> {
    let mut decoder = open();
    decoder.push(bytes, 0);
    let message = decoder.poll().unwrap().expect("a whole message");
    let mut out = Vec::new();
    match message.command {
        Ok(command) => drop(function().handle(message.call, command, maps_doorbells, &mut out)),
        Err(errno) => message.call.refuse(errno, &mut out),
    }
    out
}

fn decoded(number: u16, body: &str, descriptors: usize) -> Result<String, Errno> {
    let mut decoder = open();
    decoder.push(&message(1, number, 0, &hex::read(body)), descriptors);
    let message = decoder.poll().unwrap().expect("a whole message");
    message.command.map(|command| format!("{command:?}"))
}

fn shown(command: &Command<'_>) -> Result<String, Errno> {
    Ok(format!("{command:?}"))
}

#[test]
fn version() {
    let mut decoder = Decoder::new();
    decoder.push(&hex::read(include_str!("../../testdata/version.hex")), 0);
    let message = decoder.poll().unwrap().unwrap();
    let proposal = Proposal { minor: 1, descriptors_max: 8, data_bytes_max: 1 << 20, names_capabilities: true };
    assert_eq!(message.command, Ok(Command::Version(proposal)));
    let mut out = Vec::new();
    message.call.agree(&proposal, &mut out);
    let (head, text) = out.split_at(20);
    assert_eq!(head, hex::read("0700 0100 75000000 01000000 00000000 0000 0100"));
    let text = std::str::from_utf8(text).unwrap();
    let expected =
        r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096,"pgsizes":4096,"max_dma_maps":8192}}"#;
    assert_eq!(text.trim_end_matches('\0'), expected);
    assert_eq!((text.len(), out.len()), (expected.len() + 1, 20 + expected.len() + 1));
}

#[test]
fn a_version_that_is_not_understood_is_refused_and_may_be_tried_again() {
    let mut decoder = Decoder::new();
    for (body, errno) in [
        (&b"\x01\0\0\0{}\0"[..], Errno::NOT_SUPPORTED),
        (b"\0\0\0\0{\"capabilities\":7}\0", Errno::INVALID),
        (b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":-1}}\0", Errno::INVALID),
        (b"\0\0\0\0{", Errno::INVALID),
        (b"\0\0\0\0\xff\0", Errno::INVALID),
        (b"\0\0\0", Errno::INVALID),
    ] {
        decoder.push(&message(0, 1, 0, body), 0);
        assert_eq!(decoder.poll().unwrap().unwrap().command, Err(errno), "{body:?}");
        // Nothing else goes before there is a version.
        decoder.push(&message(0, 13, 0, &[]), 0);
        assert_eq!(decoder.poll().unwrap().unwrap().command, Err(Errno::INVALID));
    }
    // Neither text nor end is required.
    decoder.push(&message(0, 1, 0, b"\0\0\x07\0{\"capabilities\":{\"max_msg_fds\":3}}"), 0);
    let message_of = decoder.poll().unwrap().unwrap();
    let proposal = Proposal { minor: 7, descriptors_max: 3, data_bytes_max: 1 << 20, names_capabilities: true };
    assert_eq!(message_of.command, Ok(Command::Version(proposal)));
    let mut out = Vec::new();
    message_of.call.agree(&proposal, &mut out);
    assert_eq!(out[16..20], [0, 0, 1, 0], "a minor version that both know");
    decoder.push(&message(0, 1, 0, &[0; 4]), 0);
    assert_eq!(decoder.poll().unwrap().unwrap().command, Err(Errno::INVALID), "a second version");
}

#[test]
fn memory_is_mapped_and_unmapped() {
    let map = "20000000 03000000 0010000000000000 0000100000000000 0000300000000000";
    let expected = DmaMap {
        address: 0x10_0000,
        size: 0x30_0000,
        offset: 0x1000,
        direction: Direction { readable: true, writable: true },
    };
    assert_eq!(decoded(2, map, 1), shown(&Command::DmaMap(expected)));
    // Without a file there is no offset in it.
    assert_eq!(decoded(2, map, 0), shown(&Command::DmaMap(DmaMap { offset: 0, ..expected })));
    for (wrong, descriptors) in [
        (map, 2),
        ("20000000 03000000 0010000000000000 0000100000000000 00003000000000", 1),
        ("20000000 13000000 0010000000000000 0000100000000000 0000300000000000", 1),
        ("20000000 03000000 0110000000000000 0000100000000000 0000300000000000", 1),
        ("20000000 03000000 0010000000000000 0100100000000000 0000300000000000", 1),
        ("20000000 03000000 0010000000000000 0000100000000000 0100300000000000", 1),
        ("20000000 03000000 0010000000000000 0000100000000000 0000000000000000", 1),
        ("20000000 03000000 0010000000000000 00f0ffffffffffff 0020000000000000", 1),
        ("20000000 03000000 00f0ffffffffffff 0000100000000000 0020000000000000", 1),
    ] {
        assert_eq!(decoded(2, wrong, descriptors), Err(Errno::INVALID), "{wrong} {descriptors}");
    }
    for (flags, readable, writable) in [("00", false, false), ("01", true, false), ("02", false, true)] {
        let map = format!("20000000 {flags}000000 0010000000000000 0000100000000000 0000300000000000");
        let direction = Direction { readable, writable };
        assert_eq!(decoded(2, &map, 1), shown(&Command::DmaMap(DmaMap { direction, ..expected })));
    }
    let unmap = "18000000 00000000 0000100000000000 0000300000000000";
    let expected = DmaUnmap::Range { address: 0x10_0000, size: 0x30_0000 };
    assert_eq!(decoded(3, unmap, 0), shown(&Command::DmaUnmap(expected)));
    let all = "18000000 02000000 0000000000000000 0000000000000000";
    assert_eq!(decoded(3, all, 0), shown(&Command::DmaUnmap(DmaUnmap::All)));
    let dirty = "18000000 01000000 0000100000000000 0000300000000000";
    assert_eq!(decoded(3, dirty, 0), Err(Errno::NOT_SUPPORTED));
    let mut out = Vec::new();
    let mut decoder = open();
    decoder.push(&message(9, 3, 0, &hex::read(unmap)), 0);
    decoder.poll().unwrap().unwrap().call.unmapped(&expected, &mut out);
    let reply = "0900 0300 28000000 01000000 00000000 18000000 00000000 0000100000000000 0000300000000000";
    assert_eq!(out, hex::read(reply));
}

#[test]
fn the_device_is_described() {
    // Argument size, flags; regions, interrupts.
    assert_eq!(
        answer(&message(2, 4, 0, &hex::read("10000000 00000000 00000000 00000000")), false),
        hex::read("0200 0400 20000000 01000000 00000000 10000000 03000000 09000000 05000000")
    );
    // Argument size, flags, index, where capabilities begin, size, offset in the file.
    let region = |index: u8, room: u8, maps| {
        let body = format!("{room:02x}000000 00000000 {index:02x}000000 00000000 00*16");
        answer(&message(3, 5, 0, &hex::read(&body)), maps)
    };
    let head = "0300 0500 30000000 01000000 00000000";
    let expected = |text: &str| hex::read(&format!("{head} {text}"));
    assert_eq!(region(0, 32, false), expected("20000000 03000000 00000000 00000000 0040000000000000 00*8"));
    assert_eq!(region(7, 32, true), expected("20000000 03000000 07000000 00000000 0001000000000000 00*8"));
    assert_eq!(region(8, 32, false), expected("20000000 00000000 08000000 00000000 00*16"));
    assert_eq!(region(9, 32, false), hex::read("0300 0500 10000000 21000000 16000000"));
    // The page of doorbells may be mapped: there has to be room for that.
    assert_eq!(region(0, 32, true), expected("40000000 07000000 00000000 00000000 0040000000000000 00*8"));
    let sparse = "0300 0500 50000000 01000000 00000000 40000000 0f000000 00000000 20000000 0040000000000000 00*8 \
                  0100 0100 00000000 01000000 00000000 0010000000000000 0010000000000000";
    assert_eq!(region(0, 64, true), hex::read(sparse));
    let interrupt =
        |index: u8| answer(&message(4, 7, 0, &hex::read(&format!("10000000 00000000 {index:02x}000000 00*4"))), false);
    assert_eq!(interrupt(2), hex::read("0400 0700 20000000 01000000 00000000 10000000 09000000 02000000 09000000"));
    assert_eq!(interrupt(0), hex::read("0400 0700 20000000 01000000 00000000 10000000 00000000 00000000 00000000"));
    assert_eq!(interrupt(3), hex::read("0400 0700 20000000 01000000 00000000 10000000 09000000 03000000 01000000"));
    assert_eq!(interrupt(5), hex::read("0400 0700 10000000 21000000 16000000"));
}

#[test]
fn interrupts_are_connected_and_triggered() {
    let set = |flags: &str, rest: &str, descriptors| {
        decoded(8, &format!("14000000 {flags} 02000000 01000000 03000000 {rest}"), descriptors)
    };
    let expected =
        |action, data| shown(&Command::SetInterrupts(SetInterrupts { index: 2, start: 1, count: 3, action, data }));
    assert_eq!(set("24000000", "", 3), expected(InterruptAction::Trigger, InterruptData::Descriptors));
    assert_eq!(set("24000000", "", 0), expected(InterruptAction::Trigger, InterruptData::Descriptors));
    assert_eq!(set("21000000", "", 0), expected(InterruptAction::Trigger, InterruptData::None));
    assert_eq!(set("0a000000", "010001", 0), expected(InterruptAction::Mask, InterruptData::Bools(&[1, 0, 1])));
    assert_eq!(set("11000000", "", 0), expected(InterruptAction::Unmask, InterruptData::None));
    for (flags, rest, descriptors) in [
        ("24000000", "", 2),
        ("24000000", "", 17),
        ("21000000", "", 1),
        ("0a000000", "0100", 0),
        ("23000000", "", 0),
        ("20000000", "", 0),
        ("01000000", "", 0),
        ("39000000", "", 0),
        ("ffffffff", "", 0),
    ] {
        assert_eq!(set(flags, rest, descriptors.min(16)), Err(Errno::INVALID), "{flags} {rest} {descriptors}");
    }
    let overflow = "14000000 21000000 02000000 ffffffff 01000000";
    assert_eq!(decoded(8, overflow, 0), Err(Errno::INVALID));
}

#[test]
fn regions_are_read_and_written() {
    // Offset, region, count. VS of BAR0.
    assert_eq!(
        answer(&message(5, 9, 0, &hex::read("0800000000000000 00000000 04000000")), false),
        hex::read("0500 0900 24000000 01000000 00000000 0800000000000000 00000000 04000000 00010200")
    );
    // Vendor and device.
    assert_eq!(
        answer(&message(5, 9, 0, &hex::read("0000000000000000 07000000 04000000")), false),
        hex::read("0500 0900 24000000 01000000 00000000 0000000000000000 07000000 04000000 0feb0100")
    );
    assert_eq!(
        answer(&message(6, 10, 0, &hex::read("2400000000000000 00000000 04000000 1f001f00")), false),
        hex::read("0600 0a00 20000000 01000000 00000000 2400000000000000 00000000 04000000")
    );
    let invalid = |number: u16| [&[6, 0], &number.to_le_bytes()[..], &hex::read("10000000 21000000 16000000")].concat();
    for body in [
        "0040000000000000 00000000 04000000",
        "fe3f000000000000 00000000 04000000",
        "ffffffffffffffff 00000000 04000000",
        "fd00000000000000 07000000 04000000",
        "0000000000000000 01000000 04000000",
        "0000000000000000 ffffffff 04000000",
        "0000000000000000 00000000 01100000",
    ] {
        assert_eq!(answer(&message(6, 9, 0, &hex::read(body)), false), invalid(9), "{body}");
        assert_eq!(answer(&message(6, 10, 0, &hex::read(&format!("{body} 00000000"))), false), invalid(10), "{body}");
    }
    // As many bytes as a message may have.
    let most = hex::read("0000000000000000 00000000 00100000");
    assert_eq!(answer(&message(6, 9, 0, &most), false).len(), 32 + 4096);
    let written = answer(&message(6, 10, 0, &[&most[..], &[0; 4096]].concat()), false);
    assert_eq!(written, [&hex::read("0600 0a00 20000000 01000000 00000000")[..], &most].concat());
    let short = "2400000000000000 00000000 04000000 1f001f";
    assert_eq!(answer(&message(6, 10, 0, &hex::read(short)), false), invalid(10));
}

#[test]
fn what_there_is_not_is_refused() {
    for number in [0, 6, 11, 12, 14, 15, 16, 0xffff] {
        let reply = [&[6, 0], &u16::to_le_bytes(number)[..], &hex::read("10000000 21000000 5f000000")].concat();
        assert_eq!(answer(&message(6, number, 0, &[0; 64]), false), reply, "{number}");
    }
}

#[test]
fn no_reply_is_sent_where_none_is_wanted() {
    for (number, body) in [
        (2, "20000000 03000000 0010000000000000 0000100000000000 0000300000000000"),
        (3, "18000000 00000000 0000100000000000 0000300000000000"),
        (4, "10000000 00000000 00000000 00000000"),
        (5, "20000000 00000000 00000000 00*20"),
        (7, "10000000 00000000 00000000 00000000"),
        (9, "0800000000000000 00000000 04000000"),
        (9, "0800000000000000 09000000 04000000"),
        (10, "2400000000000000 00000000 04000000 1f001f00"),
        (15, ""),
    ] {
        assert_eq!(answer(&message(6, number, 0x10, &hex::read(body)), true), [0_u8; 0], "{number}");
    }
}

/// A function that is gone reads as ones and takes nothing; what it had is there when it is back.
#[test]
fn an_absent_function_has_no_registers() {
    const TABLE: u64 = ebof_vfio::pci::VECTOR_TABLE;
    let (aqa, entry) = (0x001f_001f_u32.to_le_bytes(), [3_u8; 16]);
    let read = |function: &PciFunction, at: u64| {
        let mut bytes = [0; 4];
        function.read(0, at, &mut bytes).unwrap();
        bytes
    };
    let mut function = function();
    function.write(0, 0x24, &aqa).unwrap();
    function.write(0, TABLE, &entry).unwrap();
    function.is_absent = true;
    for at in [0, 0x24, 0x14, TABLE, ebof_vfio::pci::PENDING_BITS] {
        assert_eq!(read(&function, at), [0xff; 4], "{at:#x}");
        assert_eq!(function.write(0, at, &[1, 0, 0, 0]), Ok(None), "{at:#x}");
    }
    function.is_absent = false;
    assert_eq!((read(&function, 0x24), read(&function, 0x14), read(&function, TABLE)), (aqa, [0; 4], [3; 4]));
}

/// Of what is written to the configuration space, only a function-level reset resets the function.
#[test]
fn only_a_function_level_reset_resets() {
    let mut function = function();
    let aqa = |function: &PciFunction| {
        let mut bytes = [0; 4];
        function.read(0, 0x24, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    };
    function.write(0, 0x24, &0x001f_001f_u32.to_le_bytes()).unwrap();
    assert_eq!(function.write(7, 4, &[6, 0]), Ok(Some(Event::Config(ConfigEffect::BusMaster(true)))));
    function.write(7, 0x10, &[0xff; 4]).unwrap();
    assert_eq!(aqa(&function), 0x001f_001f);
    assert_eq!(function.write(7, 0x68, &[0, 0x80]), Ok(Some(Event::Config(ConfigEffect::FunctionReset))));
    assert_eq!(aqa(&function), 0);
}

#[test]
fn a_reset_starts_anew() {
    let mut function = function();
    function.write(0, 0x24, &0x1f_001f_u32.to_le_bytes()).unwrap();
    function.write(7, 4, &[6, 0]).unwrap();
    let mut decoder = open();
    decoder.push(&message(8, 13, 0, &[]), 0);
    let message = decoder.poll().unwrap().unwrap();
    let mut out = Vec::new();
    let action = function.handle(message.call, message.command.unwrap(), false, &mut out);
    assert!(matches!(action, Action::Reset(_)) && out.is_empty());
    message.call.succeed(&mut out);
    assert_eq!(out, hex::read("0800 0d00 10000000 01000000 00000000"));
    let mut aqa = [0xff; 4];
    function.read(0, 0x24, &mut aqa).unwrap();
    assert_eq!((aqa, function.config.is_bus_master()), ([0; 4], false));
}
