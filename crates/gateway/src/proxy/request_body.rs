//! The body of a request to an origin. Pieces are retained up to a limit after they are sent, so that the request can
//! be retried on another connection.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_handler::ResponseFields;

use super::mirror::PendingCopy;

/// The body of a client's request.
pub struct ProxyRequestBody {
    stream: BodyReceiver,
    /// All pieces received so far; empty once the body exceeds the limit.
    retained: Vec<Bytes>,
    retained_len: usize,
    /// The limit in bytes; longer bodies are not retained.
    retained_len_max: u64,
    is_replayable: bool,
    /// The number of pieces of `retained` that were passed on.
    passed_count: usize,
    /// Whether the stream has ended.
    is_complete: bool,
    trailers: Option<Box<ResponseFields>>,
    /// The copy of the request that gets the body, too.
    copy: Option<Box<PendingCopy>>,
}

impl ProxyRequestBody {
    /// `stream` is at its start. A body longer than `retained_len_max` cannot be replayed.
    pub fn new(stream: BodyReceiver, retained_len_max: u64) -> ProxyRequestBody {
        ProxyRequestBody {
            stream,
            retained: Vec::new(),
            retained_len: 0,
            retained_len_max,
            is_replayable: true,
            passed_count: 0,
            is_complete: false,
            trailers: None,
            copy: None,
        }
    }

    /// Passes the body to a copy of the request, too, and sends the copy when the body is complete.
    pub fn set_copy(&mut self, copy: PendingCopy) {
        self.copy = Some(Box::new(copy));
    }

    /// The next piece to send.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        if let Some(piece) = self.retained.get(self.passed_count) {
            self.passed_count += 1;
            // `Bytes` is reference-counted, so nothing is copied.
            return Poll::Ready(StreamItem::Bytes(piece.clone()));
        }
        if self.is_complete {
            return Poll::Ready(StreamItem::End);
        }
        let next = ready!(self.stream.poll_next(context));
        match &next {
            StreamItem::Bytes(piece) => {
                self.retain(piece);
                self.copy.take_if(|copy| !copy.push(piece));
            }
            StreamItem::End => {
                if let Some(copy) = self.copy.take() {
                    copy.send();
                }
                self.is_complete = true;
                self.trailers = self.stream.take_trailers();
            }
            StreamItem::Cut => {}
        }
        Poll::Ready(next)
    }

    /// The trailers; known after `StreamItem::End` was returned.
    pub fn trailers(&self) -> Option<&ResponseFields> {
        self.trailers.as_deref()
    }

    /// The same body from its start; `None` if its beginning was discarded.
    pub fn rewound(self) -> Option<ProxyRequestBody> {
        self.is_replayable.then_some(ProxyRequestBody {
            passed_count: 0,
            ..self
        })
    }

    fn retain(&mut self, piece: &Bytes) {
        self.retained_len = self.retained_len.saturating_add(piece.len());
        // Once the limit is exceeded, the beginning is lost: later small pieces do not make the body replayable again.
        self.is_replayable &= self.retained_len as u64 <= self.retained_len_max;
        if self.is_replayable {
            self.retained.push(piece.clone());
            // This piece is passed on by the caller.
            self.passed_count += 1;
        } else {
            (self.retained, self.passed_count) = (Vec::new(), 0);
        }
    }
}
