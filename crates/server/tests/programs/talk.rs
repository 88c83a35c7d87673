//! Sends requests, and receives responses with any framing: by length, chunked, or until the connection closes.

use std::net::SocketAddr;

use lowroad_testkit::{ClientResponse, TestClient};

/// The framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By its length, or without a body.
    Length,
    /// By a last chunk.
    Chunk,
    /// By the connection's end.
    Close,
    /// The response was truncated.
    Cut,
}

/// Sends a request without a body on a new connection.
pub fn ask(address: SocketAddr, method: &str, path: &str, fields: &str) -> (ClientResponse, End) {
    request_on(&mut TestClient::connect(address), method, path, fields)
}

/// Sends a request without a body on this connection.
pub fn request_on(
    client: &mut TestClient,
    method: &str,
    path: &str,
    fields: &str,
) -> (ClientResponse, End) {
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
    ));
    answer(client, method)
}

/// Sends a POST with a body on this connection.
pub fn post(client: &mut TestClient, path: &str, body: &str) -> (ClientResponse, End) {
    let len = body.len();
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n{body}"
    ));
    answer(client, "POST")
}

/// Sends a POST in chunks on this connection.
pub fn post_chunked(client: &mut TestClient, path: &str, parts: &[&str]) -> (ClientResponse, End) {
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    ));
    for part in parts {
        client.send(format!("{:x}\r\n{part}\r\n", part.len()));
    }
    client.send("0\r\n\r\n");
    answer(client, "POST")
}

/// Sends the head of a POST of `len` bytes with only the first bytes of its body.
pub fn begin_post(client: &mut TestClient, path: &str, len: usize, first: &[u8]) {
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"
    ));
    client.send(first);
}

/// Bytes that do not repeat.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Receives the response to a request with this method.
pub fn answer(client: &mut TestClient, method: &str) -> (ClientResponse, End) {
    let head = head(client);
    let status = head[9..12].parse().expect("a status");
    let mut response = ClientResponse {
        status,
        head,
        body: Vec::new(),
    };
    if method == "HEAD" || matches!(status, 100..200 | 204 | 304) {
        return (response, End::Length);
    }
    let (body, end) = if let Some(len) = response.field("content-length") {
        let len = len.parse().expect("a length");
        match take(client, len) {
            Some(body) => (body, End::Length),
            None => (std::mem::take(&mut client.received), End::Cut),
        }
    } else if response.field("transfer-encoding") == Some("chunked") {
        chunks(client)
    } else {
        while client.receive_once() {}
        (std::mem::take(&mut client.received), End::Close)
    };
    response.body = body;
    (response, end)
}

/// Receives a head, and leaves the bytes after it in the buffer.
pub fn head(client: &mut TestClient) -> String {
    let found = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
    loop {
        if let Some(at) = found(&client.received) {
            let head = client.received.drain(..at + 4).collect();
            return String::from_utf8(head).expect("a text head");
        }
        assert!(client.receive_once(), "the connection ended before a head");
    }
}

/// Receives a body in chunks.
pub fn chunks(client: &mut TestClient) -> (Vec<u8>, End) {
    let mut body = Vec::new();
    loop {
        let Some(line) = line(client) else {
            return (body, End::Cut);
        };
        let len = usize::from_str_radix(&line, 16).expect("a chunk's length");
        let Some(chunk) = take(client, len + 2) else {
            return (body, End::Cut);
        };
        assert!(chunk.ends_with(b"\r\n"));
        if len == 0 {
            return (body, End::Chunk);
        }
        body.extend_from_slice(&chunk[..len]);
    }
}

fn line(client: &mut TestClient) -> Option<String> {
    loop {
        let end = client.received.windows(2).position(|two| two == b"\r\n");
        if let Some(at) = end {
            let line: Vec<u8> = client.received.drain(..at + 2).take(at).collect();
            return Some(String::from_utf8(line).expect("text"));
        }
        if !client.receive_once() {
            return None;
        }
    }
}

fn take(client: &mut TestClient, len: usize) -> Option<Vec<u8>> {
    while client.received.len() < len {
        if !client.receive_once() {
            return None;
        }
    }
    Some(client.received.drain(..len).collect())
}
