//! Writes responses as frames: the protocol schedules the streams, and bytes of their bodies are copied behind the
//! frame headers.

use lowroad_http::protocol::NextData;

use super::{OUT_LEN_MAX, PIECE_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::HttpService;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
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
            session
                .progress
                .pace
                .record_progress(u64::from(piece.len), now_ms);
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
        if let Some(index) = worker.unframed.find(stream) {
            let unframed = &mut worker.unframed.list[index];
            let bytes = &worker.out.body[unframed.offset..unframed.offset + len];
            worker.out.bytes.extend_from_slice(bytes);
            unframed.offset += len;
            unframed.sent += len as u64;
            if piece.is_last {
                let (record, sent) = (unframed.record.take(), unframed.sent);
                worker.unframed.next = index + 1;
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
}
