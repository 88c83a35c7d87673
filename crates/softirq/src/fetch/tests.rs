//! Tests the fetcher against listeners in threads, which send scripted bytes regardless of the request.

use super::*;
use lowroad_wire::key::{ConnectionClass, KeyParts};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::mpsc::{self, Receiver};
use std::thread;

const PORT: u16 = 8080;

const KEY: KeyParts<'static> = KeyParts {
    class: ConnectionClass::new(true, false),
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    port: PORT,
    target: b"/a?b",
    host: b"h.example:8080",
    accept_encoding: Some(b"gzip"),
    if_none_match: None,
    if_modified_since: None,
};

/// The origin's responses on one connection, one for each request; then the origin closes it.
type Script = Vec<Vec<u8>>;

fn script(answers: &[&str]) -> Script {
    answers.iter().map(|a| a.as_bytes().to_vec()).collect()
}

/// Starts an origin that serves the scripts, one connection after the other. Returns its address and the requests that
/// it receives.
fn origin(scripts: Vec<Script>) -> (std::net::SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (seen, requests) = mpsc::channel();
    thread::spawn(move || {
        for script in scripts {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            for answer in script {
                let Some(request) = read_request(&mut stream) else {
                    break;
                };
                // The client may have given up, and the test may be over.
                let _ = seen.send(request);
                let _ = stream.write_all(&answer);
            }
        }
    });
    (address, requests)
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    String::from_utf8(request).ok()
}

fn fetcher(
    address: std::net::SocketAddr,
    limits: FetchLimits,
) -> ResponseFetcher<impl Fn(SocketAddr) -> io::Result<TcpStream>> {
    let connect = move |local| {
        assert_eq!(local, KEY.local());
        TcpStream::connect_timeout(&address, Duration::from_secs(2))
    };
    ResponseFetcher::new(connect, limits)
}

/// Fetches once from an origin that sends one response and closes the connection.
fn fetch_once(answer: &str) -> Result<FetchedResponse, FetchError> {
    let (address, _requests) = origin(vec![script(&[answer])]);
    fetcher(address, FetchLimits::default()).fetch(&KEY, &RevalidationFields::default())
}

fn body_of(answer: &str) -> Result<String, FetchError> {
    fetch_once(answer).map(|f| String::from_utf8(f.body).expect("ASCII"))
}

#[test]
fn request_contains_the_fields_of_the_key() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (address, requests) = origin(vec![script(&[ok, ok, ok])]);
    let mut fetcher = fetcher(address, FetchLimits::default());
    let start = "GET /a?b HTTP/1.1\r\nHost: h.example:8080\r\nUser-Agent: lowroad\r\n\
                 Accept: */*\r\nAccept-Encoding: gzip\r\n";

    fetcher
        .fetch(&KEY, &RevalidationFields::default())
        .expect("a response");
    assert_eq!(requests.recv(), Ok(format!("{start}\r\n")));

    let validators = RevalidationFields {
        etag: Some(b"\"e\"".to_vec()),
        last_modified: Some(b"then".to_vec()),
    };
    fetcher.fetch(&KEY, &validators).expect("a response");
    let conditions = "If-None-Match: \"e\"\r\nIf-Modified-Since: then\r\n";
    assert_eq!(requests.recv(), Ok(format!("{start}{conditions}\r\n")));

    // A conditional key is sent unchanged.
    let key = KeyParts {
        if_none_match: Some(b"\"mine\""),
        ..KEY
    };
    fetcher.fetch(&key, &validators).expect("a response");
    assert_eq!(
        requests.recv(),
        Ok(format!("{start}If-None-Match: \"mine\"\r\n\r\n"))
    );
}

#[test]
fn fetched_response_has_status_fields_and_body() {
    let fetched =
        fetch_once("HTTP/1.1 404 Not here\r\nX-A:  1 \r\nx-a: 2\r\nContent-Length: 3\r\n\r\nabc")
            .expect("a response");
    assert_eq!(
        (fetched.status, fetched.reason),
        (404, b"Not here".to_vec())
    );
    assert_eq!(fetched.body, b"abc");
    let expected: [(&[u8], &[u8]); 3] = [(b"X-A", b"1"), (b"x-a", b"2"), (b"Content-Length", b"3")];
    let fields: Vec<(&[u8], &[u8])> = fetched
        .fields
        .iter()
        .map(|(n, v)| (n.as_slice(), v.as_slice()))
        .collect();
    assert_eq!(fields, expected);
    assert!(fetched.at_unix_secs > 1_700_000_000);
}

