//! A minimal line protocol: the server greets a new connection with a line; a request is a line with a number and a
//! length, and its response a line with that number and this many letters.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

use lowroad_engine::WorkerHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_origin::{Connection, PoolConnector};

/// The server's greeting.
pub const GREETING: &[u8] = b"hello\n";

/// The response to a request.
pub fn answer(number: usize, len: usize) -> Vec<u8> {
    let mut line = format!("{number}:").into_bytes();
    line.extend((0..len).map(|at| b'a' + ((at + number) % 23) as u8));
    line.push(b'\n');
    line
}

/// The connector of the protocol: waits for the server's greeting.
pub struct Lines;

/// A connection.
pub struct Line {
    socket: UpstreamSocket,
    input: Vec<u8>,
}

impl PoolConnector for Lines {
    type PooledConnection = Line;

    async fn open(&self, socket: UpstreamSocket, _: &WorkerHandle) -> io::Result<Line> {
        let input = Vec::new();
        let mut line = Line { socket, input };
        match line.read().await? == GREETING {
            true => Ok(line),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Connection for Line {
    fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.input.is_empty() && self.poll_more(&mut context).is_pending()
    }

    fn socket(&mut self) -> &mut UpstreamSocket {
        &mut self.socket
    }
}

impl Line {
    /// Sends a request.
    pub async fn ask(&mut self, number: usize, len: usize) -> io::Result<()> {
        let line = format!("{number} {len}\n").into_bytes();
        let mut sent = 0;
        while sent < line.len() {
            let piece = [IoSlice::new(&line[sent..])];
            sent += poll_fn(|context| self.socket.poll_send(context, &piece)).await?;
        }
        Ok(())
    }

    /// Waits for the first byte of input.
    pub async fn hear(&mut self) -> io::Result<()> {
        if self.input.is_empty() {
            poll_fn(|context| self.poll_more(context)).await?;
        }
        Ok(())
    }

    /// The next line.
    pub async fn read(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                return Ok(self.input.drain(..=end).collect());
            }
            poll_fn(|context| self.poll_more(context)).await?;
        }
    }

    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; 1000];
        let len = ready!(self.socket.poll_recv(context, &mut piece))?;
        self.input.extend(&piece[..len]);
        Poll::Ready(match len {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        })
    }
}
