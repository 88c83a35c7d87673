//! Processes segments by the state of their connections: RFC 9293 §3.10.7 for a server with at most one answer in
//! flight per connection. The connection table is the only state. `unknown_connection` opens connections;
//! `connection_segment` and `requests` process segments of open ones.

use crate::connection::{ConnectionState, ModelConnection, ModelTable};
use crate::handshake::{self, WrongCookieLimit};
use crate::verdict::{SegmentVerdict, acknowledge, count_verdict, reply_verdict};
use lowroad_wire::frame::{ACK, FrameRejection, RST, SYN, SegmentView};
use lowroad_wire::segment_context::{LevelMode, SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;

mod connection_segment;
mod requests;
mod unknown_connection;

/// If a server has had no listener for this long, it is assumed to have ended.
const LISTENER_WAIT_NS: u64 = 4_000_000_000;

/// The fast path's rules, with a connection table.
#[derive(Clone, Debug)]
pub struct ModelResponder<T> {
    table: T,
    wrong_cookies: WrongCookieLimit,
}

impl<T: ModelTable> ModelResponder<T> {
    /// A responder with an empty or prepared table.
    pub fn new(table: T) -> ModelResponder<T> {
        let wrong_cookies = WrongCookieLimit::default();
        ModelResponder {
            table,
            wrong_cookies,
        }
    }

    /// The table, for tests.
    pub fn table(&mut self) -> &mut T {
        &mut self.table
    }

    /// Processes a frame.
    pub fn frame(&mut self, context: &mut impl SegmentContext, frame: &[u8]) -> SegmentVerdict {
        if context.mode() == LevelMode::Off {
            return SegmentVerdict::Pass(SegmentReason::PassOther);
        }
        let verdict = match SegmentView::parse(frame) {
            Ok(segment) if context.is_served(segment.tuple.local_port) => {
                match segment.has_valid_header_checksum() {
                    true => return self.segment(context, &segment),
                    // RFC 1122 §3.2.1.2: such a packet is not answered; the kernel drops it.
                    false => SegmentVerdict::Pass(SegmentReason::DropSum),
                }
            }
            Ok(_) | Err(FrameRejection::Other) => SegmentVerdict::Pass(SegmentReason::PassOther),
            Err(FrameRejection::NotPlain) => SegmentVerdict::Pass(SegmentReason::PassFragment),
        };
        count_verdict(context, verdict)
    }

    /// Processes a segment to one of the served ports.
    pub fn segment(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let entry = self.table.get(&segment.tuple).copied();
        // For ended connections only the stored handshake matters, see `handshake`.
        let entry = entry.filter(|entry| entry.state != ConnectionState::Ended);
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_kernel_owned = entry.is_some_and(|entry| {
            matches!(
                entry.state,
                ConnectionState::Kernel | ConnectionState::AwaitingAdmission
            )
        });
        // A SYN may begin a new connection with the same tuple.
        if is_kernel_owned && !is_syn {
            if entry.is_some_and(|entry| entry.state == ConnectionState::AwaitingAdmission) {
                self.on_pending_admission(context, segment);
            }
            return count_verdict(context, SegmentVerdict::Pass(SegmentReason::PassKernel));
        }
        if !segment.has_valid_checksum() {
            // The kernel verifies segments of other connections itself.
            return count_verdict(
                context,
                match entry {
                    Some(_) => SegmentVerdict::Drop(SegmentReason::DropSum),
                    None => SegmentVerdict::Pass(SegmentReason::DropSum),
                },
            );
        }
        if is_syn {
            return self.on_syn(context, segment, entry.as_ref());
        }
        if let Err(verdict) = self.find_or_open(context, segment, entry.as_ref()) {
            return count_verdict(context, verdict);
        }
        match self
            .table
            .get(&segment.tuple)
            .map(|connection| connection.state)
        {
            None => SegmentVerdict::Drop(SegmentReason::PassUnknown),
            Some(ConnectionState::Migrating) => self.on_migrating(context, segment),
            Some(_) => self.on_connection_segment(context, segment),
        }
    }

    fn on_syn(
        &mut self,
        context: &mut impl SegmentContext,
        syn: &SegmentView<'_>,
        old: Option<&ModelConnection>,
    ) -> SegmentVerdict {
        let reason = match handshake::on_syn(context, &mut self.table, syn) {
            Ok((reason, frame)) => return reply_verdict(context, reason, frame),
            Err(reason) => reason,
        };
        // The kernel will answer the SYN: an old connection with the same tuple that remains in the table would capture
        // the segments that follow. A live connection is not removed but sends a challenge ACK (RFC 5961 §4).
        let is_refused = !matches!(
            reason,
            SegmentReason::PassSynForeign | SegmentReason::PassSynSocket
        );
        match old.filter(|_| is_refused) {
            Some(old) if old.is_live() => {
                return acknowledge(context, syn, old, SegmentReason::TcpChallenge);
            }
            Some(old) if old.state == ConnectionState::Done => self.table.remove(&syn.tuple),
            _ => {}
        }
        if reason == SegmentReason::PassUnadmitted {
            // If the table has no room for the marker, the client is not admitted by this connection.
            let marker = ModelConnection {
                rcv_nxt: context.rules_version(),
                ..ModelConnection::marker(ConnectionState::AwaitingAdmission)
            };
            let _ = self.table.insert(&syn.tuple, marker);
        }
        count_verdict(context, SegmentVerdict::Pass(reason))
    }

    /// Handles a segment of a connection after its SYN was passed to the kernel. Once the kernel has completed the
    /// handshake, the client's address is verified, and the client is admitted, unless the access rules have changed
    /// since the SYN.
    fn on_pending_admission(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) {
        let entry = self.table.get(&segment.tuple);
        let has_current_rules =
            entry.is_some_and(|marker| marker.rcv_nxt == context.rules_version());
        if !has_current_rules || context.socket(&segment.tuple) != SocketState::Connection {
            return;
        }
        context.admit(&segment.tuple);
        context.count(SegmentReason::TcpAdmitted);
        if let Some(connection) = self.table.get(&segment.tuple) {
            connection.state = ConnectionState::Kernel;
        }
    }

    /// Handles a segment of a connection in migration. Until the listener has a socket for the connection, only the
    /// segment at `rcv_nxt` may pass, as the kernel derives the socket's sequence numbers from the first segment that
    /// it gets.
    fn on_migrating(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_next = segment.seq == connection.rcv_nxt;
        if segment.flags & RST != 0 {
            // If the kernel has the connection, it handles the reset; otherwise the connection has ended.
            if is_next {
                connection.state = ConnectionState::Ended;
            }
            return count_verdict(context, SegmentVerdict::Pass(SegmentReason::TcpReset));
        }
        let socket = context.socket(&segment.tuple);
        if socket != SocketState::None {
            connection.no_listener_since_ns = None;
        }
        let verdict = match socket {
            SocketState::None => wait_for_listener(connection, context.now_ns()),
            SocketState::Connection | SocketState::Handshake => {
                connection.state = ConnectionState::Kernel;
                SegmentVerdict::Pass(SegmentReason::TcpKept)
            }
            // The connection in TIME_WAIT would answer the segment. After it is ended, the client's retransmission
            // reaches the listener.
            SocketState::TimeWait(_) => {
                context.end_time_wait(&segment.tuple);
                SegmentVerdict::Drop(SegmentReason::DropTimeWait)
            }
            SocketState::Listener if is_next && segment.ack == connection.snd_nxt => {
                SegmentVerdict::Migrate(SegmentReason::TcpHanded)
            }
            SocketState::Listener => SegmentVerdict::Drop(SegmentReason::DropEarly),
        };
        count_verdict(context, verdict)
    }
}

/// Handles a missing listener, for example during a restart of the server: the segment is dropped, and the client's
/// retransmission reaches the new listener.
fn wait_for_listener(connection: &mut ModelConnection, now_ns: u64) -> SegmentVerdict {
    let since_ns = *connection.no_listener_since_ns.get_or_insert(now_ns);
    match now_ns.saturating_sub(since_ns) < LISTENER_WAIT_NS {
        true => SegmentVerdict::Drop(SegmentReason::DropNoListener),
        false => SegmentVerdict::Migrate(SegmentReason::TcpNoListener),
    }
}
