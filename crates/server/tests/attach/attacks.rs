//! The attacks of docs/softirq.md, each against the same server without and with the level. An attack must fail in both
//! cases, and the level must not send more bytes than the server. Hash collisions are tested with the programs
//! (`forged`), personal pages in `privacy`.

use std::net::Ipv4Addr;
use std::{fs, thread};

use lowroad_testkit::net::draws::RandomDraws;
use lowroad_testkit::net::{CLIENT, LinkMangling, TestPage, TestPath, TestSite, WebServer};
use lowroad_testkit::{ClientResponse, TestClient};

use crate::attached::{Attached, get, send_request, server_v4};
use crate::raw::{ACK, FIN, PSH, RST, SYN, Segment, UNASSIGNED_ADDRESS, Wire};
use crate::skipped;

/// A server, possibly with the level in front of it.
struct Target<'a> {
    path: &'a TestPath,
    site: &'a TestSite,
}

/// A page that depends on fields which only a proxy should set.
const SITE: &str = "location = /echo {
  add_header Cache-Control max-age=60;
  return 302 http://a/$http_x_forwarded_host$http_x_original_url$http_x_host$http_forwarded;
}";

/// Runs an attack first without the level, then with it.
fn both<T: Send>(test: &str, attack: impl Fn(&Target) -> T + Sync) -> Option<[T; 2]> {
    if skipped(test, &["nginx"]) {
        return None;
    }
    Some([false, true].map(|has_level| {
        let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
        let site = TestSite::new(501, &[200]);
        let log = site.folder().path().join("access.log");
        let directives = format!("access_log {};\n{SITE}", log.display());
        let _nginx = WebServer::nginx(&path.server, &site, 80, &directives).expect("nginx");
        let attached = has_level.then(|| Attached::start(&path.server, 80, &["--ttl", "60"]));
        if let Some(attached) = &attached {
            attached.warm(&path.client, server_v4(80), &get(&site.pages[0].path));
        }
        let target = Target {
            path: &path,
            site: &site,
        };
        let outcome = attack(&target);
        if let Some(attached) = &attached {
            eprintln!("{test}: {:?}", attached.counts());
        }
        outcome
    }))
}

impl Target<'_> {
    /// The number of requests for a path in the server's log.
    fn seen(&self, path: &str) -> usize {
        // The server has then logged all earlier requests.
        self.path
            .client
            .enter(|| send_request(server_v4(80), "GET /end HTTP/1.0\r\n\r\n"));
        let log = fs::read_to_string(self.site.folder().path().join("access.log"));
        log.expect("a log").matches(path).count()
    }

    fn ask(&self, request: &str) -> ClientResponse {
        self.path
            .client
            .enter(|| send_request(server_v4(80), request))
    }
}

fn number(draws: &mut RandomDraws) -> u32 {
    u32::try_from(draws.number() >> 32).expect("32 bits")
}

fn port(draws: &mut RandomDraws) -> u16 {
    u16::try_from(draws.below(60_000)).expect("16 bits") + 1024
}

fn send(wire: &Wire, from: Ipv4Addr, segment: &Segment) {
    while !wire.flood(from, segment) {
        thread::yield_now();
    }
}

#[test]
fn forged_source_opens_no_connection() {
    let forged = |seq, ack, port| Segment {
        port,
        seq,
        ack,
        flags: ACK | PSH,
        payload: get("/forged").into_bytes(),
    };
    let outcome = both("forged_source_opens_no_connection", |target| {
        let (wire, mut draws) = (Wire::new(target.path), RandomDraws::new(502, 0));
        // First without a SYN, then after a SYN for which the attacker does not see the SYN-ACK.
        for _ in 0..20_000 {
            let (seq, ack) = (number(&mut draws), number(&mut draws));
            send(
                &wire,
                UNASSIGNED_ADDRESS,
                &forged(seq, ack, port(&mut draws)),
            );
        }
        for _ in 0..20 {
            let (seq, port) = (number(&mut draws), port(&mut draws));
            let syn = Segment {
                port,
                seq,
                flags: SYN,
                ..Segment::default()
            };
            send(&wire, UNASSIGNED_ADDRESS, &syn);
            for _ in 0..1000 {
                let ack = number(&mut draws);
                send(
                    &wire,
                    UNASSIGNED_ADDRESS,
                    &forged(seq.wrapping_add(1), ack, port),
                );
            }
        }
        target.seen("/forged")
    });
    assert!(outcome.is_none_or(|seen| seen == [0, 0]));
}

