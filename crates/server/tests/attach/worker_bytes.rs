//! Workers in front of another web server change nothing that it accepts: each odd request has the same outcome as
//! without them, and a client that half-closes its connection is answered.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};

use lowroad_testkit::TestClient;
use lowroad_testkit::net::servers::receipt;
use lowroad_testkit::net::site::content;

use crate::attached::{get, one, server_v4, servers};
use crate::odd_requests::{self, LONG_LEN, OddRequest};
use crate::skipped;
use crate::worker::{ALONE, Line, WITH_LEVEL, Workers, seen};

/// Sent after each odd request: its response shows whether the connection stayed open.
const BEHIND: &str = "GET /0-2000.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

/// The bytes that a client receives: the status and body of each response, and the remaining bytes.
type RequestOutcomes = Vec<(String, Vec<u8>)>;

/// Sends bytes, and receives until the server closes. Half-closes the connection, except after an upload: proxies, such
/// as nginx for uploads, may treat that as a client that has gone.
fn outcome(address: SocketAddr, bytes: &[u8]) -> RequestOutcomes {
    let mut client = TestClient::connect(address);
    client.send(bytes);
    if !bytes.starts_with(b"POST") {
        client.finish();
    }
    let mut received = Vec::new();
    let ended = client.stream().read_to_end(&mut received);
    let mut all = responses(&received, bytes.starts_with(b"HEAD"));
    if ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        all.push(("the server does not close".to_owned(), Vec::new()));
    }
    all
}

fn responses(mut received: &[u8], is_head: bool) -> RequestOutcomes {
    let mut all = Vec::new();
    while let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
        if !received.starts_with(b"HTTP/1.") {
            break;
        }
        let (head, rest) = received.split_at(end + 4);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head.lines().next().unwrap_or_default().get(9..12);
        // The reason phrase has no meaning.
        let status = status.unwrap_or_default().to_owned();
        let value = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.to_owned())
        };
        // Only the first response is one to HEAD.
        let is_bodiless = is_head && all.is_empty() || status.starts_with("100");
        let (body, rest) = match value("content-length") {
            _ if is_bodiless => (Vec::new(), rest),
            Some(len) => {
                let len = len.parse().unwrap_or(usize::MAX).min(rest.len());
                (rest[..len].to_vec(), &rest[len..])
            }
            None if value("transfer-encoding").is_some() => dechunked(rest),
            None => (rest.to_vec(), &rest[rest.len()..]),
        };
        all.push((status, body));
        received = rest;
    }
    if !received.is_empty() {
        all.push(("no head".to_owned(), received.to_vec()));
    }
    all
}

/// The content of chunks, and the bytes after them.
fn dechunked(mut rest: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = str::from_utf8(&rest[..at]).ok();
        let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
        let data = &rest[at + 2..];
        match size {
            Some(size) if data.len() >= size + 2 => {
                body.extend_from_slice(&data[..size]);
                rest = &data[size + 2..];
                if size == 0 {
                    break;
                }
            }
            _ => break,
        }
    }
    (body, rest)
}

/// The outcomes of all odd requests, each followed directly by a good one.
fn outcomes(line: &Line, all: &[OddRequest]) -> Vec<RequestOutcomes> {
    let one = |(_, bytes): &OddRequest| {
        let bytes = [bytes, BEHIND.as_bytes()].concat();
        line.path.client.enter(|| outcome(server_v4(80), &bytes))
    };
    all.iter().map(one).collect()
}

fn readable(outcome: &RequestOutcomes) -> String {
    let one = |(status, body): &(String, Vec<u8>)| {
        let start = &body[..body.len().min(60)];
        format!("{status}, {} bytes: {}", body.len(), start.escape_ascii())
    };
    let all: Vec<String> = outcome.iter().map(one).collect();
    all.join("\n      ")
}

/// Compares a server with and without workers.
fn are_equal(line: &Line, options: &[&str]) {
    let all = odd_requests::all();
    let without = outcomes(line, &all);
    let _workers = Workers::start(&line.path.server, options);
    let mut differing = Vec::new();
    // In the second round many responses may be stored.
    for round in 0..2 {
        let with = outcomes(line, &all);
        for (((name, _), without), with) in all.iter().zip(&without).zip(&with) {
            if without != with {
                let (without, with) = (readable(without), readable(with));
                let name = &name[..name.len().min(40)];
                differing.push(format!(
                    "{name} ({round})\n  without {without}\n  with    {with}"
                ));
            }
        }
    }
    assert!(
        differing.is_empty(),
        "{} of {} differ\n{}",
        differing.len(),
        2 * all.len(),
        differing.join("\n")
    );
}

