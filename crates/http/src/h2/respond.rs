//! Responses: their heads, as field blocks made here or long before. Read RFC 9113 §8.1 and §8.3.2.

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

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
    /// It stands for one that would have opened a tunnel to nowhere.
    is_refused: bool,
}

/// The head of a stored response as a field block: status, a date to be replaced, and fields. The same for all connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    status: Status,
    bytes: Box<[u8]>,
}

/// The block of a stored response, made when a client of HTTP/2 first asks for it: until then a null pointer.
#[derive(Debug, Default)]
pub struct LazyBlock(OnceBox<Block>);

impl LazyBlock {
    /// The block, made of these fields if it has not been. How long the body is stands among them.
    #[inline]
    pub fn of_lines(&self, status: Status, lines: Lines<'_>) -> &Block {
        let make = || Box::new(Block::new(status, lines.named(), BodyLen::None));
        self.0.get_or_init(make)
    }
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
        let bytes = bytes.into_boxed_slice();
        Block { status, bytes }
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
    for (name, value) in lines.named().filter(|(name, _)| is_for_h2(*name)) {
        hpack::put_field(name, value, out);
    }
}

impl Server {
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
        let it = self.http.streams.by_id(stream.0)?;
        if it.output != Output::Head {
            return None;
        }
        // To who asks for a tunnel, any 2xx says that there is one: what answers with a body does not know the protocol.
        let is_refused = it.is_tunnel && status.code() / 100 == 2;
        let status = match is_refused {
            true => Status::NOT_IMPLEMENTED,
            false => status,
        };
        let begun = self.begin(stream, status, date, out);
        Some(Begun {
            is_refused,
            ..begun
        })
    }

    fn begin(
        &mut self,
        stream: StreamId,
        status: Status,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> Begun {
        let at = self.http.open_block(out);
        hpack::put_status(status, out);
        hpack::put_date(date, out);
        Begun {
            stream,
            status,
            at,
            is_refused: false,
        }
    }

    /// Answers who asks for a tunnel that there is one: its bytes are the stream's body from now on, both ways. Whether that
    /// was asked, and somebody still waits for it. Fields that prove what HTTP/1.1's handshake proves are left out.
    pub fn open_tunnel(
        &mut self,
        stream: StreamId,
        fields: &Fields,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) -> bool {
        let it = self.http.streams.by_id(stream.0);
        if !it.is_some_and(|it| it.is_tunnel && it.output == Output::Head) {
            return false;
        }
        let begun = self.begin(stream, Status::OK, date, out);
        for (name, value) in fields.for_clients().filter(|(name, _)| is_for_h2(*name)) {
            if !name.as_str().eq_ignore_ascii_case("sec-websocket-accept") {
                hpack::put_field(name, value, out);
            }
        }
        self.finish_head(begun, BodyLen::Unknown, out)
    }

    /// Ends a head. Whether a body is to be sent; what is given of it where it is not, is left out.
    pub fn finish_head(&mut self, begun: Begun, len: BodyLen, out: &mut Vec<u8>) -> bool {
        let Begun {
            stream,
            status,
            at,
            is_refused,
        } = begun;
        let len = if is_refused { BodyLen::None } else { len };
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

    /// Writes a head that lies ready, with this date and further field lines, of a response with a body of this length.
    #[inline]
    pub fn respond_built(
        &mut self,
        stream: StreamId,
        block: &Block,
        len: u64,
        (date, lines): (&[u8; 29], Lines<'_>),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(slot) = self.http.streams.find(stream.0) else {
            return false;
        };
        if self.http.streams.get(slot).output != Output::Head {
            return false;
        }
        if self.http.streams.get(slot).is_tunnel && block.status.code() / 100 == 2 {
            let begun = self.begin_head(stream, block.status, date, out);
            return begun.is_some_and(|begun| self.finish_head(begun, BodyLen::None, out));
        }
        let at = self.http.open_block(out);
        let date_at = out.len() + hpack::date_offset(block.status);
        out.extend_from_slice(&block.bytes);
        if let Some(place) = out.get_mut(date_at..date_at + date.len()) {
            place.copy_from_slice(date);
        }
        put_lines(lines, out);
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
        if it.is_tunnel && status.code() / 100 != 2 && it.input == Input::Open {
            it.input = Input::Unwanted;
        }
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

    /// Whether all of the response to a request was written, with END_STREAM.
    #[must_use]
    pub fn is_response_complete(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_none_or(|it| it.output == Output::Ended)
    }
}
