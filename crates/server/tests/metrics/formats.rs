//! The three exposition formats of `/metrics`, and the totals in them.

use std::collections::BTreeSet;

use lowroad_testkit::{ClientResponse, wait_until};

use crate::support::{BODY_LEN, ObservedServer, READ, has_prometheus, promtool, request_counts};
use crate::text_format::Scrape;

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                        text/plain;q=0.5";

fn scrape_as(observed: &ObservedServer, accept: &str) -> ClientResponse {
    let fields = format!("Authorization: Bearer {READ}\r\nAccept: {accept}\r\n");
    let response = observed.call_with("GET", "/metrics", &fields);
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

#[test]
fn totals_match_the_requests() {
    let observed = ObservedServer::start();
    assert!(request_counts(&observed.scrape()).is_empty());
    let expected = observed.make_requests();
    assert_eq!(request_counts(&observed.scrape()), expected);
    let all: u64 = expected.values().sum();
    // A duration is recorded at the end of a worker's turn, after the response was sent.
    let scrape = wait_until("all durations", || {
        let scrape = observed.scrape();
        let count = scrape.sum("lowroad_request_duration_seconds_count", &[]);
        (count == all as f64).then_some(scrape)
    });
    // Each request adds one duration and one time to first byte.
    for name in ["request_duration", "time_to_first_byte"] {
        for site in ["a.example", ""] {
            for level in ["worker", "origin"] {
                let own = expected
                    .iter()
                    .filter(|(key, _)| key[0] == site && key[2] == level);
                let sum: u64 = own.map(|(_, count)| count).sum();
                let labels = [("site", site), ("level", level)];
                let count = scrape.sum(&format!("lowroad_{name}_seconds_count"), &labels);
                assert_eq!(count, sum as f64, "{name} {labels:?}");
                let last = [&labels[..], &[("le", "+Inf")]].concat();
                let bucket = scrape.sum(&format!("lowroad_{name}_seconds_bucket"), &last);
                assert_eq!(bucket, count, "{name} {labels:?}");
            }
        }
    }
    let origin = observed.origin.url();
    let app = format!("/app/** to origin {origin}");
    for (name, labels, value) in [
        // The malformed request has no complete head.
        ("lowroad_request_heads_received_total", &[][..], all - 1),
        ("lowroad_requests_malformed_total", &[], 1),
        ("lowroad_connections_accepted_total", &[], all),
        ("lowroad_tls_handshakes_total", &[], 1),
        (
            "lowroad_response_body_bytes_total",
            &[("route", &*app)],
            9 * BODY_LEN,
        ),
        ("lowroad_handler_calls_total", &[("route", &*app)], 6),
        (
            "lowroad_handler_stored_responses_total",
            &[("route", &*app)],
            3,
        ),
        ("lowroad_class_requests_total", &[("class", "all")], all - 2),
        ("lowroad_upstream_connections_in_use", &[], 0),
        (
            "lowroad_upstream_responses_total",
            &[("server", &*origin)],
            6,
        ),
        (
            "lowroad_upstream_response_seconds_count",
            &[("server", &*origin)],
            6,
        ),
        ("lowroad_build_info", &[], 1),
        ("lowroad_workers", &[], 2),
    ] {
        let sum = scrape.sum(name, labels);
        assert_eq!(sum, value as f64, "{name} {labels:?}");
    }
    let expiry = "lowroad_certificate_expiry_timestamp_seconds";
    let days = (scrape.sum(expiry, &[("source", "local")]) - unix_s()) / 86_400.0;
    assert!((1.0..500.0).contains(&days), "{days}");
    assert!(
        scrape.sum(
            "lowroad_upstream_connections_failed_total",
            &[("origin", "down")]
        ) >= 2.0
    );
    let failed = [("server", "http://127.0.0.1:1"), ("reason", "connect")];
    assert!(scrape.sum("lowroad_upstream_failures_total", &failed) >= 1.0);
}

fn unix_s() -> f64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock").as_secs_f64()
}

#[test]
fn text_format_follows_the_conventions() {
    let observed = ObservedServer::start();
    observed.make_requests();
    let response = observed.call("GET", "/metrics", READ);
    let kind = response.field("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    let scrape = Scrape::read(&response.text());
    for (name, family) in &scrape.families {
        assert!(family.help.ends_with('.'), "{name}: {}", family.help);
        let is_counter = family.kind == "counter";
        assert_eq!(
            name.ends_with("_total"),
            is_counter,
            "{name}: {}",
            family.kind
        );
    }
    let mut series = BTreeSet::new();
    for (name, labels, _) in &scrape.samples {
        assert!(scrape.family_of(name).is_some(), "{name} has no type");
        assert!(series.insert((name, labels)), "{name} {labels:?} twice");
    }
    if has_prometheus("text_format_follows_the_conventions") {
        let said = promtool(&["check", "metrics"], &response.text());
        assert_eq!(said, "");
    }
}

#[test]
fn openmetrics_has_the_same_samples() {
    let observed = ObservedServer::start();
    observed.make_requests();
    let response = scrape_as(&observed, OPEN_METRICS);
    let kind = response.field("content-type");
    let expected = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(kind, Some(expected));
    assert!(response.text().ends_with("\n# EOF\n"));
    // Metrics of the process change between scrapes, and so may those of the disk cache.
    let steady = |scrape: Scrape| {
        let samples = scrape.samples.into_iter();
        let samples = samples.filter(|(name, ..)| !name.starts_with("process_"));
        let lines = samples.map(|(name, mut labels, value)| {
            // One format has 1, the other one 1.0.
            if let Some(bound) = labels.get_mut("le") {
                *bound = format!("{:?}", bound.parse::<f64>().expect("a number"));
            }
            format!("{name} {labels:?} {value}")
        });
        lines.collect::<BTreeSet<String>>()
    };
    wait_until("equal samples", || {
        let open = Scrape::read(&scrape_as(&observed, OPEN_METRICS).text());
        (steady(open) == steady(observed.scrape())).then_some(())
    });
}

#[test]
fn protobuf_has_the_same_families() {
    let observed = ObservedServer::start();
    observed.make_requests();
    let response = scrape_as(&observed, PROTOBUF);
    let kind = response.field("content-type").unwrap_or_default();
    assert!(
        kind.starts_with("application/vnd.google.protobuf; "),
        "{kind}"
    );
    let mut rest = &response.body[..];
    let mut names = BTreeSet::new();
    while !rest.is_empty() {
        // A MetricFamily begins with its field 1, the name (io.prometheus.client, metrics.proto).
        let len = varint(&mut rest);
        let (family, after) = rest.split_at(len);
        let mut family = family;
        assert_eq!(varint(&mut family), 1 << 3 | 2);
        let name_len = varint(&mut family);
        let name = String::from_utf8_lossy(&family[..name_len]).into_owned();
        assert!(names.insert(name.clone()), "{name} twice");
        rest = after;
    }
    let text = observed.scrape();
    let expected: BTreeSet<String> = text.families.into_keys().collect();
    assert_eq!(names, expected);
}

/// Reads a variable-length integer: 7 bits in each byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> usize {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0);
    let (number, rest) = bytes.split_at(end.expect("an end") + 1);
    *bytes = rest;
    let sevens = number.iter().rev().map(|byte| usize::from(byte & 0x7f));
    sevens.fold(0, |sum, seven| sum << 7 | seven)
}
