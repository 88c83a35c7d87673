//! Workers in front of another web server change nothing that the server accepts. Each odd request has the same outcome
//! as without workers, and a client that half-closes its connection is answered.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};

use lowroad_testkit::TestClient;
use lowroad_testkit::net::servers::receipt;
use lowroad_testkit::net::site::content;

use crate::attached::{get, send_request, server_v4, servers};
use crate::odd_requests::{self, LONG_LEN, OddRequest};
use crate::skipped;
use crate::worker::{ALONE, ServerLink, WITH_LEVEL, Workers, seen};

/// Sent after each odd request, because its response shows whether the connection is still open.
const BEHIND: &str = "GET /0-2000.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

/// Received by a client: the status and body of each response, and the remaining bytes.
type RequestOutcomes = Vec<(String, Vec<u8>)>;

/// Sends bytes, and receives until the server closes. Half-closes the connection, except after an upload, because
/// proxies may then regard the client as gone (nginx does so for uploads).
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
        // The reason phrase is not compared.
        let status = status.unwrap_or_default().to_owned();
        let value = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.to_owned())
        };
        // Only the first response can be one to HEAD.
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

/// Decodes a chunked body. Also returns the bytes after it.
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

/// The outcomes of all odd requests. Each is followed by a valid request.
fn outcomes(line: &ServerLink, all: &[OddRequest]) -> Vec<RequestOutcomes> {
    let one = |(_, bytes): &OddRequest| {
        let bytes = [bytes, BEHIND.as_bytes()].concat();
        line.path.client.enter(|| outcome(server_v4(80), &bytes))
    };
    all.iter().map(one).collect()
}

fn outcome_text(outcome: &RequestOutcomes) -> String {
    let one = |(status, body): &(String, Vec<u8>)| {
        let start = &body[..body.len().min(60)];
        format!("{status}, {} bytes: {}", body.len(), start.escape_ascii())
    };
    let all: Vec<String> = outcome.iter().map(one).collect();
    all.join("\n      ")
}

/// Compares the outcomes with and without workers in front of a server.
fn assert_equal_outcomes(line: &ServerLink, options: &[&str]) {
    let all = odd_requests::all();
    let without = outcomes(line, &all);
    let _workers = Workers::start(&line.path.server, options);
    let mut differing = Vec::new();
    // In the second round, many responses are stored.
    for round in 0..2 {
        let with = outcomes(line, &all);
        for (((name, _), without), with) in all.iter().zip(&without).zip(&with) {
            if without != with {
                let (without, with) = (outcome_text(without), outcome_text(with));
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
fn odd_requests_to_apache_have_same_outcome_with_workers() {
    if skipped(
        "odd_requests_to_apache_have_same_outcome_with_workers",
        &["apache2"],
    ) {
        return;
    }
    assert_equal_outcomes(&ServerLink::apache(&[2_000]), ALONE);
}

#[test]
fn odd_requests_to_nginx_have_same_outcome_with_workers() {
    if skipped(
        "odd_requests_to_nginx_have_same_outcome_with_workers",
        &["nginx"],
    ) {
        return;
    }
    assert_equal_outcomes(&ServerLink::nginx(&[2_000], "expires 10m;"), ALONE);
}

#[test]
fn odd_requests_have_same_outcome_with_workers_and_level() {
    if skipped(
        "odd_requests_have_same_outcome_with_workers_and_level",
        &["apache2"],
    ) {
        return;
    }
    assert_equal_outcomes(&ServerLink::apache(&[2_000]), WITH_LEVEL);
}

#[test]
fn half_closed_connections_are_answered() {
    if skipped("half_closed_connections_are_answered", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[300_000]);
    let _workers = Workers::start(&line.path.server, ALONE);
    for server in servers(80) {
        // The first response is not stored yet, the second one is.
        for _ in 0..2 {
            let got = line
                .path
                .client
                .enter(|| outcome(server, get(line.page(0)).as_bytes()));
            assert_eq!(got.len(), 1, "{}", outcome_text(&got));
            assert_eq!((&*got[0].0, got[0].1.len()), ("200", 300_000));
        }
    }
}

#[test]
fn long_upload_has_same_outcome_with_workers() {
    if skipped("long_upload_has_same_outcome_with_workers", &["nginx"]) {
        return;
    }
    let line = ServerLink::nginx(&[2_000], "");
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
fn forwarded_fields_of_odd_requests_are_not_trusted() {
    if skipped(
        "forwarded_fields_of_odd_requests_are_not_trusted",
        &["apache2"],
    ) {
        return;
    }
    let modules = "/usr/lib/apache2/modules";
    let trusting = format!(
        "LoadModule remoteip_module {modules}/mod_remoteip.so\n\
         RemoteIPHeader X-Forwarded-For\n\
         RemoteIPInternalProxy 203.0.113.254 2001:db8::cb00:71fe\n\
         <Location /mine>\nRequire ip 192.0.2.7\n</Location>\n"
    );
    let line = ServerLink::apache_with(&[2_000], &trusting);
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
        assert!(got[0].0 == "403", "{target} {more}: {}", outcome_text(&got));
    }
    let page = line.page(0);
    let request = format!("GET /x/..{page} HTTP/1.1\r\nHost: test\r\n{says}\r\n");
    let passed = line
        .path
        .client
        .enter(|| send_request(server_v4(80), &request));
    let wanted = (IpAddr::from([203, 0, 113, 255]), "192.0.2.7".to_owned());
    assert_eq!(seen(&passed), wanted, "{}", passed.head);
}
