//! Responses: their heads, as field blocks made here or long before. Read RFC 9113 §8.1 and §8.3.2.

use alloc::vec::Vec;

use super::hpack;
use super::streams::{Input, Output, UNKNOWN};
use super::{Server, StreamId, frame};
use crate::encoded::Section;
use crate::fields::{Fields, Known, Lines, Name};
use crate::h1::BodyLen;
use crate::status::Status;

/// The head of a response that is being written at the end of a buffer.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Begun {
    stream: StreamId,
    status: Status,
    /// Where its frame begins.
    at: usize,
}

/// The head of a stored response as a field block: status, a date to be replaced, and fields. The same for all connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    status: Status,
    bytes: Vec<u8>,
}

impl Block {
    /// Made once, so as short as it can be.
    #[must_use]
    pub fn new<'a>(
        status: Status,
        fields: impl IntoIterator<Item = (Name<'a>, &'a [u8])>,
        len: BodyLen,
    ) -> Block {
        let mut bytes = Vec::with_capacity(192);
        hpack::put_status(status, &mut bytes);
        hpack::put_date(&[b' '; 29], &mut bytes);
        for (name, value) in fields {
            if is_for_h2(name) {
                hpack::put_field_short(name, value, &mut bytes);
            }
        }
        if let BodyLen::Known(len) = len {
            hpack::put_field_u64(Known::ContentLength, len, &mut bytes);
        }
        bytes.shrink_to_fit();
        Block { status, bytes }
    }

    /// One whose bytes were kept elsewhere.
    #[must_use]
    pub fn of(status: Status, bytes: Vec<u8>) -> Block {
        Block { status, bytes }
    }

    /// Its bytes, to be kept elsewhere.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a field may be there: not one of HTTP/1's connection.
fn is_for_h2(name: Name<'_>) -> bool {
    !matches!(
        name,
        Name::Known(
            Known::Connection
                | Known::KeepAlive
                | Known::ProxyConnection
                | Known::TransferEncoding
                | Known::Upgrade
        )
    )
}

/// Appends fields that are for clients.
pub fn put_fields(fields: &Fields, out: &mut Vec<u8>) {
    for (name, value) in fields.for_clients().filter(|(name, _)| is_for_h2(*name)) {
        hpack::put_field(name, value, out);
    }
}

/// Appends fields of a stored head.
pub fn put_encoded(section: Section<'_>, out: &mut Vec<u8>) {
    for (name, value) in section.fields().filter(|(name, _)| is_for_h2(*name)) {
        hpack::put_field(name, value, out);
    }
}

/// Appends fields that are lines.
pub fn put_lines(lines: Lines<'_>, out: &mut Vec<u8>) {
    for (name, value) in lines {
        let name = match Known::find(name) {
            Some(known) => Name::Known(known),
            None => match str::from_utf8(name) {
                Ok(name) => Name::Other(name),
                Err(_) => continue,
            },
        };
        if is_for_h2(name) {
            hpack::put_field(name, value, out);
        }
    }
}

impl Server {
    /// Writes an interim response (1xx but 101); `lines` are its field lines.
    pub fn interim(
        &mut self,
        stream: StreamId,
        status: Status,
        lines: Lines<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(it) = self.http.streams.by_id(stream.0) else {
            return;
        };
        if it.output != Output::Head {
            return;
        }
        if status == Status::CONTINUE {
            it.expects = false;
        }
        let at = self.http.open_block(out);
        hpack::put_status(status, out);
        put_lines(lines, out);
        let frame_len_max = self.http.peer.frame_len_max as usize;
        frame::close_block(stream.0, false, at, frame_len_max, out);
    }

