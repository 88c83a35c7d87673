//! Bodies with several readers while they arrive.

use std::sync::mpsc;
use std::task::Waker;

use lowroad_engine::stream::{BodyReceiver, stream};
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::HeadEncoder;

use super::*;
use crate::disk_cache::LateReaders;

const BODY_LEN_MAX: usize = 1 << 20;

fn filling(len: Option<u64>) -> StreamingObject {
    let head = HeadEncoder::start(StatusCode::OK).finish_open();
    let (bytes, map) = (head.text, head.map);
    let head = StreamedHead {
        bytes: bytes.into(),
        map,
        modified_s: None,
        len,
        selecting: SelectingFields::default(),
    };
    StreamingObject::new(head, BODY_LEN_MAX as u64, 0)
}

/// The bytes that can be read now, in any number of turns, and whether they are the end.
fn waiting(from: &mut SharedBodyReader) -> (String, Option<StreamItem>) {
    read(|context| from.poll_next(context))
}

/// The same of a stream.
fn waiting_in(from: &BodyReceiver) -> (String, Option<StreamItem>) {
    read(|context| from.poll_next(context))
}

fn read(
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<StreamItem>,
) -> (String, Option<StreamItem>) {
    let mut text = String::new();
    let mut is_second = false;
    loop {
        match poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(StreamItem::Bytes(bytes)) => {
                text.push_str(&String::from_utf8_lossy(&bytes));
                is_second = false;
            }
            Poll::Ready(end) => return (text, Some(end)),
            // The first time it may only be others' turn.
            Poll::Pending if !is_second => is_second = true,
            Poll::Pending => return (text, None),
        }
    }
}

fn wanted(filling: &StreamingObject) -> Poll<bool> {
    let mut context = Context::from_waker(Waker::noop());
    filling.poll_demand(&mut context, |_| panic!("nobody is slow"))
}

#[test]
fn who_comes_late_gets_all_of_it() {
    let body = filling(None);
    let mut first = body.read().expect("it begins");
    assert_eq!(
        body.grow(Bytes::from_static(b"ab"), true, 0),
        GrowthOutcome::Held
    );
    let mut second = body.read().expect("it is there");
    assert_eq!(
        body.grow(Bytes::from_static(b"c"), true, 0),
        GrowthOutcome::Held
    );
    assert_eq!(waiting(&mut first), ("abc".into(), None));
    assert_eq!(waiting(&mut second), ("abc".into(), None));
    let parts = body.end(&StreamItem::End).expect("it is whole");
    assert_eq!(parts.concat(), b"abc");
    let mut third = body.read().expect("it is there");
    body.notify_end(&StreamItem::End);
    assert_eq!(waiting(&mut third), ("abc".into(), Some(StreamItem::End)));
    assert_eq!(waiting(&mut first), (String::new(), Some(StreamItem::End)));
}

#[test]
fn what_is_cut_is_cut_for_all_and_read_by_nobody_else() {
    let body = filling(None);
    let (first, second) = (body.read(), body.read());
    body.grow(Bytes::from_static(b"ab"), true, 0);
    assert_eq!(body.end(&StreamItem::Cut), None);
    body.notify_end(&StreamItem::Cut);
    for mut reader in [first, second].into_iter().flatten() {
        assert_eq!(waiting(&mut reader), ("ab".into(), Some(StreamItem::Cut)));
    }
    assert!(body.read().is_none());
}

#[test]
fn what_is_shorter_than_announced_is_not_whole() {
    let body = filling(Some(3));
    let _reader = body.read();
    body.grow(Bytes::from_static(b"ab"), true, 0);
    assert_eq!(body.end(&StreamItem::End), None);
}

#[test]
fn what_nobody_reads_is_not_wanted() {
    let body = filling(None);
    let first = body.read();
    assert_eq!(wanted(&body), Poll::Ready(true));
    let second = body.read();
    drop(first);
    assert_eq!(wanted(&body), Poll::Ready(true));
    drop(second);
    assert_eq!(wanted(&body), Poll::Ready(false));
}

#[test]
fn what_is_too_long_goes_at_its_readers_pace_and_the_slow_wait_elsewhere() {
    let body = filling(None);
    let mut first = body.read().expect("open");
    let second = body.read().expect("open");
    let half = Bytes::from(vec![b'x'; BODY_LEN_MAX / 2 + 1]);
    assert_eq!(body.grow(half.clone(), true, 0), GrowthOutcome::Held);
    assert_eq!(wanted(&body), Poll::Ready(true), "memory holds it");
    let parts = vec![half.clone(), half.clone()];
    assert_eq!(body.grow(half, true, 0), GrowthOutcome::TooLong(parts));
    body.release_consumed();
    assert!(body.read().is_none());
    assert_eq!(waiting(&mut first).0.len(), BODY_LEN_MAX + 2);
    let mut context = Context::from_waker(Waker::noop());
    let mut slow = Vec::new();
    let (elsewhere, rest) = stream(10);
    let mut elsewhere = Some(elsewhere);
    let mut behind = |sender| {
        slow.push(sender);
        elsewhere.take().expect("one is slow")
    };
    assert_eq!(
        body.poll_demand(&mut context, &mut behind),
        Poll::Ready(true)
    );
    assert_eq!(
        body.grow(Bytes::from(vec![b'y'; 20]), true, 0),
        GrowthOutcome::Passed
    );
    assert_eq!(slow.len(), 1);
    // The disk has no room either.
    assert!(wanted(&body).is_pending());
    assert_eq!(waiting_in(&rest).0.len(), 20);
    assert_eq!(wanted(&body), Poll::Ready(true));
    drop((first, second));
}

