//! Handling of messages from other threads: connections to serve, notices for queues, aborts,
//! closes, the end.

use std::cmp::Reverse;
use std::sync::Arc;

use ebof_fabrics::{Attachment, Handle, Notice};
use ebof_nvme::Nsid;
use rustix::event::epoll;

use super::{Reactor, end_connection};
use crate::commands::command::AbortRequest;
use crate::drives::drain::DrainToken;
use crate::link::{AnyTransport, End, InMemory, Link, Loopback, Notifier, Rdma, State, Tcp};
use crate::observe::log_limit::Kind;
use crate::ports::port::PortState;
use crate::reactor::connection::Connection;
use crate::shared::handle::{handle, index_of};
use crate::shared::mailbox::{Accepted, CommandRef, Incoming, Message};
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::TicketId;

impl Reactor {
    pub(super) fn on_message(&mut self, message: Message, now_us: u64) {
        match message {
            Message::Accept(accepted) => self.accept(accepted, now_us),
            Message::Arrived { handle } => self.arrived(handle, now_us),
            Message::Devices(devices) => self.devices = devices,
            // The Admin Queue is idle first. What the other queues have accepted is completed all
            // the same.
            Message::Notice { notice: Notice::Close(_), .. } if self.shutdown_ms.is_some() => {}
            Message::Notice { handle, notice } => {
                self.with_handle(handle, now_us, |connection, context| connection.on_notice(notice, context));
            }
            Message::Abort { handle, cid, reply } => self.abort(handle, AbortRequest { cid, reply }, now_us),
            Message::AbortAnswer { reply, aborted } => {
                self.with_handle(reply.handle, now_us, |connection, context| {
                    connection.commands.on_abort_answer(reply.slot, aborted, &mut connection.link, context);
                    Ok(())
                });
            }
            Message::Answer { reply, answer } => {
                self.with_handle(reply.handle, now_us, |connection, context| {
                    connection.commands.on_answer(reply.slot, answer, &mut connection.link, context);
                    Ok(())
                });
            }
            Message::Preempt { handle, nsid, reply } => self.preempt(handle, nsid, reply, now_us),
            Message::Drain { handle, nsid, token } => self.drain(handle, nsid, token, now_us),
            Message::Preempted { reply } => {
                self.with_handle(reply.handle, now_us, |connection, context| {
                    connection.commands.on_preempted(reply.slot, &mut connection.link, context);
                    Ok(())
                });
            }
            Message::Close { handle, reply } => {
                // The connection goes away now; its end is known when no device works for it any
                // more, also where its socket is gone already.
                let known = self.with_known(handle, now_us, |connection, context| {
                    connection.commands.waiters.await_end(reply);
                    end_connection(connection, &End::Reset, context);
                    Ok(())
                });
                if !known {
                    self.shared.post(reply.handle, Message::Closed { reply });
                }
            }
            Message::Cancel { handle, nsid } => self.cancel(handle, nsid, now_us),
            Message::Closed { reply } => {
                self.with_handle(reply.handle, now_us, |connection, context| {
                    connection.commands.on_closed(reply.slot, &mut connection.link, context);
                    Ok(())
                });
            }
            Message::DriveDone { handle } => self.drive_done(handle, now_us),
            Message::DriveReached { handle, reply } => self.drive_reached(handle, reply, now_us),
            Message::Look { handle, reply } => self.look(handle, reply, now_us),
            Message::Barrier(barrier) => self.barriers.push(barrier),
            Message::LockGranted { reply, number } => self.lock_granted(reply, number, now_us),
            Message::CreateQueue { reply, task } => self.create_queue(reply, task, now_us),
            Message::PortGone(port) => {
                self.end_clients(&port, now_us);
                self.end_port(&port, now_us);
            }
            Message::Admitted { reply, ticket } => self.admitted(reply, ticket, now_us),
            Message::ShareDue(drive) => self.local_shares.look_when_due(&drive),
            Message::Shutdown { deadline_ms } => self.start_shutdown(deadline_ms, now_us),
            Message::Beat => self.shared.heartbeats.beat(self.index),
            #[cfg(test)]
            Message::Panic => panic!("a test wants it"),
            #[cfg(test)]
            Message::Hang(held) => {
                let _gone = held.recv();
            }
        }
    }

