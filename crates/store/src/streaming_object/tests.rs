//! Tests of streaming objects: several readers while the body arrives.

use std::sync::mpsc;
use std::task::Waker;

use lowroad_engine::stream::{BodyReceiver, stream};
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::HeadEncoder;

use super::*;
use crate::disk_cache::LateReaders;

const BODY_LEN_MAX: usize = 1 << 20;

fn object(len: Option<u64>) -> StreamingObject {
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

/// Reads the available bytes in any number of turns; returns them, and the end of the body if it is reached.
fn read_available(from: &mut SharedBodyReader) -> (String, Option<StreamItem>) {
    read(|context| from.poll_next(context))
}

/// The same for a stream.
fn receive_available(from: &BodyReceiver) -> (String, Option<StreamItem>) {
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
            // At the first attempt it may be another reader's turn.
            Poll::Pending if !is_second => is_second = true,
            Poll::Pending => return (text, None),
        }
    }
}

fn demand(object: &StreamingObject) -> Poll<bool> {
    let mut context = Context::from_waker(Waker::noop());
    object.poll_demand(&mut context, |_| panic!("nobody is slow"))
}

#[test]
fn late_reader_gets_the_whole_body() {
    let body = object(None);
    let mut first = body.add_reader().expect("it begins");
    assert_eq!(
        body.push_bytes(Bytes::from_static(b"ab"), true, 0),
        GrowthOutcome::InMemory
    );
    let mut second = body.add_reader().expect("it is there");
    assert_eq!(
        body.push_bytes(Bytes::from_static(b"c"), true, 0),
        GrowthOutcome::InMemory
    );
    assert_eq!(read_available(&mut first), ("abc".into(), None));
    assert_eq!(read_available(&mut second), ("abc".into(), None));
    let parts = body.end(&StreamItem::End).expect("it is whole");
    assert_eq!(parts.concat(), b"abc");
    let mut third = body.add_reader().expect("it is there");
    body.notify_end(&StreamItem::End);
    assert_eq!(
        read_available(&mut third),
        ("abc".into(), Some(StreamItem::End))
    );
    assert_eq!(
        read_available(&mut first),
        (String::new(), Some(StreamItem::End))
    );
}

#[test]
fn truncated_body_is_truncated_for_all_and_gets_no_new_readers() {
    let body = object(None);
    let (first, second) = (body.add_reader(), body.add_reader());
    body.push_bytes(Bytes::from_static(b"ab"), true, 0);
    assert_eq!(body.end(&StreamItem::Cut), None);
    body.notify_end(&StreamItem::Cut);
    for mut reader in [first, second].into_iter().flatten() {
        assert_eq!(
            read_available(&mut reader),
            ("ab".into(), Some(StreamItem::Cut))
        );
    }
    assert!(body.add_reader().is_none());
}

#[test]
fn body_shorter_than_content_length_is_incomplete() {
    let body = object(Some(3));
    let _reader = body.add_reader();
    body.push_bytes(Bytes::from_static(b"ab"), true, 0);
    assert_eq!(body.end(&StreamItem::End), None);
}

#[test]
fn demand_ends_with_the_last_reader() {
    let body = object(None);
    let first = body.add_reader();
    assert_eq!(demand(&body), Poll::Ready(true));
    let second = body.add_reader();
    drop(first);
    assert_eq!(demand(&body), Poll::Ready(true));
    drop(second);
    assert_eq!(demand(&body), Poll::Ready(false));
}

#[test]
fn too_long_body_is_spooled_for_slow_readers() {
    let body = object(None);
    let mut first = body.add_reader().expect("open");
    let second = body.add_reader().expect("open");
    let half = Bytes::from(vec![b'x'; BODY_LEN_MAX / 2 + 1]);
    assert_eq!(
        body.push_bytes(half.clone(), true, 0),
        GrowthOutcome::InMemory
    );
    assert_eq!(demand(&body), Poll::Ready(true), "memory holds it");
    let parts = vec![half.clone(), half.clone()];
    assert_eq!(
        body.push_bytes(half, true, 0),
        GrowthOutcome::TooLong(parts)
    );
    body.release_consumed();
    assert!(body.add_reader().is_none());
    assert_eq!(read_available(&mut first).0.len(), BODY_LEN_MAX + 2);
    let mut context = Context::from_waker(Waker::noop());
    let mut slow = Vec::new();
    let (spool_sender, rest) = stream(10);
    let mut spool_sender = Some(spool_sender);
    let mut spool = |sender| {
        slow.push(sender);
        spool_sender.take().expect("one is slow")
    };
    assert_eq!(
        body.poll_demand(&mut context, &mut spool),
        Poll::Ready(true)
    );
    assert_eq!(
        body.push_bytes(Bytes::from(vec![b'y'; 20]), true, 0),
        GrowthOutcome::LimitExceeded
    );
    assert_eq!(slow.len(), 1);
    // The spooled stream has no room either.
    assert!(demand(&body).is_pending());
    assert_eq!(receive_available(&rest).0.len(), 20);
    assert_eq!(demand(&body), Poll::Ready(true));
    drop((first, second));
}

