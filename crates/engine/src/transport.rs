//! What lies between a connection and its socket. Plain: bytes go as they are, and the kernel may send a file by itself.
//! All that a connection sends or receives goes through here. Knows no protocol.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::driver::{Driver, Received, Sent, Token};
use crate::file::OpenFile;

/// One connection's way to its client.
pub(crate) struct Transport<S> {
    socket: S,
    /// Who is at the other end.
    pub peer: IpAddr,
    /// Nothing of the connection is about who is at its other end, or nothing more.
    pub is_introduced: bool,
}

impl<S> Transport<S> {
    /// Over a socket that was accepted.
    pub fn new(socket: S, peer: IpAddr) -> Transport<S> {
        Transport {
            socket,
            peer,
            is_introduced: true,
        }
    }

    /// See [`Driver::register`].
    pub fn register(&self, driver: &mut impl Driver<Socket = S>, token: Token) -> io::Result<()> {
        driver.register(&self.socket, token)
    }

    /// Receives what the client has said.
    pub fn receive<D>(&mut self, driver: &mut D, token: Token) -> Received<D::Lent>
    where
        D: Driver<Socket = S>,
    {
        driver.receive(&self.socket, token)
    }

    /// Sends a start of `buffer`, see [`Driver::send`]. What is taken is counted in bytes of the wire.
    #[inline]
    pub fn send(
        &mut self,
        driver: &mut impl Driver<Socket = S>,
        token: Token,
        buffer: &mut Buffer,
        more: bool,
    ) -> Sent {
        driver.send(&self.socket, token, buffer, more)
    }

    /// A send that was under way is over: gives the buffer back that it was called with.
    pub fn sent(&mut self, buffer: Buffer) -> Buffer {
        buffer
    }

    /// How many bytes of a buffer have left with so many of the wire.
    #[inline]
    pub fn unwrapped(&mut self, wire_len: usize) -> usize {
        wire_len
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
    /// Closes the connection, see [`Driver::close`].
    pub fn close(self, driver: &mut impl Driver<Socket = S>) {
        driver.close(self.socket);
    }
}
