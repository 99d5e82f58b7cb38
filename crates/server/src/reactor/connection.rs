//! One connection: a link, over which bytes move, and the commands that come by it.
//!
//! Owns neither: it hands what the link has received to the command side, and ends both. How bytes
//! move is [`Link`]'s, what is done with a command is [`Commands`]'.

use std::sync::Arc;

use ebof_authentication::Explanation;
use ebof_fabrics::{Attachment, CloseReason, Handle, Notice};
use ebof_manage::api::RefusalReason;
use ebof_nvme::Nqn;
use ebof_tcp::FatalStatus;
use rustix::event::epoll;

use crate::commands::Commands;
use crate::commands::command::Origin;
use crate::link::{Bytes as _, End, Event, Flushed, Link, READ_BUDGET, Rings as _, State};
use crate::observe::host_labels::OTHERS;
use crate::observe::log_limit::Kind;
use crate::observe::troubles::Trouble;
use crate::shared::buffer::Pool;
use crate::shared::mailbox::CommandRef;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::{Shared, reports};

/// One connection.
pub(crate) struct Connection {
    pub(crate) handle: Handle,
    pub(crate) link: Link,
    pub(crate) commands: Commands,
    /// The deadline that the reactor has noted.
    pub(crate) armed_ms: Option<u64>,
    /// Something may be there to receive for which nobody rings the bell again: it was not taken
    /// when the bell rang, because there was no room or no share of the turn left.
    is_unread: bool,
}

/// What an event of a connection has brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketWork {
    /// Bytes that were received.
    pub(super) bytes: usize,
    /// Whether anything else was done, or is to be done in the next turn.
    pub(super) worked: bool,
}

impl Connection {
    pub(crate) fn new(handle: Handle, link: Link) -> Self {
        let commands = Commands::new(handle, Arc::clone(&link.peer().port));
        Self { handle, link, commands, armed_ms: None, is_unread: false }
    }

    /// Takes an event of its socket. That there was work is noted in `taken` also if the connection
    /// ends; its bytes are not then.
    ///
    /// # Errors
    /// The connection ends.
    pub(super) fn on_event(
        &mut self,
        flags: epoll::EventFlags,
        taken: &mut SocketWork,
        context: &mut ReactorContext<'_>,
    ) -> Result<(), End> {
        if self.link.state == State::Gone {
            // An event of the same batch as the one that ended it.
            return Ok(());
        }
        if flags.contains(epoll::EventFlags::OUT) {
            taken.worked = true;
            self.link.mark_dirty(context);
        }
        if flags.contains(epoll::EventFlags::ERR) && self.link.reports_sent_by_errors() {
            taken.worked |= self.on_sent(context)?;
        }
        if self.link.is_shut() {
            // Nothing is read while the queue is full, but a peer that has gone is noticed.
            let gone = flags.contains(epoll::EventFlags::HUP).then_some(End::PeerClosed);
            let failed = || flags.contains(epoll::EventFlags::ERR).then(|| self.link.failure()).flatten();
            return gone.or_else(failed).map_or(Ok(()), Err);
        }
        taken.bytes = self.on_readable(context)?;
        taken.worked |= self.share_is_used_up();
        Ok(())
    }

    /// Whether received commands wait for the next turn.
    pub(crate) fn share_is_used_up(&self) -> bool {
        let has_more = self.is_unread && self.link.has_received() && !self.link.is_shut();
        has_more
            || !self.link.has_share()
                && (self.is_unread || self.link.is_stalled() || self.commands.has_pending_copies())
    }

    /// Takes what the socket holds, up to its share of the turn, and runs all of it. Returns how
    /// many bytes that were.
    pub(crate) fn on_readable(&mut self, context: &mut ReactorContext<'_>) -> Result<usize, End> {
        let mut scratch = std::mem::take(context.scratch);
        let result = self.receive_all(&mut scratch, context);
        *context.scratch = scratch;
        result
    }

