//! The frames of request streams. Read RFC 9114 §4.1, §4.4 and §7.2.

use alloc::vec::Vec;

use super::error::{H3Error, H3ErrorCode};
use super::frames::{H3FrameHead, kind};
use super::server::{H3Server, H3ServerEvent, stream_id};
use super::stream_input::InputPhase;
use super::{H3Turn, StreamBytes, StreamRequestHead};
use crate::h1::InputStep;
use crate::refusal::RequestRefusal;
use crate::streams::{ContentOutcome, StreamInput, StreamOutput};

/// A part of a request stream that is complete.
pub(super) enum InputPart<'b> {
    /// More input is needed.
    Nothing,
    Section {
        section: SectionBytes<'b>,
        /// The stream ends after the section.
        is_last: bool,
    },
    Data(&'b [u8]),
    End,
    /// The end of a body that is shorter than announced.
    Cut,
    Refused(RequestRefusal),
}

/// A field section: a slice of the input, or gathered from several parts.
pub(super) enum SectionBytes<'b> {
    Whole(&'b [u8]),
    Gathered(Vec<u8>),
}

impl SectionBytes<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            SectionBytes::Whole(bytes) => bytes,
            SectionBytes::Gathered(bytes) => bytes,
        }
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            SectionBytes::Whole(bytes) => bytes.to_vec(),
            SectionBytes::Gathered(bytes) => bytes,
        }
    }
}

impl H3Server {
    #[inline]
    pub(super) fn request_input<'h, 'b>(
        &mut self,
        stream_id: u64,
        input: StreamBytes<'b>,
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<StreamRequestHead<'b>>,
        turn: &mut H3Turn<'_>,
    ) -> Result<InputStep<H3ServerEvent<'h, 'b>>, H3Error> {
        let number = self.open_request(stream_id, turn)?;
        // The input of a stream that has ended is ignored: it may arrive before the client learns of the end.
        let Some(slot) = self.streams.find(number) else {
            return Ok(InputStep::used(input.bytes.len()));
        };
        if self.streams.get(slot).is_dead {
            return Ok(InputStep::used(input.bytes.len()));
        }
        let mut used = 0;
        let result = self
            .advance(slot, input, &mut used, turn)
            .and_then(|part| self.event(number, slot, part, text, head_slot, turn));
        match result {
            Ok(event) => Ok(InputStep { used, event }),
            // After a stream error, the rest of the input is of no use.
            Err(fault) => Ok(InputStep {
                used: input.bytes.len(),
                event: Some(self.fail_stream(number, fault, turn)?),
            }),
        }
    }

