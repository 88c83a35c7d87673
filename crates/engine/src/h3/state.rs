//! The state of an HTTP/3 connection, and the state that all HTTP/3 connections of a worker share.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_http::h3::{GlitchCounters, H3Server, H3Settings, H3Turn, QueuedStream};
use lowroad_http::protocol::StreamId;

use super::ports::{QuicConnectionId, QuicPorts};
use crate::multiplexed::SessionProgress;
use crate::tls_session::TlsInfo;

/// The state of an HTTP/3 connection.
pub(crate) struct H3Session {
    pub http: H3Server,
    pub progress: SessionProgress,
    pub id: QuicConnectionId,
    /// The parameters of TLS; `None` without cryptography.
    pub tls: Option<Arc<TlsInfo>>,
    /// Whether the latest request came in early data.
    pub is_early: bool,
    /// Output of the control stream and of the decoder stream.
    pub control: Vec<u8>,
    pub decoder: Vec<u8>,
    /// The identifiers of these two streams, once the client allows them.
    pub own_streams: Option<[u64; 2]>,
    /// Streams with output that QUIC has not taken.
    pub outputs: Vec<StreamOutput>,
    /// When a packet was last sent to keep the connection alive, monotonic ms.
    pub kept_alive_ms: u64,
    /// When the final GOAWAY was sent.
    pub gone_ms: Option<u64>,
    /// Streams that have ended with a field section that waits for the dynamic table.
    pub ended: Vec<u64>,
    /// The first stream with an incomplete head, when it was last looked at.
    incomplete_head: Option<IncompleteHead>,
}

/// A stream with an incomplete head.
#[derive(Clone, Copy)]
struct IncompleteHead {
    stream: StreamId,
    /// Since when it is the first one, monotonic ms.
    since_ms: u64,
}

impl H3Session {
    /// The state of a new connection.
    pub fn new(
        id: QuicConnectionId,
        tls: Option<Arc<TlsInfo>>,
        settings: &H3Settings,
        shared: &mut SharedHttp3,
        progress: SessionProgress,
    ) -> H3Session {
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let http = H3Server::new(&mut H3Turn {
            now_ms: progress.used_ms,
            settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut shared.counters,
        });
        H3Session {
            http,
            is_early: false,
            kept_alive_ms: progress.used_ms,
            gone_ms: None,
            progress,
            id,
            tls,
            control,
            decoder,
            own_streams: None,
            outputs: Vec::new(),
            ended: Vec::new(),
            incomplete_head: None,
        }
    }

    /// Whether the first incomplete head has been incomplete for this time. Called regularly.
    pub fn is_head_late(&mut self, timeout_ms: u64, now_ms: u64) -> bool {
        let first = self.http.first_incomplete_head();
        let previous = self.incomplete_head;
        self.incomplete_head = first.map(|stream| IncompleteHead {
            stream,
            since_ms: previous
                .filter(|it| it.stream == stream)
                .map_or(now_ms, |it| it.since_ms),
        });
        self.incomplete_head
            .is_some_and(|it| now_ms >= it.since_ms + timeout_ms)
    }

    /// The protocol, and the buffers, settings and counters for its next step.
    pub fn step<'t>(
        &'t mut self,
        settings: &'t H3Settings,
        shared: &'t mut GlitchCounters,
        now_ms: u64,
    ) -> (&'t mut H3Server, H3Turn<'t>) {
        let turn = H3Turn {
            now_ms,
            settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: shared,
        };
        (&mut self.http, turn)
    }

    /// The output of a stream, created if it does not exist.
    pub fn output(&mut self, stream: u64) -> &mut StreamOutput {
        let at = self.outputs.iter().position(|it| it.stream == stream);
        let at = at.unwrap_or_else(|| {
            // Streams of the connection itself are the most urgent.
            let request = request_stream(stream);
            let urgency = request.map_or(0, |request| self.http.urgency(request));
            self.outputs.push(StreamOutput::new(stream, urgency));
            self.outputs.len() - 1
        });
        &mut self.outputs[at]
    }

    /// The stream whose output is to be written before that of the stream `than`: the most urgent one of those that were
    /// blocked, and of these the oldest.
    pub(super) fn next_unblocked_output(&self, than: Option<QueuedStream>) -> Option<u64> {
        let unblocked = self.outputs.iter().filter(|it| it.is_unblocked);
        let first = unblocked.min_by_key(|it| (it.urgency, it.stream))?;
        let is_first = than.is_none_or(|than| {
            // RFC 9218 §10: incremental responses share the connection, and this one has waited; others have the order of
            // their requests.
            let is_earlier = than.priority.is_incremental || first.stream < stream_id(than.stream);
            match first.urgency.cmp(&than.priority.urgency) {
                Ordering::Less => true,
                Ordering::Equal => is_earlier,
                Ordering::Greater => false,
            }
        });
        is_first.then_some(first.stream)
    }

    /// Sets the urgency of a stream's unsent output, after the client has changed it.
    pub(super) fn set_urgency(&mut self, stream: StreamId, urgency: u8) {
        let id = stream_id(stream);
        if let Some(output) = self.outputs.iter_mut().find(|it| it.stream == id) {
            output.urgency = urgency;
        }
    }

    /// Drops the output of a stream. Returns whether there was any.
    pub fn remove_output(&mut self, stream: u64) -> bool {
        let before = self.outputs.len();
        self.outputs.retain(|it| it.stream != stream);
        self.outputs.len() < before
    }

    /// Whether no request is in progress and no output unsent.
    pub fn is_idle(&self) -> bool {
        self.http.is_idle() && self.outputs.is_empty()
    }

    /// Aborts both directions of a stream.
    pub fn abort(&mut self, stream: StreamId, code: u64, quic: &mut QuicPorts) {
        let stream = stream_id(stream);
        self.remove_output(stream);
        self.ended.retain(|ended| *ended != stream);
        if let Some(transport) = quic.transport(self.id) {
            // A direction that is closed already needs no abort.
            // Both directions (RFC 9114 §4.1.1).
            transport.reset(self.id.key, stream, code);
            transport.stop_reading(self.id.key, stream, code);
        }
    }
}

