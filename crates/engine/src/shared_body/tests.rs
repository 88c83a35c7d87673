//! Tests of the readers of a shared body: single cases, and random sequences of operations.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll(reader: &mut SharedBodyReader) -> Poll<StreamItem> {
    reader.poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Reads all available bytes, in as many turns as necessary.
fn read(reader: &mut SharedBodyReader) -> (Vec<u8>, Option<StreamItem>) {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut all = Vec::new();
    loop {
        let before = count.0.load(SeqCst);
        match reader.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(StreamItem::Bytes(bytes)) => all.extend_from_slice(&bytes),
            Poll::Ready(end) => return (all, Some(end)),
            Poll::Pending if count.0.load(SeqCst) > before => {}
            Poll::Pending => return (all, None),
        }
    }
}

fn demand(shared_body: &SharedBody) -> Poll<bool> {
    let mut context = Context::from_waker(Waker::noop());
    shared_body.poll_demand(&mut context, |_| panic!("nobody is slow"))
}

#[test]
fn early_and_late_readers_read_the_whole_body() {
    let shared_body = SharedBody::default();
    let mut early = shared_body.reader().expect("open");
    shared_body.push(Bytes::from_static(b"ab"));
    let mut late = shared_body.reader().expect("open");
    assert_eq!(read(&mut early), (b"ab".to_vec(), None));
    shared_body.push(Bytes::from_static(b"c"));
    shared_body.end(StreamItem::End);
    let mut last = shared_body.reader().expect("all of it is there");
    assert_eq!(read(&mut early), (b"c".to_vec(), Some(StreamItem::End)));
    assert_eq!(read(&mut late), (b"abc".to_vec(), Some(StreamItem::End)));
    drop(shared_body);
    assert_eq!(read(&mut last), (b"abc".to_vec(), Some(StreamItem::End)));
}

#[test]
fn dropped_or_cut_body_is_cut_for_all_readers() {
    for is_dropped in [false, true] {
        let shared_body = SharedBody::default();
        let mut reader = shared_body.reader().expect("open");
        shared_body.push(Bytes::from_static(b"ab"));
        if !is_dropped {
            shared_body.end(StreamItem::Cut);
            assert!(shared_body.reader().is_none());
        }
        drop(shared_body);
        assert_eq!(read(&mut reader), (b"ab".to_vec(), Some(StreamItem::Cut)));
    }
}

#[test]
fn reader_yields_after_the_length_of_its_turn() {
    let shared_body = SharedBody::default();
    let mut reader = shared_body.reader().expect("open");
    shared_body.push(vec![b'x'; 200 << 10].into());
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    for (turn, turn_len) in [FIRST_TURN_LEN, TURN_LEN_MAX, TURN_LEN_MAX]
        .into_iter()
        .enumerate()
    {
        assert!(reader.has_bytes());
        let Poll::Ready(StreamItem::Bytes(bytes)) = reader.poll_next(&mut context) else {
            panic!("it is its turn");
        };
        assert_eq!(bytes.len(), turn_len);
        assert!(!reader.has_bytes(), "that was its turn");
        assert!(reader.poll_next(&mut context).is_pending());
        assert_eq!(count.0.load(SeqCst), turn + 1);
    }
}