#[test]
fn apache_gets_the_same_requests_as_without_workers() {
    if skipped("apache_gets_the_same_requests", &["apache2"]) {
        return;
    }
    are_equal(&Line::apache(&[2_000]), ALONE);
}

#[test]
fn nginx_gets_the_same_requests_as_without_workers() {
    if skipped("nginx_gets_the_same_requests", &["nginx"]) {
        return;
    }
    are_equal(&Line::nginx(&[2_000], "expires 10m;"), ALONE);
}

#[test]
fn with_the_level_below_it_is_the_same() {
    if skipped("with_the_level_below_it_is_the_same", &["apache2"]) {
        return;
    }
    are_equal(&Line::apache(&[2_000]), WITH_LEVEL);
}

#[test]
fn clients_that_half_close_are_answered() {
    if skipped("clients_that_half_close_are_answered", &["apache2"]) {
        return;
    }
    let line = Line::apache(&[300_000]);
    let _workers = Workers::start(&line.path.server, ALONE);
    for server in servers(80) {
        // The first response is not stored, the later ones are.
        for _ in 0..2 {
            let got = line
                .path
                .client
                .enter(|| outcome(server, get(line.page(0)).as_bytes()));
            assert_eq!(got.len(), 1, "{}", readable(&got));
            assert_eq!((&*got[0].0, got[0].1.len()), ("200", 300_000));
        }
    }
}

#[test]
fn a_long_upload_is_taken_as_the_server_takes_it() {
    if skipped("a_long_upload_is_taken", &["nginx"]) {
        return;
    }
    let line = Line::nginx(&[2_000], "");
    let _workers = Workers::start(&line.path.server, ALONE);
    let mut all = odd_requests::all();
    all.push(odd_requests::expected());
    let wanted = receipt(&content(3, 4, LONG_LEN));
    for (name, bytes) in all
        .iter()
        .filter(|(name, _)| name.starts_with("a long body"))
    {
        let got = line.path.client.enter(|| {
            let mut client = TestClient::connect(server_v4(80));
            client.send(bytes);
            let first = client.response();
            match first.status {
                100 => client.response(),
                _ => first,
            }
        });
        assert_eq!(got.text(), wanted, "{name}: {}", got.head);
    }
}

/// Connections that are passed through come from an address that the server does not trust.
#[test]
fn a_client_can_not_say_who_it_is_by_an_odd_request() {
    if skipped("a_client_can_not_say_who_it_is", &["apache2"]) {
        return;
    }
    let modules = "/usr/lib/apache2/modules";
    let trusting = format!(
        "LoadModule remoteip_module {modules}/mod_remoteip.so\n\
         RemoteIPHeader X-Forwarded-For\n\
         RemoteIPInternalProxy 203.0.113.254 2001:db8::cb00:71fe\n\
         <Location /mine>\nRequire ip 192.0.2.7\n</Location>\n"
    );
    let line = Line::apache_with(&[2_000], &trusting);
    line.site.folder().file("root/mine", "mine");
    let _workers = Workers::start(&line.path.server, ALONE);
    let says = "X-Forwarded-For: 192.0.2.7\r\n";
    for (target, more) in [
        ("/mine", ""),
        ("/x/../mine", ""),
        ("/mine", "X_Y: z\r\n"),
        ("/mine", "Transfer-Encoding: chunked\r\n"),
        ("http://test/mine", ""),
    ] {
        let end = if more.starts_with('T') {
            "0\r\n\r\n"
        } else {
            ""
        };
        let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{says}{more}\r\n{end}");
        let got = line
            .path
            .client
            .enter(|| outcome(server_v4(80), request.as_bytes()));
        assert!(got[0].0 == "403", "{target} {more}: {}", readable(&got));
    }
    let page = line.page(0);
    let request = format!("GET /x/..{page} HTTP/1.1\r\nHost: test\r\n{says}\r\n");
    let passed = line.path.client.enter(|| one(server_v4(80), &request));
    let wanted = (IpAddr::from([203, 0, 113, 255]), "192.0.2.7".to_owned());
    assert_eq!(seen(&passed), wanted, "{}", passed.head);
}
