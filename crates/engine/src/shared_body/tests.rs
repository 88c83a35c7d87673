//! Readers of a shared body: each alone, and many with random histories.

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

fn wanted(growing: &SharedBody) -> Poll<bool> {
    let mut context = Context::from_waker(Waker::noop());
    growing.poll_demand(&mut context, |_| panic!("nobody is slow"))
}

#[test]
fn each_reads_all_of_it_whenever_it_comes() {
    let growing = SharedBody::default();
    let mut early = growing.reader().expect("open");
    growing.push(Bytes::from_static(b"ab"));
    let mut late = growing.reader().expect("open");
    assert_eq!(read(&mut early), (b"ab".to_vec(), None));
    growing.push(Bytes::from_static(b"c"));
    growing.end(StreamItem::End);
    let mut last = growing.reader().expect("all of it is there");
    assert_eq!(read(&mut early), (b"c".to_vec(), Some(StreamItem::End)));
    assert_eq!(read(&mut late), (b"abc".to_vec(), Some(StreamItem::End)));
    drop(growing);
    assert_eq!(read(&mut last), (b"abc".to_vec(), Some(StreamItem::End)));
}

#[test]
fn what_is_dropped_or_cut_is_cut_for_all() {
    for is_dropped in [false, true] {
        let growing = SharedBody::default();
        let mut reader = growing.reader().expect("open");
        growing.push(Bytes::from_static(b"ab"));
        if !is_dropped {
            growing.end(StreamItem::Cut);
            assert!(growing.reader().is_none());
        }
        drop(growing);
        assert_eq!(read(&mut reader), (b"ab".to_vec(), Some(StreamItem::Cut)));
    }
}