    fn receive_all(&mut self, scratch: &mut [u8], context: &mut ReactorContext<'_>) -> Result<usize, End> {
        let mut taken = 0;
        self.link.take_share(context);
        while taken < READ_BUDGET && self.link.has_share() && !self.link.is_shut() {
            let Some(received) = self.link.receive(scratch, context)? else { break };
            taken += received.total;
            let input = &scratch[..received.in_scratch];
            let left = self.feed(input, context)?;
            if let Some(bytes) = self.link.bytes() {
                bytes.keep_unparsed(&input[input.len() - left..]);
            }
            if received.total < received.room {
                break;
            }
        }
        self.is_unread = self.link.has_received() || !self.link.has_share() && self.link.rings_once();
        Ok(taken)
    }

    /// Takes up what was kept when the queue was full or buffers were short.
    pub(crate) fn resume(&mut self, context: &mut ReactorContext<'_>) -> Result<(), End> {
        self.link.take_share(context);
        self.commands.resume(&mut self.link, context);
        if self.link.is_stalled() {
            let (kept, from) = self.link.bytes().map(|bytes| bytes.take_unparsed()).unwrap_or_default();
            let left = self.feed(&kept[from..], context)?;
            if let Some(bytes) = self.link.bytes() {
                bytes.put_unparsed(kept, left);
            }
            // A bell that rang meanwhile was ignored.
            self.is_unread = self.link.has_received() || self.link.rings_once();
        }
        if self.is_unread {
            self.on_readable(context)?;
        }
        Ok(())
    }

    /// Runs what was received. Returns how many bytes at its end cannot be taken yet.
    fn feed(&mut self, mut input: &[u8], context: &mut ReactorContext<'_>) -> Result<usize, End> {
        let Self { link, commands, .. } = self;
        while link.is_taking() {
            if let Some(bytes) = link.bytes() {
                bytes.place_data(&mut input);
            }
            if link.is_at_command(input) && !commands.can_take(link, context) {
                return Ok(input.len());
            }
            // A command stays where the link has put it.
            match link.poll(&mut input, context) {
                Err(end) => return Err(end),
                Ok(None) => return Ok(0),
                Ok(Some(Event::Command { ref sqe, in_capsule })) => {
                    commands.on_command(sqe, in_capsule, &mut input, link, context);
                    link.after_command();
                }
                Ok(Some(Event::Refused { sqe, status })) => {
                    let step = commands.execution.queue.refuse(&sqe, status, context.now_ms);
                    commands.advance(step, Origin::without_data(sqe.cid(), sqe.nsid()), link, context);
                }
                Ok(Some(Event::Fetched { slot, buffer, is_intact })) => {
                    commands.on_fetched(slot, buffer, is_intact, link, context);
                }
                Ok(Some(Event::Progress { .. })) => {}
            }
        }
        Ok(0)
    }

    /// The host is attached directly: the connection is a queue without a Connect.
    ///
    /// # Errors
    /// It may not be.
    pub(crate) fn attach(&mut self, attachment: &Attachment, context: &mut ReactorContext<'_>) -> Result<(), End> {
        self.commands.attach(attachment, &mut self.link, context)
    }

    /// Delivers a notice of the registry to the queue.
    pub(crate) fn on_notice(&mut self, notice: Notice, context: &mut ReactorContext<'_>) -> Result<(), End> {
        let reason = if let Notice::Close(reason) = &notice { Some(*reason) } else { None };
        self.commands.on_notice(notice, &mut self.link, context);
        reason.map_or(Ok(()), |reason| Err(End::Association(reason)))
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        self.commands.send_events(&mut self.link);
        let flushed = self.with_link(context, Link::flush);
        self.commands.execution.counters.time_untimed(context);
        flushed
    }