    /// Processes frames until a part is complete. Adds the bytes consumed to `used`.
    fn advance<'b>(
        &mut self,
        slot: u16,
        input: StreamBytes<'b>,
        used: &mut usize,
        turn: &mut H3Turn<'_>,
    ) -> Result<InputPart<'b>, H3Error> {
        loop {
            let rest = input.bytes.get(*used..).unwrap_or_default();
            let stream = self.streams.get(slot);
            match stream.transport.phase {
                InputPhase::FrameHead if rest.is_empty() => break,
                InputPhase::FrameHead => {
                    let (len, head) = stream.transport.head.read(rest);
                    *used += len;
                    if let Some(head) = head
                        && let Some(refusal) = self.begin_frame(slot, head, turn)?
                    {
                        return Ok(InputPart::Refused(refusal));
                    }
                }
                InputPhase::Section { remaining } => {
                    let part = rest.get(..remaining).unwrap_or(rest);
                    *used += part.len();
                    match self.extend_section(slot, part, remaining, turn)? {
                        Some(section) => {
                            let is_last = input.is_end && *used == input.bytes.len();
                            return Ok(InputPart::Section { section, is_last });
                        }
                        None => break,
                    }
                }
                InputPhase::Blocked { required } => {
                    // The caller keeps the rest of the input.
                    if required > self.decoder.insert_count() {
                        return Ok(InputPart::Nothing);
                    }
                    let section = self.take_section(slot);
                    let is_last = input.is_end && rest.is_empty();
                    return Ok(InputPart::Section { section, is_last });
                }
                InputPhase::Data { remaining } | InputPhase::Skipped { remaining } => {
                    // DATA is passed on in parts, since a frame may have any length.
                    let part = crate::body::take(remaining, rest);
                    if part.is_empty() {
                        break;
                    }
                    *used += part.len();
                    if let Some(data) = self.pass_on(slot, part, remaining) {
                        return Ok(InputPart::Data(data));
                    }
                }
            }
        }
        match input.is_end {
            true => self.end_input(slot),
            false => Ok(InputPart::Nothing),
        }
    }

    /// Adds a part of a field section. Returns the section once it is complete.
    #[inline]
    fn extend_section<'b>(
        &mut self,
        slot: u16,
        part: &'b [u8],
        remaining: usize,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<SectionBytes<'b>>, H3Error> {
        let input = &mut self.streams.get(slot).transport;
        let remaining = remaining - part.len();
        // Most sections arrive whole, and are decoded in place.
        if remaining == 0 && input.section.is_empty() {
            input.phase = InputPhase::FrameHead;
            return Ok(Some(SectionBytes::Whole(part)));
        }
        self.kept_len += part.len();
        input.section.extend_from_slice(part);
        input.phase = InputPhase::Section { remaining };
        if remaining == 0 {
            return Ok(Some(self.take_section(slot)));
        }
        // Each stream may keep a section, so their sum has a limit, too.
        match self.kept_len > turn.settings.kept_len_max() {
            true => Err(TOO_LONG),
            false => Ok(None),
        }
    }

    /// The kept section, which is complete.
    fn take_section<'b>(&mut self, slot: u16) -> SectionBytes<'b> {
        let input = &mut self.streams.get(slot).transport;
        input.phase = InputPhase::FrameHead;
        let section = core::mem::take(&mut input.section);
        self.kept_len -= section.len();
        SectionBytes::Gathered(section)
    }

    /// Consumes a part of the payload of DATA or an unknown frame. Returns it if it belongs to a wanted body.
    #[inline]
    fn pass_on<'b>(&mut self, slot: u16, part: &'b [u8], remaining: u64) -> Option<&'b [u8]> {
        let stream = self.streams.get(slot);
        let is_data = matches!(stream.transport.phase, InputPhase::Data { .. });
        let remaining = remaining - part.len() as u64;
        stream.transport.phase = match remaining {
            0 => InputPhase::FrameHead,
            remaining if is_data => InputPhase::Data { remaining },
            remaining => InputPhase::Skipped { remaining },
        };
        (is_data && stream.input == StreamInput::Open).then_some(part)
    }

    /// Checks whether a frame may begin now (RFC 9114 §4.1).
    #[inline]
    fn begin_frame(
        &mut self,
        slot: u16,
        head: H3FrameHead,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<RequestRefusal>, H3Error> {
        let stream = self.streams.get(slot);
        match head.kind {
            kind::HEADERS => {
                match stream.input {
                    StreamInput::Ended => return Err(AFTER_TRAILERS),
                    // RFC 9114 §4.4: after the head of a CONNECT, only DATA is permitted.
                    StreamInput::Open | StreamInput::Unwanted if stream.is_tunnel => {
                        return Err(H3Error::unexpected("HEADERS on the stream of a tunnel"));
                    }
                    _ => {}
                }
                if head.len > turn.settings.section_len_max as u64 {
                    return self.refuse_section(slot, head.len, turn).map(Some);
                }
                let remaining = head.len as usize;
                stream.transport.phase = InputPhase::Section { remaining };
                Ok(None)
            }
            kind::DATA => self.begin_data(slot, head.len, turn),
            _ if head.is_unknown() => {
                if head.len > 0 {
                    let remaining = head.len;
                    stream.transport.phase = InputPhase::Skipped { remaining };
                }
                // RFC 9114 §9: unknown types are ignored, but each costs time.
                self.glitch(1, turn)?;
                Ok(None)
            }
            _ => Err(H3Error::unexpected(
                "a frame that request streams can't have",
            )),
        }
    }

    /// Skips a field section that is too long: the response to a head is 431, trailers end the stream.
    #[cold]
    fn refuse_section(
        &mut self,
        slot: u16,
        len: u64,
        turn: &mut H3Turn<'_>,
    ) -> Result<RequestRefusal, H3Error> {
        if self.streams.get(slot).input != StreamInput::Head {
            return Err(TOO_LONG);
        }
        self.check_admission(slot, turn)?;
        let stream = self.streams.get(slot);
        let number = stream.id;
        stream.transport.phase = InputPhase::Skipped { remaining: len };
        stream.transport.has_request = true;
        stream.input = StreamInput::Unwanted;
        stream.output = StreamOutput::Head;
        // The client's table may wait for the acknowledgement of a section that is not decoded (RFC 9204 §2.2.2.2).
        self.decoder
            .put_cancellation(stream_id(number), turn.decoder);
        Ok(RequestRefusal::HeadTooLarge)
    }

    fn begin_data(
        &mut self,
        slot: u16,
        len: u64,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<RequestRefusal>, H3Error> {
        let stream = self.streams.get(slot);
        match stream.input {
            StreamInput::Head => return Err(H3Error::unexpected("DATA before HEADERS")),
            StreamInput::Ended => return Err(AFTER_TRAILERS),
            StreamInput::Open | StreamInput::Unwanted => {}
        }
        if len == 0 {
            // Frames without content use no window of QUIC, so they are bounded as glitches.
            self.glitch(1, turn)?;
            return Ok(None);
        }
        stream.transport.phase = InputPhase::Data { remaining: len };
        self.glitch_credit = self.glitch_credit.saturating_add(1);
        match stream.take_content(len, turn.settings.limits.body_len_max) {
            ContentOutcome::Accepted | ContentOutcome::Dropped => Ok(None),
            ContentOutcome::TooLarge => {
                stream.input = StreamInput::Unwanted;
                Ok(Some(RequestRefusal::BodyTooLarge))
            }
            // RFC 9114 §4.1.2: more content than Content-Length.
            ContentOutcome::TooLong => Err(malformed("more content than Content-Length announces")),
            // As over HTTP/2: no handler is chosen yet.
            ContentOutcome::Early => Err(malformed("DATA before the response to CONNECT")),
        }
    }

    /// Handles the end of a stream.
    fn end_input<'b>(&mut self, slot: u16) -> Result<InputPart<'b>, H3Error> {
        let stream = self.streams.get(slot);
        if !stream.transport.is_between_frames() {
            // RFC 9114 §7.1.
            return Err(H3Error::layout("a stream ends within a frame"));
        }
        match stream.input {
            // A request or trailers were the last frame.
            StreamInput::Ended => return Ok(InputPart::Nothing),
            // RFC 9114 §4.1.
            StreamInput::Head => {
                let code = H3ErrorCode::REQUEST_INCOMPLETE;
                return Err(H3Error::stream(code, "a stream ends without a request"));
            }
            StreamInput::Open | StreamInput::Unwanted if stream.is_short() => {
                if stream.output == StreamOutput::Head {
                    return Err(malformed("less content than Content-Length announces"));
                }
                // Clients such as curl end an upload early if it gets an early response. A reset of the stream would
                // discard the rest of this response.
                self.input_ended(slot);
                return Ok(InputPart::Cut);
            }
            StreamInput::Open | StreamInput::Unwanted => {}
        }
        Ok(match self.input_ended(slot) {
            true => InputPart::End,
            false => InputPart::Nothing,
        })
    }

    /// Records the end of a message. Returns whether the caller wants to know of it.
    pub(super) fn input_ended(&mut self, slot: u16) -> bool {
        let stream = self.streams.get(slot);
        let was_open = stream.input == StreamInput::Open;
        stream.input = StreamInput::Ended;
        stream.expects_continue = false;
        let number = stream.id;
        self.remove_if_complete(number);
        was_open
    }
}

/// RFC 9114 §4.1.2.
pub(super) const fn malformed(reason: &'static str) -> H3Error {
    H3Error::stream(H3ErrorCode::MESSAGE_ERROR, reason)
}

const AFTER_TRAILERS: H3Error = H3Error::unexpected("a frame after the end of the message");
pub(super) const TOO_LONG: H3Error = H3Error::stream(
    H3ErrorCode::EXCESSIVE_LOAD,
    "a field section that is too long",
);