#[test]
fn body_ends_by_chunks_length_or_status() {
    let head = "HTTP/1.1 200 OK\r\n";
    let chunked = "Transfer-Encoding: Chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: x\r\n\r\n";
    assert_eq!(body_of(&format!("{head}{chunked}")), Ok("abc".into()));
    assert_eq!(
        body_of(&format!(
            "{head}Content-Length: 2\r\ncontent-length: 2\r\n\r\nab"
        )),
        Ok("ab".into())
    );
    // No content, regardless of Content-Length (RFC 9112 §6.3).
    for status in [204, 304] {
        let none = format!("HTTP/1.1 {status} X\r\nContent-Length: 9\r\n\r\n");
        assert_eq!(body_of(&none), Ok(String::new()));
    }
}

#[test]
fn close_delimited_body_is_unframed() {
    for (head, body) in [("", "abcd"), ("", ""), ("Connection: close\r\n", "abcd")] {
        let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}");
        assert_eq!(fetch_once(&answer), Err(FetchError::Unframed), "{answer}");
    }
    assert_eq!(FetchError::Unframed.label(), "unframed");
}

#[test]
fn connections_are_pooled_by_address() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    let both = ["a", "b"].map(|body| {
        let (address, _requests) = origin(vec![script(&[format!("{ok}{body}").as_str(); 3])]);
        address
    });
    let addresses: [IpAddr; 2] = [[192, 0, 2, 1].into(), Ipv6Addr::LOCALHOST.into()];
    let connect = move |local: SocketAddr| {
        let at = addresses.iter().position(|address| *address == local.ip());
        TcpStream::connect(both[at.expect("one of them")])
    };
    let mut fetcher = ResponseFetcher::new(connect, FetchLimits::default());
    for _ in 0..3 {
        for (address, body) in addresses.into_iter().zip(["a", "b"]) {
            let key = KeyParts { address, ..KEY };
            let fetched = fetcher.fetch(&key, &RevalidationFields::default());
            assert_eq!(fetched.expect("a response").body, body.as_bytes());
        }
    }
}

#[test]
fn missing_local_address_is_reported_separately() {
    let gone = |_| Err(ErrorKind::AddrNotAvailable.into());
    let result = ResponseFetcher::new(gone, FetchLimits::default())
        .fetch(&KEY, &RevalidationFields::default());
    let error = FetchError::AddressGone(KEY.address);
    assert_eq!(result, Err(error));
    assert_eq!(error.label(), "address-gone");
}

#[test]
fn interim_responses_are_skipped() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(body_of(&format!("{hints}{hints}{last}")), Ok("x".into()));
    // More interim responses than the limit.
    let many = hints.repeat(17);
    assert!(matches!(
        body_of(&format!("{many}{last}")),
        Err(FetchError::Malformed(_))
    ));
    assert!(matches!(
        // The request did not offer an upgrade.
        body_of("HTTP/1.1 101 Switching\r\n\r\n"),
        Err(FetchError::Malformed(_))
    ));
}

#[test]
fn pooled_connection_is_reused_until_connection_close() {
    let keep = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, CLOSE\r\n\r\nb";
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc";
    let (address, _requests) = origin(vec![script(&[keep, last]), script(&[next])]);
    let mut fetcher = fetcher(address, FetchLimits::default());
    let mut bodies = Vec::new();
    // The second response closes its connection.
    for pooled in [1, 0, 1] {
        let fetched = fetcher.fetch(&KEY, &RevalidationFields::default());
        bodies.extend(fetched.expect("a response").body);
        assert_eq!(fetcher.pool.len(), pooled);
    }
    assert_eq!(bodies, b"abc");
}

#[test]
fn closed_pooled_connection_is_replaced() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    // The origin closes each connection after its response, without announcing that.
    let (address, _requests) = origin(vec![script(&[one]), script(&[one]), script(&[one])]);
    let mut fetcher = fetcher(address, FetchLimits::default());
    for _ in 0..3 {
        let fetched = fetcher.fetch(&KEY, &RevalidationFields::default());
        assert_eq!(fetched.expect("a response").body, b"a");
    }
}

#[test]
fn unsolicited_bytes_prevent_reuse() {
    // The second response could be taken for the answer to the next request.
    let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\
                    Content-Length: 4\r\n\r\nevil";
    let honest = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb";
    let (address, _requests) = origin(vec![script(&[smuggled]), script(&[honest])]);
    let mut fetcher = fetcher(address, FetchLimits::default());
    for body in [b"a", b"b"] {
        let fetched = fetcher.fetch(&KEY, &RevalidationFields::default());
        assert_eq!(fetched.expect("a response").body, body);
        let pooled = fetcher.pool.len();
        assert_eq!(pooled, usize::from(body == b"b"));
    }
}

#[test]
fn connection_with_pending_bytes_or_eof_is_not_quiet() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).expect("a connection");
    let (mut server, _) = listener.accept().expect("a connection");
    let is_stream_quiet = |stream| is_quiet(stream).expect("a socket");
    assert!(is_stream_quiet(&client));
    server.write_all(b"HTTP/1.1 200 OK").expect("room for it");
    // Blocks until the byte has arrived.
    client.peek(&mut [0]).expect("a byte");
    assert!(!is_stream_quiet(&client));

    let client = TcpStream::connect(address).expect("a connection");
    drop(listener.accept().expect("a connection"));
    assert_eq!(client.peek(&mut [0]).expect("the end"), 0);
    assert!(!is_stream_quiet(&client));
}

