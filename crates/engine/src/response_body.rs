//! Bodies of responses: bytes in the output buffer, followed by parts from memory, from a file or from a source that
//! still generates them.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lowroad_http::fields::ResponseFields;
use lowroad_http::h1::{H1Server, put_fields};

use crate::arena::ArenaBlock;
use crate::buffer::{FramedPart, SendBuffer};
use crate::file::OpenFile;
use crate::response_pace::{PacedBody, ResponsePace};
use crate::shared_body::SharedBodyReader;
use crate::stream::{BodyReceiver, StreamItem};
use crate::tunnel::TunnelReturn;

/// A part of a response that is sent after the bytes of [`OutputBuffer`].
pub enum BodyPart {
    /// Bytes, of this response or shared with others.
    Bytes(Bytes),
    /// A range of a block in memory.
    Block {
        /// The block, kept while it is sent.
        block: ArenaBlock,
        /// The unsent range.
        range: Range<usize>,
    },
    /// A range of a file.
    File {
        /// The file, which was opened before the response's head was written.
        file: Arc<OpenFile>,
        /// The unsent range.
        range: Range<u64>,
    },
    /// Bytes that are still being generated; always the last part.
    Stream(StreamedBody),
    /// Parts that are sent with a limited rate.
    Paced(Box<PacedBody>),
}

/// A block as the owner of bytes.
struct BlockBytes(ArenaBlock);

impl AsRef<[u8]> for BlockBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The source of a streamed body.
pub enum BodySource {
    /// A body that is generated for this response.
    Own(BodyReceiver),
    /// A body that is shared with other readers.
    Shared(SharedBodyReader),
}

impl BodySource {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        match self {
            BodySource::Own(from) => from.poll_next(context),
            BodySource::Shared(from) => from.poll_next(context),
        }
    }

    fn take_trailers(&self) -> Option<Box<ResponseFields>> {
        match self {
            BodySource::Own(from) => from.take_trailers(),
            BodySource::Shared(_) => None,
        }
    }

    /// Whether bytes are available immediately.
    fn has_bytes(&self) -> bool {
        match self {
            BodySource::Own(from) => from.has_bytes(),
            BodySource::Shared(from) => from.has_bytes(),
        }
    }
}

impl From<BodyReceiver> for BodySource {
    fn from(receiver: BodyReceiver) -> BodySource {
        BodySource::Own(receiver)
    }
}

impl From<SharedBodyReader> for BodySource {
    fn from(reader: SharedBodyReader) -> BodySource {
        BodySource::Shared(reader)
    }
}

/// A body that is sent while it is generated.
pub struct StreamedBody {
    source: BodySource,
    /// Bytes that can be sent now.
    framed: FramedPart,
    is_ended: bool,
    /// The limit of its rate.
    pub(crate) pace: Option<Box<ResponsePace>>,
}

/// The result of filling a streamed body's buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FillOutcome {
    /// There are bytes to send.
    Ready,
    /// There are no bytes yet.
    Pending,
    /// The body is complete.
    Ended,
    /// The body ended before it was complete.
    Cut,
}

impl StreamedBody {
    /// A body from this source.
    pub fn new(source: impl Into<BodySource>) -> StreamedBody {
        StreamedBody {
            source: source.into(),
            framed: FramedPart::default(),
            is_ended: false,
            pace: None,
        }
    }

    /// The time before which the limit allows no more bytes.
    pub(crate) fn paced_until(&mut self, now_ms: u64) -> Option<u64> {
        // The bytes were counted when they arrived.
        let pace = self.pace.as_mut().filter(|_| self.framed.is_empty())?;
        pace.allowance(now_ms).err()
    }

    /// Counts bytes against the limit.
    pub(crate) fn record_paced(&mut self, len: usize) {
        if let Some(pace) = &mut self.pace {
            pace.record(len as u64);
        }
    }

    /// The next item, without framing; if there is none yet, the waker is called later.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        self.source.poll_next(context)
    }

    /// The trailers, once the body has ended.
    pub(crate) fn take_trailers(&self) -> Option<Box<ResponseFields>> {
        self.source.take_trailers()
    }

    /// Whether bytes can be sent immediately.
    fn has_bytes(&self) -> bool {
        !self.framed.is_empty() || self.source.has_bytes()
    }

    /// Fills the buffer; if there are no bytes yet, the waker is called later. `http` is the connection's protocol.
    pub(crate) fn fill(&mut self, http: &mut H1Server, context: &mut Context<'_>) -> FillOutcome {
        if !self.framed.is_empty() {
            return FillOutcome::Ready;
        }
        if self.is_ended {
            return FillOutcome::Ended;
        }
        let framed = &mut self.framed;
        // The framing of the previous chunk was sent; its memory is reused.
        framed.prefix.clear();
        framed.prefix_sent = 0;
        match self.source.poll_next(context) {
            Poll::Pending => FillOutcome::Pending,
            Poll::Ready(StreamItem::Bytes(bytes)) => {
                // More bytes than Content-Length announced would be parsed as the next response.
                if http.data(bytes.len() as u64, &mut framed.prefix).is_err() {
                    return FillOutcome::Cut;
                }
                let len = bytes.len();
                framed.data = bytes;
                framed.suffix = http.data_end();
                self.record_paced(len);
                FillOutcome::Ready
            }
            Poll::Ready(StreamItem::End) => {
                self.is_ended = true;
                let end = match self.source.take_trailers() {
                    None => http.end(b"", &mut framed.prefix),
                    Some(trailers) => {
                        let mut lines = Vec::new();
                        put_fields(&trailers, &mut lines);
                        http.end(&lines, &mut framed.prefix)
                    }
                };
                match end {
                    Ok(()) if framed.prefix.is_empty() => FillOutcome::Ended,
                    Ok(()) => FillOutcome::Ready,
                    Err(_) => FillOutcome::Cut,
                }
            }
            // The end of the body must not be announced: the client has to see that it is incomplete.
            Poll::Ready(StreamItem::Cut) => FillOutcome::Cut,
        }
    }
}