    /// Sends what was queued in this turn. `is_changed`: other events of its socket are of interest
    /// now.
    ///
    /// # Errors
    /// The connection ends: with an error, or because all was sent that it still had to send.
    pub(super) fn flush_turn(&mut self, is_changed: &mut bool, context: &mut ReactorContext<'_>) -> Result<(), End> {
        self.link.dirty = false;
        if self.link.has_ended() {
            return Ok(());
        }
        let was_blocked = self.link.is_blocked();
        let flushed = self.flush(context)?;
        *is_changed = was_blocked != (flushed == Flushed::Blocked);
        if flushed == Flushed::Share {
            self.link.mark_dirty(context);
        }
        let is_over = self.link.is_draining() && self.is_drained();
        if is_over { Err(End::Shutdown) } else { Ok(()) }
    }

    /// Takes notifications about buffers that were sent without a copy. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn on_sent(&mut self, context: &mut ReactorContext<'_>) -> Result<bool, End> {
        self.with_link(context, Link::on_sent)
    }

    /// Looks again at what is read of a connection that is gone.
    pub(crate) fn poll_release(&mut self, context: &mut ReactorContext<'_>) {
        self.with_link(context, Link::poll_release);
    }

    /// Buffers that the link returns to the pool do not count as the connection's any more.
    fn with_link<R>(
        &mut self,
        context: &mut ReactorContext<'_>,
        work: impl FnOnce(&mut Link, &mut ReactorContext<'_>) -> R,
    ) -> R {
        let before = context.pool.outstanding_bytes();
        let result = work(&mut self.link, context);
        self.commands.execution.buffers.note_given(before, context.pool);
        result
    }

    /// When this connection must be looked at next although nothing happens, milliseconds of the
    /// target's clock.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.link.deadline_ms(self.is_owed_data())
    }

    /// What a deadline that has passed means.
    pub(crate) fn overdue(&self, now_ms: u64, handshake_ms: u64) -> Option<End> {
        self.link.overdue(self.is_owed_data(), now_ms, handshake_ms)
    }

    /// A deadline of it has passed. Returns whether anything was due.
    ///
    /// # Errors
    /// It is overdue, and ends.
    pub(super) fn on_deadline(&mut self, handshake_ms: u64, context: &mut ReactorContext<'_>) -> Result<bool, End> {
        self.armed_ms = None;
        if self.link.state == State::Gone {
            let before = context.pool.outstanding_bytes();
            self.poll_release(context);
            // Another connection may wait for the buffers that have come back, and is only looked
            // at in the next turn.
            return Ok(context.pool.outstanding_bytes() < before);
        }
        self.link.look_at_stall(context.now_ms);
        self.overdue(context.now_ms, handshake_ms).map_or(Ok(false), Err)
    }

    /// Whether the host has announced something that it has not sent.
    fn is_owed_data(&self) -> bool {
        self.link.awaits_data() || self.commands.execution.queue.awaits_second()
    }

    /// Whether everything accepted has been answered and sent; outstanding Asynchronous Event
    /// Requests do not count.
    pub(crate) fn is_drained(&self) -> bool {
        self.commands.execution.slots.len() == 0 && self.link.unsent_bytes() == 0
    }

    /// Whether no command is under way; outstanding Asynchronous Event Requests do not count.
    pub(crate) fn is_idle(&self) -> bool {
        self.commands.execution.slots.len() == 0 && self.link.unparsed() == 0
    }

    /// Whether something goes on without anything else happening first, as soon as there is room or
    /// another turn.
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.is_unread || self.link.is_stalled() || self.commands.waits_for_turn()
    }

    /// A Connect asks whether the connection has ended without anybody having read that. The answer
    /// waits for what it has at a device.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn check_end(&mut self, reply: CommandRef, context: &mut ReactorContext<'_>) -> Result<(), End> {
        self.commands.waiters.await_changes(reply, &self.commands.execution, context);
        if self.link.state == State::Gone {
            return Ok(());
        }
        let end = if self.link.peer_is_gone() { Some(End::PeerClosed) } else { self.link.superseded() };
        end.map_or(Ok(()), Err)
    }

    /// The target shuts down: completes what was accepted.
    ///
    /// # Errors
    /// There is nothing left, and it ends.
    pub(super) fn start_shutdown(&mut self, context: &mut ReactorContext<'_>) -> Result<(), End> {
        if matches!(self.link.state, State::Handshake { .. } | State::Open) {
            self.link.drain();
            self.commands.start_shutdown(&mut self.link, context);
        }
        if self.link.is_draining() && self.is_drained() { Err(End::Shutdown) } else { Ok(()) }
    }

    /// Ends it, and notifies the registry, the log and whoever waits for it.
    pub(super) fn end(&mut self, end: &End, context: &mut ReactorContext<'_>) {
        match self.link.state {
            State::Gone => return,
            State::Closing { .. } => return self.close(context),
            State::Handshake { .. } | State::Open | State::Draining => {}
        }
        context.shared.ending(self.handle);
        self.book_end(end, context.shared);
        match end {
            End::Fatal(_) | End::Shutdown | End::Association(_) | End::PortGone => self.start_closing(end, context),
            _ => self.close(context),
        }
        self.commands.report_closed(&self.link, context);
        if self.commands.drains() {
            if let Some(devices) = self.commands.devices_being_changed() {
                context.shared.registry().note_drain(self.handle, devices);
            }
            // The control thread says so if it takes long.
            context.shared.wake_control();
        }
    }

    /// Books its end: its counters, the log, and the connection log when it never became a queue.
    pub(crate) fn book_end(&self, end: &End, shared: &Shared) {
        let Self { link, commands, .. } = self;
        shared.retire(self.handle, commands.execution.counters.series());
        let of_queue = &commands.execution.queue;
        let host = of_queue.host().map_or("-", Nqn::as_str);
        let queue = of_queue.id().map(|id| id.0);
        let unconnected = matches!(link.state, State::Handshake { .. });
        let peer = link.peer().address;
        if unconnected && let Some(reason) = refusal_of(end, link.is_initialized(), of_queue.is_unproven()) {
            let reason = match reason {
                // What begins like a record there is no ClientHello, or came over TLS.
                RefusalReason::Tls if !link.peer().port.config.tls.is_off() => RefusalReason::NotNvme,
                reason => reason,
            };
            let detail = match end {
                End::PeerClosed => "the host closed the connection before it had proven who it is".to_owned(),
                _ if reason == RefusalReason::Tls => {
                    "the host speaks TLS (it begins with a ClientHello), and the port has `tls = \"off\"`".to_owned()
                }
                end => end.to_string(),
            };
            let refused = (reason, advice_of(end).unwrap_or(reason.advice()));
            shared.refuse_with(peer, &link.peer().port, refused, of_queue.host(), of_queue.subsystem(), detail);
            return;
        }
        if let Some(trouble) = trouble_of(end) {
            let label = commands.execution.counters.host_label();
            shared.trouble(if label.is_empty() { OTHERS } else { label }, trouble);
        }
        let wanted = is_wanted(end);
        // One that has proven nothing was never reported.
        if let Some(association) = of_queue.association().filter(|_| of_queue.is_admin() && of_queue.is_open()) {
            reports::ended(shared, association, link.peer(), end, wanted);
        }
        let kind = match wanted {
            _ if unconnected => Kind::Unconnected,
            true => Kind::Ended,
            false => Kind::Broken,
        };
        match shared.may_log(peer.about(), kind) {
            Some(more) if wanted => tracing::info!(%peer, host, queue, "connection ended: {end}{more}"),
            Some(more) => tracing::warn!(%peer, host, queue, "connection ended: {end}{more}"),
            None => {}
        }
    }

    /// What waits for room: changes when some of it went on.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        (self.link.unparsed(), self.commands.execution.buffers.waiting())
    }

    /// Whether the function that it is a queue of has to be looked at: its Admin Queue has done
    /// something, the queue has ended, or there is something to tell the host.
    #[inline]
    pub(crate) fn concerns_function(&self, state_before: State) -> bool {
        self.link.rings().is_some_and(|rings| {
            self.commands.execution.queue.is_admin()
                || self.link.state != state_before
                || self.is_finished()
                || rings.has_pending_event()
        })
    }

    /// Whether what is left of the connection can be dropped.
    pub(crate) fn is_finished(&self) -> bool {
        self.link.is_settled() && self.commands.is_finished()
    }

    /// Asks the peer to close the connection.
    pub(crate) fn start_closing(&mut self, end: &End, context: &mut ReactorContext<'_>) {
        self.release(context);
        self.with_link(context, |link, context| link.start_closing(end, context));
    }

    /// Ends the connection now. Commands at a device keep it in the table until they return, as do
    /// buffers that the kernel still reads.
    pub(crate) fn close(&mut self, context: &mut ReactorContext<'_>) {
        if self.link.state == State::Gone {
            return self.poll_release(context);
        }
        self.release(context);
        self.with_link(context, Link::close);
    }

    /// Forgets every command that is not at a device.
    fn release(&mut self, context: &mut ReactorContext<'_>) {
        self.is_unread = false;
        self.link.drop_input(|buffer| self.commands.execution.buffers.give(buffer, context));
        self.commands.release(context);
    }

    /// Releases memory that a burst left behind.
    pub(crate) fn shrink(&mut self, pool: &mut Pool) {
        self.link.shrink(pool);
    }
}

