//! The unsent rest of a response body on a multiplexed connection: parts that are ready, which the protocol schedules,
//! and parts that follow.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::response_body::BodyPart;

/// The unsent rest of a response's body.
pub(crate) struct RemainingBody<R> {
    /// Bytes and blocks in memory that the protocol may send.
    pub ready: VecDeque<BodyPart>,
    pub ready_len: u64,
    /// Parts that follow `ready`.
    pub rest: VecDeque<BodyPart>,
    record: Option<R>,
    /// Bytes that were framed.
    sent: u64,
    /// The limit of its rate in bytes per second.
    pub own_rate: Option<u64>,
    /// The protocol knows that no bytes follow `ready`.
    pub is_end_announced: bool,
}

impl<R> RemainingBody<R> {
    /// A body of these parts, none of which is ready.
    pub fn new(parts: impl Iterator<Item = BodyPart>, record: Option<R>) -> RemainingBody<R> {
        let rest: VecDeque<BodyPart> = parts.collect();
        RemainingBody {
            ready: VecDeque::new(),
            ready_len: 0,
            own_rate: rest.iter().find_map(BodyPart::own_rate),
            rest,
            record,
            sent: 0,
            is_end_announced: false,
        }
    }

    /// The rest of a body that is completely ready.
    pub fn from_rest(part: BodyPart, len: u64, sent: u64, record: Option<R>) -> RemainingBody<R> {
        RemainingBody {
            ready: VecDeque::from([part]),
            ready_len: len,
            rest: VecDeque::new(),
            record,
            sent,
            own_rate: None,
            is_end_announced: true,
        }
    }

    /// The record with the number of bytes sent, if there is one.
    pub fn into_record(self) -> Option<(R, u64)> {
        Some((self.record?, self.sent))
    }

    /// Bytes that were framed.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether more parts may become ready.
    pub fn is_waiting(&self) -> bool {
        !self.is_end_announced
    }

    /// Copies the next bytes into a frame.
    pub fn take(&mut self, mut len: usize, out: &mut Vec<u8>) {
        self.sent += len as u64;
        self.ready_len -= len as u64;
        while len > 0 {
            let Some(front) = self.ready.front_mut() else {
                return debug_assert!(false, "more than was ready");
            };
            let copied_len = front.copy_start(len, out);
            len -= copied_len;
            if front.is_empty() {
                self.ready.pop_front();
            }
        }
    }

    /// Passes the next bytes of a frame to `push`, without copying them.
    pub fn take_shared(&mut self, len: usize, mut push: impl FnMut(Bytes)) {
        self.sent += len as u64;
        self.ready_len -= len as u64;
        let mut len = len as u64;
        while len > 0 {
            let Some(front) = self.ready.front_mut() else {
                return debug_assert!(false, "more than was ready");
            };
            let part = front.split_start(len);
            len -= part.memory_len();
            push(part.into_bytes());
            if front.is_empty() {
                self.ready.pop_front();
            }
        }
    }

    /// Takes the record with the number of framed bytes.
    pub fn take_record(&mut self) -> (Option<R>, u64) {
        (self.record.take(), self.sent)
    }
}
