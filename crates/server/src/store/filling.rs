//! A body that comes while it is read, by as many as want it: each gets all of it from its start, as fast as it takes it.
//! What has come stays until all has come, or until that is more than may be stored; from then on nobody new can read it.
//!
//! Memory is drawn as the body grows: its parts are the maker's own, counted once however many read them. Knows neither
//! what the bytes are nor who makes them, nor a thread: the one that fills it polls.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lowroad_cache::vary::Selecting;
use lowroad_engine::stream::{Next, Receiver, Sender, stream};
use lowroad_http::encoded::Encoded;

/// Who comes when nothing has come for so long is not answered before something does, ms.
const QUIET_MS: u64 = 2_000;
/// What may wait for each reader once the body is too long to be stored.
const WAITING_LEN_MAX: usize = 64 << 10;

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
}

#[derive(Default)]
struct Body {
    parts: Vec<Bytes>,
    len: usize,
    readers: Vec<Reader>,
    /// Readers that are not answered yet.
    joiners: Vec<Joiner>,
    state: State,
    /// When the last of it came, monotonic ms.
    grown_ms: u64,
    /// Nothing has come for so long that nobody is to wait for more.
    is_stuck: bool,
    /// Who fills it, while it waits.
    filler: Option<Waker>,
}

struct Reader {
    to: Sender,
    /// What it does not take waits elsewhere.
    is_behind: bool,
    /// It is no client's: nothing comes for it alone.
    is_kept: bool,
}

/// Hears that something of a body has come, and gets it from its start; `None`: it had better ask for itself.
pub type Tell = Box<dyn FnOnce(Option<Receiver>) + Send>;

struct Joiner {
    /// What comes for it; so it counts as a reader.
    from: Receiver,
    tell: Tell,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// It may become whole.
    #[default]
    Growing,
    /// It is too long to be stored: what has come is only in the readers' streams.
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
        }
    }

    /// The body from its start; `None` if that can't be had any more, or nothing comes.
    pub fn read(&self) -> Option<Receiver> {
        let mut body = self.lock();
        match body.state {
            State::Passing | State::Cut => return None,
            State::Growing if body.is_stuck => return None,
            State::Growing | State::Whole => {}
        }
        let (to, from) = stream(WAITING_LEN_MAX);
        for part in &body.parts {
            // It is open: this function holds the other end.
            let _ = to.push(part.clone());
        }
        if body.state == State::Whole {
            to.end();
        } else {
            body.readers.push(Reader {
                to,
                is_behind: false,
                is_kept: false,
            });
        }
        let filler = body.filler.take();
        drop(body);
        // It has to hear of this one's end, too.
        filler.into_iter().for_each(Waker::wake);
        Some(from)
    }

    /// Gives a reader's body back if something of it has come, lately; else the reader waits for that. Once its response has
    /// begun it can only wait for the rest, so who begins it while nothing comes may wait for long.
    pub fn wait(&self, from: Receiver, now_ms: u64, tell: Tell) -> Option<Receiver> {
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
        mut behind: impl FnMut(Sender) -> Sender,
    ) -> Poll<bool> {
        let mut body = self.lock();
        body.readers
            .retain(|reader| reader.to.poll_closed(context).is_pending());
        let waker = context.waker();
        let filler = body.filler.get_or_insert_with(|| waker.clone());
        filler.clone_from(waker);
        let clients = body.readers.iter().filter(|reader| !reader.is_kept).count();
        let is_shared = clients > 1;
        let is_passing = body.state == State::Passing;
        let mut has_room = true;
        for reader in body.readers.iter_mut().filter(|_| is_passing) {
            if reader.to.poll_room(context).is_ready() {
                continue;
            }
            if is_shared && !reader.is_behind && !reader.is_kept {
                let (unused, _) = stream(0);
                reader.to = behind(std::mem::replace(&mut reader.to, unused));
                reader.is_behind = true;
                // So that its end is heard of.
                let _ = reader.to.poll_closed(context);
            } else {
                has_room = false;
            }
        }
        match (clients == 0, has_room) {
            (true, _) => Poll::Ready(false),
            (false, true) => Poll::Ready(true),
            (false, false) => Poll::Pending,
        }
    }

    /// Adds some of the body; `has_room`: there is memory to hold it for others.
    pub fn grow(&self, bytes: Bytes, has_room: bool, now_ms: u64) -> Grown {
        let mut body = self.lock();
        (body.grown_ms, body.is_stuck) = (now_ms, false);
        body.readers
            .retain(|reader| reader.to.push(bytes.clone()).is_ok());
        let joiners = std::mem::take(&mut body.joiners);
        let grown = body.keep(bytes, self.body_len_max, has_room);
        drop(body);
        joiners.into_iter().for_each(Joiner::begin);
        grown
    }

    /// A body that is too long to be held is kept elsewhere: what has come, and what comes from now on. Who keeps it sets
    /// the pace, too.
    pub fn keep(&self, to: Sender, parts: Vec<Bytes>) {
        let is_open = |part: Bytes| to.push(part).is_ok();
        if parts.into_iter().all(is_open) {
            self.lock().readers.push(Reader {
                to,
                is_behind: false,
                is_kept: true,
            });
        }
    }

    /// The body is whole, or will never be. Its parts, if they are all there and as many bytes as were announced; those
    /// who read it hear of the end by [`Filling::tell_end`].
    pub fn end(&self, how: &Next) -> Option<Vec<Bytes>> {
        let mut body = self.lock();
        let has_all = *how == Next::End && self.len.is_none_or(|len| len == body.len as u64);
        if body.state != State::Growing {
            return None;
        }
        body.state = if has_all { State::Whole } else { State::Cut };
        has_all.then(|| body.parts.clone())
    }

    /// Tells those who read it that it is over.
    pub fn tell_end(&self, how: &Next) {
        let mut body = self.lock();
        let readers = std::mem::take(&mut body.readers);
        let joiners = std::mem::take(&mut body.joiners);
        drop(body);
        if *how == Next::End {
            readers.into_iter().for_each(|reader| reader.to.end());
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
        self.parts.is_empty() || now_ms.saturating_sub(self.grown_ms) > QUIET_MS
    }

    /// Keeps some more of it for those who come, unless it is too long.
    fn keep(&mut self, bytes: Bytes, len_max: u64, has_room: bool) -> Grown {
        if self.state == State::Passing {
            return Grown::Passed;
        }
        self.len += bytes.len();
        if self.len as u64 > len_max || !has_room {
            self.state = State::Passing;
            let mut parts = std::mem::take(&mut self.parts);
            parts.push(bytes);
            return Grown::TooLong(parts);
        }
        self.parts.push(bytes);
        Grown::Held
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