#[test]
fn ambiguous_framing_is_malformed() {
    let head = "HTTP/1.1 200 OK\r\n";
    for rest in [
        "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "Content-Length: 1, 1\r\n\r\na",
        "Content-Length: +1\r\n\r\na",
        "Content-Length: \r\n\r\n",
        "Content-Length: 99999999999999999999999\r\n\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "A B: 1\r\n\r\n",
        "A: 1\r\n folded\r\n\r\n",
        ": 1\r\n\r\n",
    ] {
        let result = fetch_once(&format!("{head}{rest}"));
        assert!(
            matches!(result, Err(FetchError::Malformed(_))),
            "{rest:?} {result:?}"
        );
    }
    let many = format!("{head}{}\r\n", "a: b\r\n".repeat(101));
    assert!(matches!(fetch_once(&many), Err(FetchError::Malformed(_))));
    for other in [
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "SSH-2.0\r\n",
    ] {
        let result = fetch_once(other);
        let known = matches!(result, Err(FetchError::Version | FetchError::Malformed(_)));
        assert!(known, "{other:?} {result:?}");
    }
}

#[test]
fn truncated_response_is_closed() {
    for cut in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
    ] {
        assert_eq!(fetch_once(cut), Err(FetchError::Closed), "{cut:?}");
    }
}

#[test]
fn head_or_body_over_the_limit_fails() {
    let limits = FetchLimits {
        head_len_max: 100,
        body_len_max: 10,
        ..FetchLimits::default()
    };
    let result = |answer: &str| {
        let (address, _requests) = origin(vec![script(&[answer])]);
        let fetched = fetcher(address, limits).fetch(&KEY, &RevalidationFields::default());
        fetched.map(|f| f.body.len())
    };
    let head = "HTTP/1.1 200 OK\r\n";
    let long = "x".repeat(11);
    let refused = Err(FetchError::TooLong { len_max: 10 });
    assert_eq!(
        result(&format!("{head}Content-Length: 11\r\n\r\n{long}")),
        refused
    );
    let chunked = "Transfer-Encoding: chunked\r\n\r\nb\r\n";
    assert_eq!(result(&format!("{head}{chunked}{long}\r\n")), refused);
    assert_eq!(
        result(&format!("{head}Content-Length: 10\r\n\r\n{}", &long[1..])),
        Ok(10)
    );
    let long_head = format!("{head}a: {}\r\n\r\n", "x".repeat(100));
    assert_eq!(
        result(&long_head),
        Err(FetchError::HeadTooLong { len_max: 100 })
    );
    assert_eq!(
        result(&format!("{head}a: {}", "x".repeat(100))),
        Err(FetchError::HeadTooLong { len_max: 100 })
    );
}

#[test]
fn read_timeout_and_total_timeout_end_a_fetch() {
    // The connection stays in the accept queue.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    // Each limit alone ends the fetch; a total of 0 does so before the first call.
    for (wait_ms, total_ms) in [(1, 5000), (2000, 1), (2000, 0)] {
        let limits = FetchLimits {
            wait_ms,
            total_ms,
            ..FetchLimits::default()
        };
        let result = fetcher(address, limits).fetch(&KEY, &RevalidationFields::default());
        assert_eq!(result, Err(FetchError::TimedOut));
    }
}

#[test]
fn refused_connection_is_origin_unreachable() {
    let refused = |_| Err(io::Error::from(ErrorKind::ConnectionRefused));
    let result = ResponseFetcher::new(refused, FetchLimits::default())
        .fetch(&KEY, &RevalidationFields::default());
    let error = FetchError::Connect(ErrorKind::ConnectionRefused);
    assert_eq!(result, Err(error));
    assert_eq!(error.label(), "origin-unreachable");
    assert!(error.to_string().contains("origin"));
}

#[test]
fn read_parses_only_complete_responses() {
    let body = |text: &str| read(text.as_bytes()).map(|one| (one.status, one.body));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(body(&format!("{head}ab")), Ok((200, b"ab".to_vec())));
    for other in ["", "a", "abc"] {
        assert_eq!(body(&format!("{head}{other}")), Err(FetchError::Closed));
    }
    assert_eq!(body(&head[..20]), Err(FetchError::Closed));
    let none = "HTTP/1.1 304 Not Modified\r\n\r\n";
    assert_eq!(body(none), Ok((304, Vec::new())));
    assert_eq!(body("HTTP/1.1 200 OK\r\n\r\n"), Err(FetchError::Unframed));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    assert_eq!(body(chunked), Ok((200, b"ab".to_vec())));
}
