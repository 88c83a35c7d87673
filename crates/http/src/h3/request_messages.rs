//! The field sections of request streams: requests and trailers. Read RFC 9114 §4.1 to §4.4, RFC 9204 §2.1.2.

use alloc::vec::Vec;

use super::error::{H3Error, H3ErrorCode};
use super::qpack::SectionPrefix;
use super::request_frames::{InputPart, SectionBytes, TOO_LONG, malformed};
use super::server::{H3Server, H3ServerEvent, stream_id};
use super::stream_input::InputPhase;
use super::{H3Turn, StreamId, StreamRequestHead};
use crate::field_section::{FieldSpans, MalformedRequest, RequestFieldSink, ResponseFieldSink};
use crate::fields::FieldLines;
use crate::method::Method;
use crate::refusal::RequestRefusal;
use crate::request::PartialRequest;
use crate::streams::{StreamInput, StreamOutput};

/// The number of glitches for which a request compensates: it may insert as many fields into the dynamic table.
const GLITCHES_PER_REQUEST: u32 = 32;

impl H3Server {
    /// The event for a part.
    #[inline]
    pub(super) fn event<'h, 'b>(
        &mut self,
        number: u32,
        slot: u16,
        part: InputPart<'b>,
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<StreamRequestHead<'b>>,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<H3ServerEvent<'h, 'b>>, H3Error> {
        let stream = StreamId(number);
        let (section, is_last) = match part {
            InputPart::Nothing => return Ok(None),
            InputPart::Data(data) => return Ok(Some(H3ServerEvent::Data { stream, data })),
            InputPart::End => {
                let trailers = FieldLines::NONE;
                return Ok(Some(H3ServerEvent::End { stream, trailers }));
            }
            InputPart::Cut => return Ok(Some(H3ServerEvent::Cut { stream })),
            InputPart::Refused(refusal) => {
                return Ok(Some(H3ServerEvent::Refused {
                    stream,
                    refusal,
                    request: None,
                }));
            }
            InputPart::Section { section, is_last } => (section, is_last),
        };
        let prefix = self
            .decoder
            .prefix(section.bytes())
            .map_err(H3Error::section)?;
        if self.decoder.is_blocked(&prefix) {
            let required = prefix.required;
            self.block(slot, required, section, turn)?;
            return Ok(None);
        }
        match self.streams.get(slot).input {
            StreamInput::Head => self.request(slot, &prefix, is_last, text, head_slot, turn),
            _ => self.trailers(slot, &prefix, text, turn),
        }
    }

    /// Keeps a field section until its entries of the dynamic table arrive (RFC 9204 §2.1.2).
    #[cold]
    fn block(
        &mut self,
        slot: u16,
        required: u64,
        section: SectionBytes<'_>,
        turn: &mut H3Turn<'_>,
    ) -> Result<(), H3Error> {
        if self.blocked.len() >= usize::from(turn.settings.blocked_streams_max) {
            let code = H3ErrorCode::QPACK_DECOMPRESSION_FAILED;
            return Err(H3Error::connection(
                code,
                "more blocked streams than allowed",
            ));
        }
        // The copy may outlive the input of the caller.
        let section = section.into_vec();
        self.kept_len += section.len();
        let stream = self.streams.get(slot);
        stream.transport.section = section;
        stream.transport.phase = InputPhase::Blocked { required };
        self.blocked.push(stream.id);
        match self.kept_len > turn.settings.kept_len_max() {
            true => Err(TOO_LONG),
            false => Ok(()),
        }
    }

