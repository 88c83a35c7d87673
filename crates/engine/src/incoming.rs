//! A request's body on its way to the program that answers: read while the answer is made, and no
//! faster than the program takes it.

use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_http::body::BodyReader;
use lowroad_http::refusal::Refusal;

use crate::connection::Pace;
use crate::stream::Sender;

/// Bytes that may wait for a program; what one receive brings comes on top.
pub(crate) const WAITING_LEN_MAX: usize = 64 * 1024;

/// A body that streams in.
pub(crate) struct Incoming {
    reader: BodyReader,
    /// None when the program has lost interest: the rest is read and dropped.
    to: Option<Sender>,
    /// The program has to take some before more is read.
    pub full: bool,
    pub pace: Pace,
}

impl Incoming {
    pub fn new(reader: BodyReader, to: Sender, now_ms: u64) -> Incoming {
        Incoming {
            reader,
            to: Some(to),
            full: false,
            pace: Pace::new(now_ms),
        }
    }

    /// Takes bytes from the start of `input`; says how many, and whether the body has ended.
    pub fn feed(&mut self, input: &[u8], now_ms: u64) -> Result<(usize, bool), Refusal> {
        let mut used = 0;
        while !self.full {
            let fed = self.reader.feed(&input[used..])?;
            used += fed.consumed;
            self.pass_on(fed.data);
            if fed.done {
                self.pace.moved(used as u64, now_ms);
                self.to.take().into_iter().for_each(Sender::end);
                return Ok((used, true));
            }
            if fed.consumed == 0 {
                break;
            }
        }
        self.pace.moved(used as u64, now_ms);
        Ok((used, false))
    }

    fn pass_on(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let pushed = self
            .to
            .as_ref()
            .map(|to| to.push(Bytes::copy_from_slice(data)));
        match pushed {
            Some(Ok(room)) => self.full = !room,
            Some(Err(_)) => self.to = None,
            None => {}
        }
    }

    /// Asks whether there is room again; if not, the waker will tell.
    pub fn look_for_room(&mut self, context: &mut Context<'_>, now_ms: u64) {
        let Some(to) = &self.to else {
            self.full = false;
            return;
        };
        match to.poll_room(context) {
            Poll::Ready(room) => {
                self.full = false;
                // The wait was the program's.
                self.pace.excuse(now_ms);
                if room.is_err() {
                    self.to = None;
                }
            }
            Poll::Pending => self.full = true,
        }
    }
}
