//! Any sequence of requests, ends and withdrawals: nothing is lost, and nothing stays.

use ebof_shares::{Depth, Flow, Kind, Request, Scheduler, Share, Ticket, Verdict};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Action {
    Submit {
        flow: u16,
        bytes: u64,
        is_write: bool,
    },
    /// Of those at the device.
    Complete(usize),
    /// Of those that wait or are at the device.
    Withdraw(usize),
    SetShare {
        flow: u16,
        share: Share,
    },
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let flow = 0..5_u16;
    let rate = || prop::option::of(prop_oneof![Just(0), 1..100_000_u64, Just(u64::MAX)]);
    let share = (any::<u16>(), rate(), rate(), rate()).prop_map(|(weight, iops, bytes_per_second, minimum_iops)| {
        Share { weight, iops, bytes_per_second, minimum_iops }
    });
    prop_oneof![
        6 => (flow.clone(), prop_oneof![0..200_000_u64, Just(u64::MAX)], any::<bool>())
            .prop_map(|(flow, bytes, is_write)| Action::Submit { flow, bytes, is_write }),
        4 => any::<usize>().prop_map(Action::Complete),
        2 => any::<usize>().prop_map(Action::Withdraw),
        1 => (flow, share).prop_map(|(flow, share)| Action::SetShare { flow, share }),
        2 => prop_oneof![0..100_u64, 0..100_000_u64].prop_map(Action::Wait),
    ]
}

proptest! {
    #[test]
    fn each_request_goes_once_in_the_order_of_its_flow(actions in prop::collection::vec(action(), 1..300)) {
        let mut scheduler = Scheduler::new(Depth::fixed(6));
        let flow = |number| Flow::new(number).unwrap();
        let mut waiting: Vec<(u16, u32, Ticket)> = Vec::new();
        let mut at_device: Vec<(u32, Ticket)> = Vec::new();
        let mut now_us = 5;
        let mut serial = 0_u32;
        for action in actions {
            match action {
                Action::Submit { flow: number, bytes, is_write } => {
                    serial += 1;
                    let kind = if is_write { Kind::Write } else { Kind::Read };
                    match scheduler.submit(flow(number), Request { kind, bytes }, serial, now_us) {
                        Verdict::Go(ticket) => {
                            prop_assert!(waiting.iter().all(|(other, ..)| *other != number));
                            at_device.push((serial, ticket));
                        }
                        Verdict::Wait(ticket) => waiting.push((number, serial, ticket)),
                    }
                }
                Action::Complete(at) if !at_device.is_empty() => {
                    let (_, ticket) = at_device.swap_remove(at % at_device.len());
                    scheduler.release(ticket, now_us);
                    // A second time does nothing.
                    scheduler.release(ticket, now_us);
                }
                Action::Withdraw(at) if !waiting.is_empty() => {
                    let (_, _, ticket) = waiting.remove(at % waiting.len());
                    scheduler.release(ticket, now_us);
                }
                Action::Complete(_) | Action::Withdraw(_) => {}
                Action::SetShare { flow: number, share } => scheduler.set_share(flow(number), share, now_us),
                Action::Wait(us) => now_us += us,
            }
            while let Some((ticket, owner)) = scheduler.next(now_us) {
                let at = waiting.iter().position(|(_, known, _)| *known == owner);
                prop_assert!(at.is_some(), "{owner} was not waiting");
                let (number, _, known) = waiting.remove(at.unwrap());
                prop_assert_eq!(known, ticket);
                prop_assert!(!waiting.iter().any(|(other, before, _)| *other == number && *before < owner), "overtaken");
                at_device.push((owner, ticket));
            }
            let figures = |number| scheduler.figures(flow(number), now_us);
            prop_assert_eq!((0..5).map(|number| figures(number).waiting as usize).sum::<usize>(), waiting.len());
            prop_assert_eq!((0..5).map(|number| figures(number).at_device as usize).sum::<usize>(), at_device.len());
            // Each flow may have one more, while it has no other.
            prop_assert!(at_device.len() <= 6 + 5);
        }
        // Without limits, everything goes.
        (0..5).for_each(|number| scheduler.set_share(flow(number), Share::default(), now_us));
        let mut left = waiting.len();
        loop {
            while let Some((ticket, owner)) = scheduler.next(now_us) {
                left -= 1;
                at_device.push((owner, ticket));
            }
            let Some((_, ticket)) = at_device.pop() else { break };
            scheduler.release(ticket, now_us);
        }
        prop_assert_eq!(left, 0);
    }
}