    /// Begins the head of a response at the end of `out`: status and date. Fields follow there, as [`hpack::put_field`],
    /// [`put_fields`] and [`put_encoded`] write them, and then [`Server::finish_head`]. `None`: nobody waits for it any more,
    /// and nothing may be written.
    pub fn begin_head(
        &mut self,
        stream: StreamId,
        status: Status,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> Option<Begun> {
        self.http
            .streams
            .by_id(stream.0)
            .filter(|it| it.output == Output::Head)?;
        let at = self.http.open_block(out);
        hpack::put_status(status, out);
        hpack::put_date(date, out);
        Some(Begun { stream, status, at })
    }

    /// Ends a head. Whether a body is to be sent; what is given of it where it is not, is left out.
    pub fn finish_head(&mut self, begun: Begun, len: BodyLen, out: &mut Vec<u8>) -> bool {
        let Begun { stream, status, at } = begun;
        let is_bodiless = status.is_bodiless();
        match len {
            BodyLen::Known(len) if !is_bodiless => {
                hpack::put_field_u64(Known::ContentLength, len, out);
            }
            // Where a body could be, its absence has to be said.
            BodyLen::None if !is_bodiless && !self.is_head(stream) => {
                hpack::put_field_u64(Known::ContentLength, 0, out);
            }
            _ => {}
        }
        match self.http.streams.find(stream.0) {
            Some(slot) => self.close_head(slot, status, len, at, out),
            None => false,
        }
    }

    /// Writes the head of a response; `lines` are its field lines. See [`Server::finish_head`].
    pub fn respond(
        &mut self,
        stream: StreamId,
        status: Status,
        lines: Lines<'_>,
        len: BodyLen,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(begun) = self.begin_head(stream, status, date, out) else {
            return false;
        };
        put_lines(lines, out);
        self.finish_head(begun, len, out)
    }

    /// Writes a head that lies ready, with this date and, if any, age in seconds, of a response with a body of this length.
    #[inline]
    pub fn respond_built(
        &mut self,
        stream: StreamId,
        block: &Block,
        len: u64,
        (date, age_s): (&[u8; 29], Option<u64>),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(slot) = self.http.streams.find(stream.0) else {
            return false;
        };
        if self.http.streams.get(slot).output != Output::Head {
            return false;
        }
        let at = self.http.open_block(out);
        let date_at = out.len() + hpack::date_offset(block.status);
        out.extend_from_slice(&block.bytes);
        if let Some(place) = out.get_mut(date_at..date_at + date.len()) {
            place.copy_from_slice(date);
        }
        if let Some(age_s) = age_s {
            hpack::put_field_u64(Known::Age, age_s, out);
        }
        self.close_head(slot, block.status, BodyLen::Known(len), at, out)
    }

    fn is_head(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_some_and(|stream| stream.is_head)
    }

    /// Decides how the body is sent, and ends the frame.
    #[inline]
    fn close_head(
        &mut self,
        slot: u16,
        status: Status,
        len: BodyLen,
        at: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let frame_len_max = self.http.peer.frame_len_max as usize;
        let it = self.http.streams.get(slot);
        let id = it.id;
        it.expects = false;
        let has_body = !it.is_head
            && !status.is_bodiless()
            && !matches!(len, BodyLen::None | BodyLen::Known(0));
        it.output = if has_body {
            Output::Body
        } else {
            Output::Ended
        };
        it.to_be_ready = match len {
            BodyLen::Known(len) => len,
            BodyLen::None | BodyLen::Unknown => UNKNOWN,
        };
        frame::close_block(id, !has_body, at, frame_len_max, out);
        if !has_body {
            self.http.settle(id, out);
        }
        has_body
    }

    /// Whether a client waits to be told that it may send the body.
    #[must_use]
    pub fn expects_continue(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_some_and(|it| it.expects && it.output == Output::Head && it.came == 0)
    }

    /// Whether a request has come whole.
    #[must_use]
    pub fn has_whole_request(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_none_or(|it| it.input == Input::Ended)
    }

    /// Whether the response to a request has begun, or nobody waits for it any more.
    #[must_use]
    pub fn is_answered(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_none_or(|it| it.output != Output::Head)
    }
}
