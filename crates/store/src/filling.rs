//! A body that comes while it is read, by as many as want it: each gets all of it from its start, as fast as it takes it.
//! What has come stays until all has come, or until that is more than may be stored; from then on it can only be read from the
//! start where it is kept elsewhere.
//!
//! Memory is drawn as the body grows: its parts are the maker's own, counted once however many read them. Knows neither
//! what the bytes are nor who makes them, nor a thread: the one that fills it polls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_cache::vary::Selecting;
use lowroad_engine::growing::{Growing, Reader};
use lowroad_engine::stream::{Next, Sender};
use lowroad_http::encoded::Encoded;

use crate::disk_cache::Unfinished;

/// Who comes when nothing has come for so long is not answered before something does, ms.
const QUIET_MS: u64 = 2_000;

/// A response whose head is known and whose body comes.
pub struct Filling {
    /// Its head for HTTP/1, without Content-Length.
    pub bytes: Box<[u8]>,
    /// See [`Encoded`]; it has the status.
    pub head: Encoded,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// Length of the body in bytes, if that was said.
    pub len: Option<u64>,
    /// Which requests it answers, of those with its key.
    pub selecting: Selecting,
    /// A longer body is not held for others.
    body_len_max: u64,
    body: Mutex<Body>,
    /// Its bytes, and who reads them. Asked for under the lock of the body.
    growing: Growing,
}

#[derive(Default)]
struct Body {
    len: u64,
    /// Readers that are not answered yet.
    joiners: Vec<Joiner>,
    state: State,
    /// When the last of it came, monotonic ms.
    grown_ms: u64,
    /// Nothing has come for so long that nobody is to wait for more.
    is_stuck: bool,
    /// Where all of it is kept, too: nothing comes for it alone.
    keeper: Option<Sender>,
    /// Where that can be read.
    kept: Option<Arc<Unfinished>>,
}

/// Hears that something of a body has come, and gets it from its start; `None`: it had better ask for itself.
pub type Tell = Box<dyn FnOnce(Option<Reader>) + Send>;

struct Joiner {
    /// What comes for it; so it counts as a reader.
    from: Reader,
    tell: Tell,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// It may become whole.
    #[default]
    Growing,
    /// It is too long to be stored: what all readers have read is gone.
    Passing,
    Whole,
    Cut,
}

/// What became of some bytes of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grown {
    /// It may still become whole.
    Held,
    /// With these it is too long to be stored, or for what memory there is: all that has come.
    TooLong(Vec<Bytes>),
    /// It has been for a while.
    Passed,
}

impl Filling {
    /// A response with this head, and nothing of its body yet.
    pub fn new(
        (bytes, head): (Box<[u8]>, Encoded),
        modified_s: Option<u64>,
        len: Option<u64>,
        selecting: Selecting,
        body_len_max: u64,
        now_ms: u64,
    ) -> Filling {
        Filling {
            body_len_max,
            bytes,
            head,
            modified_s,
            len,
            selecting,
            body: Mutex::new(Body {
                grown_ms: now_ms,
                ..Body::default()
            }),
            growing: Growing::default(),
        }
    }

    /// The body from its start; `None` if that can't be had any more, or nothing comes.
    pub fn read(&self) -> Option<Reader> {
        let body = self.lock();
        match body.state {
            State::Cut => None,
            State::Growing | State::Passing if body.is_stuck => None,
            State::Passing => body.kept.as_ref()?.read(&self.growing),
            State::Growing | State::Whole => self.growing.reader(),
        }
    }

    /// Gives a reader's body back if something of it has come, lately; else the reader waits for that. Once its response has
    /// begun it can only wait for the rest, so who begins it while nothing comes may wait for long.
    pub fn wait(&self, from: Reader, now_ms: u64, tell: Tell) -> Option<Reader> {
        let mut body = self.lock();
        if body.state != State::Growing || !body.is_quiet(now_ms) {
            return Some(from);
        }
        if body.is_stuck {
            drop(body);
            tell(None);
        } else {
            body.joiners.push(Joiner { from, tell });
        }
        None
    }

