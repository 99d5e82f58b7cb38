//! Both ends against each other, over a queue pair on which everything comes in any order.

use ebof_testkit::rdma::{Act, Conversation, Size};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    // @test rdma.completed-once
    #[test]
    fn every_command_completes_once_in_any_order(
        entries in 2_u16..20,
        reads: u8,
        send_queue_entries in 32_u32..80,
        acts in prop::collection::vec(any::<[u8; 2]>(), 0..400),
        established: bool,
    ) {
        let mut conversation = Conversation::new(Size { entries, reads: reads % 20, send_queue_entries });
        if established {
            conversation.act(Act::Establish);
        }
        let mut submitted = 0;
        for act in acts.into_iter().map(Act::from_bytes) {
            submitted += usize::from(matches!(act, Act::Submit { .. }));
            conversation.act(act);
        }
        conversation.finish_all();
        prop_assert!(conversation.finished <= submitted);
    }
}

#[test]
fn nothing_is_posted_before_the_connection_is_established() {
    let mut conversation = Conversation::new(Size { entries: 8, reads: 4, send_queue_entries: 64 });
    for kind in 0..8 {
        for act in [Act::Submit { kind, length: 40 }, Act::Deliver, Act::Device(0), Act::Post] {
            conversation.act(act);
        }
    }
    assert_eq!(conversation.finished, 0);
    conversation.finish_all();
    assert_eq!(conversation.finished, 8);
}

#[test]
fn a_full_queue_of_writes_needs_one_read_at_a_time() {
    let mut conversation = Conversation::new(Size { entries: 128, reads: 1, send_queue_entries: 32 });
    for _ in 0..1000 {
        conversation.act(Act::Submit { kind: 5, length: 90 });
        conversation.act(Act::Deliver);
        conversation.act(Act::Post);
    }
    conversation.finish_all();
    assert_eq!(conversation.finished, 128);
}