#[test]
fn forged_segments_do_not_end_a_connection() {
    let outcome = both("forged_segments_do_not_end_a_connection", |target| {
        let (wire, mut draws) = (Wire::new(target.path), RandomDraws::new(503, 0));
        let page = &target.site.pages[0];
        let mut client = target
            .path
            .client
            .enter(|| TestClient::connect(server_v4(80)));
        let local = client.stream().local_addr().expect("connected").port();
        let mut right = 0;
        for flags in [RST, RST | ACK, SYN, FIN | ACK, PSH | ACK] {
            client.send(get(&page.path));
            right += usize::from(TestPage::new(&page.path, &client.response().body) == *page);
            for _ in 0..4000 {
                let segment = Segment {
                    port: local,
                    seq: number(&mut draws),
                    ack: number(&mut draws),
                    flags,
                    payload: match flags & PSH {
                        0 => Vec::new(),
                        _ => get("/forged").into_bytes(),
                    },
                };
                send(&wire, CLIENT.0, &segment);
            }
        }
        client.send(get(&page.path));
        right += usize::from(TestPage::new(&page.path, &client.response().body) == *page);
        (right, target.seen("/forged"))
    });
    assert!(outcome.is_none_or(|outcome| outcome == [(6, 0), (6, 0)]));
}

#[test]
fn level_does_not_amplify_traffic() {
    let outcome = both("level_does_not_amplify_traffic", |target| {
        let (mut wire, mut draws) = (Wire::new(target.path), RandomDraws::new(504, 0));
        let (mut sent, mut received) = (0, 0);
        let len = |segment: &Segment| {
            let options = if segment.flags & SYN == 0 { 0 } else { 12 };
            40 + options + segment.payload.len()
        };
        for at in 0..1500_u16 {
            let flags = [SYN, ACK, PSH | ACK, FIN | ACK, RST][usize::from(at % 5)];
            let segment = Segment {
                port: 1024 + at,
                seq: number(&mut draws),
                ack: number(&mut draws),
                flags,
                payload: match flags & PSH {
                    0 => Vec::new(),
                    _ => get(&target.site.pages[0].path).into_bytes(),
                },
            };
            send(&wire, UNASSIGNED_ADDRESS, &segment);
            sent += len(&segment);
            while let Some((to, answer)) = wire.next() {
                received += if to == UNASSIGNED_ADDRESS {
                    len(&answer)
                } else {
                    0
                };
            }
        }
        // The response to this request is sent after all others.
        target.ask("GET /end HTTP/1.0\r\n\r\n");
        while let Some((to, answer)) = wire.next() {
            received += if to == UNASSIGNED_ADDRESS {
                len(&answer)
            } else {
                0
            };
        }
        eprintln!("{sent} bytes in, {received} bytes to another");
        (sent, received)
    });
    if let Some([without, with]) = outcome {
        assert!(with.1 <= without.1, "{with:?} {without:?}");
        assert!(with.1 <= with.0, "{with:?}");
    }
}

#[test]
fn cache_poisoning_fails_as_without_level() {
    const FIELDS: [&str; 6] = [
        "X-Forwarded-Host: evil",
        "X-Original-URL: /evil",
        "X-Host: evil",
        "Forwarded: host=evil",
        "X-HTTP-Method-Override: HEAD",
        "X-Forwarded-Proto: https",
    ];
    let outcome = both("cache_poisoning_fails_as_without_level", |target| {
        let mut places = Vec::new();
        for _ in 0..5 {
            for field in FIELDS {
                target.ask(&format!(
                    "GET /echo HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n"
                ));
                target.ask(&format!(
                    "GET /echo HTTP/1.1\r\n{field}\r\nHost: test\r\n\r\n"
                ));
            }
            let response = target.ask(&get("/echo"));
            places.push((
                response.status,
                response.field("location").map(str::to_owned),
            ));
        }
        places
    });
    if let Some([without, with]) = outcome {
        assert_eq!(with, without);
        assert!(
            without
                .iter()
                .all(|(_, to)| to.as_deref() == Some("http://a/"))
        );
    }
}
