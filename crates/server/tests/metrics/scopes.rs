//! Scopes: the combinations of site and route by which requests are counted.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Barrier};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TestClient, wait_until};

use crate::support::{ObservedServer, request_counts};
use crate::text_format::Scrape;

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

#[test]
fn counters_of_origins_survive_a_reload_that_changes_the_origin() {
    let origin = empty_origin();
    let tables = |tries: u32| {
        format!(
            "[[origin]]\nname = \"app\"\nservers = [\"{}\", \"http://127.0.0.1:1\"]\ntries = {tries}\n\
             [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"app\"\n",
            origin.url()
        )
    };
    let (before, after) = (tables(2), tables(3));
    let observed = ObservedServer::with(&before, origin);
    let counts = || {
        let scrape = observed.scrape();
        let sum = |name| scrape.sum(name, &[("origin", "app")]);
        [
            sum("lowroad_upstream_responses_total"),
            sum("lowroad_upstream_response_seconds_count"),
        ]
    };
    for _ in 0..4 {
        assert_eq!(observed.get("a.example", "/app/x"), 204);
    }
    assert_eq!(counts(), [4.0, 4.0]);
    let failures = observed
        .scrape()
        .sum("lowroad_upstream_failures_total", &[]);
    assert!(failures >= 1.0, "{failures}");
    observed.configure(&after);
    let reload = observed.call("POST", "/v1/reload", crate::support::FULL);
    assert_eq!(reload.status, 200, "{}", reload.text());
    assert_eq!(counts(), [4.0, 4.0]);
    let kept = observed
        .scrape()
        .sum("lowroad_upstream_failures_total", &[]);
    assert_eq!(kept, failures);
    assert_eq!(observed.get("a.example", "/app/x"), 204);
    assert_eq!(counts(), [5.0, 5.0]);
}

#[test]
fn lag_of_a_stopped_event_loop_is_measured() {
    let observed = ObservedServer::with(
        "[limits]\nidle_timeout = \"3s\"\n\
         [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n",
        empty_origin(),
    );
    let lag_s = || observed.scrape().sum("lowroad_worker_lag_seconds_sum", &[]);
    let mut idle = observed.server.connect();
    idle.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(idle.response().status, 200);
    // The connection's timeout ends while the process is stopped.
    observed.server.signal("STOP");
    std::thread::sleep(std::time::Duration::from_secs(4));
    observed.server.signal("CONT");
    assert!(idle.wait_for_close());
    wait_until("the lag", || (lag_s() >= 0.5).then_some(()));
}

/// The refusals of a scrape, by site, route and reason, without zeros.
fn refusals(scrape: &Scrape) -> Vec<(String, String, String, f64)> {
    let samples = scrape.samples.iter();
    let own = samples.filter(|(name, _, count)| name == "lowroad_refusals_total" && *count > 0.0);
    own.map(|(_, labels, count)| {
        let [site, route, reason] = ["site", "route", "reason"].map(|name| labels[name].clone());
        (site, route, reason, *count)
    })
    .collect()
}

