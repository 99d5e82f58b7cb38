//! What the box asks: what it may, what hosts may not, and what is left if the journal ends in the
//! middle.

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::firmware::CommitAction;
use ebof_nvme::media::{Format, Sanitize, SanitizeAction};

use super::super::*;
use super::rig::{Bench, host};
use crate::change::unfinished::Unfinished;
use crate::function::FunctionId;
use crate::maintenance::firmware::{Image, PRODUCT, Personality};
use crate::namespace::NewNamespace;
use crate::namespace::placement::Attachments;

/// A drive with two functions and two hosts.
fn boxed() -> Bench {
    Bench::new(State::default(), settings(), 2)
}

fn settings() -> Settings {
    Settings { functions: 2, ..Settings::default() }
}

impl Bench {
    fn owners(&self, nsid: u32) -> Attachments {
        Attachments::from(&self.drive.state().namespaces[&nsid])
    }
}

fn ordered(nsid: Option<u32>, attachments: Option<Attachments>) -> Ordered {
    let namespace = NewNamespace { blocks: 2048, capacity_blocks: 2048, shared: true, ..NewNamespace::default() };
    Ordered { namespace, nsid, attachments, transaction: None }
}

fn both() -> Attachments {
    let hosts = [host(0).host.to_string()].into();
    Attachments { functions: [1].into(), hosts, for_everyone: false }
}

#[test]
fn a_namespace_is_there_with_those_who_have_it() {
    let mut bench = boxed();
    let order = |nsid, attachments| Request::CreateOrdered(ordered(nsid, attachments));
    let decision = bench.made(&order(Some(7), Some(both())));
    assert_eq!(decision.answer, Answer::Done(7));
    assert_eq!((bench.owners(7), decision.lost), (both(), vec![]));
    assert_eq!(bench.drive.state().namespaces[&7].owner, "", "nobody's quota counts it");
    let created = |change: &&Change| matches!(change, Change::Created { .. });
    assert_eq!(decision.changes.iter().filter(created).count(), 1, "there is no moment without owners");

    assert_eq!(bench.made(&order(None, None)).answer, Answer::Done(1));
    assert_eq!(bench.owners(1), Attachments::default());
    assert!(bench.refused(&order(Some(7), None)).is(Status::NAMESPACE_ID_UNAVAILABLE));
    assert!(bench.refused(&order(Some(129), None)).is(Status::INVALID_NAMESPACE));
    let three = Attachments { functions: [3].into(), ..Attachments::default() };
    assert!(bench.refused(&order(None, Some(three))).is(Status::INVALID_CONTROLLER_ID));
    let mut private = ordered(None, Some(both()));
    private.namespace.shared = false;
    assert!(bench.refused(&Request::CreateOrdered(private.clone())).is(Status::NAMESPACE_IS_PRIVATE));
    private.attachments = Some(Attachments { functions: [1].into(), ..Attachments::default() });
    bench.made(&Request::CreateOrdered(private));
    let mut unknown = ordered(None, None);
    unknown.transaction = Some("t".into());
    assert!(bench.refused(&Request::CreateOrdered(unknown)).is(Status::INVALID_FIELD));
}

#[test]
fn hosts_may_not_ask_what_the_box_asks() {
    let mut bench = boxed();
    bench.made(&Request::CreateOrdered(ordered(None, None)));
    for request in [
        Request::CreateOrdered(ordered(None, None)),
        Request::Withdraw(VolumeId(0)),
        Request::AttachMore(Nsid(1), both()),
        Request::DetachFrom(Nsid(1), both()),
        Request::Stage(2, image("2.0", Personality::default())),
    ] {
        assert!(bench.ask(&host(0), &request).unwrap_err().is(Status::OPERATION_DENIED), "{request:?}");
    }
}