    fn lock_granted(&mut self, reply: CommandRef, number: u64, now_us: u64) {
        self.with_handle(reply.handle, now_us, |connection, context| {
            connection.commands.on_lock_granted(reply.slot, number, &mut connection.link, context);
            Ok(())
        });
    }

    /// A command that waited for its share of the drive may go.
    pub(super) fn admitted(&mut self, reply: CommandRef, ticket: TicketId, now_us: u64) {
        self.with_handle(reply.handle, now_us, |connection, context| {
            connection.commands.on_admitted(reply.slot, ticket, &mut connection.link, context);
            Ok(())
        });
    }

    fn abort(&mut self, handle: Handle, request: AbortRequest, now_us: u64) {
        let reply = request.reply;
        let mut found = false;
        self.with_handle(handle, now_us, |connection, context| {
            found = true;
            connection.on_abort(request, context);
            Ok(())
        });
        if !found {
            self.shared.post(reply.handle, Message::AbortAnswer { reply, aborted: false });
        }
    }

    /// Also for a connection whose socket is gone.
    fn cancel(&mut self, handle: Handle, nsid: Nsid, now_us: u64) {
        self.with_known(handle, now_us, |connection, context| {
            connection.commands.cancel(nsid, &mut connection.link, context);
            Ok(())
        });
    }

    fn end_port(&mut self, port: &PortState, now_us: u64) {
        for index in self.indices() {
            self.with(index, now_us, |connection, _| {
                if connection.link.peer().port.is_same(port) { Err(End::PortGone) } else { Ok(()) }
            });
        }
    }

    /// The drive's thread has nothing left of a connection that has ended.
    fn drive_done(&mut self, handle: Handle, now_us: u64) {
        self.with_known(handle, now_us, |connection, context| {
            connection.commands.drive.note_end();
            connection.commands.report_closed(&connection.link, context);
            Ok(())
        });
    }

    /// The drive's thread has begun what a connection had asked of it when a Connect looked at
    /// that.
    fn drive_reached(&mut self, handle: Handle, connect: CommandRef, now_us: u64) {
        self.with_known(handle, now_us, |connection, _| {
            connection.commands.waiters.drive_reached(connect);
            Ok(())
        });
    }

    /// Whether the connection of a queue has ended without anybody having read that. The answer
    /// waits for what it has at a device.
    fn look(&mut self, handle: Handle, reply: CommandRef, now_us: u64) {
        let known = self.with_known(handle, now_us, |connection, context| {
            connection.commands.await_changes(reply, context);
            let link = &mut connection.link;
            let end = if link.state == State::Gone {
                None
            } else if link.peer_is_gone() {
                Some(End::PeerClosed)
            } else {
                link.superseded()
            };
            end.map_or(Ok(()), Err)
        });
        if !known {
            self.shared.looked(reply.handle);
        }
    }

    /// Also for a connection whose socket is gone: what it has at devices can still reach the
    /// medium.
    fn preempt(&mut self, handle: Handle, nsid: Nsid, reply: CommandRef, now_us: u64) {
        let known = self.with_known(handle, now_us, |connection, context| {
            connection.commands.on_preempt(nsid, reply, &mut connection.link, context);
            Ok(())
        });
        if !known {
            self.shared.post(reply.handle, Message::Preempted { reply });
        }
    }

    /// Likewise; without a connection the token is dropped.
    fn drain(&mut self, handle: Handle, nsid: Nsid, token: DrainToken, now_us: u64) {
        self.with_known(handle, now_us, |connection, context| {
            connection.commands.on_drain(nsid, token, &mut connection.link, context);
            Ok(())
        });
    }

    /// Runs `work` on a connection, also on one whose socket is gone. Returns whether it is there.
    fn with_known(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) -> bool {
        let index = index_of(handle);
        let known = self.connections.get(index as usize).and_then(Option::as_ref);
        let is_there = known.is_some_and(|connection| connection.handle == handle);
        if is_there {
            self.with(index, now_us, work);
        }
        is_there
    }

    pub(super) fn with_handle(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) {
        let index = index_of(handle);
        let known = self.connections.get(index as usize).and_then(Option::as_ref);
        if known.is_some_and(|connection| connection.handle == handle && connection.link.state != State::Gone) {
            self.with(index, now_us, work);
        }
    }