    /// A stream with a field section that no longer waits for the dynamic table: `H3Server::next` is to be called with
    /// its rest. To be called after bytes of other streams were processed.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        if self.blocked.is_empty() {
            return None;
        }
        // An abort removes the stream from the list, so each entry has a blocked section.
        let insert_count = self.decoder.insert_count();
        let streams = &mut self.streams;
        let is_ready = |number: &u32| {
            let stream = streams.by_id(*number);
            let phase = stream.map(|stream| stream.transport.phase);
            !matches!(phase, Some(InputPhase::Blocked { required }) if required > insert_count)
        };
        let at = self.blocked.iter().position(is_ready)?;
        Some(stream_id(self.blocked.remove(at)))
    }

    /// Builds a request from its field section.
    #[inline]
    fn request<'h, 'b>(
        &mut self,
        slot: u16,
        prefix: &SectionPrefix<'_>,
        is_end: bool,
        text: &'b mut Vec<u8>,
        head_slot: &'h mut Option<StreamRequestHead<'b>>,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<H3ServerEvent<'h, 'b>>, H3Error> {
        self.check_admission(slot, turn)?;
        let number = self.streams.get(slot).id;
        let rules = turn.settings.rules();
        let mut spans = FieldSpans::default();
        let mut fields = RequestFieldSink::new(text, rules, &mut spans);
        self.decoder
            .decode(prefix, &mut fields)
            .map_err(H3Error::section)?;
        self.decoder
            .put_acknowledgement(stream_id(number), prefix.required, turn.decoder);
        self.glitch_credit = self.glitch_credit.saturating_add(GLITCHES_PER_REQUEST);
        let method = match fields.finish(is_end) {
            Ok(method) => method,
            Err(MalformedRequest::Refused(refusal)) => {
                return Ok(Some(self.refused(
                    slot,
                    is_end,
                    refusal,
                    spans.partial(text),
                )));
            }
            Err(MalformedRequest::Malformed(reason)) => return Err(malformed(reason)),
        };
        let text: &'b [u8] = text;
        let head = match spans.head(text, StreamId(number), method, is_end, rules) {
            Ok(head) => head_slot.insert(head),
            // RFC 9114 §4.3.1: without an authority, a request is malformed.
            Err(RequestRefusal::HostMissing) => return Err(malformed("the authority is missing")),
            Err(refusal) => {
                return Ok(Some(self.refused(
                    slot,
                    is_end,
                    refusal,
                    spans.partial(text),
                )));
            }
        };
        let stream = self.streams.get(slot);
        // PRIORITY_UPDATE overrides the Priority field of the request (RFC 9218 §7).
        stream.priority = match self.early_priorities.take(number) {
            Some(priority) => priority,
            None => spans.priority,
        };
        stream.transport.has_request = true;
        stream.input = if is_end {
            StreamInput::Ended
        } else {
            StreamInput::Open
        };
        stream.output = StreamOutput::Head;
        let is_connect = method == Method::Connect || head.protocol.is_some();
        stream.begin_request(method, is_connect, head.expect_continue, spans.content_len);
        Ok(Some(H3ServerEvent::Request(head)))
    }

    /// Rejects a request that the client may retry, as it was not processed (RFC 9114 §5.2, §4.1.1).
    pub(super) fn check_admission(&mut self, slot: u16, turn: &H3Turn<'_>) -> Result<(), H3Error> {
        let number = self.streams.get(slot).id;
        if number >= self.rejected_from
            || self.streams.len() > usize::from(turn.settings.streams_max)
        {
            let code = H3ErrorCode::REQUEST_REJECTED;
            return Err(H3Error::stream(code, "a request beyond a limit"));
        }
        Ok(())
    }

    /// Prepares the response to a refused request. The response to a HEAD has no content (RFC 9110 §9.3.2).
    fn refused<'h, 'b>(
        &mut self,
        slot: u16,
        is_end: bool,
        refusal: RequestRefusal,
        request: PartialRequest<'b>,
    ) -> H3ServerEvent<'h, 'b> {
        let stream = self.streams.get(slot);
        stream.transport.has_request = true;
        stream.input = if is_end {
            StreamInput::Ended
        } else {
            StreamInput::Unwanted
        };
        stream.output = StreamOutput::Head;
        stream.is_head = request.method == b"HEAD";
        H3ServerEvent::Refused {
            stream: StreamId(stream.id),
            refusal,
            request: Some(request),
        }
    }

    /// Processes the trailers of a request (RFC 9114 §4.1).
    fn trailers<'h, 'b>(
        &mut self,
        slot: u16,
        prefix: &SectionPrefix<'_>,
        text: &'b mut Vec<u8>,
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<H3ServerEvent<'h, 'b>>, H3Error> {
        let mut fields = ResponseFieldSink::trailers(text, turn.settings.limits.trailers_len_max);
        self.decoder
            .decode(prefix, &mut fields)
            .map_err(H3Error::section)?;
        // Also a section with a fault is acknowledged, since it was decoded.
        let fault = fields.section_fault();
        let stream = self.streams.get(slot);
        let number = stream.id;
        let is_short = stream.is_short();
        self.decoder
            .put_acknowledgement(stream_id(number), prefix.required, turn.decoder);
        if let Some(reason) = fault {
            return Err(malformed(reason));
        }
        if is_short {
            return Err(malformed("less content than Content-Length announces"));
        }
        let text: &'b [u8] = text;
        Ok(self.input_ended(slot).then(|| H3ServerEvent::End {
            stream: StreamId(number),
            trailers: FieldLines::new(text),
        }))
    }
}
