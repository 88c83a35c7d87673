//! A connection to a FastCGI server: writes encoded records, and decodes received ones.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

use lowroad_engine::upstream_socket::UpstreamSocket;

use super::record::{BadRecord, FastCgiDecoder, FastCgiEvent};

/// The size of the read buffer.
const READ_LEN: usize = 32 << 10;

/// A connection to a FastCGI server.
pub struct FastCgiLink {
    socket: UpstreamSocket,
    decoder: FastCgiDecoder,
    input: Box<[u8]>,
    /// `input[start..end]` has been read but not decoded.
    start: usize,
    end: usize,
}

/// The reason why a connection became unusable.
#[derive(Debug)]
pub enum FastCgiFault {
    /// The server closed the connection.
    Closed,
    /// A system error.
    Failed(io::Error),
    /// The received bytes are not FastCGI.
    Bad(BadRecord),
}

impl FastCgiLink {
    /// Wraps a new connection.
    pub fn new(socket: UpstreamSocket) -> FastCgiLink {
        FastCgiLink {
            socket,
            decoder: FastCgiDecoder::default(),
            input: vec![0; READ_LEN].into(),
            start: 0,
            end: 0,
        }
    }

    /// Whether the connection is open and has no input, as an idle connection must. If so, no system call is made.
    pub fn is_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // Input on an idle connection would belong to no request.
        self.start == self.end && self.poll_read(&mut context).is_pending()
    }

    /// The socket of the connection.
    pub fn socket_mut(&mut self) -> &mut UpstreamSocket {
        &mut self.socket
    }

    /// Writes a part of two slices; returns the number of bytes written.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pieces = [IoSlice::new(first), IoSlice::new(second)];
        let count = if second.is_empty() { 1 } else { 2 };
        self.socket.poll_send(context, &pieces[..count])
    }

    /// The next event in the received bytes; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The connection is unusable.
    pub fn event(&mut self) -> Result<Option<(FastCgiEvent, &[u8])>, FastCgiFault> {
        let bytes = &self.input[self.start..self.end];
        let (event, len) = self.decoder.next(bytes).map_err(FastCgiFault::Bad)?;
        self.start += len;
        Ok(event.map(|event| (event, bytes)))
    }

    /// Reads more bytes; pending until some arrive.
    ///
    /// # Errors
    /// The connection is unusable.
    pub fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FastCgiFault>> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let read = ready!(self.socket.poll_recv(context, &mut self.input[self.end..]));
        Poll::Ready(match read {
            Ok(len @ 1..) => {
                self.end += len;
                Ok(())
            }
            Ok(_) => Err(FastCgiFault::Closed),
            Err(error) => Err(FastCgiFault::Failed(error)),
        })
    }
}

impl std::fmt::Display for FastCgiFault {
    /// Continues a sentence that begins with the server's name.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FastCgiFault::Closed => {
                to.write_str("closed the connection in the middle of a request")
            }
            FastCgiFault::Failed(error) => write!(to, "was lost: {error}"),
            FastCgiFault::Bad(bad) => to.write_str(&bad.0),
        }
    }
}