/// The QUIC identifier of a request stream (RFC 9000 §2.1).
pub(super) fn stream_id(stream: StreamId) -> u64 {
    u64::from(stream.0) << 2
}

/// The number of a request stream; `None` for other streams.
pub(super) fn request_stream(stream: u64) -> Option<StreamId> {
    match stream & 3 {
        0 => u32::try_from(stream >> 2).ok().map(StreamId),
        _ => None,
    }
}

/// Output of a stream that QUIC has not taken.
pub(crate) struct StreamOutput {
    /// The QUIC identifier of the stream.
    pub stream: u64,
    pub parts: Vec<Bytes>,
    /// Heads, frame headers and short bodies behind `parts`.
    pub framing: Vec<u8>,
    /// The stream ends after them.
    pub is_end: bool,
    /// QUIC has taken only a part, and will report that it takes more.
    pub is_blocked: bool,
    /// QUIC has reported that.
    pub is_unblocked: bool,
    /// The urgency of the stream.
    urgency: u8,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// QUIC has taken everything.
    Written,
    /// QUIC has taken a part.
    Blocked,
    /// The client does not read the stream any more.
    Closed,
}

impl StreamOutput {
    fn new(stream: u64, urgency: u8) -> StreamOutput {
        StreamOutput {
            stream,
            parts: Vec::new(),
            framing: Vec::new(),
            is_end: false,
            is_blocked: false,
            is_unblocked: false,
            urgency,
        }
    }

    /// Appends bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        if !self.framing.is_empty() {
            self.parts.push(std::mem::take(&mut self.framing).into());
        }
        self.parts.push(bytes);
    }

    /// Records that QUIC takes more of the stream. It may report that several times before the output is written.
    pub(super) fn unblock(&mut self) {
        self.is_unblocked |= std::mem::take(&mut self.is_blocked);
    }

    /// Passes output to QUIC until its windows are full.
    pub(super) fn write(&mut self, id: QuicConnectionId, quic: &mut QuicPorts) -> WriteOutcome {
        if !self.framing.is_empty() {
            self.parts.push(std::mem::take(&mut self.framing).into());
        }
        let Some(transport) = quic.transport(id) else {
            return WriteOutcome::Closed;
        };
        if !self.parts.is_empty() {
            if transport
                .write(id.key, self.stream, &mut self.parts)
                .is_err()
            {
                return WriteOutcome::Closed;
            }
            self.parts.retain(|part| !part.is_empty());
        }
        // An event of QUIC follows a partial write.
        self.is_blocked = !self.parts.is_empty();
        self.is_unblocked = false;
        if self.is_blocked {
            return WriteOutcome::Blocked;
        }
        // Only now, since nothing can be written after the end.
        if self.is_end {
            transport.finish(id.key, self.stream);
        }
        WriteOutcome::Written
    }
}

/// The state that all HTTP/3 connections of a worker share.
#[derive(Default)]
pub(crate) struct SharedHttp3 {
    /// A buffer for decoded fields of a request.
    pub text: Vec<u8>,
    /// A buffer for frame headers.
    pub framing: Vec<u8>,
    pub counters: GlitchCounters,
}

#[cfg(test)]
mod tests {
    use lowroad_http::h3::Priority;

    use super::*;
    use crate::driver::DatagramSocketId;
    use crate::quic_transport::ConnectionKey;

    /// A session with blocked output on the first `count` request streams.
    fn blocked_session(count: u32) -> H3Session {
        let mut session = H3Session::new(
            QuicConnectionId {
                socket: DatagramSocketId(0),
                key: ConnectionKey(0),
            },
            None,
            &H3Settings::default(),
            &mut SharedHttp3::default(),
            SessionProgress::new(0, false),
        );
        for stream in 0..count {
            session.output(stream_id(StreamId(stream))).is_blocked = true;
        }
        session
    }

    #[test]
    fn output_stays_unblocked_after_a_repeated_report() {
        let mut session = blocked_session(1);
        assert_eq!(session.next_unblocked_output(None), None);
        for _ in 0..2 {
            session.outputs[0].unblock();
            assert_eq!(session.next_unblocked_output(None), Some(0));
        }
    }

    #[test]
    fn changed_urgency_orders_blocked_output() {
        let mut session = blocked_session(3);
        session.set_urgency(StreamId(2), 1);
        // A stream without output has nothing to order.
        session.set_urgency(StreamId(3), 0);
        for output in &mut session.outputs {
            output.unblock();
        }
        assert_eq!(session.next_unblocked_output(None), Some(8));
        let queued = |urgency| QueuedStream {
            stream: StreamId(9),
            priority: Priority {
                urgency,
                is_incremental: false,
            },
        };
        assert_eq!(session.next_unblocked_output(Some(queued(0))), None);
        assert_eq!(session.next_unblocked_output(Some(queued(2))), Some(8));
        session.set_urgency(StreamId(2), 5);
        assert_eq!(session.next_unblocked_output(None), Some(0));
        assert_eq!(session.next_unblocked_output(Some(queued(2))), None);
    }
}
