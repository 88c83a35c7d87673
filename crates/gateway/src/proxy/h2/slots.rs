//! The exchanges of a connection: their place between the connection's task and their owners.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{ErrorCode, StreamId};
use lowroad_http::method::Method;

use crate::proxy::link::{OriginFault, ResponseEvent};

/// The number of interim responses that wait for the owner; more are dropped.
const INTERIMS_MAX: usize = 16;
/// Parts of a body below this length are joined.
const JOINED_LEN_MAX: usize = 4096;

/// The head of a request, as a field block.
pub struct RequestHead {
    /// The field block.
    pub block: Vec<u8>,
    /// The request method.
    pub method: Method,
    /// The length of the body.
    pub len: BodyLen,
}

/// Why an exchange, or all of a connection, failed.
#[derive(Clone, Debug)]
pub enum LinkFault {
    /// The origin closed the connection.
    Closed,
    /// The connection failed; the system's error code, and its kind.
    Failed(Option<i32>, io::ErrorKind),
    /// The origin violated the protocol.
    Bad(&'static str),
    /// The origin ended the stream with this code.
    Reset(ErrorCode),
    /// The origin did not process the request, and gave this code.
    Unprocessed(ErrorCode),
    /// The origin did not answer a PING.
    Silent,
}

impl LinkFault {
    fn into_origin_fault(self) -> OriginFault {
        match self {
            LinkFault::Closed => OriginFault::Closed,
            LinkFault::Failed(Some(code), _) => {
                OriginFault::Failed(io::Error::from_raw_os_error(code))
            }
            LinkFault::Failed(None, kind) => OriginFault::Failed(kind.into()),
            LinkFault::Bad(reason) => OriginFault::Bad(reason),
            LinkFault::Reset(code) => OriginFault::Reset(code),
            LinkFault::Unprocessed(code) => OriginFault::Unprocessed(code),
            LinkFault::Silent => OriginFault::Silent,
        }
    }
}

impl From<OriginFault> for LinkFault {
    fn from(fault: OriginFault) -> LinkFault {
        match fault {
            OriginFault::Closed => LinkFault::Closed,
            OriginFault::Failed(error) => LinkFault::Failed(error.raw_os_error(), error.kind()),
            OriginFault::Bad(reason) => LinkFault::Bad(reason),
            OriginFault::Reset(code) => LinkFault::Reset(code),
            OriginFault::Unprocessed(code) => LinkFault::Unprocessed(code),
            OriginFault::Silent => LinkFault::Silent,
        }
    }
}

/// An exchange in progress.
#[derive(Default)]
pub struct ExchangeSlot {
    /// `None` until the request is sent.
    pub stream: Option<StreamId>,
    /// The head, until the request is sent.
    pub head: Option<RequestHead>,
    /// Received and not taken by the owner.
    pub events: VecDeque<ResponseEvent>,
    /// Reported after the events.
    fault: Option<LinkFault>,
    pub response_waker: Option<Waker>,
    /// Accepted parts of the request body that are not sent.
    pub upload: VecDeque<Bytes>,
    pub upload_len: usize,
    /// The request body has ended, with these trailer lines.
    pub upload_end: Option<Vec<u8>>,
    pub upload_waker: Option<Waker>,
    /// The response is complete, or has failed.
    pub is_ended: bool,
}

impl ExchangeSlot {
    /// Adds an event of the response. What the owner does not take is bounded: data by the stream's window, and interim
    /// responses by their number.
    pub fn push(&mut self, event: ResponseEvent) {
        self.is_ended |= matches!(event, ResponseEvent::End(_));
        let is_full = self.events.len() >= INTERIMS_MAX;
        match (self.events.back_mut(), event) {
            (_, ResponseEvent::Interim(..)) if is_full => return,
            // Short frames are joined, since each event costs more memory than a short frame.
            (Some(ResponseEvent::Data(last)), ResponseEvent::Data(data))
                if data.len() < JOINED_LEN_MAX && last.len() < JOINED_LEN_MAX =>
            {
                let mut joined = BytesMut::from(std::mem::take(last));
                joined.extend_from_slice(&data);
                *last = joined.freeze();
            }
            (_, event) => self.events.push_back(event),
        }
        self.wake_response();
    }

    /// Fails the exchange, unless its response is complete.
    pub fn fail(&mut self, fault: LinkFault) {
        if !self.is_ended {
            self.is_ended = true;
            self.fault = Some(fault);
        }
        self.close_upload();
        self.wake_response();
    }

    /// Takes the fault, after the events before it.
    pub fn take_fault(&mut self) -> Option<OriginFault> {
        self.fault.take().map(LinkFault::into_origin_fault)
    }

    /// Takes up to `len` bytes of the request body.
    pub fn take_upload(&mut self, mut len: usize, out: &mut Vec<u8>) {
        while len > 0
            && let Some(piece) = self.upload.front_mut()
        {
            let part = piece.split_to(len.min(piece.len()));
            out.extend_from_slice(&part);
            len -= part.len();
            self.upload_len -= part.len();
            if piece.is_empty() {
                self.upload.pop_front();
            }
        }
        self.upload_waker.take().into_iter().for_each(Waker::wake);
    }

    /// Discards the rest of the request body: the origin needs no more.
    fn close_upload(&mut self) {
        self.upload.clear();
        self.upload_len = 0;
        self.upload_end = Some(Vec::new());
        self.upload_waker.take().into_iter().for_each(Waker::wake);
    }