/// Whether a connection begins as TLS does: RFC 8446, `TLSPlaintext`, a handshake record of any
/// version 3.x.
fn is_client_hello(first: &[u8]) -> bool {
    matches!(first, [0x16, 0x03, ..])
}

/// Whether somebody asked for the end: the host, or who manages the target (a port that is drained,
/// a host that is taken off the list). It is no warning then.
fn is_wanted(end: &End) -> bool {
    let by_change = matches!(
        end,
        End::PortGone
            | End::Association(
                CloseReason::PortRemoved
                    | CloseReason::SubsystemRemoved
                    | CloseReason::FunctionTaken
                    | CloseReason::HostNotAllowed
                    | CloseReason::ProofDemanded
                    | CloseReason::TlsDemanded
                    | CloseReason::KeyRemoved
                    | CloseReason::ResetByHost
            )
    );
    by_change || matches!(end, End::PeerClosed | End::Shutdown | End::Reset)
}

/// Which trouble the end of a connection is that was a queue.
fn trouble_of(end: &End) -> Option<Trouble> {
    Some(match end {
        End::Fatal(error) if error.status == FatalStatus::HeaderDigest => Trouble::HeaderDigest,
        End::TermReceived(termination) if termination.status == FatalStatus::HeaderDigest as u16 => {
            Trouble::HeaderDigest
        }
        End::Fatal(_) | End::Capsule(_) | End::OtherQueue { .. } | End::TermReceived(_) => Trouble::Protocol,
        End::Socket(_) | End::Work(_) | End::QueuePair(_) | End::Verbs(_) | End::Stalled | End::Silent => Trouble::Lost,
        _ => return None,
    })
}

