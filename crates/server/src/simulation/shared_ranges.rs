//! Concurrent range requests for one object. If the origin ignores Range, the requests share its one response; if it
//! answers with parts, they do not wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_engine_sim::for_each_seed;

use super::front::{
    ClientResponse, OriginRequest, SimClient, TestAccelerator, TestOrigin, response,
};

const TEXT: &str = "0123456789abcdefghij";
const FIELDS: &str = "ETag: \"a\"\r\nCache-Control: max-age=60\r\n";
/// Number of concurrent requests.
const CLIENTS: usize = 10;
/// A time in ms, shorter than the time for which a request waits for the response head of another request's fetch.
const SHORT_MS: usize = 4_000;

/// The first and last byte that a client requests.
fn range_of(number: usize) -> (usize, usize) {
    (number, number + 5)
}

fn send_range(front: &TestAccelerator, path: &str, number: usize, fields: &str) -> SimClient {
    let (first, last) = range_of(number);
    let mut client = front.connect();
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nRange: bytes={first}-{last}\r\n{fields}\r\n"
    ));
    client
}

fn send_ranges(front: &TestAccelerator, path: &str, fields: &str) -> Vec<SimClient> {
    let send = |number| send_range(front, path, number, fields);
    (0..CLIENTS).map(send).collect()
}

/// Whether the response has the requested range, or the whole object (RFC 9110 §14.2).
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

/// A response with the requested part. It has no freshness lifetime and no validator, so it is not stored.
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

/// Waits until the origin has received this many requests, but for less time than requests wait for each other.
fn wait_for_requests(front: &TestAccelerator, count: usize) {
    for _ in 0..SHORT_MS / 10 {
        if front.origin.count() >= count {
            break;
        }
        front.advance_ms(10);
    }
    assert_eq!(front.origin.count(), count);
}

#[test]
fn ranges_share_one_complete_response() {
    for_each_seed(0..40, |seed| {
        let front = TestAccelerator::with_seed(seed, 1 + (seed % 2) as usize, |_| {
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
fn ranges_are_forwarded_concurrently_to_origin_with_range_support() {
    for_each_seed(0..40, |seed| {
        // The origin answers only a limited number of requests; the limit is raised below.
        let answered = Arc::new(AtomicUsize::new(1));
        let limit = answered.clone();
        let front = TestAccelerator::with_site(
            seed,
            TestOrigin::start(move |asked, stream| {
                if asked.number < limit.load(SeqCst) {
                    stream.extend_from_slice(part(asked).as_bytes());
                }
                true
            }),
            "",
        );
        // As long as the origin's behaviour is unknown, other requests wait for at most one response head.
        let first = send_ranges(&front, "/", "");
        wait_for_requests(&front, CLIENTS);
        drop(first);
        // Afterwards no request waits: the origin receives all of them before it answers any.
        let second = send_ranges(&front, "/", "");
        wait_for_requests(&front, 2 * CLIENTS);
        drop(second);
        answered.store(usize::MAX, SeqCst);
        receive_all(send_ranges(&front, "/", ""));
        receive_all(send_ranges(&front, "/other", ""));
    });
}

#[test]
fn origin_that_begins_to_ignore_ranges_gets_one_shared_request() {
    for_each_seed(0..10, |seed| {
        let front = TestAccelerator::with_seed(seed, 1, |asked| match asked.number {
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
        // By now the whole object, which was stored with a lifetime of 1 s, is stale.
        front.advance_ms(3_000);
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), 3);
    });
}

#[test]
fn conditional_ranges_do_not_join_fetches() {
    for_each_seed(0..10, |seed| {
        for fields in ["If-Range: \"b\"\r\n", "If-None-Match: \"b\"\r\n"] {
            let front = TestAccelerator::with_site(seed, TestOrigin::start(|_, _| true), "");
            let _clients = send_ranges(&front, "/", fields);
            wait_for_requests(&front, CLIENTS);
        }
    });
}

#[test]
fn unstorable_response_is_not_shared() {
    for_each_seed(0..10, |seed| {
        let front = TestAccelerator::with_seed(seed, 1, |_| {
            response("200 OK", "Cache-Control: private\r\n", TEXT)
        });
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), CLIENTS);
        receive_all(send_ranges(&front, "/", ""));
        assert_eq!(front.origin.count(), 2 * CLIENTS);
    });
}