#[test]
fn refusals_are_counted_once_by_reason_site_and_route() {
    let held = Arc::new(Barrier::new(4));
    let release = held.clone();
    let origin = TestOrigin::with_response(move |request| {
        match request.target.as_str() {
            "/shared/x" => drop(held.wait()),
            // No response: the server closes the connection after its timeout.
            "/slow/x" => return String::new(),
            _ => {}
        }
        "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n".into()
    });
    let url = origin.url();
    let route = |path: &str, keys: &str| {
        format!("[[site.route]]\npattern = \"/{path}/**\"\norigin = \"{url}\"\n{keys}\n")
    };
    let tables = format!(
        "[limits]\nbody_len_max = \"1K\"\ntarget_len_max = \"1K\"\nfields_max = 20\n\
         [[class]]\nname = \"rated\"\nrate = \"1/h\"\nburst = 1\nheaders = \"X-Rated: yes\"\n\
         [[class]]\nname = \"all\"\n\
         [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
         [[site.rule]]\npattern = \"/index.html\"\nrate = \"1/h\"\n{}{}",
        route("shared", "concurrency = 4"),
        route("slow", "timeout = \"100ms\"")
    );
    let observed = ObservedServer::with(&tables, origin);
    let status = |path: &str, fields: &str| {
        let mut client = observed.server.connect();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n"
        ));
        client.response().status
    };
    // Three requests have the share of one client of four.
    let mut waiting: Vec<TestClient> = (0..3).map(|_| observed.server.connect()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send("GET /shared/x HTTP/1.1\r\nHost: a.example\r\n\r\n");
        wait_until("the request at the origin", || {
            (observed.origin.count() == number + 1).then_some(())
        });
    }
    assert_eq!(status("/shared/x", ""), 503);
    release.wait();
    for client in &mut waiting {
        assert_eq!(client.response().status, 204);
    }
    assert_eq!(status("/slow/x", ""), 504);
    for expected in [200, 429, 429] {
        assert_eq!(status("/index.html", ""), expected);
    }
    for expected in [204, 503] {
        assert_eq!(status("/shared/rated", "X-Rated: yes\r\n"), expected);
    }
    assert_eq!(status("/shared/x", "Content-Length: 2000\r\n"), 413);
    assert_eq!(status(&"/x".repeat(1000), ""), 414);
    assert_eq!(status("/shared/x", &"A: b\r\n".repeat(30)), 431);
    let found = refusals(&observed.scrape());
    let (shared, slow) = (
        format!("/shared/** to origin {url}"),
        format!("/slow/** to origin {url}"),
    );
    let site = "a.example";
    for (site, route, reason, count) in [
        (site, &*shared, "client_share", 1.0),
        (site, &*slow, "timeout", 1.0),
        (site, "", "rate", 3.0),
        (site, "", "body_len", 1.0),
        (site, "", "target_len", 1.0),
        (site, "", "head_len", 1.0),
    ] {
        let expected = (site.into(), route.into(), reason.into(), count);
        assert!(found.contains(&expected), "{expected:?} in {found:#?}");
    }
    assert_eq!(found.len(), 6, "{found:#?}");
}

#[test]
fn answers_of_rules_are_counted_by_site_and_action() {
    let observed = ObservedServer::with(
        "[[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
         [[site.rule]]\npattern = \"/deny/**\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/respond\"\nrespond = { status = 200, text = \"hi\" }\n\
         [[site.rule]]\npattern = \"/close\"\nclose = true\n\
         [[site.rule]]\npattern = \"/token\"\njwt = { secret = \"0123456789abcdef0123456789abcdef\" }\n\
         [[site.redirect]]\nfrom = \"/old/**\"\nto = \"/$1\"\n\
         [[site]]\nnames = \"b.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
         [[site.rule]]\npattern = \"/**\"\ndeny = 404\n",
        empty_origin(),
    );
    for (host, path, status) in [
        ("a.example", "/", 200),
        ("a.example", "/deny/x", 403),
        ("a.example", "/deny/y", 403),
        ("a.example", "/respond", 200),
        ("a.example", "/old/", 301),
        ("a.example", "/token", 401),
        ("a.example", "/none", 404),
        ("b.example", "/", 404),
    ] {
        assert_eq!(observed.get(host, path), status, "{host}{path}");
    }
    let mut client = observed.server.connect();
    client.send("GET /close HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(client.wait_for_close() && client.received.is_empty());
    let scrape = observed.scrape();
    let count = |site, action| {
        let labels = [("site", site), ("action", action)];
        scrape.sum("lowroad_rule_answers_total", &labels)
    };
    for (site, action, expected) in [
        ("a.example", "deny", 2.0),
        ("a.example", "respond", 1.0),
        ("a.example", "close", 1.0),
        ("a.example", "auth", 1.0),
        ("a.example", "redirect", 1.0),
        ("b.example", "deny", 1.0),
        ("b.example", "redirect", 0.0),
    ] {
        assert_eq!(count(site, action), expected, "{site} {action}");
    }
    assert_eq!(scrape.sum("lowroad_rule_answers_total", &[]), 7.0);
}