/// Which refusal the end of a connection is that never became a queue, or only one whose host was
/// to prove who it is; `None` when nothing was refused.
fn refusal_of(end: &End, initialized: bool, proves: bool) -> Option<RefusalReason> {
    Some(match end {
        End::PeerClosed if proves => RefusalReason::NotAuthenticated,
        End::Fatal(error) if !initialized && error.status == FatalStatus::UnsupportedParameter => {
            RefusalReason::DigestRefused
        }
        End::Fatal(_) if initialized => RefusalReason::ProtocolError,
        End::Capsule(_) | End::OtherQueue { .. } => RefusalReason::ProtocolError,
        End::Fatal(error) if is_client_hello(&error.header) => RefusalReason::Tls,
        End::Fatal(_) => RefusalReason::NotNvme,
        End::Handshake(_) | End::NotEstablished(_) => RefusalReason::HandshakeTimeout,
        End::Association(CloseReason::NotAuthenticated(_) | CloseReason::HostGaveUp(_)) => {
            RefusalReason::NotAuthenticated
        }
        End::Association(CloseReason::MadeRoom) => RefusalReason::TooManyUnproven,
        _ => return None,
    })
}

/// What to do about it where more is known than which refusal it is.
fn advice_of(end: &End) -> Option<&'static str> {
    use Explanation::{
        AuthenticationFailed, GroupNotUsable, HashNotUsable, IncorrectPayload, IncorrectProtocolMessage,
        ProtocolNotUsable, SecureChannelMismatch,
    };
    let (explanation, is_hosts) = match end {
        End::Association(CloseReason::NotAuthenticated(explanation)) => (*explanation, false),
        End::Association(CloseReason::HostGaveUp(Some(explanation))) => (*explanation, true),
        End::PeerClosed => {
            return Some(
                "the host left without a proof: it may have no secret for this target (`--dhchap-secret-file FILE`), or was \
                 asked for TLS behind the proof (`--concat`)",
            );
        }
        _ => return None,
    };
    Some(match explanation {
        AuthenticationFailed if is_hosts => {
            "the host does not take this target's proof: compare the dhchap-ctrl keys of both (`ebof target show keys` \
             lists which there are)"
        }
        AuthenticationFailed => return None,
        SecureChannelMismatch => {
            "one of both wants TLS behind the authentication: connect with --concat through a port with `tls = \"allowed\"`, \
             or with --tls, or without both"
        }
        HashNotUsable => "the host offers none of `dhchap_hashes`: add one that it has",
        GroupNotUsable => "the host offers none of `dhchap_groups`: add one that it has",
        ProtocolNotUsable | IncorrectPayload | IncorrectProtocolMessage => {
            "host and target understand the exchange in different ways: compare versions, capture the traffic"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_another_secret_is_told_to_compare_it() {
        let refused = |explanation| End::Association(CloseReason::NotAuthenticated(explanation));
        let advice = |explanation| advice_of(&refused(explanation)).unwrap_or(RefusalReason::NotAuthenticated.advice());
        assert!(advice(Explanation::AuthenticationFailed).contains("secret"));
        for (explanation, word) in [
            (Explanation::HashNotUsable, "dhchap_hashes"),
            (Explanation::GroupNotUsable, "dhchap_groups"),
            (Explanation::SecureChannelMismatch, "--concat"),
            (Explanation::ProtocolNotUsable, "versions"),
        ] {
            assert!(advice(explanation).contains(word) && !advice(explanation).contains("secret"), "{explanation}");
        }
        assert!(advice_of(&End::PeerClosed).is_some_and(|advice| advice.contains("--dhchap-secret-file")));
        let of_host = End::Association(CloseReason::HostGaveUp(Some(Explanation::AuthenticationFailed)));
        assert!(advice_of(&of_host).is_some_and(|advice| advice.contains("dhchap-ctrl")));
    }

    #[test]
    fn who_manages_the_target_is_not_warned_of_what_they_asked_for() {
        let ended = |reason| is_wanted(&End::Association(reason));
        assert!(is_wanted(&End::PortGone) && ended(CloseReason::PortRemoved) && ended(CloseReason::HostNotAllowed));
        assert!(ended(CloseReason::ResetByHost));
        assert!(!ended(CloseReason::KeepAlive) && !ended(CloseReason::AdminQueueLost) && !is_wanted(&End::Stalled));
    }
}
