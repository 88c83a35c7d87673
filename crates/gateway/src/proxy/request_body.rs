//! The body of a request on its way to a server. Its first pieces are kept after they were sent, so that the request can
//! be repeated on another connection.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver};
use lowroad_handler::Fields;

/// A body that comes from a client.
pub struct RequestBody {
    stream: Receiver,
    /// All pieces that have come; none once there were too many.
    kept: Vec<Bytes>,
    kept_len: usize,
    /// A longer body is not kept.
    kept_len_max: u64,
    is_kept: bool,
    /// Pieces of `kept` that the server was given.
    given: usize,
    /// The stream's end has come.
    is_over: bool,
    trailers: Option<Box<Fields>>,
}

impl RequestBody {
    /// The body of a stream from which nothing was taken. `kept_len_max`: a longer one can't be repeated.
    pub fn new(stream: Receiver, kept_len_max: u64) -> RequestBody {
        RequestBody {
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
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if let Some(piece) = self.kept.get(self.given) {
            self.given += 1;
            return Poll::Ready(Next::Bytes(piece.clone()));
        }
        if self.is_over {
            return Poll::Ready(Next::End);
        }
        let next = ready!(self.stream.poll_next(context));
        match &next {
            Next::Bytes(piece) => self.keep(piece),
            Next::End => {
                self.is_over = true;
                self.trailers = self.stream.take_trailers();
            }
            Next::Cut => {}
        }
        Poll::Ready(next)
    }

    /// The fields that follow the body, once its end was given.
    pub fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
    }

    /// The same body from its start; `None` if that is gone.
    pub fn rewound(self) -> Option<RequestBody> {
        self.is_kept.then_some(RequestBody { given: 0, ..self })
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept_len = self.kept_len.saturating_add(piece.len());
        self.is_kept &= self.kept_len as u64 <= self.kept_len_max;
        if self.is_kept {
            self.kept.push(piece.clone());
            self.given += 1;
        } else {
            (self.kept, self.given) = (Vec::new(), 0);
        }
    }
}