#[test]
fn without_memory_it_is_for_those_who_read_it_only() {
    let body = filling(None);
    let mut first = body.read().expect("open");
    assert_eq!(
        body.grow(Bytes::from_static(b"ab"), true, 0),
        GrowthOutcome::Held
    );
    let parts = [b"ab", b"cd"].map(|part| Bytes::from_static(part)).to_vec();
    let grown = body.grow(Bytes::from_static(b"cd"), false, 0);
    assert_eq!(grown, GrowthOutcome::TooLong(parts));
    body.release_consumed();
    assert!(body.read().is_none());
    assert_eq!(body.end(&StreamItem::End), None);
    body.notify_end(&StreamItem::End);
    assert_eq!(waiting(&mut first), ("abcd".into(), Some(StreamItem::End)));
}

/// A reader that waits for bytes, and its result.
fn joining(body: &StreamingObject, now_ms: u64) -> mpsc::Receiver<Option<SharedBodyReader>> {
    let (sender, heard) = mpsc::channel();
    let from = body.read().expect("it may be read");
    let again = sender.clone();
    let tell = Box::new(move |body| again.send(body).expect("it listens"));
    if let Some(from) = body.wait(from, now_ms, tell) {
        sender.send(Some(from)).expect("it listens");
    }
    heard
}

#[test]
fn who_joins_is_answered_once_something_comes() {
    let body = filling(None);
    let early = joining(&body, 0);
    assert!(early.try_recv().is_err());
    // It counts as a reader while it waits.
    assert_eq!(wanted(&body), Poll::Ready(true));
    body.grow(Bytes::from_static(b"ab"), true, 0);
    let mut early = early.try_recv().expect("it is told").expect("a body");
    assert_eq!(waiting(&mut early), ("ab".into(), None));
    let soon = joining(&body, QUIET_MS).try_recv().expect("at once");
    assert_eq!(waiting(&mut soon.expect("a body")), ("ab".into(), None));
    let late = joining(&body, QUIET_MS + 1);
    assert!(late.try_recv().is_err());
    body.end(&StreamItem::End);
    body.notify_end(&StreamItem::End);
    let mut late = late.try_recv().expect("it is told").expect("a body");
    assert_eq!(waiting(&mut late), ("ab".into(), Some(StreamItem::End)));
}

#[test]
fn who_joins_where_nothing_comes_is_released() {
    let body = filling(None);
    let first = joining(&body, 0);
    let from = body.read().expect("it may be read");
    body.release();
    assert!(first.try_recv().expect("it is told").is_none());
    assert!(body.read().is_none(), "nobody waits for it any more");
    let (sender, heard) = mpsc::channel();
    let tell = Box::new(move |body| sender.send(body).expect("it listens"));
    assert!(body.wait(from, 0, tell).is_none());
    assert!(heard.try_recv().expect("it is told").is_none());
    body.grow(Bytes::from_static(b"ab"), true, 9_000);
    let next = joining(&body, 9_000).try_recv().expect("at once");
    assert_eq!(waiting(&mut next.expect("a body")), ("ab".into(), None));
}

#[test]
fn who_joins_what_is_then_cut_asks_for_itself() {
    let body = filling(None);
    let first = joining(&body, 0);
    body.end(&StreamItem::Cut);
    body.notify_end(&StreamItem::Cut);
    assert!(first.try_recv().expect("it is told").is_none());
}

#[test]
fn one_reader_alone_sets_the_pace() {
    let body = filling(None);
    let mut reader = body.read().expect("open");
    body.grow(Bytes::from(vec![b'x'; BODY_LEN_MAX + 1]), true, 0);
    body.release_consumed();
    assert!(wanted(&body).is_pending());
    assert_eq!(waiting(&mut reader).0.len(), BODY_LEN_MAX + 1);
    assert_eq!(wanted(&body), Poll::Ready(true));
    assert_eq!(body.end(&StreamItem::End), None);
    body.notify_end(&StreamItem::End);
    assert_eq!(waiting(&mut reader), (String::new(), Some(StreamItem::End)));
}

#[test]
fn what_is_kept_sets_the_pace_and_is_not_wanted_for_itself() {
    let body = filling(None);
    let mut client = body.read().expect("open");
    let long = Bytes::from(vec![b'x'; BODY_LEN_MAX + 1]);
    let GrowthOutcome::TooLong(parts) = body.grow(long, true, 0) else {
        panic!("it is held");
    };
    let (to, kept) = stream(10);
    let readers = LateReaders::start().expect("threads");
    body.write_to_disk(to, UnfinishedBody::new(readers), parts);
    body.release_consumed();
    assert_eq!(waiting(&mut client).0.len(), BODY_LEN_MAX + 1);
    assert!(wanted(&body).is_pending(), "the other end is slow");
    assert_eq!(waiting_in(&kept).0.len(), BODY_LEN_MAX + 1);
    assert_eq!(wanted(&body), Poll::Ready(true));
    body.grow(Bytes::from_static(b"yz"), true, 0);
    assert_eq!(waiting_in(&kept).0, "yz");
    drop(client);
    assert_eq!(wanted(&body), Poll::Ready(false));
}
