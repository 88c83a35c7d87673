//! Files over a socket: methods, persistent connections, pipelining, unexpected request bodies. The tests
//! `static_folders`, `static_conditions` and `static_encodings` cover folders, conditional and range requests, and
//! content codings.
//!
//! RFC 9110 §9 (methods), RFC 9112 §9 (connections).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// Sun, 06 Nov 1994 08:49:37 GMT.
const DATED_S: u64 = 784_111_777;

fn dated() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(DATED_S)
}

/// Bytes that depend on their position, so that misplaced parts are detected.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 7 % 251) as u8 ^ (at >> 13) as u8)
        .collect()
}

/// One file for each way of sending: inline, from the arena, from its file.
fn site() -> TempFolder {
    let folder = TempFolder::new();
    folder.file_modified_at("small.txt", "hello", dated());
    folder.file_modified_at("medium.bin", pattern(100_000), dated());
    folder.file_modified_at("large.bin", pattern(3 << 20), dated());
    folder.file_modified_at("empty.txt", "", dated());
    folder
}

fn request(line: &str, fields: &str) -> String {
    format!("{line}\r\nHost: test\r\n{fields}\r\n")
}

/// The head of a complete HTTP/1.1 response, without Date and ETag.
fn whole_head(content_type: &str, len: usize, end: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: {content_type}\r\n\
         Accept-Ranges: bytes\r\n\
         Content-Length: {len}\r\n{end}\r\n"
    )
}

fn without_tag(got: &ClientResponse) -> String {
    let tag = format!("ETag: {}\r\n", got.field("etag").expect("a tag"));
    got.dateless_head().replace(&tag, "")
}

#[test]
fn get_and_head_are_answered_for_every_size() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for (path, content_type, body) in [
        ("/small.txt", "text/plain; charset=utf-8", b"hello".to_vec()),
        ("/medium.bin", "application/octet-stream", pattern(100_000)),
        ("/large.bin", "application/octet-stream", pattern(3 << 20)),
        ("/empty.txt", "text/plain; charset=utf-8", Vec::new()),
    ] {
        let head = whole_head(content_type, body.len(), "");
        // The first response loads the file, the second comes from the cache; both must be equal.
        for round in ["miss", "hit"] {
            let got = client.get(path, "");
            assert_eq!(without_tag(&got), head, "{path} {round}");
            assert!(got.body == body, "{path} {round}: another body");
            client.send(request(&format!("HEAD {path} HTTP/1.1"), ""));
            let got = client.response_to_head();
            assert_eq!(without_tag(&got), head, "HEAD {path} {round}");
        }
    }
    assert!(
        client.received.is_empty(),
        "nothing follows the last answer"
    );
}

#[test]
fn head_of_generated_responses_equals_get_without_body() {
    let folder = site();
    folder.file("folder/file", "x");
    let server = TestServer::serve(PROGRAM, &folder, &["--listing"]);
    let mut client = server.connect();
    for path in ["/", "/folder", "/folder/", "/missing", "/small.txt/"] {
        let get = client.get(path, "");
        assert!(!get.body.is_empty(), "{path}");
        client.send(request(&format!("HEAD {path} HTTP/1.1"), ""));
        let head = client.response_to_head();
        assert_eq!(head.dateless_head(), get.dateless_head(), "{path}");
    }
    assert_eq!(client.get("/small.txt", "").text(), "hello");
}

#[test]
fn options_lists_allowed_methods() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for target in ["/small.txt", "/missing", "*"] {
        client.send(request(&format!("OPTIONS {target} HTTP/1.1"), ""));
        assert_eq!(
            client.response().dateless_head(),
            "HTTP/1.1 204 No Content\r\nAllow: GET, HEAD, OPTIONS\r\n\r\n",
            "{target}"
        );
    }
}

#[test]
fn http_1_0_closes_without_keep_alive() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    for (path, content_type, len) in [
        ("/small.txt", "text/plain; charset=utf-8", 5),
        ("/medium.bin", "application/octet-stream", 100_000),
        ("/large.bin", "application/octet-stream", 3 << 20),
    ] {
        let mut client = server.connect();
        for _ in 0..2 {
            // HTTP/1.0 does not require Host.
            client.send(format!(
                "GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
            ));
            let head = whole_head(content_type, len, "Connection: keep-alive\r\n");
            let got = client.response();
            assert_eq!((without_tag(&got), got.body.len()), (head, len));
        }
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        let head = whole_head(content_type, len, "Connection: close\r\n");
        let got = client.response();
        assert_eq!((without_tag(&got), got.body.len()), (head, len));
        assert!(client.wait_for_close() && client.received.is_empty());
    }
}

#[test]
fn http_1_1_persists_without_connection_close() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    for (path, len) in [
        ("/small.txt", 5),
        ("/medium.bin", 100_000),
        ("/large.bin", 3 << 20),
        ("/missing", 0),
    ] {
        let mut client = server.connect();
        assert_eq!(client.get(path, "").field("connection"), None);
        let last = client.get(path, "Connection: close\r\n");
        assert_eq!(last.field("connection"), Some("close"), "{path}");
        assert!(len == 0 || last.body.len() == len, "{path}");
        assert!(
            client.wait_for_close() && client.received.is_empty(),
            "{path}"
        );
    }
}