#[test]
fn who_has_had_its_turn_is_asked_again_behind_the_others() {
    let growing = SharedBody::default();
    let mut reader = growing.reader().expect("open");
    growing.push(vec![b'x'; 200 << 10].into());
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
fn all_who_wait_are_woken_once() {
    let growing = SharedBody::default();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut readers: Vec<SharedBodyReader> = (0..3).filter_map(|_| growing.reader()).collect();
    for reader in &mut readers {
        for _ in 0..2 {
            let polled = reader.poll_next(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
    }
    growing.push(Bytes::from_static(b"a"));
    growing.push(Bytes::from_static(b"b"));
    assert_eq!(count.0.load(SeqCst), 3);
}

#[test]
fn what_all_have_read_goes_once_it_is_let_go() {
    let growing = SharedBody::default();
    let (mut first, mut second) = (growing.reader().expect("open"), growing.reader());
    for part in [&b"ab"[..], b"cd", b"ef"] {
        growing.push(Bytes::from_static(part));
    }
    growing.release(None);
    assert!(growing.reader().is_none());
    assert_eq!(read(&mut first).0, b"abcdef");
    assert_eq!(growing.parts().len(), 3, "the other has read nothing");
    assert!(poll(second.as_mut().expect("open")).is_ready());
    assert_eq!(growing.parts().len(), 2);
    drop(second);
    assert!(growing.parts().is_empty());
    growing.push(Bytes::from_static(b"gh"));
    assert_eq!(read(&mut first), (b"gh".to_vec(), None));
    assert!(growing.parts().is_empty());
}

#[test]
fn one_alone_sets_the_pace_once_it_is_let_go() {
    let growing = SharedBody::default();
    let mut reader = growing.reader().expect("open");
    growing.push(vec![b'x'; 100 << 10].into());
    assert_eq!(wanted(&growing), Poll::Ready(true), "all of it is kept");
    growing.release(None);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let polled = growing.poll_demand(&mut context, |_| panic!("it is alone"));
    assert!(polled.is_pending());
    assert!(poll(&mut reader).is_ready());
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(wanted(&growing), Poll::Ready(true));
    drop(reader);
    assert_eq!(wanted(&growing), Poll::Ready(false));
}

/// The expected and received bytes of one reader.
struct Reading {
    reader: SharedBodyReader,
    had: Vec<u8>,
    ended: Option<StreamItem>,
}

/// Readers that join, read, wait and leave at any moment get the bytes in order, to their end or cut.
#[test]
fn whatever_happens_each_has_the_same_bytes() {
    for seed in 0..2_000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut growing = Some(SharedBody::default());
        let (mut made, mut readings, mut end) = (Vec::new(), Vec::<Reading>::new(), None);
        // The destination of backlogs: the stream's client reads the other end.
        let mut spools: Vec<(BodyReceiver, BodySender)> = Vec::new();
        for _ in 0..draw(60) {
            match (draw(8), &growing) {
                (0 | 1, Some(growing)) if end.is_none() => {
                    let len = [1, 10, 20_000, 70_000][draw(4) as usize];
                    let part: Vec<u8> = (0..len).map(|at| (made.len() + at) as u8).collect();
                    made.extend_from_slice(&part);
                    growing.push(part.into());
                }
                (2, Some(growing)) => readings.extend(growing.reader().map(|reader| Reading {
                    reader,
                    had: Vec::new(),
                    ended: None,
                })),
                (3, _) if !readings.is_empty() => {
                    let gone = draw(readings.len() as u64) as usize;
                    drop(readings.swap_remove(gone));
                }
                (4, Some(growing)) if draw(3) == 0 => growing.release(None),
                (5, Some(growing)) => {
                    let mut context = Context::from_waker(Waker::noop());
                    let polled = growing.poll_demand(&mut context, |client| {
                        let (to, from) = stream(10);
                        spools.push((from, client));
                        to
                    });
                    assert_eq!(polled == Poll::Ready(false), readings.is_empty(), "{seed}");
                }
                (6, Some(_)) if draw(10) == 0 => {
                    end = Some([StreamItem::End, StreamItem::Cut][draw(2) as usize].clone());
                    growing
                        .take()
                        .expect("it is there")
                        .end(end.clone().expect("set"));
                }
                (_, _) if !readings.is_empty() => {
                    let one = draw(readings.len() as u64) as usize;
                    let one = &mut readings[one];
                    if let Poll::Ready(StreamItem::Bytes(bytes)) = poll(&mut one.reader) {
                        one.had.extend_from_slice(&bytes);
                    }
                }
                _ => {}
            }
        }
        drop(growing);
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
                one.had == made,
                "{seed}: {} of {}",
                one.had.len(),
                made.len()
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
fn what_is_not_kept_elsewhere_stays_for_who_comes_late() {
    let growing = SharedBody::default();
    let mut first = growing.reader().expect("open");
    for part in [&b"ab"[..], b"cd", b"ef"] {
        growing.push(Bytes::from_static(part));
    }
    let kept_len = Arc::new(AtomicU64::new(2));
    growing.release(Some(kept_len.clone()));
    assert_eq!(read(&mut first).0, b"abcdef");
    assert_eq!(
        wanted(&growing),
        Poll::Ready(true),
        "nobody has to be waited for"
    );
    let tail = growing.tail();
    assert!(tail.reader(1).is_none(), "that has gone");
    let mut within = tail.reader(3).expect("that is here");
    let mut behind = tail.reader(6).expect("that comes");
    kept_len.store(u64::MAX, std::sync::atomic::Ordering::Release);
    growing.push(Bytes::from_static(b"gh"));
    growing.end(StreamItem::End);
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
fn who_comes_late_reads_elsewhere_first() {
    for is_seated in [true, false] {
        let growing = SharedBody::default();
        let first = growing.reader();
        growing.push(Bytes::from_static(b"ab"));
        growing.release(Some(Arc::default()));
        let (to, own) = stream(1);
        let seat = ReaderSeat::default();
        let mut late = growing.late_reader(own, seat.clone());
        drop(first);
        assert_eq!(
            wanted(&growing),
            Poll::Ready(true),
            "it is wanted for the late one"
        );
        assert!(to.push(Bytes::from_static(b"a")).is_ok());
        assert_eq!(read(&mut late), (b"a".to_vec(), None));
        *seat.lock().expect("free") = growing.tail().reader(1).filter(|_| is_seated);
        drop(to);
        let (rest, end) = match is_seated {
            true => (&b"b"[..], None),
            false => (&b""[..], Some(StreamItem::Cut)),
        };
        assert_eq!(read(&mut late), (rest.to_vec(), end));
        drop(late);
        assert_eq!(wanted(&growing), Poll::Ready(false));
    }
}
