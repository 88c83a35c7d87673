//! A request's body on its way to a server. Its first pieces are kept after they are sent, so that the request can be
//! retried on another connection.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_handler::ResponseFields;

/// The body of a client's request.
pub struct ProxyRequestBody {
    stream: BodyReceiver,
    /// All received pieces; empty once the body is longer than the limit.
    kept: Vec<Bytes>,
    kept_len: usize,
    /// The limit in bytes: a longer body is not kept.
    kept_len_max: u64,
    is_kept: bool,
    /// The number of pieces in `kept` that were passed to the server.
    given: usize,
    /// Whether the stream has ended.
    is_over: bool,
    trailers: Option<Box<ResponseFields>>,
}

impl ProxyRequestBody {
    /// A body from a stream's start. `kept_len_max`: a longer one cannot be replayed.
    pub fn new(stream: BodyReceiver, kept_len_max: u64) -> ProxyRequestBody {
        ProxyRequestBody {
            stream,
            kept: Vec::new(),
            kept_len: 0,
            kept_len_max,
            is_kept: true,
            given: 0,
            is_over: false,
            trailers: None,
        }
    }

    /// The next piece for the server.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        if let Some(piece) = self.kept.get(self.given) {
            self.given += 1;
            // `Bytes` is reference-counted: keeping a piece copies nothing.
            return Poll::Ready(StreamItem::Bytes(piece.clone()));
        }
        if self.is_over {
            return Poll::Ready(StreamItem::End);
        }
        let next = ready!(self.stream.poll_next(context));
        match &next {
            StreamItem::Bytes(piece) => self.keep(piece),
            StreamItem::End => {
                self.is_over = true;
                self.trailers = self.stream.take_trailers();
            }
            StreamItem::Cut => {}
        }
        Poll::Ready(next)
    }

    /// The trailers, once the end was returned.
    pub fn trailers(&self) -> Option<&ResponseFields> {
        self.trailers.as_deref()
    }

    /// The same body from its start; `None` if its start was discarded.
    pub fn rewound(self) -> Option<ProxyRequestBody> {
        self.is_kept
            .then_some(ProxyRequestBody { given: 0, ..self })
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept_len = self.kept_len.saturating_add(piece.len());
        // Once too long, the start is lost: the body cannot be replayed even if later pieces are small.
        self.is_kept &= self.kept_len as u64 <= self.kept_len_max;
        if self.is_kept {
            self.kept.push(piece.clone());
            // The piece goes to the server right now.
            self.given += 1;
        } else {
            (self.kept, self.given) = (Vec::new(), 0);
        }
    }
}
