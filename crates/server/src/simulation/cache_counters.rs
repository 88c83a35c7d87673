//! Each request is counted once, as a hit, a miss or a pass, no matter how often it looks up the store.

use lowroad_engine_sim::for_each_seed;

use super::front::{OriginRequest, TestAccelerator, numbered_response, response};

fn answer(asked: &OriginRequest) -> String {
    match asked.target.as_str() {
        "/fresh" => numbered_response(asked, "Cache-Control: max-age=600\r\n"),
        "/vary" => numbered_response(asked, "Cache-Control: max-age=600\r\nVary: X-A\r\n"),
        "/short" => match asked.field("If-None-Match") {
            Some(_) => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".into(),
            None => numbered_response(asked, "Cache-Control: max-age=1\r\nETag: \"a\"\r\n"),
        },
        "/reused" => numbered_response(
            asked,
            "Cache-Control: max-age=1, stale-while-revalidate=600\r\n",
        ),
        _ => response("200 OK", "Cache-Control: no-store\r\n", ""),
    }
}

#[test]
fn request_counts_once_despite_several_lookups() {
    for_each_seed(0..20, |seed| {
        let front = TestAccelerator::with_seed(seed, 1, answer);
        assert_eq!(front.cache_counters(), ([0; 3], [0; 3]));
        front.get("/fresh", "");
        assert_eq!(front.cache_counters(), ([0, 1, 0], [0; 3]), "a miss");
        front.get("/fresh", "");
        front.request("HEAD", "/fresh", "");
        assert_eq!(front.cache_counters(), ([2, 1, 0], [0; 3]), "hits");
        for value in ["a", "b", "a", "b"] {
            front.get("/vary", &format!("X-A: {value}\r\n"));
        }
        assert_eq!(front.cache_counters(), ([4, 3, 0], [0; 3]), "variants");
        front.get("/private", "");
        front.request("POST", "/private", "Content-Length: 0\r\n");
        front.request("BREW", "/fresh", "Content-Length: 0\r\n");
        assert_eq!(front.cache_counters(), ([4, 3, 3], [0; 3]), "passes");
    });
}

#[test]
fn revalidated_and_stale_responses_count_as_misses_and_hits() {
    for_each_seed(0..20, |seed| {
        let front = TestAccelerator::with_seed(seed, 1, answer);
        front.get("/short", "");
        front.get("/reused", "");
        // By now, both stored responses are stale.
        front.advance_ms(5_000);
        assert_eq!(front.get("/short", "").text(), "0");
        assert_eq!(front.cache_counters(), ([0, 3, 0], [0, 0, 1]));
        assert_eq!(front.get("/reused", "").text(), "1");
        assert_eq!(front.cache_counters(), ([1, 3, 0], [1, 0, 1]));
    });
}

#[test]
fn requests_that_join_a_fetch_count_as_coalesced_misses() {
    for_each_seed(0..20, |seed| {
        let front = TestAccelerator::with_seed(seed, 1, answer);
        let mut clients: Vec<_> = (0..4).map(|_| front.connect()).collect();
        for client in &mut clients {
            client.send("GET /fresh HTTP/1.1\r\nHost: test\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        let ([hits, misses, passes], [_, coalesced, _]) = front.cache_counters();
        assert_eq!((hits + misses, passes), (4, 0));
        // Requests that arrived before the response joined the first request's fetch.
        assert_eq!(misses - coalesced, 1);
        assert_eq!(front.origin.count(), 1);
    });
}
