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

/// Who comes when nothing has come for so long had better ask for itself, ms.
const STUCK_MS: u64 = 5_000;
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
    state: State,
    /// When the last of it came, monotonic ms.
    grown_ms: u64,
    /// Who fills it, while it waits.
    filler: Option<Waker>,
}

struct Reader {
    to: Sender,
    /// What it does not take waits elsewhere.
    is_behind: bool,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// It may still become whole.
    Held,
    /// With these it is too long to be stored, or for what memory there is.
    TooLong,
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

    /// The body from its start; `None` if that can't be had any more, or nothing has come for [`STUCK_MS`].
    pub fn read(&self, now_ms: u64) -> Option<Receiver> {
        let mut body = self.lock();
        if body.state == State::Growing && now_ms.saturating_sub(body.grown_ms) > STUCK_MS {
            return None;
        }
        let (to, from) = stream(WAITING_LEN_MAX);
        match body.state {
            State::Passing | State::Cut => return None,
            State::Growing | State::Whole => {}
        }
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
            });
        }
        let filler = body.filler.take();
        drop(body);
        // It has to hear of this one's end, too.
        filler.into_iter().for_each(Waker::wake);
        Some(from)
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
        let is_shared = body.readers.len() > 1;
        let is_passing = body.state == State::Passing;
        let mut has_room = true;
        for reader in body.readers.iter_mut().filter(|_| is_passing) {
            if reader.to.poll_room(context).is_ready() {
                continue;
            }
            if is_shared && !reader.is_behind {
                let (unused, _) = stream(0);
                reader.to = behind(std::mem::replace(&mut reader.to, unused));
                reader.is_behind = true;
                // So that its end is heard of.
                let _ = reader.to.poll_closed(context);
            } else {
                has_room = false;
            }
        }
        match (body.readers.is_empty(), has_room) {
            (true, _) => Poll::Ready(false),
            (false, true) => Poll::Ready(true),
            (false, false) => Poll::Pending,
        }
    }

    /// Adds some of the body; `has_room`: there is memory to hold it for others.
    pub fn grow(&self, bytes: Bytes, has_room: bool, now_ms: u64) -> Grown {
        let mut body = self.lock();
        body.grown_ms = now_ms;
        body.readers
            .retain(|reader| reader.to.push(bytes.clone()).is_ok());
        if body.state == State::Passing {
            return Grown::Passed;
        }
        body.len += bytes.len();
        if body.len as u64 > self.body_len_max || !has_room {
            body.state = State::Passing;
            body.parts = Vec::new();
            return Grown::TooLong;
        }
        body.parts.push(bytes);
        Grown::Held
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
        let readers = std::mem::take(&mut self.lock().readers);
        if *how == Next::End {
            readers.into_iter().for_each(|reader| reader.to.end());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::encoded::Encoder;
    use lowroad_http::status::Status;

    const BODY_LEN_MAX: usize = 1 << 20;

    fn filling(len: Option<u64>) -> Filling {
        let (bytes, head) = Encoder::start(Status::OK).finish_open();
        let bytes = bytes.into();
        Filling::new(
            (bytes, head),
            None,
            len,
            Selecting::default(),
            BODY_LEN_MAX as u64,
            0,
        )
    }

    fn waiting(from: &Receiver) -> (String, Option<Next>) {
        let mut context = Context::from_waker(Waker::noop());
        let mut text = String::new();
        loop {
            match from.poll_next(&mut context) {
                Poll::Ready(Next::Bytes(bytes)) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Poll::Ready(end) => return (text, Some(end)),
                Poll::Pending => return (text, None),
            }
        }
    }

    fn wanted(filling: &Filling) -> Poll<bool> {
        let mut context = Context::from_waker(Waker::noop());
        filling.poll_wanted(&mut context, |_| panic!("nobody is slow"))
    }

    #[test]
    fn who_comes_late_gets_all_of_it() {
        let body = filling(None);
        let first = body.read(0).expect("it begins");
        assert_eq!(body.grow(Bytes::from_static(b"ab"), true, 0), Grown::Held);
        let second = body.read(0).expect("it is there");
        assert_eq!(body.grow(Bytes::from_static(b"c"), true, 0), Grown::Held);
        assert_eq!(waiting(&first), ("abc".into(), None));
        assert_eq!(waiting(&second), ("abc".into(), None));
        let parts = body.end(&Next::End).expect("it is whole");
        assert_eq!(parts.concat(), b"abc");
        let third = body.read(0).expect("it is there");
        body.tell_end(&Next::End);
        assert_eq!(waiting(&third), ("abc".into(), Some(Next::End)));
        assert_eq!(waiting(&first), (String::new(), Some(Next::End)));
    }

    #[test]
    fn what_is_cut_is_cut_for_all_and_read_by_nobody_else() {
        let body = filling(None);
        let (first, second) = (body.read(0), body.read(0));
        body.grow(Bytes::from_static(b"ab"), true, 0);
        assert_eq!(body.end(&Next::Cut), None);
        body.tell_end(&Next::Cut);
        for reader in [first, second].into_iter().flatten() {
            assert_eq!(waiting(&reader), ("ab".into(), Some(Next::Cut)));
        }
        assert!(body.read(0).is_none());
    }

    #[test]
    fn what_is_shorter_than_announced_is_not_whole() {
        let body = filling(Some(3));
        let _reader = body.read(0);
        body.grow(Bytes::from_static(b"ab"), true, 0);
        assert_eq!(body.end(&Next::End), None);
    }

    #[test]
    fn what_nobody_reads_is_not_wanted() {
        let body = filling(None);
        let first = body.read(0);
        assert_eq!(wanted(&body), Poll::Ready(true));
        let second = body.read(0);
        drop(first);
        assert_eq!(wanted(&body), Poll::Ready(true));
        drop(second);
        assert_eq!(wanted(&body), Poll::Ready(false));
    }

    #[test]
    fn what_is_too_long_goes_at_its_readers_pace_and_the_slow_wait_elsewhere() {
        let body = filling(None);
        let (first, second) = (body.read(0).expect("open"), body.read(0).expect("open"));
        let half = Bytes::from(vec![b'x'; BODY_LEN_MAX / 2 + 1]);
        assert_eq!(body.grow(half.clone(), true, 0), Grown::Held);
        assert_eq!(wanted(&body), Poll::Ready(true), "memory holds it");
        assert_eq!(body.grow(half, true, 0), Grown::TooLong);
        assert!(body.read(0).is_none());
        assert_eq!(waiting(&first).0.len(), BODY_LEN_MAX + 2);
        let mut context = Context::from_waker(Waker::noop());
        let mut slow = Vec::new();
        let (elsewhere, rest) = stream(10);
        let mut elsewhere = Some(elsewhere);
        let mut behind = |sender| {
            slow.push(sender);
            elsewhere.take().expect("one is slow")
        };
        assert_eq!(
            body.poll_wanted(&mut context, &mut behind),
            Poll::Ready(true)
        );
        assert_eq!(
            body.grow(Bytes::from(vec![b'y'; 20]), true, 0),
            Grown::Passed
        );
        assert_eq!(slow.len(), 1);
        // There is no room elsewhere either.
        assert!(wanted(&body).is_pending());
        assert_eq!(waiting(&rest).0.len(), 20);
        assert_eq!(wanted(&body), Poll::Ready(true));
        drop((first, second));
    }

    #[test]
    fn without_memory_it_is_for_those_who_read_it_only() {
        let body = filling(None);
        let first = body.read(0).expect("open");
        assert_eq!(body.grow(Bytes::from_static(b"ab"), true, 0), Grown::Held);
        assert_eq!(
            body.grow(Bytes::from_static(b"cd"), false, 0),
            Grown::TooLong
        );
        assert!(body.read(0).is_none());
        assert_eq!(body.end(&Next::End), None);
        body.tell_end(&Next::End);
        assert_eq!(waiting(&first), ("abcd".into(), Some(Next::End)));
    }

    #[test]
    fn nobody_joins_where_nothing_comes() {
        let body = filling(None);
        assert!(body.read(STUCK_MS).is_some() && body.read(STUCK_MS + 1).is_none());
        body.grow(Bytes::from_static(b"ab"), true, STUCK_MS + 1);
        assert!(body.read(2 * STUCK_MS).is_some());
    }

    #[test]
    fn one_reader_alone_sets_the_pace() {
        let body = filling(None);
        let reader = body.read(0).expect("open");
        body.grow(Bytes::from(vec![b'x'; BODY_LEN_MAX + 1]), true, 0);
        assert!(wanted(&body).is_pending());
        assert_eq!(waiting(&reader).0.len(), BODY_LEN_MAX + 1);
        assert_eq!(wanted(&body), Poll::Ready(true));
        assert_eq!(body.end(&Next::End), None);
        body.tell_end(&Next::End);
        assert_eq!(waiting(&reader), (String::new(), Some(Next::End)));
    }
}
