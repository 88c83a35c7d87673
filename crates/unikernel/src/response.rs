//! A response to be sent: bytes that are copied, followed by bytes in static memory.

use alloc::vec::Vec;

use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;

use crate::archive::FileVariant;

/// A response. One object is reused for all responses, so that they allocate no memory.
#[derive(Default)]
pub struct UnikernelResponse {
    /// The head, and the body if it is generated.
    pub copied: Vec<u8>,
    /// The body, or the rest of it, in the memory of the site.
    pub static_bytes: &'static [u8],
    /// The checksums of `static_bytes`, see `lowroad_net::SendPiece::Lasting`; may be empty.
    pub sums: &'static [u16],
    /// The file, if the response is the complete file on a persistent connection.
    pub whole_file: Option<&'static FileVariant>,
    /// The status code, for the log.
    pub status: u16,
    /// The length of the body, for the log.
    pub body_len: usize,
    /// Whether the connection must be closed after this response, even if the client wants to keep it.
    pub closes: bool,
}

impl UnikernelResponse {
    /// Resets the response.
    pub fn clear(&mut self) {
        self.copied.clear();
        self.static_bytes = &[];
        self.sums = &[];
        self.whole_file = None;
        self.status = 0;
        self.body_len = 0;
        self.closes = false;
    }

    /// Sets the status code.
    pub fn status(&mut self, status: StatusCode) {
        self.status = status.code();
    }
}

/// The inputs of a response besides the request and the site.
#[derive(Clone, Copy)]
pub struct ResponseContext {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The same time as the value of Date.
    pub date: [u8; 29],
    /// Whether the connection is kept open after the response.
    pub keep_alive: bool,
    /// The version of the request.
    pub version: HttpVersion,
    /// A number that is different in each response, for the boundary of multipart/byteranges.
    pub serial: u64,
}

impl ResponseContext {
    /// The end of the head: the Connection field if necessary, and the empty line.
    pub fn head_end(&self) -> &'static [u8] {
        match (self.keep_alive, self.version.is_10()) {
            (false, _) => b"Connection: close\r\n\r\n",
            (true, true) => b"Connection: keep-alive\r\n\r\n",
            (true, false) => b"\r\n",
        }
    }
}
