//! From responses to frames: whose turn it is says the protocol, and the bytes are copied behind each frame's head.

use bytes::Bytes;
use lowroad_http::fields::Lines;
use lowroad_http::h2::{Code, Piece};

use super::{Body, OUT_LEN_MAX, PIECE_LEN_MAX, Shared};
use crate::body::Part;
use crate::driver::Driver;
use crate::sending::Leaving;
use crate::service::Service;
use crate::underway::StreamId;
use crate::worker::Worker;

/// A response whose body was copied, and has not been cut into frames.
pub(crate) struct Fresh<R> {
    stream: StreamId,
    /// Where the rest of it lies in `Out::body`.
    at: usize,
    end: usize,
    /// Bytes that were put into frames.
    sent: u64,
    record: Option<R>,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// A response was written: its head is in the output, its body is to be given to its stream.
    pub(crate) fn stream_written(
        &mut self,
        id: usize,
        stream: StreamId,
        record: Option<V::Record>,
    ) {
        let at = self.h2.fresh.last().map_or(0, |fresh| fresh.end);
        let end = self.out.body.len();
        let Some(two) = &mut self.connections[id].two else {
            return;
        };
        if !self.out.parts.is_empty() {
            let copied = Bytes::copy_from_slice(&self.out.body[at..]);
            self.out.body.truncate(at);
            let parts = std::iter::once(Part::Bytes(copied)).chain(self.out.parts.drain(..));
            let body = Body::new(parts, record);
            self.connections[id].exchanges.of(stream).body = Some(Box::new(body));
            if let Some(back) = self.out.back.take() {
                self.begin_stream_tunnel(id, stream, *back);
            }
            return self.advance(id, stream);
        }
        let len = (end - at) as u64;
        let wanted = match len {
            0 => two.http.end(stream, Lines::NONE).map(|()| false),
            _ => two.http.whole_body(stream, len),
        };
        match wanted {
            Ok(true) => self.h2.fresh.push(Fresh {
                stream,
                at,
                end,
                sent: 0,
                record,
            }),
            Ok(false) => {
                self.out.body.truncate(at);
                self.note_sent(record, 0);
            }
            Err(_) => {
                self.out.body.truncate(at);
                let out = &mut self.out.bytes;
                two.http.reset(stream, Code::INTERNAL_ERROR, out);
                if let Some(record) = record {
                    self.service.sent(record, 0, false, self.driver.now_ms());
                }
            }
        }
    }

    /// The response whose last bytes are in the output is logged by this, once they have left.
    fn note_sent(&mut self, record: Option<V::Record>, body_len: u64) {
        if let Some(record) = record {
            let end = self.out.bytes.len() as u64;
            self.records.push(Leaving::of_frames(record, end, body_len));
        }
    }

    /// Writes and sends frames until nothing is ready, no window is open, or the socket is full.
    pub(crate) fn emit(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        while let Some(connection) = self.connections.get_mut(id) {
            if connection.sending.is_some() {
                break;
            }
            let Some(two) = &mut connection.two else {
                break;
            };
            let Some(piece) = two.http.send(PIECE_LEN_MAX, &mut self.out.bytes) else {
                break;
            };
            two.pace.moved(u64::from(piece.len), now_ms);
            self.put_piece(id, piece);
            if self.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(id);
            }
        }
        self.keep_fresh(id);
        self.flush(id);
    }

    /// Copies what is to follow a frame's head.
    fn put_piece(&mut self, id: usize, piece: Piece) {
        let (stream, len) = (piece.stream, piece.len as usize);
        if let Some(at) = self.h2.find_fresh(stream) {
            let fresh = &mut self.h2.fresh[at];
            let bytes = &self.out.body[fresh.at..fresh.at + len];
            self.out.bytes.extend_from_slice(bytes);
            fresh.at += len;
            fresh.sent += len as u64;
            if piece.is_last {
                let (record, sent) = (fresh.record.take(), fresh.sent);
                self.h2.next_fresh = at + 1;
                self.note_sent(record, sent);
            }
            return;
        }
        let connection = &mut self.connections[id];
        let it = connection.exchanges.get(stream);
        let Some(body) = it.and_then(|it| it.body.as_deref_mut()) else {
            return debug_assert!(len == 0, "a body that is nowhere");
        };
        body.take(len, &mut self.out.bytes);
        if piece.is_last {
            let (record, sent) = body.take_record();
            if let Some(it) = connection.exchanges.get(stream) {
                it.body = None;
            }
            connection.exchanges.tidy();
            self.note_sent(record, sent);
            self.settle_tunnel(id, stream);
        } else if body.is_waiting() {
            self.advance(id, stream);
        }
    }

    /// Puts what did not leave of copied bodies into their streams' lines.
    fn keep_fresh(&mut self, id: usize) {
        let now_ms = self.driver.now_ms();
        for fresh in self.h2.fresh.drain(..) {
            let rest = &self.out.body[fresh.at..fresh.end];
            if rest.is_empty() {
                continue;
            }
            match self.connections.get_mut(id) {
                Some(connection) => {
                    let (len, part) = (rest.len() as u64, Bytes::copy_from_slice(rest));
                    let body = Body::of_rest(Part::Bytes(part), len, fresh.sent, fresh.record);
                    connection.exchanges.of(fresh.stream).body = Some(Box::new(body));
                }
                None => {
                    if let Some(record) = fresh.record {
                        self.service.sent(record, fresh.sent, false, now_ms);
                    }
                }
            }
        }
        self.h2.next_fresh = 0;
        self.out.body.clear();
    }
}

impl<R> Shared<R> {
    /// Where the response of a stream lies, if it has just been written. Mostly they leave in their order.
    fn find_fresh(&self, stream: StreamId) -> Option<usize> {
        match self.fresh.get(self.next_fresh) {
            Some(fresh) if fresh.stream == stream => Some(self.next_fresh),
            _ => self.fresh.iter().position(|fresh| fresh.stream == stream),
        }
    }
}
