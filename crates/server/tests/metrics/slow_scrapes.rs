//! Clients that read scrapes slowly or disconnect: they must not affect other operators or the clients of sites.

use lowroad_testkit::{ClientResponse, TestClient};

use crate::support::{ObservedServer, READ};

/// More than the number of the service's helper threads.
const SLOW_COUNT: usize = 8;
/// Pipelined requests of a slow client. Their responses exceed the socket buffers.
const REQUEST_COUNT: usize = 100;

fn requests(observed: &ObservedServer) -> TestClient {
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
fn slow_scrapes_do_not_affect_others() {
    let observed = ObservedServer::start();
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
    // The slow clients receive all responses.
    for client in &mut slow {
        for _ in 0..REQUEST_COUNT {
            assert_eq!(client.response().status, 200);
        }
        assert!(client.received.is_empty());
    }
}

#[test]
fn aborted_scrapes_do_not_affect_others() {
    let observed = ObservedServer::start();
    for round in 1..=20 {
        let mut clients: Vec<TestClient> = (0..SLOW_COUNT).map(|_| requests(&observed)).collect();
        clients.iter_mut().for_each(read_byte);
        clients.into_iter().for_each(TestClient::reset);
        // The client disconnects within its request.
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
        assert_is_complete(&response, &text);
    }
}

fn assert_is_complete(response: &ClientResponse, text: &str) {
    let len = response
        .field("content-length")
        .and_then(|len| len.parse().ok());
    assert_eq!(len, Some(text.len()));
}