    fn wake_response(&mut self) {
        self.response_waker.take().into_iter().for_each(Waker::wake);
    }
}

/// The exchanges of a connection, by their own numbers and by their streams.
#[derive(Default)]
pub struct ExchangeSlots {
    slots: HashMap<u64, ExchangeSlot>,
    by_stream: HashMap<u32, u64>,
    /// Exchanges that wait for room, in order.
    pub waiting: VecDeque<u64>,
    next_key: u64,
}

impl ExchangeSlots {
    /// Adds an exchange that waits for room; returns its number.
    pub fn add(&mut self, head: RequestHead) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        let slot = ExchangeSlot {
            head: Some(head),
            ..ExchangeSlot::default()
        };
        self.slots.insert(key, slot);
        self.waiting.push_back(key);
        key
    }

    /// Records the stream of an exchange.
    pub fn begin(&mut self, key: u64, stream: StreamId) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.stream = Some(stream);
            slot.wake_response();
            self.by_stream.insert(stream.0, key);
        }
    }

    /// The exchange with this number.
    pub fn get(&mut self, key: u64) -> Option<&mut ExchangeSlot> {
        self.slots.get_mut(&key)
    }

    /// The exchange of a stream.
    pub fn of_stream(&mut self, stream: StreamId) -> Option<&mut ExchangeSlot> {
        let key = self.by_stream.get(&stream.0)?;
        self.slots.get_mut(key)
    }

    /// Removes an exchange.
    pub fn remove(&mut self, key: u64) -> Option<ExchangeSlot> {
        let slot = self.slots.remove(&key)?;
        match slot.stream {
            Some(stream) => drop(self.by_stream.remove(&stream.0)),
            None => self.waiting.retain(|waiting| *waiting != key),
        }
        Some(slot)
    }

    /// Fails all exchanges. Those that were not sent are unprocessed.
    pub fn fail_all(&mut self, fault: &LinkFault) {
        for slot in self.slots.values_mut() {
            slot.fail(match slot.stream {
                Some(_) => fault.clone(),
                None => LinkFault::Unprocessed(ErrorCode::NO_ERROR),
            });
        }
        self.waiting.clear();
    }

    /// Fails the exchanges that wait for room: the connection takes no new requests.
    pub fn fail_waiting(&mut self) {
        for key in std::mem::take(&mut self.waiting) {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.fail(LinkFault::Unprocessed(ErrorCode::NO_ERROR));
            }
        }
    }

    /// Fails the exchanges that the origin has not processed after GOAWAY; returns their streams.
    pub fn fail_unprocessed(&mut self, last: StreamId, code: ErrorCode) -> Vec<StreamId> {
        let mut streams = Vec::new();
        for slot in self.slots.values_mut() {
            if slot.stream.is_none_or(|stream| stream.0 > last.0) {
                slot.fail(LinkFault::Unprocessed(code));
                streams.extend(slot.stream);
            }
        }
        self.waiting.clear();
        streams
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> RequestHead {
        RequestHead {
            block: Vec::new(),
            method: Method::Get,
            len: BodyLen::None,
        }
    }

    #[test]
    fn goaway_fails_only_later_streams_and_waiting_requests() {
        let mut slots = ExchangeSlots::default();
        let keys = [slots.add(head()), slots.add(head()), slots.add(head())];
        slots.begin(keys[0], StreamId(1));
        slots.begin(keys[1], StreamId(3));
        let failed = slots.fail_unprocessed(StreamId(1), ErrorCode::NO_ERROR);
        assert_eq!(failed, [StreamId(3)]);
        let mut fault = |key: u64| slots.get(key).and_then(ExchangeSlot::take_fault);
        assert!(fault(keys[0]).is_none());
        assert!(matches!(fault(keys[1]), Some(OriginFault::Unprocessed(_))));
        assert!(matches!(fault(keys[2]), Some(OriginFault::Unprocessed(_))));
    }

    #[test]
    fn complete_response_outlives_its_connection() {
        let mut slot = ExchangeSlot::default();
        slot.push(ResponseEvent::End(None));
        slot.fail(LinkFault::Closed);
        assert!(slot.take_fault().is_none());
    }

    #[test]
    fn short_frames_are_joined_and_interim_responses_bounded() {
        let mut slot = ExchangeSlot::default();
        for _ in 0..100 {
            let fields = lowroad_handler::ResponseFields::new();
            slot.push(ResponseEvent::Interim(
                lowroad_http::status::StatusCode::OK,
                fields,
            ));
        }
        assert_eq!(slot.events.len(), INTERIMS_MAX);
        slot.events.clear();
        (0..10_000).for_each(|_| slot.push(ResponseEvent::Data(Bytes::from_static(b"x"))));
        assert_eq!(slot.events.len(), 3);
        let len = slot.events.iter().map(|event| match event {
            ResponseEvent::Data(data) => data.len(),
            _ => 0,
        });
        assert_eq!(len.sum::<usize>(), 10_000);
    }

    #[test]
    fn upload_is_taken_across_pieces() {
        let mut slot = ExchangeSlot::default();
        for piece in [&b"abc"[..], b"def"] {
            slot.upload.push_back(Bytes::from_static(piece));
            slot.upload_len += piece.len();
        }
        let mut out = Vec::new();
        slot.take_upload(4, &mut out);
        assert_eq!((&out[..], slot.upload_len), (&b"abcd"[..], 2));
        slot.take_upload(2, &mut out);
        assert_eq!((&out[..], slot.upload.len()), (&b"abcdef"[..], 0));
    }
}