    /// Nothing has come for long: nobody waits for more whose response has not begun.
    pub fn release(&self) {
        let joiners = {
            let mut body = self.lock();
            body.is_stuck = true;
            std::mem::take(&mut body.joiners)
        };
        joiners.into_iter().for_each(Joiner::leave);
    }

    /// Ready when more of the body is wanted: false if nobody reads it any more. Where several read a body that is too
    /// long to be stored, nobody waits for the slowest: `behind` takes its stream and gives where its rest goes.
    pub fn poll_wanted(
        &self,
        context: &mut Context<'_>,
        behind: impl FnMut(Sender) -> Sender,
    ) -> Poll<bool> {
        let wanted = self.growing.poll_wanted(context, behind);
        if wanted != Poll::Ready(true) {
            return wanted;
        }
        let mut body = self.lock();
        let State::Passing = body.state else {
            return wanted;
        };
        match body.keeper.as_ref().map(|keeper| keeper.poll_room(context)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Err(_))) => {
                body.keeper = None;
                wanted
            }
            Some(Poll::Ready(Ok(()))) | None => wanted,
        }
    }

    /// Adds some of the body; `has_room`: there is memory to hold it for others. What is too long is to be let go then.
    pub fn grow(&self, bytes: Bytes, has_room: bool, now_ms: u64) -> Grown {
        let mut body = self.lock();
        (body.grown_ms, body.is_stuck) = (now_ms, false);
        body.len += bytes.len() as u64;
        body.keeper
            .take_if(|keeper| keeper.push(bytes.clone()).is_err());
        self.growing.push(bytes);
        let grown = match body.state {
            State::Passing => Grown::Passed,
            _ if has_room && body.len <= self.body_len_max => Grown::Held,
            _ => {
                body.state = State::Passing;
                Grown::TooLong(self.growing.parts())
            }
        };
        let joiners = std::mem::take(&mut body.joiners);
        drop(body);
        joiners.into_iter().for_each(Joiner::begin);
        grown
    }

    /// A body that is too long to be held is kept elsewhere: what has come, and what comes from now on. Who keeps it sets
    /// the pace, too.
    pub fn keep(&self, (to, kept): (Sender, Arc<Unfinished>), parts: Vec<Bytes>) {
        let is_open = |part: Bytes| to.push(part).is_ok();
        if parts.into_iter().all(is_open) {
            let mut body = self.lock();
            (body.keeper, body.kept) = (Some(to), Some(kept));
        }
    }

    /// Whether it is on its way elsewhere.
    pub fn is_kept(&self) -> bool {
        self.lock().keeper.is_some()
    }

    /// What is too long is here no longer once it has been read, and is kept if it is to be.
    pub fn let_go(&self) {
        let kept_len = self.lock().kept.as_ref().map(|kept| kept.kept_len());
        self.growing.let_go(kept_len);
    }

    /// The body is whole, or will never be. Its parts, if they are all there and as many bytes as were announced; those
    /// who read it hear of the end by [`Filling::tell_end`].
    pub fn end(&self, how: &Next) -> Option<Vec<Bytes>> {
        let mut body = self.lock();
        let has_all = *how == Next::End && self.len.is_none_or(|len| len == body.len);
        if body.state != State::Growing {
            return None;
        }
        body.state = if has_all { State::Whole } else { State::Cut };
        has_all.then(|| self.growing.parts())
    }

    /// Tells those who read it that it is over.
    pub fn tell_end(&self, how: &Next) {
        let mut body = self.lock();
        let joiners = std::mem::take(&mut body.joiners);
        let keeper = body.keeper.take();
        if *how != Next::End {
            body.kept = None;
        }
        drop(body);
        self.growing.end(how.clone());
        if *how == Next::End {
            keeper.into_iter().for_each(Sender::end);
            joiners.into_iter().for_each(Joiner::begin);
        } else {
            joiners.into_iter().for_each(Joiner::leave);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body {
    /// Whether nothing has come, or not lately.
    fn is_quiet(&self, now_ms: u64) -> bool {
        self.len == 0 || now_ms.saturating_sub(self.grown_ms) > QUIET_MS
    }
}

impl Joiner {
    fn begin(self) {
        (self.tell)(Some(self.from));
    }

    fn leave(self) {
        (self.tell)(None);
    }
}

#[cfg(test)]
mod tests;
