//! Responses that come in parts and may be kept: passed on as they come, and kept once they are
//! whole. Knows nothing of whether they may be.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver, Sender};

/// What waits between who makes the parts and who sends them, beside what waits in the stream that
/// they come from.
pub const WAITING_LEN_MAX: usize = 16 << 10;

/// Passes a stream on. If it comes to its end and was no longer than `len_max`, `whole` gets all of
/// it before the other side learns that this was all.
pub async fn pass(from: Receiver, to: Sender, len_max: usize, whole: impl FnOnce(Bytes)) {
    let mut held = Some(Vec::new());
    loop {
        let next = poll_fn(|context| match to.poll_closed(context) {
            // Who makes it learns of it when `from` is dropped.
            Poll::Ready(()) => Poll::Ready(Next::Cut),
            Poll::Pending => from.poll_next(context),
        });
        match next.await {
            Next::Bytes(bytes) => {
                hold(&mut held, &bytes, len_max);
                if to.send(bytes).await.is_err() {
                    return;
                }
            }
            Next::End => {
                if let Some(held) = held {
                    whole(held.into());
                }
                return to.end();
            }
            Next::Cut => return,
        }
    }
}

fn hold(held: &mut Option<Vec<u8>>, bytes: &[u8], len_max: usize) {
    if let Some(all) = held
        && all.len() + bytes.len() <= len_max
    {
        all.extend_from_slice(bytes);
    } else {
        *held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_engine::stream::stream;
    use std::task::{Context, Waker};

    const LEN_MAX: usize = 8;

    /// Passes these parts on; says what was held at the end, and what came out.
    fn passed(parts: &[&'static str], end: bool) -> (Option<Bytes>, String, Next) {
        let (source, from) = stream(100);
        let (to, out) = stream(100);
        for part in parts {
            source
                .push(Bytes::from_static(part.as_bytes()))
                .expect("open");
        }
        if end {
            source.end();
        } else {
            drop(source);
        }
        let mut context = Context::from_waker(Waker::noop());
        let held = std::cell::RefCell::new(None);
        let passing = std::pin::pin!(pass(from, to, LEN_MAX, |all| drop(held.replace(Some(all)))));
        assert!(passing.poll(&mut context).is_ready());
        let mut text = String::new();
        loop {
            match out.poll_next(&mut context) {
                Poll::Ready(Next::Bytes(bytes)) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Poll::Ready(end) => return (held.take(), text, end),
                Poll::Pending => panic!("no end"),
            }
        }
    }

    #[test]
    fn what_is_whole_is_held() {
        let whole = Some(Bytes::from_static(b"abcdefgh"));
        assert_eq!(
            passed(&["abc", "defgh"], true),
            (whole, "abcdefgh".into(), Next::End)
        );
        assert_eq!(passed(&[], true).0, Some(Bytes::new()));
    }

    #[test]
    fn what_is_long_is_passed_on_only() {
        let long = (None, "abcdefghijk".to_string(), Next::End);
        assert_eq!(passed(&["abc", "defghi", "jk"], true), long);
    }

    #[test]
    fn what_is_cut_stays_cut() {
        assert_eq!(passed(&["abc"], false), (None, "abc".into(), Next::Cut));
    }

    #[test]
    fn who_makes_it_learns_that_nobody_wants_it() {
        let (source, from) = stream(100);
        let (to, out) = stream(100);
        let mut passing = std::pin::pin!(pass(from, to, LEN_MAX, |_| panic!("it is not whole")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(passing.as_mut().poll(&mut context).is_pending());
        drop(out);
        assert!(passing.as_mut().poll(&mut context).is_ready());
        assert!(source.poll_closed(&mut context).is_ready());
    }
}