#[test]
fn some_get_a_namespace_and_others_keep_or_lose_it() {
    let mut bench = boxed();
    bench.made(&Request::CreateOrdered(ordered(None, None)));
    let hosts = |numbers: &[u16]| Attachments {
        hosts: numbers.iter().map(|&number| host(number).host.to_string()).collect(),
        ..Attachments::default()
    };
    let everyone = Attachments { for_everyone: true, ..Attachments::default() };
    bench.made(&Request::AttachMore(Nsid(1), both()));
    assert_eq!(bench.made(&Request::AttachMore(Nsid(1), both())).changes, vec![], "they have it");
    bench.made(&Request::AttachMore(Nsid(1), everyone.clone()));
    // One who has it as one of all needs no entry of its own.
    assert_eq!(bench.made(&Request::AttachMore(Nsid(1), hosts(&[1]))).changes, vec![]);
    let decision = bench.made(&Request::DetachFrom(Nsid(1), hosts(&[0])));
    assert_eq!(decision.lost, [(Nsid(1), None)]);
    assert_eq!(bench.owners(1), Attachments { functions: [1].into(), ..hosts(&[1]) }, "those that were there stay");
    bench.made(&Request::AttachMore(Nsid(1), everyone.clone()));
    bench.made(&Request::DetachFrom(Nsid(1), everyone));
    assert_eq!(bench.owners(1), Attachments { functions: [1].into(), ..hosts(&[1]) });
    let function = Attachments { functions: [1].into(), ..Attachments::default() };
    let decision = bench.made(&Request::DetachFrom(Nsid(1), function));
    assert_eq!(decision.lost, [(Nsid(1), Some(FunctionId(1)))]);
    assert!(bench.refused(&Request::AttachMore(Nsid(2), both())).is(Status::INVALID_NAMESPACE));
}

#[test]
fn what_a_transaction_has_created_goes_wherever_the_journal_ends() {
    let mut bench = boxed();
    bench.made(&Request::CreateOrdered(ordered(Some(1), None)));
    let before = Unfinished { protected: [(1, false)].into(), ..Unfinished::default() };
    bench.made(&Request::Begin("t".into(), before));
    let began = bench.journal.len();
    for nsid in [Some(2), None] {
        let transaction = Some("t".to_string());
        bench.made(&Request::CreateOrdered(Ordered { transaction, ..ordered(nsid, Some(both())) }));
    }
    bench.made(&Request::Protect(Nsid(1), true));
    bench.made(&Request::Protect(Nsid(2), true));
    let state = |journal: &[Vec<u8>]| State::restore(b"", journal).unwrap();
    assert_eq!(state(&bench.journal).namespaces.len(), 3);
    for end in began..=bench.journal.len() {
        let mut rest = Bench::new(state(&bench.journal[..end]), settings(), 0);
        rest.journal = bench.journal[..end].to_vec();
        let there: Vec<VolumeId> = rest.drive.state().volumes().skip(1).collect();
        let decision = rest.made(&Request::Undo("t".into()));
        assert_eq!(decision.after, there.into_iter().map(Effect::Remove).collect::<Vec<_>>(), "{end}");
        let after = state(&rest.journal);
        assert_eq!(after.namespaces.keys().collect::<Vec<_>>(), [&1], "{end}");
        assert!(!after.namespaces[&1].write_protected && after.transactions.is_empty());
    }
    // One that is made is not taken back.
    bench.made(&Request::End("t".into()));
    bench.made(&Request::Undo("t".into()));
    assert_eq!(bench.drive.state().namespaces.len(), 3);
    // One at a time, by the task itself.
    let volume = bench.drive.state().namespaces[&2].volume;
    assert_eq!(bench.made(&Request::Withdraw(volume)).after, [Effect::Remove(volume)]);
    assert_eq!(bench.made(&Request::Withdraw(volume)).changes, vec![], "it is gone");
}

/// The group of a namespace survives the journal, and goes back with its transaction.
#[test]
fn a_namespace_is_put_into_an_ana_group() {
    let mut bench = boxed();
    let group = |bench: &Bench, nsid| bench.drive.state().namespaces[&nsid].ana_group;
    bench.made(&Request::CreateOrdered(ordered(Some(1), None)));
    let mut own = ordered(Some(2), None);
    own.namespace.ana_group = 7;
    bench.made(&Request::CreateOrdered(own));
    assert_eq!((group(&bench, 1), group(&bench, 2)), (1, 7));
    let before = Unfinished { groups: [(1, 1)].into(), ..Unfinished::default() };
    bench.made(&Request::Begin("t".into(), before));
    bench.made(&Request::Group(Nsid(1), 128));
    assert_eq!(bench.made(&Request::Group(Nsid(1), 128)).changes, vec![], "it is in it");
    assert!(bench.refused(&Request::Group(Nsid(1), 129)).is(Status::ANA_GROUP_INVALID));
    assert!(bench.refused(&Request::Group(Nsid(3), 2)).is(Status::INVALID_NAMESPACE));
    let restored = State::restore(b"", &bench.journal).unwrap();
    assert_eq!([1, 2].map(|nsid| restored.namespaces[&nsid].ana_group), [128, 7]);
    bench.made(&Request::Undo("t".into()));
    assert_eq!((group(&bench, 1), group(&bench, 2)), (1, 7));
}