impl BodyPart {
    /// Whether nothing remains to be sent. The end of a streamed body is not known before it is sent.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            BodyPart::Bytes(bytes) => bytes.is_empty(),
            BodyPart::Block { range, .. } => range.is_empty(),
            BodyPart::File { range, .. } => range.is_empty(),
            // The end is found when the body is polled.
            BodyPart::Stream(_) => false,
            BodyPart::Paced(paced) => paced.is_empty(),
        }
    }

    /// The limit of its rate in bytes per second.
    pub(crate) fn own_rate(&self) -> Option<u64> {
        match self {
            BodyPart::Paced(paced) => Some(paced.bytes_per_s()),
            BodyPart::Stream(streamed) => streamed.pace.as_ref().map(|it| it.bytes_per_s()),
            BodyPart::Bytes(_) | BodyPart::Block { .. } | BodyPart::File { .. } => None,
        }
    }

    /// Whether its end is not known before it is sent.
    pub(crate) fn is_streamed(&self) -> bool {
        match self {
            BodyPart::Stream(_) => true,
            BodyPart::Paced(paced) => paced.is_streamed(),
            BodyPart::Bytes(_) | BodyPart::Block { .. } | BodyPart::File { .. } => false,
        }
    }

    /// The length of bytes in memory or in a file.
    pub(crate) fn len(&self) -> u64 {
        match self {
            BodyPart::File { range, .. } => range.end - range.start,
            part => part.memory_len(),
        }
    }

    /// Splits off the first bytes in memory or in a file, at most `len`.
    pub(crate) fn split_start(&mut self, len: u64) -> BodyPart {
        let len = len.min(self.len());
        match self {
            BodyPart::Block { block, range } => {
                let start = range.start;
                range.start += len as usize;
                BodyPart::Block {
                    block: block.clone(),
                    range: start..range.start,
                }
            }
            BodyPart::File { file, range } => {
                let start = range.start;
                range.start += len;
                BodyPart::File {
                    file: file.clone(),
                    range: start..range.start,
                }
            }
            BodyPart::Bytes(bytes) => BodyPart::Bytes(bytes.split_to(len as usize)),
            BodyPart::Stream(_) | BodyPart::Paced(_) => BodyPart::Bytes(Bytes::new()),
        }
    }

    /// The length of the bytes in memory.
    pub(crate) fn memory_len(&self) -> u64 {
        match self {
            BodyPart::Bytes(bytes) => bytes.len() as u64,
            BodyPart::Block { range, .. } => range.len() as u64,
            BodyPart::File { .. } | BodyPart::Stream(_) | BodyPart::Paced(_) => 0,
        }
    }

    /// The bytes in memory, which stay where they are.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            BodyPart::Bytes(bytes) => bytes,
            BodyPart::Block { block, range } => Bytes::from_owner(BlockBytes(block)).slice(range),
            BodyPart::File { .. } | BodyPart::Stream(_) | BodyPart::Paced(_) => Bytes::new(),
        }
    }

    /// Moves the first bytes in memory, at most `len`, to `out`. Returns their number.
    pub(crate) fn copy_start(&mut self, len: usize, out: &mut Vec<u8>) -> usize {
        match self {
            BodyPart::Bytes(bytes) => {
                let len = len.min(bytes.len());
                out.extend_from_slice(&bytes[..len]);
                bytes.advance(len);
                len
            }
            BodyPart::Block { block, range } => {
                let len = len.min(range.len());
                out.extend_from_slice(&block[range.start..range.start + len]);
                range.start += len;
                len
            }
            BodyPart::File { .. } | BodyPart::Stream(_) | BodyPart::Paced(_) => 0,
        }
    }

    /// Whether the part can be sent immediately, so that earlier bytes may be sent together with it.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            BodyPart::Stream(streamed) => streamed.pace.is_none() && streamed.has_bytes(),
            BodyPart::Paced(_) => false,
            BodyPart::Bytes(_) | BodyPart::Block { .. } | BodyPart::File { .. } => true,
        }
    }

    /// Takes the bytes in memory, to be sent. `None` for a file.
    pub(crate) fn take_send_buffer(&mut self) -> Option<SendBuffer> {
        match self {
            BodyPart::Bytes(bytes) => Some(SendBuffer::Bytes(std::mem::take(bytes))),
            BodyPart::Stream(streamed) => {
                Some(SendBuffer::Framed(std::mem::take(&mut streamed.framed)))
            }
            BodyPart::File { .. } | BodyPart::Paced(_) => None,
            BodyPart::Block { .. } => {
                match std::mem::replace(self, BodyPart::Bytes(Bytes::new())) {
                    BodyPart::Block { block, range } => Some(SendBuffer::Block { block, range }),
                    _ => None,
                }
            }
        }
    }

    /// Puts a buffer back without its first `sent` bytes, which have been sent.
    pub(crate) fn return_send_buffer(&mut self, buffer: SendBuffer, sent: usize) {
        match (self, buffer) {
            (BodyPart::Stream(streamed), SendBuffer::Framed(mut framed)) => {
                framed.advance(sent);
                streamed.framed = framed;
            }
            (part, SendBuffer::Block { block, mut range }) => {
                range.start += sent;
                *part = BodyPart::Block { block, range };
            }
            (part, SendBuffer::Bytes(mut bytes)) => {
                bytes.advance(sent);
                *part = BodyPart::Bytes(bytes);
            }
            (part, SendBuffer::Vec(bytes)) => {
                let mut bytes = Bytes::from(bytes);
                bytes.advance(sent);
                *part = BodyPart::Bytes(bytes);
            }
            (_, SendBuffer::Headed { .. } | SendBuffer::Framed(_)) => {
                debug_assert!(false, "it is put back where it was");
            }
        }
    }
}

