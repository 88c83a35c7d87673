//! The control stream of the client: settings, shutdown, priorities, and the frames of server push, which this server
//! does not use. Read RFC 9114 §6.2.1 and §7.2.3 to §7.2.7, RFC 9218 §7.2.

use alloc::vec::Vec;

use super::error::{H3Error, H3ErrorCode};
use super::frames::{H3FrameHead, PartialHead, kind};
use super::server::H3Server;
use super::settings::check_client_settings;
use super::{H3Turn, Priority, varint};

/// The longest payload of a control frame; SETTINGS and PRIORITY_UPDATE are much shorter.
const PAYLOAD_LEN_MAX: u64 = 1024;

/// The input of the control stream.
#[derive(Debug)]
pub(super) struct ControlInput {
    head: PartialHead,
    /// The frame in progress.
    frame: Option<FrameInProgress>,
    /// The received part of its payload.
    payload: Vec<u8>,
    has_settings: bool,
    push_id_max: Option<u64>,
    goaway_id: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FrameInProgress {
    kind: u64,
    remaining: u64,
    /// The type is unknown.
    is_skipped: bool,
}

impl Default for ControlInput {
    fn default() -> ControlInput {
        ControlInput {
            head: PartialHead::NONE,
            frame: None,
            payload: Vec::new(),
            has_settings: false,
            push_id_max: None,
            goaway_id: None,
        }
    }
}

impl ControlInput {
    /// Checks whether a frame may begin (RFC 9114 §6.2.1, §7.2).
    fn begin_frame(&mut self, head: H3FrameHead) -> Result<FrameInProgress, H3Error> {
        if !self.has_settings && head.kind != kind::SETTINGS {
            let code = H3ErrorCode::MISSING_SETTINGS;
            return Err(H3Error::connection(code, "the first frame is not SETTINGS"));
        }
        // Frames that request streams have, and those of HTTP/2 without an equivalent.
        let is_misplaced = matches!(head.kind, kind::DATA | kind::HEADERS | kind::PUSH_PROMISE);
        if is_misplaced || head.is_forbidden() {
            return Err(H3Error::unexpected(
                "a frame that control streams can't have",
            ));
        }
        if head.kind == kind::SETTINGS && core::mem::replace(&mut self.has_settings, true) {
            return Err(H3Error::unexpected("a second SETTINGS frame"));
        }
        // The payload of an unknown frame is not kept, so it may have any length.
        let is_skipped = head.is_unknown();
        if !is_skipped && head.len > PAYLOAD_LEN_MAX {
            return Err(H3Error::load("a control frame that is too long"));
        }
        Ok(FrameInProgress {
            kind: head.kind,
            remaining: head.len,
            is_skipped,
        })
    }
}

impl H3Server {
    /// Processes frames until the priority of a stream changes. Returns the bytes used, and the change.
    pub(super) fn control_input(
        &mut self,
        input: &[u8],
        turn: &mut H3Turn<'_>,
    ) -> Result<(usize, Option<(u32, Priority)>), H3Error> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let control = &mut self.client_streams.control_input;
            let Some(frame) = &mut control.frame else {
                if rest.is_empty() {
                    return Ok((used, None));
                }
                let (len, head) = control.head.read(rest);
                used += len;
                if let Some(head) = head {
                    control.frame = Some(control.begin_frame(head)?);
                }
                continue;
            };
            let part = crate::body::take(frame.remaining, rest);
            used += part.len();
            frame.remaining -= part.len() as u64;
            let frame = *frame;
            if frame.remaining > 0 {
                if !frame.is_skipped {
                    control.payload.extend_from_slice(part);
                }
                return Ok((used, None));
            }
            control.frame = None;
            // Most frames arrive whole, and are processed in place.
            let mut gathered = core::mem::take(&mut control.payload);
            let payload = match gathered.is_empty() {
                true => part,
                false => {
                    gathered.extend_from_slice(part);
                    &gathered
                }
            };
            let update = self.control_frame(frame.kind, payload, turn)?;
            if update.is_some() {
                return Ok((used, update));
            }
        }
    }

    fn control_frame(
        &mut self,
        frame_kind: u64,
        payload: &[u8],
        turn: &mut H3Turn<'_>,
    ) -> Result<Option<(u32, Priority)>, H3Error> {
        if frame_kind == kind::SETTINGS {
            return check_client_settings(payload).map(|()| None);
        }
        // None of these frames is needed for a request, and each costs time.
        self.glitch(1, turn)?;
        let control = &mut self.client_streams.control_input;
        match frame_kind {
            kind::PRIORITY_UPDATE_REQUEST => return self.priority_update(payload),
            kind::MAX_PUSH_ID => {
                let push_id_max = whole_id(payload)?;
                // RFC 9114 §7.2.7.
                if control.push_id_max.is_some_and(|max| push_id_max < max) {
                    return Err(id_error("MAX_PUSH_ID is reduced"));
                }
                control.push_id_max = Some(push_id_max);
            }
            kind::GOAWAY => {
                let id = whole_id(payload)?;
                // RFC 9114 §5.2. The identifier is that of a push, so it does not matter otherwise.
                if control.goaway_id.is_some_and(|previous| id > previous) {
                    return Err(id_error("the identifier of GOAWAY is increased"));
                }
                control.goaway_id = Some(id);
            }
            // RFC 9114 §7.2.3, RFC 9218 §7.2: this server promises no pushes.
            kind::CANCEL_PUSH => {
                whole_id(payload)?;
                return Err(id_error("CANCEL_PUSH without a push"));
            }
            kind::PRIORITY_UPDATE_PUSH => {
                varint::decode(payload).ok_or(INCOMPLETE_ID)?;
                return Err(id_error("PRIORITY_UPDATE without a push"));
            }
            // RFC 9114 §9: unknown types are ignored.
            _ => {}
        }
        Ok(None)
    }

    /// Changes the priority of a response (RFC 9218 §7.2).
    fn priority_update(&mut self, payload: &[u8]) -> Result<Option<(u32, Priority)>, H3Error> {
        let (id, len) = varint::decode(payload).ok_or(INCOMPLETE_ID)?;
        if id & 3 != 0 {
            return Err(id_error("PRIORITY_UPDATE for a stream without a request"));
        }
        // RFC 9218 §4: invalid parameters get their default values.
        let priority = Priority::parse(payload.get(len..).unwrap_or_default());
        // No request has such an identifier.
        let Ok(number) = u32::try_from(id >> 2) else {
            return Ok(None);
        };
        let Some(slot) = self.streams.find(number) else {
            if number >= self.next_number {
                self.early_priorities.add(number, priority);
                return Ok(None);
            }
            // The stream has ended here, but the caller may still have output of it.
            return Ok(Some((number, priority)));
        };
        // The stream has begun, but its request is incomplete.
        if !self.streams.get(slot).transport.has_request {
            self.early_priorities.add(number, priority);
            return Ok(None);
        }
        self.queue.change(&mut self.streams, slot, priority);
        Ok(Some((number, priority)))
    }
}

/// The identifier that is the whole payload of a frame.
fn whole_id(payload: &[u8]) -> Result<u64, H3Error> {
    match varint::decode(payload) {
        Some((id, len)) if len == payload.len() => Ok(id),
        _ => Err(INCOMPLETE_ID),
    }
}

const fn id_error(reason: &'static str) -> H3Error {
    H3Error::connection(H3ErrorCode::ID_ERROR, reason)
}

/// RFC 9114 §7.1.
const INCOMPLETE_ID: H3Error = H3Error::layout("a frame of an invalid size");