/// Requests of each kind with the expected status and body.
fn mixture() -> Vec<(String, u16, Vec<u8>)> {
    let large = pattern(3 << 20);
    let mut mixture = vec![
        (
            request("GET /small.txt HTTP/1.1", ""),
            200,
            b"hello".to_vec(),
        ),
        (
            request("GET /medium.bin HTTP/1.1", ""),
            200,
            pattern(100_000),
        ),
        (request("HEAD /large.bin HTTP/1.1", ""), 200, Vec::new()),
        (request("GET /large.bin HTTP/1.1", ""), 200, large.clone()),
        (
            request("GET /small.txt HTTP/1.1", ""),
            200,
            b"hello".to_vec(),
        ),
        (
            request(
                "GET /large.bin HTTP/1.1",
                "Range: bytes=1000000-1999999\r\n",
            ),
            206,
            large[1_000_000..2_000_000].to_vec(),
        ),
        (request("OPTIONS * HTTP/1.1", ""), 204, Vec::new()),
        (request("GET /empty.txt HTTP/1.1", ""), 200, Vec::new()),
    ];
    for number in 0..20 {
        let path = format!("/{number}.txt");
        mixture.push((
            request(&format!("GET {path} HTTP/1.1"), ""),
            200,
            path.into_bytes(),
        ));
    }
    mixture
}

fn expect_mixture(client: &mut TestClient, mixture: &[(String, u16, Vec<u8>)]) {
    for (request, status, body) in mixture {
        let got: ClientResponse = if request.starts_with("HEAD") {
            client.response_to_head()
        } else {
            client.response()
        };
        assert_eq!(got.status, *status, "{request}");
        assert!(got.body == *body, "{request}: another body");
    }
    assert!(client.received.is_empty());
}

#[test]
fn pipelined_responses_are_in_request_order() {
    let folder = site();
    for number in 0..20 {
        folder.file(format!("{number}.txt"), format!("/{number}.txt"));
    }
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mixture = mixture();
    let all: String = mixture
        .iter()
        .map(|(request, ..)| request.as_str())
        .collect();
    // First without stored responses, then with them, then in segments with arbitrary ends.
    for piece_len in [all.len(), all.len(), 7, 100] {
        let mut client = server.connect();
        for piece in all.as_bytes().chunks(piece_len) {
            client.send(piece);
        }
        expect_mixture(&mut client, &mixture);
    }
}

#[test]
fn half_closed_client_gets_all_pipelined_responses() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    for _ in 0..2 {
        let mut client = server.connect();
        for path in ["/small.txt", "/medium.bin", "/missing", "/large.bin"] {
            client.send(request(&format!("GET {path} HTTP/1.1"), ""));
        }
        client.finish();
        let got: Vec<(u16, bool)> = (0..4)
            .map(|_| client.response())
            .map(|got| (got.status, got.body.len() >= 5))
            .collect();
        assert_eq!(got, [(200, true), (200, true), (404, true), (200, true)]);
        assert!(client.wait_for_close());
    }
}

#[test]
fn get_body_gets_100_continue_and_is_discarded() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    let fields = "Content-Length: 10\r\nExpect: 100-continue\r\n";
    client.send(request("GET /small.txt HTTP/1.1", fields));
    let interim = client.response();
    assert_eq!(interim.head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("0123456789");
    assert_eq!(client.response().text(), "hello");
    // If the client has already sent its body, there is no 100.
    let eager = request("GET /small.txt HTTP/1.1", fields) + "0123456789";
    client.send(eager.repeat(2));
    for _ in 0..2 {
        let got = client.response();
        assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    }
    // Without a body there is no 100.
    client.send(request(
        "GET /small.txt HTTP/1.1",
        "Expect: 100-continue\r\n",
    ));
    assert_eq!(client.response().status, 200);
    assert!(client.received.is_empty());
}

#[test]
fn chunked_bodies_and_trailers_are_read_completely() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let chunked = request("GET /small.txt HTTP/1.1", "Transfer-Encoding: chunked\r\n")
        + "5\r\nGET /\r\n1A;name=\"value;\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\
           X-Sum: 1\r\nX-Other: GET / HTTP/1.1\r\n\r\n";
    let all = chunked.clone() + &request("GET /medium.bin HTTP/1.1", "") + &chunked;
    for piece_len in [all.len(), 1] {
        let mut client = server.connect();
        for piece in all.as_bytes().chunks(piece_len) {
            client.send(piece);
        }
        assert_eq!(client.response().text(), "hello");
        assert_eq!(client.response().body, pattern(100_000));
        assert_eq!(client.response().text(), "hello");
        assert!(client.received.is_empty());
    }
}
