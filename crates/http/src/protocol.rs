//! What the server's sides of all versions of HTTP have in common: a connection has streams, each a request and its
//! response. A server asks these; how requests are read and responses written is each version's own.

use alloc::vec::Vec;

use crate::fields::Lines;
use crate::status::Status;
use crate::version::Version;

/// Names a request and its response on their connection. HTTP/1 has one at a time, and ignores the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The server's side of one connection, as a state machine without input and output.
pub trait ServerProtocol {
    /// The version of HTTP that the client speaks, by its last request.
    fn version(&self) -> Version;

    /// Whether no request is under way.
    fn is_idle(&self) -> bool;

    /// Whether the connection ends once everything written has left.
    fn is_over(&self) -> bool;

    /// Whether the whole connection is a tunnel (RFC 9110 §7.8). A tunnel in a stream leaves its connection as it is.
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Whether a request has come with its whole body.
    fn has_whole_request(&mut self, stream: StreamId) -> bool;

    /// Whether the response to a request has begun, or no client waits for it any more.
    fn is_answered(&mut self, stream: StreamId) -> bool;

    /// Whether the client waits for 100 (Continue) before it sends the body.
    fn expects_continue(&mut self, stream: StreamId) -> bool;

    /// Writes an interim response (1xx but 101) with these field lines, if the client takes one.
    fn interim(&mut self, stream: StreamId, status: Status, lines: Lines<'_>, out: &mut Vec<u8>);

    /// Leaves the rest of a request's body unread. Without streams the connection ends with the response.
    fn leave_body(&mut self, stream: StreamId, out: &mut Vec<u8>);

    /// Announces the end of the connection: requests under way are still answered.
    fn drain(&mut self, out: &mut Vec<u8>);
}
