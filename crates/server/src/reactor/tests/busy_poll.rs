//! Ports over RDMA that have completions polled: how long their reactor stays awake, and that
//! nothing is missed when it sleeps.

use std::time::Duration;

use ebof_idle::Idle;
use ebof_manage::Listen;

use super::Rig;
use super::config::one_subsystem;
use super::rdma_host::{RdmaHost, RdmaWay};

impl Rig {
    fn polling(busy_poll_us: Option<u32>, prefer_busy_poll: bool) -> Self {
        let mut config = one_subsystem(["mem:64Mi"]);
        let port = &mut config.ports[0];
        port.listen = Listen::rdma([127, 0, 0, 1].into(), 4420);
        (port.busy_poll_us, port.prefer_busy_poll) = (busy_poll_us, prefer_busy_poll);
        let mut rig = Self::with_devices(&config, |device| device);
        // What its yields take of the machine's time does not count.
        ebof_idle::late::set_alone();
        rig.reactor.idle = Idle::new(0);
        rig
    }

    /// Turns without work, until the reactor sleeps or `us` have passed. Returns how long that was.
    fn awake_us(&mut self, us: u64) -> u64 {
        let start = self.now_us;
        for turn in 1.. {
            let worked = self.turn(1);
            let timeout = self.reactor.next_timeout(self.now_us, worked, turn);
            if timeout != Some(Duration::ZERO) || self.now_us - start >= us {
                break;
            }
        }
        self.now_us - start
    }

    /// Connections that are polled, and would not wake the reactor.
    fn polled(&self) -> usize {
        self.reactor.connections.table.iter().filter(|connection| connection.link.is_polled()).count()
    }
}

/// Both queues, idle.
fn connected(busy_poll_us: Option<u32>, prefer_busy_poll: bool) -> (Rig, RdmaHost, RdmaHost) {
    let mut rig = Rig::polling(busy_poll_us, prefer_busy_poll);
    let (admin, queue) = RdmaHost::connect(&mut rig);
    (rig, admin, queue)
}

fn reads(rig: &mut Rig, queue: &mut RdmaHost) {
    queue.submit(RdmaWay::Read, 4, 4096);
    for _ in 0..4 {
        queue.carry();
        rig.turn(1);
    }
    queue.carry();
    assert_eq!(queue.take(), 4);
}

// @test rdma.polled-completions
#[test]
fn a_thread_that_prefers_to_poll_never_sleeps_while_it_has_connections() {
    let (mut rig, admin, mut queue) = connected(Some(10), true);
    for _ in 0..2 {
        assert!(rig.awake_us(20_000) >= 20_000);
        assert_eq!(rig.polled(), 2, "nothing is armed");
        reads(&mut rig, &mut queue);
    }
    admin.leave();
    queue.leave();
    assert!(rig.awake_us(1_000_000) < 1_000_000);
}

/// Programs that compute have come, so that two yields took 4 ms each, and go again.
#[test]
fn a_thread_that_prefers_to_poll_does_so_again_when_it_has_its_processor_for_itself() {
    let (mut rig, _admin, mut queue) = connected(Some(10), true);
    reads(&mut rig, &mut queue);
    for switches in 1..=2 {
        rig.reactor.idle.gave_way(rig.now_us, Duration::from_millis(4), || switches);
    }
    assert!(rig.reactor.idle.is_shared());
    let until_us = rig.now_us + 1_500_000;
    while rig.reactor.idle.is_shared() && rig.now_us < until_us {
        let timeout = rig.reactor.next_timeout(rig.now_us, false, 8).expect("it sleeps until something happens");
        rig.reactor.mailbox.wake_up();
        rig.turn(1 + u64::try_from(timeout.as_micros()).unwrap());
    }
    assert!(rig.awake_us(20_000) >= 20_000, "after {} ms", rig.now_us / 1000);
    queue.submit(RdmaWay::Read, 1, 4096);
    queue.carry();
    rig.turn(1);
    assert_eq!(rig.polled(), 1, "what it has slept with, it polls once there is something");
}

// @test rdma.polled-completions
#[test]
fn a_thread_polls_for_a_while_and_is_woken_afterwards() {
    let (mut rig, _admin, mut queue) = connected(Some(5_000), false);
    for round in 0..3 {
        let awake_us = rig.awake_us(20_000);
        assert!((4_000..5_100).contains(&awake_us), "round {round}: {awake_us} µs");
        assert_eq!(rig.polled(), 0, "it must not sleep with a connection that is not armed");
        // Its bell puts a message into the mailbox.
        queue.submit(RdmaWay::Read, 1, 4096);
        queue.carry();
        assert!(rig.reactor.mailbox.has_messages());
        rig.reactor.mailbox.wake_up();
        rig.turn(1);
        queue.carry();
        assert_eq!(queue.take(), 1);
        reads(&mut rig, &mut queue);
    }
}

#[test]
fn by_default_a_thread_sleeps_as_the_settings_say() {
    let (mut rig, _admin, _queue) = connected(None, false);
    assert!(rig.awake_us(20_000) < 100);
    assert_eq!(rig.polled(), 0);
}
