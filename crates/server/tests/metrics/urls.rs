//! The list of the hottest URLs.

use serde_json::Value;

use crate::support::{FULL, ObservedServer, READ};

fn urls(observed: &ObservedServer) -> Value {
    urls_with(observed, FULL)
}

fn urls_with(observed: &ObservedServer, token: &str) -> Value {
    let response = observed.call("GET", "/v1/urls", token);
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_slice(&response.body).expect("JSON")
}

fn find<'a>(list: &'a Value, url: &str) -> &'a Value {
    let urls = list["urls"].as_array().expect("a list");
    let found = urls.iter().find(|it| it["url"] == url);
    found.unwrap_or_else(|| panic!("{url} in {list}"))
}

#[test]
fn hottest_urls_are_listed_with_their_levels() {
    let observed = ObservedServer::start();
    for _ in 0..6 {
        assert_eq!(observed.get("A.example", "/app/x?q=/stored"), 200);
    }
    for _ in 0..3 {
        assert_eq!(observed.get("a.example", "/app/plain"), 200);
    }
    observed.get_by_tls("/");
    assert_eq!(observed.get("b.example", "/"), 421);
    let list = urls(&observed);
    assert_eq!(list["urls"].as_array().map(Vec::len), Some(4), "{list}");
    let stored = find(&list, "http://a.example/app/x?q=/stored");
    assert_eq!(list["urls"][0], *stored, "{list}");
    assert_eq!(stored["site"], "a.example");
    assert_eq!(stored["path"], "/app/x?q=/stored");
    // The first request went to the origin.
    assert_eq!(stored["level"], "worker");
    let [worker, origin] = ["worker", "origin"].map(|it| stored["levels"][it].as_f64());
    let ratio = worker.zip(origin).map(|(worker, origin)| worker / origin);
    assert!(ratio.is_some_and(|it| (3.0..7.0).contains(&it)), "{stored}");
    let plain = find(&list, "http://a.example/app/plain");
    assert_eq!(plain["level"], "origin");
    // The port is not the default one, so curl sends it.
    let urls = list["urls"].as_array().expect("a list");
    let https = |it: &&Value| {
        it["url"]
            .as_str()
            .is_some_and(|it| it.starts_with("https:"))
    };
    assert_eq!(urls.iter().filter(https).count(), 1, "{list}");
    assert_eq!(find(&list, "http://b.example/")["site"], "");
    let shares = urls.iter().filter_map(|it| it["share"].as_f64());
    let sum: f64 = shares.sum();
    assert!((0.99..1.01).contains(&sum), "{list}");
}

#[test]
fn read_token_does_not_show_values_of_queries() {
    let observed = ObservedServer::start();
    for secret in ["one", "two"] {
        let path = format!("/app/plain?token=secret-{secret}&x");
        assert_eq!(observed.get("a.example", &path), 200);
    }
    let list = urls_with(&observed, READ);
    assert_eq!(list["urls"].as_array().map(Vec::len), Some(1), "{list}");
    find(&list, "http://a.example/app/plain?token=*&*");
    for target in ["/v1/urls", "/v1/snapshot"] {
        let text = |token| observed.call("GET", target, token).text();
        assert!(!text(READ).contains("secret-"), "{target}");
        assert!(text(FULL).contains("secret-one"), "{target}");
    }
}

#[test]
fn texts_of_clients_are_cut_and_escaped() {
    let observed = ObservedServer::start();
    let long = format!("/{}", "x".repeat(500));
    assert_eq!(observed.get("a.example", &long), 404);
    assert_eq!(observed.get("a.example", "/\"<script>"), 404);
    let list = urls(&observed);
    let cut = find(&list, &format!("http://a.example{}", &long[..256]));
    assert_eq!(cut["is_cut"], true);
    for url in list["urls"].as_array().expect("a list") {
        let text = url["url"].as_str().expect("a text");
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
    }
    // Clients choose URLs, so none may become the label of a series.
    let metrics = observed.call("GET", "/metrics", READ).text();
    assert!(!metrics.contains("xxxx") && !metrics.contains("<script"));
}

#[test]
fn many_urls_are_bounded_and_the_hot_one_is_first() {
    let observed = ObservedServer::start();
    let mut client = observed.server.connect();
    let mut send = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert!(client.response().status > 0);
    };
    for number in 0..600 {
        send(&format!("/none/{number}"));
        send("/");
    }
    let list = urls(&observed);
    let count = list["urls"].as_array().map_or(0, Vec::len);
    assert!((10..=100).contains(&count), "{count}");
    assert_eq!(list["urls"][0]["url"], "http://a.example/", "{list}");
    let share = list["urls"][0]["share"].as_f64().expect("a number");
    assert!((0.1..0.9).contains(&share), "{share}");
}