#[test]
fn body_without_reserved_memory_gets_no_new_readers() {
    let body = object(None);
    let mut first = body.add_reader().expect("open");
    assert_eq!(
        body.push_bytes(Bytes::from_static(b"ab"), true, 0),
        GrowthOutcome::InMemory
    );
    let parts = [b"ab", b"cd"].map(|part| Bytes::from_static(part)).to_vec();
    let grown = body.push_bytes(Bytes::from_static(b"cd"), false, 0);
    assert_eq!(grown, GrowthOutcome::TooLong(parts));
    body.release_consumed();
    assert!(body.add_reader().is_none());
    assert_eq!(body.end(&StreamItem::End), None);
    body.notify_end(&StreamItem::End);
    assert_eq!(
        read_available(&mut first),
        ("abcd".into(), Some(StreamItem::End))
    );
}

/// Adds a reader that waits for bytes; returns the channel for its result.
fn join(body: &StreamingObject, now_ms: u64) -> mpsc::Receiver<Option<SharedBodyReader>> {
    let (sender, heard) = mpsc::channel();
    let from = body.add_reader().expect("it may be read");
    let again = sender.clone();
    let tell = Box::new(move |body| again.send(body).expect("it listens"));
    if let Some(from) = body.wait(from, now_ms, tell) {
        sender.send(Some(from)).expect("it listens");
    }
    heard
}

#[test]
fn joining_reader_begins_when_bytes_arrive() {
    let body = object(None);
    let early = join(&body, 0);
    assert!(early.try_recv().is_err());
    // The waiting reader counts as a reader.
    assert_eq!(demand(&body), Poll::Ready(true));
    body.push_bytes(Bytes::from_static(b"ab"), true, 0);
    let mut early = early.try_recv().expect("it is told").expect("a body");
    assert_eq!(read_available(&mut early), ("ab".into(), None));
    let soon = join(&body, QUIET_MS).try_recv().expect("at once");
    assert_eq!(
        read_available(&mut soon.expect("a body")),
        ("ab".into(), None)
    );
    let late = join(&body, QUIET_MS + 1);
    assert!(late.try_recv().is_err());
    body.end(&StreamItem::End);
    body.notify_end(&StreamItem::End);
    let mut late = late.try_recv().expect("it is told").expect("a body");
    assert_eq!(
        read_available(&mut late),
        ("ab".into(), Some(StreamItem::End))
    );
}

#[test]
fn readers_waiting_for_a_stalled_body_are_released() {
    let body = object(None);
    let first = join(&body, 0);
    let from = body.add_reader().expect("it may be read");
    body.release();
    assert!(first.try_recv().expect("it is told").is_none());
    assert!(body.add_reader().is_none(), "nobody waits for it any more");
    let (sender, heard) = mpsc::channel();
    let tell = Box::new(move |body| sender.send(body).expect("it listens"));
    assert!(body.wait(from, 0, tell).is_none());
    assert!(heard.try_recv().expect("it is told").is_none());
    body.push_bytes(Bytes::from_static(b"ab"), true, 9_000);
    let next = join(&body, 9_000).try_recv().expect("at once");
    assert_eq!(
        read_available(&mut next.expect("a body")),
        ("ab".into(), None)
    );
}

#[test]
fn reader_waiting_for_a_truncated_body_is_released() {
    let body = object(None);
    let first = join(&body, 0);
    body.end(&StreamItem::Cut);
    body.notify_end(&StreamItem::Cut);
    assert!(first.try_recv().expect("it is told").is_none());
}

#[test]
fn single_reader_of_a_too_long_body_limits_the_pace() {
    let body = object(None);
    let mut reader = body.add_reader().expect("open");
    body.push_bytes(Bytes::from(vec![b'x'; BODY_LEN_MAX + 1]), true, 0);
    body.release_consumed();
    assert!(demand(&body).is_pending());
    assert_eq!(read_available(&mut reader).0.len(), BODY_LEN_MAX + 1);
    assert_eq!(demand(&body), Poll::Ready(true));
    assert_eq!(body.end(&StreamItem::End), None);
    body.notify_end(&StreamItem::End);
    assert_eq!(
        read_available(&mut reader),
        (String::new(), Some(StreamItem::End))
    );
}

#[test]
fn disk_writer_limits_the_pace_but_does_not_keep_the_transfer() {
    let body = object(None);
    let mut client = body.add_reader().expect("open");
    let long = Bytes::from(vec![b'x'; BODY_LEN_MAX + 1]);
    let GrowthOutcome::TooLong(parts) = body.push_bytes(long, true, 0) else {
        panic!("it is held");
    };
    let (to, kept) = stream(10);
    let readers = LateReaders::start().expect("threads");
    body.write_to_disk(to, UnfinishedBody::new(readers), parts);
    body.release_consumed();
    assert_eq!(read_available(&mut client).0.len(), BODY_LEN_MAX + 1);
    assert!(demand(&body).is_pending(), "the other end is slow");
    assert_eq!(receive_available(&kept).0.len(), BODY_LEN_MAX + 1);
    assert_eq!(demand(&body), Poll::Ready(true));
    body.push_bytes(Bytes::from_static(b"yz"), true, 0);
    assert_eq!(receive_available(&kept).0, "yz");
    drop(client);
    assert_eq!(demand(&body), Poll::Ready(false));
}
