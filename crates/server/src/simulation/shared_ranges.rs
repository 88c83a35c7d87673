//! Concurrent range requests for one object: they share the response of an origin that ignores Range, and do not wait
//! for each other if the origin answers with parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_engine_sim::for_each_seed;

use super::front::{ClientResponse, OriginRequest, SimClient, TestFront, TestOrigin, response};

const TEXT: &str = "0123456789abcdefghij";
const FIELDS: &str = "ETag: \"a\"\r\nCache-Control: max-age=60\r\n";
/// Concurrent requests.
const CLIENTS: usize = 10;
/// Less than the time for which a request waits for another one's response head, in ms.
const SHORT_MS: usize = 4_000;

/// The first and last byte of a client's range.
fn range_of(number: usize) -> (usize, usize) {
    (number, number + 5)
}

fn send_range(front: &TestFront, path: &str, number: usize, fields: &str) -> SimClient {
    let (first, last) = range_of(number);
    let mut client = front.connect();
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nRange: bytes={first}-{last}\r\n{fields}\r\n"
    ));
    client
}

fn send_ranges(front: &TestFront, path: &str, fields: &str) -> Vec<SimClient> {
    let send = |number| send_range(front, path, number, fields);
    (0..CLIENTS).map(send).collect()
}

/// The requested range, or the whole (RFC 9110 §14.2).
fn is_right(response: &ClientResponse, number: usize) -> bool {
    let (first, last) = range_of(number);
    match response.status {
        200 => response.text() == TEXT,
        206 => {
            let range = format!("bytes {first}-{last}/{}", TEXT.len());
            let is_it = response.field("content-range") == Some(range.as_str());
            is_it && response.text() == TEXT[first..=last]
        }
        _ => false,
    }
}

fn receive_all(clients: Vec<SimClient>) {
    for (number, mut client) in clients.into_iter().enumerate() {
        let got = client.response();
        assert!(is_right(&got, number), "{number}: {got:?}");
    }
}

/// The requested part, without lifetime or validator, so that it is not stored.
fn part(asked: &OriginRequest) -> String {
    let range = asked
        .field("range")
        .and_then(|it| it.strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|it| it.split_once('-')) else {
        return response("200 OK", FIELDS, TEXT);
    };
    let number = |digits: &str| digits.parse::<usize>().expect("a number");
    let (first, last) = (number(first), number(last));
    let fields = format!("Content-Range: bytes {first}-{last}/{}\r\n", TEXT.len());
    response("206 Partial Content", &fields, &TEXT[first..=last])
}

/// Advances time until the origin has this many requests, but less than requests wait for each other.
fn wait_for_requests(front: &TestFront, count: usize) {
    for _ in 0..SHORT_MS / 10 {
        if front.origin.count() >= count {
            break;
        }
        front.pass(10);
    }
    assert_eq!(front.origin.count(), count);
}

#[test]
fn ranges_share_the_whole_of_an_origin_that_ignores_them() {
    for_each_seed(0..40, |seed| {
        let front = TestFront::by(seed, 1 + (seed % 2) as usize, |_| {
            response("200 OK", FIELDS, TEXT)
        });
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), 1);
        let (_, [_, coalesced, _]) = front.cache_counters();
        let ([hits, misses, passes], _) = front.cache_counters();
        assert_eq!((hits + misses, passes, misses - coalesced), (10, 0, 1));
    });
}

#[test]
fn an_origin_that_answers_parts_is_asked_for_all_of_them_at_once() {
    for_each_seed(0..40, |seed| {
        // The origin answers only a limited number of requests of each burst.
        let answered = Arc::new(AtomicUsize::new(1));
        let limit = answered.clone();
        let front = TestFront::with_site(
            seed,
            TestOrigin::start(move |asked, stream| {
                if asked.number < limit.load(SeqCst) {
                    stream.extend_from_slice(part(asked).as_bytes());
                }
                true
            }),
            "",
        );
        // While the origin's behaviour is unknown, the others wait for at most one response head.
        let first = send_ranges(&front, "/", "");
        wait_for_requests(&front, CLIENTS);
        drop(first);
        // After that no request waits: the origin gets all of them before it answers any.
        let second = send_ranges(&front, "/", "");
        wait_for_requests(&front, 2 * CLIENTS);
        drop(second);
        answered.store(usize::MAX, SeqCst);
        receive_all(send_ranges(&front, "/", ""));
        receive_all(send_ranges(&front, "/other", ""));
    });
}

#[test]
fn an_origin_that_ignores_ranges_from_now_on_is_asked_once_again() {
    for_each_seed(0..10, |seed| {
        let front = TestFront::by(seed, 1, |asked| match asked.number {
            0 => response(
                "206 Partial Content",
                "Content-Range: bytes 0-5/20\r\n",
                &TEXT[..6],
            ),
            1 => response("200 OK", "Cache-Control: max-age=1\r\n", TEXT),
            _ => response("200 OK", FIELDS, TEXT),
        });
        receive_all(vec![send_range(&front, "/", 0, "")]);
        receive_all(vec![send_range(&front, "/", 0, "")]);
        // The whole response, with a lifetime of 1 s, is stale by then.
        front.pass(3_000);
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), 3);
    });
}

#[test]
fn ranges_on_conditions_neither_wait_nor_are_waited_for() {
    for_each_seed(0..10, |seed| {
        for fields in ["If-Range: \"b\"\r\n", "If-None-Match: \"b\"\r\n"] {
            let front = TestFront::with_site(seed, TestOrigin::start(|_, _| true), "");
            let _clients = send_ranges(&front, "/", fields);
            wait_for_requests(&front, CLIENTS);
        }
    });
}

#[test]
fn a_response_that_may_not_be_stored_is_no_other_requests() {
    for_each_seed(0..10, |seed| {
        let front = TestFront::by(seed, 1, |_| {
            response("200 OK", "Cache-Control: private\r\n", TEXT)
        });
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), CLIENTS);
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), 2 * CLIENTS);
    });
}
