//! Processes a segment by the state of its connection: RFC 9293 §3.10.7 for a server with at most one answer in
//! flight. The table is the only state. `unknown_connection` opens connections; `connection_segment` and `requests`
//! process segments of open ones.

use crate::connection::{ConnectionState, ModelConnection, ModelTable};
use crate::handshake::{self, CookieDoubt};
use crate::verdict::{SegmentVerdict, acknowledge, count_verdict, reply_verdict};
use lowroad_wire::frame::{ACK, FrameRejection, RST, SYN, SegmentView};
use lowroad_wire::segment_context::{LevelMode, SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;

mod connection_segment;
mod requests;
mod unknown_connection;

/// A server without a listener for this long is considered gone.
const LISTENER_WAIT_NS: u64 = 4_000_000_000;

/// The rules with their connection table.
#[derive(Clone, Debug)]
pub struct ModelResponder<T> {
    table: T,
    wrong_cookies: CookieDoubt,
}

impl<T: ModelTable> ModelResponder<T> {
    /// A responder with an empty or prepared table.
    pub fn new(table: T) -> ModelResponder<T> {
        let wrong_cookies = CookieDoubt::default();
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
                match segment.has_right_header_sum() {
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
        // Only the handshake of such a connection is still of use, see `handshake`.
        let entry = entry.filter(|entry| entry.state != ConnectionState::Over);
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        let is_kernel_owned = entry.is_some_and(|entry| {
            matches!(
                entry.state,
                ConnectionState::Kernel | ConnectionState::Asked
            )
        });
        // A SYN may begin a new connection on the same ports.
        if is_kernel_owned && !is_syn {
            if entry.is_some_and(|entry| entry.state == ConnectionState::Asked) {
                self.on_pending_admission(context, segment);
            }
            return count_verdict(context, SegmentVerdict::Pass(SegmentReason::PassKernel));
        }
        if !segment.has_right_sum() {
            // The kernel checks segments of other connections itself.
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
            Some(ConnectionState::Handed) => self.on_migrating(context, segment),
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
        // The kernel will answer the SYN: an old connection left here under the client's port would capture the
        // segments that follow. A live connection can be ended by its client only (RFC 5961 §4), hence the challenge
        // ACK.
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
            // Without room for the marker, the client is not admitted by this connection.
            let marker = ModelConnection {
                rcv_nxt: context.rules(),
                ..ModelConnection::marker(ConnectionState::Asked)
            };
            let _ = self.table.insert(&syn.tuple, marker);
        }
        count_verdict(context, SegmentVerdict::Pass(reason))
    }

    /// A connection with a SYN that was passed to the kernel: once its handshake is complete, its address is verified,
    /// and the client is admitted; unless the access rules have changed since the SYN.
    fn on_pending_admission(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) {
        let entry = self.table.get(&segment.tuple);
        let has_current_rules = entry.is_some_and(|marker| marker.rcv_nxt == context.rules());
        if !has_current_rules || context.socket(&segment.tuple) != SocketState::Connection {
            return;
        }
        context.admit(&segment.tuple);
        context.count(SegmentReason::TcpAdmitted);
        if let Some(connection) = self.table.get(&segment.tuple) {
            connection.state = ConnectionState::Kernel;
        }
    }

    /// A connection in migration. The listener may not have accepted it yet: then only the segment that it begins with
    /// may pass, since the kernel takes the numbers of any segment for those of the first.
    fn on_migrating(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_next = segment.seq == connection.rcv_nxt;
        if segment.flags & RST != 0 {
            // If the kernel has the connection, it handles the reset; else the connection is over.
            if is_next {
                connection.state = ConnectionState::Over;
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
            // The old connection would answer the segment; once it is gone, the client's retransmission reaches the
            // listener.
            SocketState::TimeWait(_) => {
                context.end_time_wait(&segment.tuple);
                SegmentVerdict::Drop(SegmentReason::DropTimeWait)
            }
            SocketState::Listener if is_next && segment.ack == connection.snd_nxt => {
                SegmentVerdict::Up(SegmentReason::TcpHanded)
            }
            SocketState::Listener => SegmentVerdict::Drop(SegmentReason::DropEarly),
        };
        count_verdict(context, verdict)
    }
}

/// Handles a missing listener, as during a restart of the server: the client retransmits its segment, to the new
/// listener.
fn wait_for_listener(connection: &mut ModelConnection, now_ns: u64) -> SegmentVerdict {
    let since_ns = *connection.no_listener_since_ns.get_or_insert(now_ns);
    match now_ns.saturating_sub(since_ns) < LISTENER_WAIT_NS {
        true => SegmentVerdict::Drop(SegmentReason::DropNoListener),
        false => SegmentVerdict::Up(SegmentReason::TcpNoListener),
    }
}
