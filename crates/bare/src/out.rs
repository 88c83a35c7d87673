//! An answer on its way out: bytes to be copied, then bytes that stay where they are. Knows no connection.

use alloc::vec::Vec;

use lowroad_http::status::Status;
use lowroad_http::version::Version;

use crate::archive::Variant;

/// One answer. Made once and used for all, so that no answer takes memory of its own.
#[derive(Default)]
pub struct Out {
    /// The head, and a body that was made for this answer.
    pub copied: Vec<u8>,
    /// The rest of a body that is in the site.
    pub lasting: &'static [u8],
    /// Its sums, see `lowroad_net::Piece::Lasting`; may be empty.
    pub sums: &'static [u16],
    /// It is all of this, on a kept connection.
    pub whole: Option<&'static Variant>,
    /// For the log.
    pub status: u16,
    /// Bytes of the body, for the log.
    pub body_len: usize,
    /// The connection ends with this answer, whatever the client wants.
    pub closes: bool,
}

impl Out {
    /// Forgets the answer before.
    pub fn clear(&mut self) {
        self.copied.clear();
        self.lasting = &[];
        self.sums = &[];
        self.whole = None;
        self.status = 0;
        self.body_len = 0;
        self.closes = false;
    }

    /// Begins a head.
    pub fn status(&mut self, status: Status) {
        self.status = status.code();
    }
}

/// What an answer depends on besides the request and the site.
#[derive(Clone, Copy)]
pub struct About {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The same as the value of Date.
    pub date: [u8; 29],
    /// The connection stays open after the answer.
    pub keep_alive: bool,
    /// The request's.
    pub version: Version,
    /// Differs between any two answers, for boundaries.
    pub serial: u64,
}

impl About {
    /// What ends the head.
    pub fn head_end(&self) -> &'static [u8] {
        match (self.keep_alive, self.version) {
            (false, _) => b"Connection: close\r\n\r\n",
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (true, Version::Http11 | Version::Http2) => b"\r\n",
        }
    }
}
