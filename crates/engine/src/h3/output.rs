//! Writes responses to streams: the protocol schedules the bodies, and QUIC takes as much as its windows allow.

use lowroad_http::h3::H3ErrorCode;
use lowroad_http::protocol::{NextData, StreamId};

use super::state::{WriteOutcome, request_stream, stream_id};
use super::{COPIED_LEN_MAX, PIECE_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::StreamAbort;
use crate::protocol::Protocol;
use crate::response_body::BodyPart;
use crate::service::HttpService;
use crate::stream_body::RemainingBody;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Moves a written head or interim response to its stream.
    pub(crate) fn commit_stream_output(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        if worker.out.bytes.is_empty() {
            return;
        }
        // Usually a frame header and a short body follow.
        let body_len = worker.out.body.len() - worker.unframed.end();
        // Reserved once, as most responses are short.
        let framing = &mut session.output(stream_id(stream)).framing;
        framing.reserve(worker.out.bytes.len() + body_len.min(COPIED_LEN_MAX) + 16);
        framing.extend_from_slice(&worker.out.bytes);
        // Cleared, not taken, so that the worker's buffer keeps its memory.
        worker.out.bytes.clear();
    }

    /// Ends the stream of a response that is complete without a body.
    pub(crate) fn end_stream_output(&mut self, stream: StreamId) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        if session.http.is_response_complete(stream) {
            let id = stream_id(stream);
            // Without output, the stream was reset.
            let output = session.outputs.iter_mut().find(|it| it.stream == id);
            if let Some(output) = output {
                output.is_end = true;
            }
        }
    }

    /// Writes output to streams until nothing is ready, or QUIC takes no more.
    pub(crate) fn emit_http3(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        while !self.is_closed()
            && let Protocol::Http3(session) = &mut self.protocol
        {
            // QUIC's windows may be full again after any write, so the most urgent output is written first, whether the
            // protocol has still to select it or not.
            let than = session.http.next_stream();
            if let Some(stream) = session.next_unblocked_output(than) {
                self.write_stream(worker, stream);
                continue;
            }
            // The header belongs to the stream that `send` selects.
            worker.h3.framing.clear();
            let Some(piece) = session.http.send(PIECE_LEN_MAX, &mut worker.h3.framing) else {
                break;
            };
            let pace = &mut session.progress.pace;
            pace.record_progress(u64::from(piece.len), now_ms);
            self.write_stream_piece(worker, piece);
        }
        // The worker's buffers serve other connections next.
        self.store_unframed(worker);
        self.flush_streams(worker);
    }

    /// Writes the next piece of a body behind its frame header.
    fn write_stream_piece(&mut self, worker: &mut WorkerContext<D, V>, piece: NextData) {
        let (stream, len) = (piece.stream, piece.len as usize);
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        let output = session.output(stream_id(stream));
        // A head that is not written yet precedes the header.
        output.framing.extend_from_slice(&worker.h3.framing);
        output.is_end |= piece.is_last;
        let mut is_waiting = false;
        // Most bodies are short, and written in the turn of their heads.
        if let Some(index) = worker.unframed.find(stream) {
            let unframed = &mut worker.unframed.list[index];
            let bytes = &worker.out.body[unframed.offset..unframed.offset + len];
            output.framing.extend_from_slice(bytes);
            unframed.offset += len;
            unframed.sent += len as u64;
            if piece.is_last {
                worker.unframed.next = index + 1;
                let (record, sent) = (unframed.record.take(), unframed.sent);
                return self.end_copied_response(worker, stream, record, sent);
            }
        } else {
            let state = self.exchanges.get(stream);
            // The response is older than this flush, so its body was moved to its stream.
            let Some(body) = state.and_then(|state| state.body.as_deref_mut()) else {
                return debug_assert!(len == 0, "a body that is nowhere");
            };
            match len <= COPIED_LEN_MAX {
                true => body.take(len, &mut output.framing),
                false => body.take_shared(len, |bytes| output.push(bytes)),
            }
            is_waiting = body.is_waiting();
        }
        self.write_stream(worker, stream_id(stream));
        // The next part is read or polled while QUIC sends this one.
        if !piece.is_last && is_waiting {
            self.advance(worker, stream);
        }
    }

    /// Writes the end of a response with a copied body.
    fn end_copied_response(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
        sent: u64,
    ) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        let id = session.id;
        let outcome = session
            .output(stream_id(stream))
            .write(id, &mut worker.quic);
        if outcome != WriteOutcome::Blocked {
            // The log counts bytes that QUIC has taken.
            session.remove_output(stream_id(stream));
            if let Some(record) = record {
                let (now_ms, is_sent) = (worker.driver.now_ms(), outcome == WriteOutcome::Written);
                worker.service.sent(record, sent, is_sent, now_ms);
            }
            return;
        }
        // The record waits for the rest of the output.
        let body = RemainingBody::from_rest(BodyPart::Bytes(bytes::Bytes::new()), 0, sent, record);
        self.exchanges.get_or_insert(stream).body = Some(Box::new(body));
    }

    /// Passes a stream's output to QUIC.
    fn write_stream(&mut self, worker: &mut WorkerContext<D, V>, stream: u64) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        let id = session.id;
        let Some(at) = session.outputs.iter().position(|it| it.stream == stream) else {
            return;
        };
        let output = &mut session.outputs[at];
        // The protocol knows only blocked streams.
        let was_blocked = output.is_blocked || output.is_unblocked;
        let outcome = output.write(id, &mut worker.quic);
        let is_end = output.is_end;
        let request = request_stream(stream);
        match outcome {
            WriteOutcome::Blocked => {
                // Other streams may have windows, so only this one waits.
                if let Some(request) = request {
                    session.http.set_blocked(request, true);
                }
            }
            WriteOutcome::Written => {
                session.outputs.swap_remove(at);
                let Some(request) = request else { return };
                if was_blocked {
                    session.http.set_blocked(request, false);
                }
                if is_end {
                    self.end_stored_response(worker, request);
                }
            }
            // The client's abort is a separate event; until then further pieces are dropped.
            WriteOutcome::Closed => {
                session.outputs.swap_remove(at);
                if let Some(request) = request.filter(|_| is_end) {
                    self.drop_body(worker, request);
                }
            }
        }
    }

    /// Reports a response to the service after QUIC has taken its last bytes.
    fn end_stored_response(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let state = self.exchanges.get(stream);
        if let Some(body) = state.and_then(|state| state.body.take()) {
            if let Some((record, len)) = body.into_record() {
                let now_ms = worker.driver.now_ms();
                worker.service.sent(record, len, true, now_ms);
            }
            self.exchanges.tidy();
            self.settle_tunnel(worker, stream);
        }
    }

    /// Continues a stream when QUIC takes more of it. Nothing is written yet: QUIC reports streams that waited for the
    /// connection's window in any order.
    pub(super) fn on_stream_writable(&mut self, stream: u64) {
        if let Protocol::Http3(session) = &mut self.protocol
            && let Some(output) = session.outputs.iter_mut().find(|it| it.stream == stream)
        {
            output.unblock();
        }
    }

    /// Writes heads, interim responses and the output of the connection's own streams.
    pub(crate) fn flush_streams(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        // Before the output, since the decoder stream gets cancellations.
        self.stop_unwanted(worker);
        self.commit_own_streams(worker);
        let mut at = 0;
        while let Protocol::Http3(session) = &mut self.protocol
            && let Some(output) = session.outputs.get(at)
        {
            let (stream, count) = (output.stream, session.outputs.len());
            if !output.is_blocked {
                self.write_stream(worker, stream);
            }
            let is_removed = match &self.protocol {
                Protocol::Http3(session) => session.outputs.len() < count,
                _ => false,
            };
            // The last output has taken the place of a removed one.
            at += usize::from(!is_removed);
        }
    }

    /// Sends STOP_SENDING for unwanted bodies, after their responses.
    fn stop_unwanted(&mut self, worker: &mut WorkerContext<D, V>) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        let (id, now_ms) = (session.id, worker.driver.now_ms());
        let counters = &mut worker.h3.counters;
        let (http, mut turn) = session.step(&worker.settings.h3, counters, now_ms);
        while let Some((stream, code)) = http.next_stopped(&mut turn) {
            if let Some(transport) = worker.quic.transport(id) {
                transport.stop_reading(id.key, stream_id(stream), code.0);
            }
        }
    }

    /// Moves the output of the control stream and the decoder stream to these streams.
    fn commit_own_streams(&mut self, worker: &mut WorkerContext<D, V>) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        if session.control.is_empty() && session.decoder.is_empty() {
            return;
        }
        let Some(transport) = worker.quic.transport(session.id) else {
            return;
        };
        // The client allows streams of the server with its first parameters.
        if session.own_streams.is_none() {
            let key = session.id.key;
            let control = transport.open(key);
            session.own_streams = control.zip(transport.open(key)).map(|(a, b)| [a, b]);
        }
        let Some([control, decoder]) = session.own_streams else {
            // RFC 9114 §6.2: a client must allow three.
            let code = H3ErrorCode::STREAM_CREATION_ERROR;
            return self.end_http3(worker, code, "the client allows too few streams");
        };
        for (stream, is_control) in [(control, true), (decoder, false)] {
            let bytes = match is_control {
                true => std::mem::take(&mut session.control),
                false => std::mem::take(&mut session.decoder),
            };
            if !bytes.is_empty() {
                session.output(stream).push(bytes.into());
            }
        }
    }

    /// Resets a stream for a reason of the server.
    pub(crate) fn abort_http3_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        abort: StreamAbort,
    ) {
        let Protocol::Http3(session) = &mut self.protocol else {
            return;
        };
        // The client may retry a request that failed, but not one that it is too slow for.
        let code = match abort {
            StreamAbort::Failed => H3ErrorCode::INTERNAL_ERROR,
            StreamAbort::Cancelled => H3ErrorCode::REQUEST_CANCELLED,
        };
        // Before the abort, as the client's table may wait for a cancellation of the stream's sections.
        session.http.reset(stream, &mut session.decoder);
        session.abort(stream, code.0, &mut worker.quic);
    }

    /// Continues to read a request's body, if the body's queue has room.
    pub(crate) fn return_http3_window(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) {
        if self.is_closed() {
            return;
        }
        if let Some(incoming) = self.exchanges.incoming(stream)
            && !incoming.full
            && std::mem::take(&mut incoming.unreturned) > 0
            && let Protocol::Http3(session) = &mut self.protocol
            && let Some(transport) = worker.quic.transport(session.id)
        {
            transport.resume_reading(session.id.key, stream_id(stream));
        }
    }
}
