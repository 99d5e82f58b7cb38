//! The mutations: which rule each of them breaks, and how. One that changes nothing that a host
//! could see is none.

/// A rule that is broken. Both texts are expressions of one type.
pub(super) struct Mutation {
    /// In the variable `EBOF_MUTATION`.
    pub(super) name: &'static str,
    /// What a host could see then.
    pub(super) why: &'static str,
    pub(super) file: &'static str,
    /// What stands there, once.
    pub(super) from: &'static str,
    /// What does in its place.
    pub(super) to: &'static str,
}

const QUEUE: &str = "crates/initiator/src/controller/paths/queue.rs";
const STEPPED: &str = "crates/initiator/src/controller/paths/stepped.rs";
const LANES: &str = "crates/initiator/src/controller/paths/lanes.rs";
const KEEPER: &str = "crates/initiator/src/controller/paths/keeper.rs";
const CONNECTION: &str = "crates/initiator/src/queue/connection.rs";
const REQUEUE: &str = "crates/initiator/src/requeue.rs";
const SHARED: &str = "crates/initiator/src/shared.rs";
const FENCE: &str = "crates/initiator/src/shared/fence.rs";
const RESET: &str = "crates/fabrics/src/registry/reset.rs";
const BARRED: &str = "crates/fabrics/src/registry/fence.rs";
const REGISTRY: &str = "crates/fabrics/src/registry.rs";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "write-is-repeated-at-once",
        why: "a write whose fate is unknown goes on at once, and its first execution comes later",
        file: QUEUE,
        from: "Fate::of(self.sqe.opcode, self.sqe.fuse() != Fuse::Normal)",
        to: "match Fate::of(self.sqe.opcode, false) { Fate::Wait => Fate::Repeat, fate => fate }",
    },
    Mutation {
        name: "fence-of-the-present",
        why: "a lost write waits for the association that is there, and not for the one that had it",
        file: CONNECTION,
        from: "Arc::clone(&self.fence)",
        to: "Arc::clone(&self.shared.info().fence)",
    },
    Mutation {
        name: "refused-reset-ends-the-fence",
        why: "Cross-Controller Reset was refused, and that counts as done",
        file: KEEPER,
        from: "reset_through_others(inner, instance, &self.waiter).await",
        to: "match reset_through_others(inner, instance, &self.waiter).await { Reset::Refused => Reset::Done, reset => reset }",
    },
    Mutation {
        name: "unanswered-reset-ends-the-fence",
        why: "Cross-Controller Reset was lost on its way, and that counts as done",
        file: KEEPER,
        from: "result = Reset::Later",
        to: "return Reset::Done",
    },
    Mutation {
        name: "accepted-reset-ends-the-fence",
        why: "a reset that is in progress counts as done",
        file: KEEPER,
        from: "about.map(|entry| entry.state())",
        to: "Some(CrossControllerResetState::Successful)",
    },
    Mutation {
        name: "any-entry-of-the-log",
        why: "the entry of another association in log page 1Eh counts for this one",
        file: KEEPER,
        from: "entry.is_about(instance.id, instance.uniquifier)",
        to: "entry.state() == CrossControllerResetState::Successful",
    },
    Mutation {
        name: "reconnect-ends-the-fence",
        why: "the host is connected again, and what it had sent before counts as ended",
        file: SHARED,
        from: "status.info = Arc::new(info)",
        to: "{ status.info.fence.lift(); status.info = Arc::new(info) }",
    },
    Mutation {
        name: "quiesce-time-is-ignored",
        why: "the fence ends when the controller notices the loss, and CQT is not waited for",
        file: FENCE,
        from: "quiesce.max(otherwise)",
        to: "otherwise",
    },
    Mutation {
        name: "keep-alive-time-is-ignored",
        why: "the fence ends before the controller has noticed that its host is silent",
        file: FENCE,
        from: "keep_alive.saturating_mul(if is_by_traffic { 2 } else { 1 })",
        to: "Duration::ZERO",
    },
    Mutation {
        name: "held-writes-stay",
        why: "the fence is over, and what waits behind it is not sent",
        file: REQUEUE,
        from: "fence.is_over(now)",
        to: "fence.is_over(now) && false",
    },
    Mutation {
        name: "refusals-are-not-forgotten",
        why: "all paths have refused a namespace, and none is asked again",
        file: LANES,
        from: "self.candidates.is_empty() && self.forget_refusals(head)",
        to: "false",
    },
    Mutation {
        name: "refusal-ends-a-command",
        why: "a path refuses a command, which does not go on over another one",
        file: QUEUE,
        from: "Retry::is_about_path(cqe.status())",
        to: "false",
    },
    Mutation {
        name: "path-is-missed-by-what-is-opened-meanwhile",
        why: "a queue or a namespace that is opened while a path is added never uses that path",
        file: STEPPED,
        from: "beside(&mut admin_queue, &waiter, subsystem.0.catch_up(&path, &waiter)).await.map_err(AddPathError::Queues)?",
        to: "()",
    },
    Mutation {
        name: "target-resets-at-once",
        why: "the target says that a reset is done while commands are at the device",
        file: RESET,
        from: "Ok(Decision::Done(0))",
        to: "Ok(Decision::Done(IMMEDIATE_RESET.into()))",
    },
    Mutation {
        name: "target-answers-for-others",
        why: "the target says that another one's controller is reset",
        file: RESET,
        from: "range.contains(&instance.id)",
        to: "true",
    },
    Mutation {
        name: "target-fences-nothing-off",
        why: "a device hangs for longer than CQT, and the target lets newer writes in",
        file: BARRED,
        from: "queue.draining.fence_at_ms().is_some_and(|at| at <= now_ms)",
        to: "false",
    },
    Mutation {
        name: "target-waits-for-ever",
        why: "the target does not notice that a host is silent",
        file: REGISTRY,
        from: "entry.keep_alive.as_mut().is_some_and(|timer| timer.expired(last_command_ms, now_ms))",
        to: "false",
    },
];