/// What a drive remembers of transactions is bounded in number and size.
#[test]
fn transactions_that_are_remembered_are_limited() {
    let mut bench = boxed();
    let none = Unfinished::default;
    let protected = |count: u32| Unfinished { protected: (0..count).map(|nsid| (nsid, true)).collect(), ..none() };
    let bytes = |count: u32| serde_json::to_vec(&protected(count)).unwrap().len();
    let counts: Vec<u32> = (1..20_000).collect();
    let fits = counts[counts.partition_point(|&count| bytes(count) <= Unfinished::BYTES_MAX) - 1];
    let refused = Status::INVALID_FIELD;
    assert!(bench.refused(&Request::Begin("t".into(), protected(fits + 1))).is(refused));
    assert!(bench.refused(&Request::Begin("t".repeat(Unfinished::ID_BYTES_MAX + 1), none())).is(refused));
    bench.made(&Request::Begin("t".into(), protected(fits)));
    assert!(bench.refused(&Request::Begin("t".into(), none())).is(refused), "it is there");
    for number in 1..Unfinished::MAX {
        bench.made(&Request::Begin(format!("{number:0>64}"), none()));
    }
    assert!(bench.refused(&Request::Begin("u".into(), none())).is(refused));
    bench.made(&Request::End("t".into()));
    bench.made(&Request::Begin("u".into(), none()));
    // And how much it creates.
    bench.made(&Request::End("u".into()));
    let most = 1000..1000 + Unfinished::CREATED_MAX as u64 - 1;
    bench.made(&Request::Begin("c".into(), Unfinished { created: most.map(VolumeId).collect(), ..none() }));
    let create = || Request::CreateOrdered(Ordered { transaction: Some("c".to_string()), ..ordered(None, None) });
    bench.made(&create());
    assert!(bench.refused(&create()).is(refused));
}

fn image(revision: &str, personality: Personality) -> Arc<[u8]> {
    let image = Image { product: PRODUCT.into(), revision: revision.into(), personality };
    image.encode().unwrap().into()
}

#[test]
fn a_hosts_download_is_not_the_boxs() {
    let mut bench = boxed();
    let of_host = image("7.7", Personality::default());
    bench.ask(&host(0), &Request::Download(0, of_host.to_vec())).unwrap();
    let activate = |slot| Request::Commit(Commit { action: CommitAction::ActivateNow, slot, boot_partition: 0 });
    assert!(bench.refused(&activate(3)).is(Status::INVALID_FIRMWARE_IMAGE), "the box has downloaded nothing");
    let decision = bench.made(&Request::Stage(0, image("2.0", Personality::default())));
    assert_eq!(decision.answer, Answer::Done(2));
    bench.made(&activate(2));
    assert_eq!(bench.drive.view().revision, "2.0");
    bench.ask(&host(0), &activate(3)).unwrap();
    assert_eq!(bench.drive.view().revision, "7.7", "the host's image is whole");
    let cut: Arc<[u8]> = image("2.1", Personality::default())[..70].into();
    assert!(bench.refused(&Request::Stage(4, cut)).is(Status::INVALID_FIRMWARE_IMAGE));
    assert!(bench.refused(&Request::Stage(5, image("2.1", Personality::default()))).is(Status::INVALID_FIRMWARE_SLOT));
}

#[test]
fn the_box_has_the_commands_that_the_firmware_has() {
    let mut bench = boxed();
    bench.made(&Request::CreateOrdered(ordered(None, None)));
    let requests = [
        Request::Format(Nsid(1), Format::new(1)),
        Request::SelfTest(ebof_nvme::log::SelfTestCode::SHORT, Nsid::ALL),
        Request::Sanitize(Sanitize::new(SanitizeAction::BlockErase)),
    ];
    let none = Personality { format: false, device_self_test: false, sanitize: false, ..Personality::default() };
    bench.made(&Request::Stage(2, image("2.0", none)));
    bench.made(&Request::Commit(Commit { action: CommitAction::Activate, slot: 2, boot_partition: 0 }));
    bench.made(&Request::Reset);
    requests.iter().for_each(|request| assert!(bench.refused(request).is(Status::INVALID_OPCODE), "{request:?}"));
    bench.made(&Request::Commit(Commit { action: CommitAction::ActivateNow, slot: 1, boot_partition: 0 }));
    // Namespaces that nobody has, too.
    requests.iter().for_each(|request| drop(bench.made(request)));
}
