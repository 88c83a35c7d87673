//! The unidirectional streams of the client: their types, and the streams of QPACK. The control stream is in `control`.
//! Read RFC 9114 §6.2, RFC 9204 §4.2.

use alloc::vec::Vec;

use super::control::ControlInput;
use super::error::{H3Error, H3ErrorCode};
use super::frames::stream_type;
use super::qpack::check_decoder_stream;
use super::server::{CLOSED_CRITICAL, H3Server, H3ServerEvent};
use super::{H3Turn, StreamBytes, StreamId, varint};
use crate::h1::InputStep;

/// The maximum number of streams before the arrival of their types.
const PENDING_MAX: usize = 16;

/// The unidirectional streams of the client.
#[derive(Debug, Default)]
pub(super) struct ClientStreams {
    control: Option<u64>,
    encoder: Option<u64>,
    decoder: Option<u64>,
    /// The streams that have begun without their type.
    pending: Vec<PendingStream>,
    /// The number of streams that have begun.
    begun: u64,
    pub(super) control_input: ControlInput,
    /// The received part of an instruction on the decoder stream.
    decoder_part: Vec<u8>,
}

/// The received part of a stream type.
#[derive(Clone, Copy, Debug)]
struct PendingStream {
    stream_id: u64,
    bytes: [u8; 8],
    len: u8,
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamRole {
    Control,
    Encoder,
    Decoder,
    /// The type has not arrived.
    Pending,
    /// Its input is ignored.
    Ignored,
}

impl ClientStreams {
    /// The role of a stream. Streams with lower identifiers begin with it (RFC 9000 §2.1).
    fn role(&mut self, stream_id: u64) -> Result<StreamRole, H3Error> {
        let id = Some(stream_id);
        // The encoder stream has most of the bytes.
        if id == self.encoder {
            return Ok(StreamRole::Encoder);
        }
        if id == self.control {
            return Ok(StreamRole::Control);
        }
        if id == self.decoder {
            return Ok(StreamRole::Decoder);
        }
        while self.begun <= stream_id >> 2 {
            if self.pending.len() == PENDING_MAX {
                return Err(H3Error::load("too many streams without a type"));
            }
            // Packets may arrive out of order, so a lower stream may begin later.
            self.pending.push(PendingStream {
                stream_id: self.begun << 2 | 2,
                bytes: [0; 8],
                len: 0,
            });
            self.begun += 1;
        }
        Ok(match self.pending_at(stream_id) {
            Some(_) => StreamRole::Pending,
            None => StreamRole::Ignored,
        })
    }

    fn pending_at(&self, stream_id: u64) -> Option<usize> {
        let mut pending = self.pending.iter();
        pending.position(|it| it.stream_id == stream_id)
    }

    /// Handles the abort of a stream by the client.
    pub(super) fn abort(&mut self, stream_id: u64) -> Result<(), H3Error> {
        match self.role(stream_id)? {
            StreamRole::Control | StreamRole::Encoder | StreamRole::Decoder => Err(CLOSED_CRITICAL),
            // RFC 9114 §6.2: a stream may end before its type has arrived.
            StreamRole::Pending | StreamRole::Ignored => {
                self.pending.retain(|it| it.stream_id != stream_id);
                Ok(())
            }
        }
    }

    /// Reads the type of a stream. Returns the bytes used, and the type once it is complete.
    fn read_type(&mut self, stream_id: u64, input: &[u8]) -> (usize, Option<u64>) {
        let Some(at) = self.pending_at(stream_id) else {
            return (input.len(), None);
        };
        let pending = &mut self.pending[at];
        let kept = usize::from(pending.len);
        // The longest type has 8 bytes; those after a shorter one stay in the input.
        let part = input.get(..pending.bytes.len() - kept).unwrap_or(input);
        pending.bytes[kept..kept + part.len()].copy_from_slice(part);
        match varint::decode(&pending.bytes[..kept + part.len()]) {
            Some((stream_type, len)) => {
                self.pending.swap_remove(at);
                (len - kept, Some(stream_type))
            }
            None => {
                pending.len += part.len() as u8;
                (part.len(), None)
            }
        }
    }

