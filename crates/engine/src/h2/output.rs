//! Writes responses as frames: the protocol schedules the streams, and bytes of their bodies are copied behind the
//! frame headers.

use bytes::Bytes;
use lowroad_http::fields::FieldLines;
use lowroad_http::h2::{ErrorCode, NextData};
use lowroad_http::protocol::StreamId;

use super::state::UnframedResponse;
use super::{OUT_LEN_MAX, PIECE_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::response_body::BodyPart;
use crate::service::HttpService;
use crate::stream_body::RemainingBody;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles a written response: its head is in the output, and its body becomes ready for its stream.
    pub(crate) fn on_h2_response_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
    ) {
        let start = worker.h2.unframed.last().map_or(0, |unframed| unframed.end);
        let end = worker.out.body.len();
        let Protocol::Http2(session) = &mut self.protocol else {
            return;
        };
        if !worker.out.parts.is_empty() {
            // The bytes that were copied precede the parts.
            let copied = Bytes::copy_from_slice(&worker.out.body[start..]);
            worker.out.body.truncate(start);
            let parts = std::iter::once(BodyPart::Bytes(copied)).chain(worker.out.parts.drain(..));
            let body = RemainingBody::new(parts, record);
            self.exchanges.get_or_insert(stream).body = Some(Box::new(body));
            if let Some(tunnel_return) = worker.out.tunnel_return.take() {
                self.begin_stream_tunnel(worker, stream, *tunnel_return);
            }
            return self.advance(worker, stream);
        }
        let len = (end - start) as u64;
        let announced = match len {
            0 => session.http.end(stream, FieldLines::NONE).map(|()| false),
            _ => session.http.whole_body(stream, len),
        };
        match announced {
            Ok(true) => worker.h2.unframed.push(UnframedResponse {
                stream,
                offset: start,
                end,
                sent: 0,
                record,
            }),
            Ok(false) => {
                worker.out.body.truncate(start);
                worker.push_framed_record(record, 0);
            }
            Err(_) => {
                worker.out.body.truncate(start);
                let out = &mut worker.out.bytes;
                session.http.reset(stream, ErrorCode::INTERNAL_ERROR, out);
                if let Some(record) = record {
                    worker
                        .service
                        .sent(record, 0, false, worker.driver.now_ms());
                }
            }
        }
    }

    /// Writes and sends frames until nothing is ready, no window is open, or the socket is full.
    pub(crate) fn emit(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        while !self.is_closed() {
            // While the socket is full, further frames would only occupy memory.
            if self.sending.is_some() {
                break;
            }
            let Protocol::Http2(session) = &mut self.protocol else {
                break;
            };
            let Some(piece) = session.http.send(PIECE_LEN_MAX, &mut worker.out.bytes) else {
                break;
            };
            session.pace.record_progress(u64::from(piece.len), now_ms);
            self.write_piece(worker, piece);
            if worker.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(worker);
            }
        }
        // The worker's buffers serve other connections next.
        self.store_unframed(worker);
        self.flush(worker);
    }

    /// Copies the payload of a DATA frame behind its header.
    fn write_piece(&mut self, worker: &mut WorkerContext<D, V>, piece: NextData) {
        let (stream, len) = (piece.stream, piece.len as usize);
        if let Some(index) = worker.h2.find_unframed(stream) {
            let unframed = &mut worker.h2.unframed[index];
            let bytes = &worker.out.body[unframed.offset..unframed.offset + len];
            worker.out.bytes.extend_from_slice(bytes);
            unframed.offset += len;
            unframed.sent += len as u64;
            if piece.is_last {
                let (record, sent) = (unframed.record.take(), unframed.sent);
                worker.h2.next_unframed = index + 1;
                worker.push_framed_record(record, sent);
            }
            return;
        }
        let state = self.exchanges.get(stream);
        // The response is older than this flush, so its body was moved to its stream.
        let Some(body) = state.and_then(|state| state.body.as_deref_mut()) else {
            return debug_assert!(len == 0, "a body that is nowhere");
        };
        body.take(len, &mut worker.out.bytes);
        if piece.is_last {
            let (record, sent) = body.take_record();
            if let Some(state) = self.exchanges.get(stream) {
                state.body = None;
            }
            self.exchanges.tidy();
            worker.push_framed_record(record, sent);
            self.settle_tunnel(worker, stream);
        } else if body.is_waiting() {
            self.advance(worker, stream);
        }
    }

    /// Moves the unsent rest of copied bodies to their streams.
    fn store_unframed(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        for unframed in worker.h2.unframed.drain(..) {
            let rest = &worker.out.body[unframed.offset..unframed.end];
            if rest.is_empty() {
                continue;
            }
            if self.is_closed() {
                if let Some(record) = unframed.record {
                    worker.service.sent(record, unframed.sent, false, now_ms);
                }
                continue;
            }
            let (len, part) = (rest.len() as u64, Bytes::copy_from_slice(rest));
            let body = RemainingBody::from_rest(
                BodyPart::Bytes(part),
                len,
                unframed.sent,
                unframed.record,
            );
            self.exchanges.get_or_insert(unframed.stream).body = Some(Box::new(body));
        }
        worker.h2.next_unframed = 0;
        worker.out.body.clear();
    }
}
