//! Namespaces are asked for as nvme-cli asks: what is sent for which options. No controller is
//! there.

use super::*;
use crate::device::fake::{Fake, FakeAnswer};
use crate::output::View as _;
use crate::verbs::line::{parse_on as parse, try_parse_on as try_parse};
use ebof_nvme::identify::{IdentifyController, NamespaceList};
use zerocopy::FromBytes as _;

fn formats() -> Vec<u8> {
    let mut namespace = IdentifyNamespace { nlbaf: 2, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat::data_only(9);
    namespace.lbaf[1] = LbaFormat { ms: 8.into(), lbads: 12, rp: 0 };
    namespace.lbaf[2] = LbaFormat::data_only(12);
    namespace.as_bytes().to_vec()
}

#[test]
fn a_namespace_is_created_as_by_nvme_cli() {
    let verb: CreateNs = parse("x nvme0 -s 0x100000 -c 0x80000 -f 1 -d 1 -m 1 -a 2 -i 3 -e 4 -y 0 -l 0x5");
    let mut fake = Fake::controller([FakeAnswer::ok().with_dw0(7)]);
    let view = verb.run_on(&mut fake).unwrap();
    assert_eq!(view.text(false), "create-ns: Success, created nsid:7\n");
    let asked = fake.last();
    assert_eq!((asked.sqe.opcode, asked.sqe.cdw10.get(), asked.sqe.cdw11.get()), (0x0d, 0, 0));
    let new = NewNamespace::read_from_bytes(&asked.data).unwrap();
    let expected = NewNamespace {
        nsze: 0x10_0000.into(),
        ncap: 0x8_0000.into(),
        flbas: 1,
        dps: 1,
        nmic: 1,
        anagrpid: 2.into(),
        nvmsetid: 3.into(),
        endgid: 4.into(),
        lbstm: 5.into(),
        ..NewNamespace::default()
    };
    assert_eq!(new, expected);
}

#[test]
fn a_block_size_selects_the_format_without_metadata() {
    let verb: CreateNs = parse("x nvme0 -s 1Mi --block-size 4Ki");
    let mut fake = Fake::controller([FakeAnswer::data(&formats())]);
    verb.run_on(&mut fake).unwrap();
    assert_eq!((fake.asked[0].sqe.nsid(), fake.asked[0].sqe.cdw10.get()), (Nsid::ALL, 0));
    let new = NewNamespace::read_from_bytes(&fake.last().data).unwrap();
    assert_eq!((new.flbas, new.nsze.get(), new.ncap.get()), (2, 1 << 20, 1 << 20));

    let verb: CreateNs = parse("x nvme0 -s 1 -b 2Ki");
    let error = verb.run_on(&mut Fake::controller([FakeAnswer::data(&formats())])).unwrap_err().to_string();
    let expected = "there is no LBA format of 2048 bytes without metadata\n  \
                    nvme0 has these formats (bytes, and bytes of metadata): 0: 512, 1: 4096+8, 2: 4096";
    assert_eq!(error, expected);
}

#[test]
fn sizes_in_bytes_are_rounded_up_to_the_granularity() {
    let verb: CreateNs = parse("x nvme0 -S 1M -C 1000k -b 4096");
    let controller =
        IdentifyController { ctratt: field::ctratt::NAMESPACE_GRANULARITY.into(), ..IdentifyController::default() };
    let granularity = NamespaceGranularityList::of_all_formats(1 << 20);
    let mut fake = Fake::controller([
        FakeAnswer::data(&formats()),
        FakeAnswer::data(&formats()),
        FakeAnswer::data(controller.as_bytes()),
        FakeAnswer::data(granularity.as_bytes()),
    ]);
    verb.run_on(&mut fake).unwrap();
    let new = NewNamespace::read_from_bytes(&fake.last().data).unwrap();
    assert_eq!((new.nsze.get(), new.ncap.get()), (256, 256));
    assert_eq!(fake.asked[3].sqe.cdw10.get(), 0x16);
}

#[test]
fn a_namespace_without_a_size_is_not_created() {
    let verb: CreateNs = parse("x nvme0 -f 0");
    let mut fake = Fake::controller([]);
    assert!(verb.run_on(&mut fake).unwrap_err().to_string().contains("--nsze"));
    assert!(fake.asked.is_empty());
    assert!(try_parse::<CreateNs>("x nvme0 -s 1 -S 1G").is_err());
    assert!(try_parse::<CreateNs>("x nvme0 -f 1 -b 512").is_err());
}

#[test]
fn a_delete_has_the_nsid() {
    let verb: DeleteNs = parse("x nvme0n1 --force");
    let mut fake = Fake::namespace(3, []);
    assert_eq!(verb.run_on(&mut fake).unwrap().text(false), "delete-ns: Success, deleted nsid:3\n");
    assert_eq!((fake.last().sqe.cdw10.get(), fake.last().sqe.nsid(), fake.last().room), (1, Nsid(3), 0));
    let verb: DeleteNs = parse("x nvme0 --force");
    assert!(verb.run_on(&mut Fake::controller([])).is_err());
}

// @test output.confirmation
#[test]
fn a_delete_needs_confirmation() {
    let identify = |asked: &crate::device::fake::Asked| asked.sqe.opcode == ebof_nvme::opcode::admin::IDENTIFY;
    let list = NamespaceList::after(Nsid::NONE, [Nsid(1), Nsid(7)]);
    let mut data = IdentifyNamespace { nsze: 2048.into(), ..IdentifyNamespace::default() };
    data.lbaf[0] = LbaFormat::data_only(9);
    let controllers = ControllerList::starting_at(ControllerId(0), [ControllerId(1), ControllerId(2)]);
    let one = || [FakeAnswer::data(data.as_bytes()), FakeAnswer::data(controllers.as_bytes())];
    let mut fake = Fake::controller([FakeAnswer::data(list.as_bytes())].into_iter().chain(one()).chain(one()));
    let verb: DeleteNs = parse("x nvme0 -n 0xffffffff");
    let error = verb.run_on(&mut fake).unwrap_err().to_string();
    let expected = "Deleting takes every namespace of nvme0 and its data away for ever. Nothing was done\n  \
                    namespace 1, 1.05 MB, attached to controllers 1, 2\n  \
                    namespace 7, 1.05 MB, attached to controllers 1, 2\n  \
                    standard input is no terminal, so that nobody can be asked: do it in a terminal, or say --force where it is meant";
    assert_eq!(error, expected);
    assert!(fake.asked.iter().all(identify));
}

#[test]
fn mounted_devices_are_neither_deleted_nor_detached() {
    let mounted = || Fake::namespace(1, []).with_local_device(1, Some("/mnt"));
    let mut fake = mounted();
    let error = parse::<DeleteNs>("x nvme0n1").run_on(&mut fake).unwrap_err().to_string();
    assert!(error.contains("delete-ns: nvme0n1 is in use") && fake.asked.is_empty(), "{error}");
    let detach = |line: &str, fake: &mut Fake| parse::<DetachNs>(line).run_on(fake);
    let error = detach("x nvme0n1 -c 1", &mut fake).unwrap_err().to_string();
    assert!(error.contains("/dev/loop1 is mounted at /mnt") && fake.asked.is_empty(), "{error}");
    detach("x nvme0n1 -c 1 --force", &mut fake).unwrap();
    assert_eq!(fake.last().sqe.opcode, 0x15);
    let mut fake = mounted();
    parse::<DeleteNs>("x nvme0n1 --force").run_on(&mut fake).unwrap();
    assert_eq!(fake.last().sqe.opcode, 0x0d);
}

#[test]
fn attaching_shows_the_block_device_of_its_own_controller() {
    let mut fake = Fake::controller([]).with_local_device(2, None).with_local_device(3, None);
    let other = LocalDevice { name: "nvme1n2".into(), path: "/dev/loop9".into(), ..fake.local_devices[0].clone() };
    fake.local_devices.push(other);
    let attached = "attach-ns: Success, nsid:2\n";
    let waits: AttachNs = parse("x nvme0 -n 2");
    assert_eq!(waits.run_on(&mut fake).unwrap().text(false), format!("{attached}nvme0n2: /dev/loop2\n"));
    assert_eq!(fake.rescans, 1);
    let goes_on: AttachNs = parse("x nvme0 -n 2 --no-wait");
    assert_eq!(goes_on.run_on(&mut fake).unwrap().text(false), attached);
    assert_eq!(fake.rescans, 1);
}

#[test]
fn attaching_sends_a_list_of_controllers() {
    let verb: Attachment = parse("x nvme0 -n 2 -c 3,0x1,3");
    let mut fake = Fake::controller([]);
    let view = verb.run_on("attach-ns", AttachmentSelect::Attach, &mut fake).unwrap();
    assert_eq!(view.text(false), "attach-ns: Success, nsid:2\n");
    assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw10.get()), (0x15, 0));
    assert_eq!(fake.last().data[..8], [2, 0, 1, 0, 3, 0, 0, 0]);

    let verb: Attachment = parse("x nvme0 -n 2");
    let controller = IdentifyController { cntlid: 9.into(), ..IdentifyController::default() };
    let mut fake = Fake::controller([FakeAnswer::data(controller.as_bytes())]);
    verb.run_on("detach-ns", AttachmentSelect::Detach, &mut fake).unwrap();
    assert_eq!((fake.last().sqe.cdw10.get(), &fake.last().data[..4]), (1, &[1, 0, 9, 0][..]));

    let verb: Attachment = parse("x nvme0 -n 2 -c 0xfff0");
    assert!(verb.run_on("attach-ns", AttachmentSelect::Attach, &mut Fake::controller([])).is_err());
}
