//! Scrapes that are read slowly or given up: others, and the clients of sites, must not notice.

use lowroad_testkit::{ClientResponse, TestClient};

use crate::support::{Observed, READ};

/// More than the service has helper threads.
const SLOW_COUNT: usize = 8;
/// Pipelined requests of a slow client; their responses exceed the buffers of its socket.
const REQUEST_COUNT: usize = 100;

fn requests(observed: &Observed) -> TestClient {
    let mut client = TestClient::connect(observed.admin);
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {READ}\r\n\r\n");
    client.send(request.repeat(REQUEST_COUNT));
    client
}

/// Reads one byte.
fn read_byte(client: &mut TestClient) {
    use std::io::Read;
    let mut byte = [0];
    client.stream().read_exact(&mut byte).expect("a byte");
    client.received.extend_from_slice(&byte);
}

#[test]
fn slow_scrapes_disturb_nobody() {
    let observed = Observed::start();
    let mut slow: Vec<TestClient> = (0..SLOW_COUNT).map(|_| requests(&observed)).collect();
    for round in 0..20 {
        slow.iter_mut().for_each(read_byte);
        assert_eq!(observed.get("a.example", "/"), 200);
        let scrape = observed.scrape();
        let hits = [("outcome", "hit"), ("site", "a.example")];
        assert_eq!(
            scrape.sum("lowroad_requests_total", &hits),
            f64::from(round)
        );
    }
    // They get all that they have asked for.
    for client in &mut slow {
        for _ in 0..REQUEST_COUNT {
            assert_eq!(client.response().status, 200);
        }
        assert!(client.received.is_empty());
    }
}

#[test]
fn aborted_scrapes_disturb_nobody() {
    let observed = Observed::start();
    for round in 1..=20 {
        let mut clients: Vec<TestClient> = (0..SLOW_COUNT).map(|_| requests(&observed)).collect();
        clients.iter_mut().for_each(read_byte);
        clients.into_iter().for_each(TestClient::reset);
        // One that ends within its request.
        let mut short = TestClient::connect(observed.admin);
        short.send("GET /metrics HTTP/1.1\r\nHos");
        short.reset();
        assert_eq!(observed.get("a.example", "/"), 200);
        let mut response = observed.call("GET", "/metrics", READ);
        assert_eq!(response.status, 200);
        let text = response.text();
        response.body.clear();
        assert!(
            text.contains("lowroad_requests_total"),
            "{round}: {response:?}"
        );
        assert_is_whole(&response, &text);
    }
}

fn assert_is_whole(response: &ClientResponse, text: &str) {
    let len = response
        .field("content-length")
        .and_then(|len| len.parse().ok());
    assert_eq!(len, Some(text.len()));
}