    /// Records the type of a stream. Returns whether it is known.
    fn assign(&mut self, stream_id: u64, stream_type: u64) -> Result<bool, H3Error> {
        let slot = match stream_type {
            stream_type::CONTROL => &mut self.control,
            stream_type::ENCODER => &mut self.encoder,
            stream_type::DECODER => &mut self.decoder,
            // RFC 9114 §6.2.2: only servers push.
            stream_type::PUSH => return Err(creation_error("a push stream from a client")),
            _ => return Ok(false),
        };
        match slot.replace(stream_id) {
            None => Ok(true),
            // RFC 9114 §6.2.1, RFC 9204 §4.2: one of each type.
            Some(_) => Err(creation_error("a second stream of a type")),
        }
    }
}

const fn creation_error(reason: &'static str) -> H3Error {
    H3Error::connection(H3ErrorCode::STREAM_CREATION_ERROR, reason)
}

impl H3Server {
    pub(super) fn unidirectional_input<'h, 'b>(
        &mut self,
        stream_id: u64,
        input: StreamBytes<'b>,
        turn: &mut H3Turn<'_>,
    ) -> Result<InputStep<H3ServerEvent<'h, 'b>>, H3Error> {
        let StreamBytes {
            bytes: input,
            is_end,
        } = input;
        let mut used = 0;
        if self.client_streams.role(stream_id)? == StreamRole::Pending {
            let (len, stream_type) = self.client_streams.read_type(stream_id, input);
            used = len;
            if let Some(stream_type) = stream_type
                && !self.client_streams.assign(stream_id, stream_type)?
            {
                self.glitch(1, turn)?;
                // RFC 9114 §6.2: reading of unknown types is aborted.
                let code = H3ErrorCode::STREAM_CREATION_ERROR;
                let event = H3ServerEvent::StopReading { stream_id, code };
                return Ok(InputStep::event(input.len(), event));
            }
        }
        let rest = input.get(used..).unwrap_or_default();
        let role = self.client_streams.role(stream_id)?;
        match role {
            StreamRole::Pending | StreamRole::Ignored => {
                // RFC 9114 §6.2: a stream may end before its type has arrived.
                if is_end {
                    self.client_streams.abort(stream_id)?;
                }
                return Ok(InputStep::used(input.len()));
            }
            StreamRole::Control => {
                let (len, update) = self.control_input(rest, turn)?;
                used += len;
                if let Some((number, priority)) = update {
                    let stream = StreamId(number);
                    let event = H3ServerEvent::PriorityUpdate { stream, priority };
                    return Ok(InputStep::event(used, event));
                }
            }
            StreamRole::Encoder => self.encoder_input(rest, turn)?,
            StreamRole::Decoder => self.decoder_input(rest)?,
        }
        match is_end {
            true => Err(CLOSED_CRITICAL),
            false => Ok(InputStep::used(input.len())),
        }
    }

    /// Processes instructions that fill the dynamic table, and acknowledges them.
    fn encoder_input(&mut self, input: &[u8], turn: &mut H3Turn<'_>) -> Result<(), H3Error> {
        let before = self.decoder.insert_count();
        self.decoder.receive_instructions(input).map_err(|fault| {
            let code = H3ErrorCode::QPACK_ENCODER_STREAM_ERROR;
            H3Error::connection(code, fault.as_str())
        })?;
        let inserted = self.decoder.insert_count() - before;
        if inserted > 0 {
            // A duplicate has one byte and copies an entry of any length, so insertions have a rate.
            self.glitch(u32::try_from(inserted).unwrap_or(u32::MAX), turn)?;
            // One increment for all insertions of a read: each instruction costs the client time, too.
            self.decoder.put_increment(turn.decoder);
        }
        Ok(())
    }

    fn decoder_input(&mut self, input: &[u8]) -> Result<(), H3Error> {
        // Incomplete instructions are shorter than 11 bytes, so the part is small.
        let part = &mut self.client_streams.decoder_part;
        part.extend_from_slice(input);
        let used = check_decoder_stream(part).map_err(|fault| {
            let code = H3ErrorCode::QPACK_DECODER_STREAM_ERROR;
            H3Error::connection(code, fault.as_str())
        })?;
        part.drain(..used);
        Ok(())
    }
}
