//! Scopes: the combinations of site and route by which requests are counted.

use std::collections::BTreeSet;
use std::fmt::Write;

use lowroad_testkit::TestClient;
use lowroad_testkit::origin::TestOrigin;

use crate::support::{ObservedServer, request_counts};

/// More sites, each with a route, than the number of scopes.
const SITE_COUNT: usize = 300;

fn empty_origin() -> TestOrigin {
    TestOrigin::with_response(|_| {
        "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n".into()
    })
}

#[test]
fn scopes_beyond_the_limit_are_counted_as_other() {
    let origin = empty_origin();
    let mut tables = String::new();
    for number in 0..SITE_COUNT {
        write!(
            tables,
            "[[site]]\nnames = \"s{number}.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"{}\"\n",
            origin.url()
        )
        .expect("a string");
    }
    let observed = ObservedServer::with(&tables, origin);
    for number in [0, 1, SITE_COUNT - 2, SITE_COUNT - 1] {
        let host = format!("s{number}.example");
        assert_eq!(observed.get(&host, "/"), 200);
        assert_eq!(observed.get(&host, "/app/x"), 204);
    }
    let scrape = observed.scrape();
    let counts = request_counts(&scrape);
    let of = |site: &str| {
        let own = counts.iter().filter(|(key, _)| key[0] == site);
        own.map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!((of("s0.example"), of("s1.example"), of("other")), (2, 2, 4));
    assert_eq!(counts.values().sum::<u64>(), 8);
    let mut scopes = BTreeSet::new();
    for (_, labels, _) in &scrape.samples {
        scopes.extend(labels.get("site").zip(labels.get("route")));
    }
    assert!(scopes.len() <= 512, "{}", scopes.len());
    let other = [("site", "other"), ("route", "other")];
    assert_eq!(scrape.sum("lowroad_handler_calls_total", &other), 2.0);
}

#[test]
fn sites_with_equal_name_share_series() {
    let origin = empty_origin();
    let mut tables = String::new();
    // The sites have no name, so they have that of their folder. Their different limits of connections cause different
    // upstreams.
    for number in [1, 2] {
        write!(
            tables,
            "[[site]]\nlisten = \"127.0.0.{number}:0\"\nroot = \"root\"\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"{}\"\nconnections = {number}\n",
            origin.url()
        )
        .expect("a string");
    }
    let observed = ObservedServer::with(&tables, origin);
    assert_eq!(observed.server.addresses.len(), 2);
    for address in &observed.server.addresses {
        let mut client = TestClient::connect(*address);
        assert_eq!(client.get("/app/x", "").status, 204);
    }
    let scrape = observed.scrape();
    assert_eq!(scrape.sum("lowroad_handler_calls_total", &[]), 2.0);
    let mut series = BTreeSet::new();
    for (name, labels, _) in &scrape.samples {
        assert!(series.insert((name, labels)), "{name} {labels:?} twice");
    }
}

#[test]
fn counters_survive_a_reload() {
    let observed = ObservedServer::with(
        "[[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n",
        empty_origin(),
    );
    assert_eq!(observed.get("a.example", "/"), 200);
    observed.configure(
        "[[site]]\nnames = \"b.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
         [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\nlisting = true\n",
    );
    let reload = observed.call("POST", "/v1/reload", crate::support::FULL);
    assert_eq!(reload.status, 200, "{}", reload.text());
    assert_eq!(observed.get("a.example", "/"), 200);
    assert_eq!(observed.get("b.example", "/"), 200);
    let scrape = observed.scrape();
    for (site, count) in [("a.example", 2.0), ("b.example", 1.0)] {
        let sum = scrape.sum("lowroad_requests_total", &[("site", site)]);
        assert_eq!(sum, count, "{site}");
    }
    for (name, value) in [
        ("lowroad_config_reloads_total", 1.0),
        ("lowroad_config_reloads_rejected_total", 0.0),
        ("lowroad_config_last_reload_successful", 1.0),
    ] {
        assert_eq!(scrape.sum(name, &[]), value, "{name}");
    }
    observed.configure("[[site]]\nroot = \"root\"\nno_such_key = 1\n");
    let reload = observed.call("POST", "/v1/reload", crate::support::FULL);
    assert_ne!(reload.status, 200);
    let scrape = observed.scrape();
    for (name, value) in [
        ("lowroad_config_reloads_total", 1.0),
        ("lowroad_config_reloads_rejected_total", 1.0),
        ("lowroad_config_last_reload_successful", 0.0),
    ] {
        assert_eq!(scrape.sum(name, &[]), value, "{name}");
    }
}