#[test]
fn waiting_readers_are_woken_once() {
    let shared_body = SharedBody::default();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut readers: Vec<SharedBodyReader> = (0..3).filter_map(|_| shared_body.reader()).collect();
    for reader in &mut readers {
        for _ in 0..2 {
            let polled = reader.poll_next(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
    }
    shared_body.push(Bytes::from_static(b"a"));
    shared_body.push(Bytes::from_static(b"b"));
    assert_eq!(count.0.load(SeqCst), 3);
}

#[test]
fn parts_read_by_all_are_dropped_after_release() {
    let shared_body = SharedBody::default();
    let (mut first, mut second) = (shared_body.reader().expect("open"), shared_body.reader());
    for part in [&b"ab"[..], b"cd", b"ef"] {
        shared_body.push(Bytes::from_static(part));
    }
    shared_body.release(None);
    assert!(shared_body.reader().is_none());
    assert_eq!(read(&mut first).0, b"abcdef");
    assert_eq!(shared_body.parts().len(), 3, "the other has read nothing");
    assert!(poll(second.as_mut().expect("open")).is_ready());
    assert_eq!(shared_body.parts().len(), 2);
    drop(second);
    assert!(shared_body.parts().is_empty());
    shared_body.push(Bytes::from_static(b"gh"));
    assert_eq!(read(&mut first), (b"gh".to_vec(), None));
    assert!(shared_body.parts().is_empty());
}

#[test]
fn single_reader_limits_the_producer_after_release() {
    let shared_body = SharedBody::default();
    let mut reader = shared_body.reader().expect("open");
    shared_body.push(vec![b'x'; 100 << 10].into());
    assert_eq!(demand(&shared_body), Poll::Ready(true), "all of it is kept");
    shared_body.release(None);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let polled = shared_body.poll_demand(&mut context, |_| panic!("it is alone"));
    assert!(polled.is_pending());
    assert!(poll(&mut reader).is_ready());
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(demand(&shared_body), Poll::Ready(true));
    drop(reader);
    assert_eq!(demand(&shared_body), Poll::Ready(false));
}

/// A reader, with the bytes that it has received.
struct ReaderCase {
    reader: SharedBodyReader,
    had: Vec<u8>,
    ended: Option<StreamItem>,
}

/// Readers that join, read, wait and leave at any time get all bytes in order, up to the end or the cut.
#[test]
fn random_operations_give_all_readers_the_same_bytes() {
    for seed in 0..2_000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random_below = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut shared_body = Some(SharedBody::default());
        let (mut all_bytes, mut readings, mut end) = (Vec::new(), Vec::<ReaderCase>::new(), None);
        // Stand-ins for spools, which take over the queues of lagging readers.
        let mut spools: Vec<(BodyReceiver, BodySender)> = Vec::new();
        for _ in 0..random_below(60) {
            match (random_below(8), &shared_body) {
                (0 | 1, Some(shared_body)) if end.is_none() => {
                    let len = [1, 10, 20_000, 70_000][random_below(4) as usize];
                    let part: Vec<u8> = (0..len).map(|at| (all_bytes.len() + at) as u8).collect();
                    all_bytes.extend_from_slice(&part);
                    shared_body.push(part.into());
                }
                (2, Some(shared_body)) => {
                    readings.extend(shared_body.reader().map(|reader| ReaderCase {
                        reader,
                        had: Vec::new(),
                        ended: None,
                    }))
                }
                (3, _) if !readings.is_empty() => {
                    let gone = random_below(readings.len() as u64) as usize;
                    drop(readings.swap_remove(gone));
                }
                (4, Some(shared_body)) if random_below(3) == 0 => shared_body.release(None),
                (5, Some(shared_body)) => {
                    let mut context = Context::from_waker(Waker::noop());
                    let polled = shared_body.poll_demand(&mut context, |client| {
                        let (to, from) = stream(10);
                        spools.push((from, client));
                        to
                    });
                    assert_eq!(polled == Poll::Ready(false), readings.is_empty(), "{seed}");
                }
                (6, Some(_)) if random_below(10) == 0 => {
                    end =
                        Some([StreamItem::End, StreamItem::Cut][random_below(2) as usize].clone());
                    shared_body
                        .take()
                        .expect("it is there")
                        .end(end.clone().expect("set"));
                }
                (_, _) if !readings.is_empty() => {
                    let one = random_below(readings.len() as u64) as usize;
                    let one = &mut readings[one];
                    if let Poll::Ready(StreamItem::Bytes(bytes)) = poll(&mut one.reader) {
                        one.had.extend_from_slice(&bytes);
                    }
                }
                _ => {}
            }
        }
        drop(shared_body);
        for (from, client) in spools {
            let mut context = Context::from_waker(Waker::noop());
            loop {
                match from.poll_next(&mut context) {
                    Poll::Ready(StreamItem::Bytes(bytes)) => drop(client.push(bytes)),
                    Poll::Ready(StreamItem::End) => break client.end(),
                    Poll::Ready(StreamItem::Cut) | Poll::Pending => break,
                }
            }
        }
        for mut one in readings {
            let (rest, ended) = read(&mut one.reader);
            one.had.extend(rest);
            one.ended = ended;
            assert!(
                one.had == all_bytes,
                "{seed}: {} of {}",
                one.had.len(),
                all_bytes.len()
            );
            assert_eq!(
                one.ended,
                Some(end.clone().unwrap_or(StreamItem::Cut)),
                "{seed}"
            );
        }
    }
}

#[test]
fn unstored_parts_are_kept_for_late_readers() {
    let shared_body = SharedBody::default();
    let mut first = shared_body.reader().expect("open");
    for part in [&b"ab"[..], b"cd", b"ef"] {
        shared_body.push(Bytes::from_static(part));
    }
    let stored_len = Arc::new(AtomicU64::new(2));
    shared_body.release(Some(stored_len.clone()));
    assert_eq!(read(&mut first).0, b"abcdef");
    assert_eq!(
        demand(&shared_body),
        Poll::Ready(true),
        "nobody has to be waited for"
    );
    let tail = shared_body.tail();
    assert!(tail.reader(1).is_none(), "that has gone");
    let mut within = tail.reader(3).expect("that is here");
    let mut behind = tail.reader(6).expect("that comes");
    stored_len.store(u64::MAX, std::sync::atomic::Ordering::Release);
    shared_body.push(Bytes::from_static(b"gh"));
    shared_body.end(StreamItem::End);
    assert_eq!(
        read(&mut within),
        (b"defgh".to_vec(), Some(StreamItem::End))
    );
    assert_eq!(read(&mut behind), (b"gh".to_vec(), Some(StreamItem::End)));
    assert_eq!(read(&mut first), (b"gh".to_vec(), Some(StreamItem::End)));
    assert!(tail.reader(6).is_none(), "all of it has gone");
    assert_eq!(
        read(&mut tail.reader(8).expect("the end")),
        (vec![], Some(StreamItem::End))
    );
}

#[test]
fn late_reader_reads_its_queue_then_the_shared_body() {
    for has_continuation in [true, false] {
        let shared_body = SharedBody::default();
        let first = shared_body.reader();
        shared_body.push(Bytes::from_static(b"ab"));
        shared_body.release(Some(Arc::default()));
        let (to, own) = stream(1);
        let continuation_slot = ContinuationSlot::default();
        let mut late = shared_body.late_reader(own, continuation_slot.clone());
        drop(first);
        assert_eq!(
            demand(&shared_body),
            Poll::Ready(true),
            "it is wanted for the late one"
        );
        assert!(to.push(Bytes::from_static(b"a")).is_ok());
        assert_eq!(read(&mut late), (b"a".to_vec(), None));
        *continuation_slot.lock().expect("free") =
            shared_body.tail().reader(1).filter(|_| has_continuation);
        drop(to);
        let (rest, end) = match has_continuation {
            true => (&b"b"[..], None),
            false => (&b""[..], Some(StreamItem::Cut)),
        };
        assert_eq!(read(&mut late), (rest.to_vec(), end));
        drop(late);
        assert_eq!(demand(&shared_body), Poll::Ready(false));
    }
}