/// The buffer for responses: one per worker, reused.
#[derive(Default)]
pub(crate) struct OutputBuffer {
    /// Heads and small bodies, of several responses if requests are pipelined.
    pub bytes: Vec<u8>,
    /// Copied bodies of responses on streams that are not framed yet.
    pub body: Vec<u8>,
    /// The parts after `bytes`, in order.
    pub parts: Vec<BodyPart>,
    /// The length of the current response's body within `bytes`; for the log.
    pub body_in_bytes: u64,
    /// The direction from the client of a tunnel, after an upgrade; the direction to the client is the last of `parts`.
    pub tunnel_return: Option<Box<TunnelReturn>>,
    /// The exchange on an HTTP/3 stream ends without a response.
    pub is_abandoned: bool,
}

impl OutputBuffer {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }

    /// Takes the bytes that can be sent with one system call, including a block that follows them. The flag: more
    /// follows immediately.
    #[inline]
    pub fn take_send_buffer(&mut self) -> (SendBuffer, bool) {
        let bytes = std::mem::take(&mut self.bytes);
        match self.parts.is_empty() {
            true => (SendBuffer::Vec(bytes), false),
            false => self.take_send_buffer_with_block(bytes),
        }
    }

    fn take_send_buffer_with_block(&mut self, bytes: Vec<u8>) -> (SendBuffer, bool) {
        let is_ready = |part: Option<&BodyPart>| part.is_some_and(BodyPart::is_ready);
        if !matches!(self.parts[0], BodyPart::Block { .. }) {
            return (SendBuffer::Vec(bytes), is_ready(self.parts.first()));
        }
        let more = is_ready(self.parts.get(1));
        match self.parts[0].take_send_buffer() {
            Some(SendBuffer::Block { block, range }) => {
                // Head and block are sent in one system call.
                let head = bytes;
                (SendBuffer::Headed { head, block, range }, more)
            }
            _ => (SendBuffer::Vec(bytes), more),
        }
    }

    /// Puts a buffer back without its first `sent` bytes, which have been sent.
    #[inline]
    pub fn return_send_buffer(&mut self, buffer: SendBuffer, sent: usize) {
        match buffer {
            SendBuffer::Vec(bytes) => self.return_bytes(bytes, sent),
            buffer => self.return_block(buffer, sent),
        }
    }

    fn return_block(&mut self, buffer: SendBuffer, sent: usize) {
        let SendBuffer::Headed {
            head,
            block,
            mut range,
        } = buffer
        else {
            return debug_assert!(false, "it is what was taken out");
        };
        range.start += sent.saturating_sub(head.len());
        self.return_bytes(head, sent);
        if range.is_empty() {
            self.parts.remove(0);
        } else {
            self.parts[0] = BodyPart::Block { block, range };
        }
    }

    #[inline]
    fn return_bytes(&mut self, bytes: Vec<u8>, sent: usize) {
        self.bytes = bytes;
        match sent < self.bytes.len() {
            true => drop(self.bytes.drain(..sent)),
            // The buffer is cleared, not replaced, so that its memory is reused.
            false => self.bytes.clear(),
        }
    }
}
