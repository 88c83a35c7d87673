//! From responses to frames: the protocol schedules streams, and the bytes are copied behind each frame's header.

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
    /// Handles a written response: its head is in the output, and its body is announced for its stream.
    pub(crate) fn stream_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        record: Option<V::Record>,
    ) {
        let at = worker.h2.fresh.last().map_or(0, |fresh| fresh.end);
        let end = worker.out.body.len();
        let Protocol::Http2(two) = &mut self.protocol else {
            return;
        };
        if !worker.out.parts.is_empty() {
            // The copied start precedes the parts.
            let copied = Bytes::copy_from_slice(&worker.out.body[at..]);
            worker.out.body.truncate(at);
            let parts = std::iter::once(BodyPart::Bytes(copied)).chain(worker.out.parts.drain(..));
            let body = RemainingBody::new(parts, record);
            self.exchanges.get_mut(stream).body = Some(Box::new(body));
            if let Some(back) = worker.out.back.take() {
                self.begin_stream_tunnel(worker, stream, *back);
            }
            return self.advance(worker, stream);
        }
        let len = (end - at) as u64;
        let wanted = match len {
            0 => two.http.end(stream, FieldLines::NONE).map(|()| false),
            _ => two.http.whole_body(stream, len),
        };
        match wanted {
            Ok(true) => worker.h2.fresh.push(UnframedResponse {
                stream,
                at,
                end,
                sent: 0,
                record,
            }),
            Ok(false) => {
                worker.out.body.truncate(at);
                worker.note_sent(record, 0);
            }
            Err(_) => {
                worker.out.body.truncate(at);
                let out = &mut worker.out.bytes;
                two.http.reset(stream, ErrorCode::INTERNAL_ERROR, out);
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
            if self.sending.is_some() {
                break;
            }
            let Protocol::Http2(two) = &mut self.protocol else {
                break;
            };
            let Some(piece) = two.http.send(PIECE_LEN_MAX, &mut worker.out.bytes) else {
                break;
            };
            two.pace.moved(u64::from(piece.len), now_ms);
            self.put_piece(worker, piece);
            if worker.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(worker);
            }
        }
        // The worker's buffers serve other connections next.
        self.keep_fresh(worker);
        self.flush(worker);
    }

    /// Copies the payload behind a frame's header.
    fn put_piece(&mut self, worker: &mut WorkerContext<D, V>, piece: NextData) {
        let (stream, len) = (piece.stream, piece.len as usize);
        if let Some(at) = worker.h2.find_fresh(stream) {
            let fresh = &mut worker.h2.fresh[at];
            let bytes = &worker.out.body[fresh.at..fresh.at + len];
            worker.out.bytes.extend_from_slice(bytes);
            fresh.at += len;
            fresh.sent += len as u64;
            if piece.is_last {
                let (record, sent) = (fresh.record.take(), fresh.sent);
                worker.h2.next_fresh = at + 1;
                worker.note_sent(record, sent);
            }
            return;
        }
        let it = self.exchanges.get(stream);
        // The response is older than this flush: its body is in its stream.
        let Some(body) = it.and_then(|it| it.body.as_deref_mut()) else {
            return debug_assert!(len == 0, "a body that is nowhere");
        };
        body.take(len, &mut worker.out.bytes);
        if piece.is_last {
            let (record, sent) = body.take_record();
            if let Some(it) = self.exchanges.get(stream) {
                it.body = None;
            }
            self.exchanges.tidy();
            worker.note_sent(record, sent);
            self.settle_tunnel(worker, stream);
        } else if body.is_waiting() {
            self.advance(worker, stream);
        }
    }

    /// Moves the unsent rest of copied bodies to their streams.
    fn keep_fresh(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        for fresh in worker.h2.fresh.drain(..) {
            let rest = &worker.out.body[fresh.at..fresh.end];
            if rest.is_empty() {
                continue;
            }
            if self.is_closed() {
                if let Some(record) = fresh.record {
                    worker.service.sent(record, fresh.sent, false, now_ms);
                }
                continue;
            }
            let (len, part) = (rest.len() as u64, Bytes::copy_from_slice(rest));
            let body =
                RemainingBody::from_rest(BodyPart::Bytes(part), len, fresh.sent, fresh.record);
            self.exchanges.get_mut(fresh.stream).body = Some(Box::new(body));
        }
        worker.h2.next_fresh = 0;
        worker.out.body.clear();
    }
}
