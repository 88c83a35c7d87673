//! What lies between a connection and its socket. Plain: bytes go as they are, and the kernel may send a file by itself.
//! All that a connection sends or receives goes through here. Knows no protocol.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::arena::Block;
use crate::driver::{Driver, Received, Sent, Token};
use crate::file::OpenFile;

/// One connection's way to its client.
pub(crate) struct Transport<S> {
    socket: S,
    /// Who is at the other end.
    pub peer: IpAddr,
}

impl<S> Transport<S> {
    /// Over a socket that was accepted.
    pub fn new(socket: S, peer: IpAddr) -> Transport<S> {
        Transport { socket, peer }
    }

    /// See [`Driver::register`].
    pub fn register(&self, driver: &mut impl Driver<Socket = S>, token: Token) -> io::Result<()> {
        driver.register(&self.socket, token)
    }

    /// Receives what the client has said.
    pub fn receive(&mut self, driver: &mut impl Driver<Socket = S>, into: &mut [u8]) -> Received {
        driver.receive(&self.socket, into)
    }

    /// Sends a start of `bytes`; `more` says that others follow at once. Counted in bytes of the wire.
    pub fn send(&mut self, driver: &mut impl Driver<Socket = S>, bytes: &[u8], more: bool) -> Sent {
        driver.send(&self.socket, bytes, more)
    }

    /// Sends a start of these, one behind the other.
    pub fn send_pieces(
        &mut self,
        driver: &mut impl Driver<Socket = S>,
        pieces: [&[u8]; 3],
    ) -> Sent {
        driver.send_pieces(&self.socket, pieces)
    }

    /// Sends a start of a block's range.
    pub fn send_block(
        &mut self,
        driver: &mut impl Driver<Socket = S>,
        block: &Block,
        range: Range<usize>,
    ) -> Sent {
        driver.send_block(&self.socket, block, range)
    }

    /// See [`Driver::start_file`].
    pub fn start_file(
        &mut self,
        driver: &mut impl Driver<Socket = S>,
        token: Token,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        driver.start_file(&self.socket, token, file, range)
    }

    /// Bytes of the wire that the client has not acknowledged.
    pub fn unacknowledged(&self, driver: &impl Driver<Socket = S>) -> usize {
        driver.unacknowledged(&self.socket)
    }

    /// Sends the end of our bytes; the client's may still come.
    pub fn finish(&mut self, driver: &mut impl Driver<Socket = S>) {
        driver.finish(&self.socket);
    }
}