    pub(super) fn indices(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.connections.len()).unwrap_or(u32::MAX)
    }

    fn accept(&mut self, accepted: Accepted, now_us: u64) {
        let Accepted { incoming, peer, waiting } = accepted;
        if self.shutdown_ms.is_some() {
            self.shared.connection_gone(&peer.port);
            if let Incoming::Direct(socket) = incoming {
                peer.port.reaper.hang_up(socket);
            }
            return;
        }
        let incoming = match incoming {
            Incoming::Direct(socket) => return self.accept_client(socket, peer, now_us),
            other => other,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            u32::try_from(self.connections.len() - 1).expect("connections are limited to far less than 2^32")
        });
        self.serial += 1;
        let handle = handle(self.index, self.serial, index);
        let mut attachment = None;
        let transport = match incoming {
            Incoming::Tcp(stream) => {
                AnyTransport::Tcp(Tcp::new(stream, &peer.port, self.shared.settings.zerocopy_copied_max))
            }
            Incoming::Rdma(connection) => {
                let mailbox = self.mailbox.clone();
                let bell = Arc::new(move || mailbox.post(Message::Arrived { handle }));
                AnyTransport::Rdma(Box::new(Rdma::new(*connection, peer.address, bell)))
            }
            Incoming::Direct(_) => return,
            Incoming::Loopback(end) => {
                attachment = end.attachment().map(attachment_of(end.entries()));
                let mailbox = self.mailbox.clone();
                let bell = Arc::new(move || mailbox.post(Message::Arrived { handle }));
                AnyTransport::InMemory(InMemory::Loopback(Loopback::new(end, bell)))
            }
        };
        let deadline_ms = now_us / 1000 + self.shared.settings.handshake_ms;
        let link = Link::new(handle, transport, peer, deadline_ms, waiting);
        let address = link.peer().address;
        if let Err(error) = self.source.add(&link, index) {
            if let Some(more) = self.shared.may_log(address.about(), Kind::Unwatched) {
                tracing::error!(peer = %address, "the connection cannot be watched: {error}{more}");
            }
            self.free.push(index);
            self.shared.connection_gone(&link.peer().port);
            return;
        }
        tracing::debug!(peer = %address, local = link.peer().local(), reactor = self.index, "connection accepted");
        let is_told = matches!(link.notifier(), Notifier::Descriptor(_)) && !link.is_polled();
        let mut connection = Connection::new(handle, link);
        connection.armed_ms = Some(deadline_ms);
        self.connections[index as usize] = Some(Box::new(connection));
        self.busy_poll.is_outdated = true;
        self.deadlines.push(Reverse((deadline_ms, handle)));
        if let Some(attachment) = attachment {
            self.with(index, now_us, |connection, context| connection.attach(&attachment, context));
        }
        if !is_told {
            // What came before it had a bell, or was armed.
            self.arrived(handle, now_us);
        }
    }

    /// The connection of `handle` has something to receive, or has ended, and no event says so.
    pub(super) fn arrived(&mut self, handle: Handle, now_us: u64) {
        let index = index_of(handle);
        let known = self.connections.get_mut(index as usize).and_then(Option::as_mut);
        let Some(connection) = known.filter(|connection| connection.handle == handle) else { return };
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::HUP, connection.link.peer_is_gone());
        self.on_socket(index, flags, now_us);
    }

    fn start_shutdown(&mut self, deadline_ms: u64, now_us: u64) {
        self.shutdown_ms = Some(deadline_ms);
        for index in self.indices() {
            self.with(index, now_us, |connection, context| {
                if matches!(connection.link.state, State::Handshake { .. } | State::Open) {
                    connection.link.drain();
                    connection.commands.start_shutdown(&mut connection.link, context);
                }
                if connection.link.is_draining() && connection.is_drained() {
                    return Err(End::Shutdown);
                }
                Ok(())
            });
        }
    }
}

/// What a host says that is attached over the in-memory transport, with a queue of so many entries.
fn attachment_of(entries: usize) -> impl FnOnce(&ebof_loopback::Attachment) -> Attachment {
    move |attachment| {
        let ebof_loopback::Attachment { queue, controller, subsystem, host, host_id } = attachment.clone();
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        Attachment { queue, entries, controller, subsystem, host, host_id }
    }
}
