//! The deny list by the admin service and by `lowroad deny`: connections, ends of entries, conditions, refusals, the audit.

use std::net::IpAddr;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{ClientResponse, TestClient, wait_until};
use serde_json::{Value, json};

use crate::support::{FULL, ObservedServer, PROGRAM, READ};

const SITE: &str = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n";
const TARGET: &str = "/v1/deny";

fn server() -> ObservedServer {
    ObservedServer::with(SITE, TestOrigin::with_response(|_| String::new()))
}

fn connect(observed: &ObservedServer, last: u8) -> TestClient {
    let source = IpAddr::from([127, 0, 0, last]);
    TestClient::connect_from(source, observed.server.address())
}

/// Whether a client at 127.0.0.`last` is refused.
fn is_refused(observed: &ObservedServer, last: u8) -> bool {
    let mut client = connect(observed, last);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.wait_for_close();
    client.received.is_empty()
}

fn change(observed: &ObservedServer, method: &str, fields: &str, body: &Value) -> ClientResponse {
    observed.call_with_json(method, TARGET, fields, &body.to_string())
}

fn addresses(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).expect("JSON");
    let entries = list["entries"].as_array().expect("entries").iter();
    entries
        .map(|entry| entry["address"].as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn denied_clients_are_refused_and_their_connections_closed() {
    let observed = server();
    let client = StatusClient::new(PROGRAM, observed.socket());
    let (mut idle, mut other) = (connect(&observed, 7), connect(&observed, 20));
    assert_eq!(idle.get("/", "").text(), "hello");
    let added = client.command(&["deny", "add", "127.0.0.4/30", "2001:db8::/32"]);
    assert_eq!(added, "127.0.0.4/30\n2001:db8::/32\n");
    // The open connection ends; later ones end at once. Other clients notice nothing.
    idle.wait_for_close();
    for (last, refused) in [(3, false), (4, true), (7, true), (8, false)] {
        assert_eq!(is_refused(&observed, last), refused, "{last}");
    }
    assert_eq!(other.get("/", "").text(), "hello");
    assert_eq!(client.value("connections_denied"), 3);
    assert_eq!(client.value("deny_list_entries"), 2);
    let line = observed.server.wait_for_error_line(" audit ");
    assert!(
        line.contains("PATCH /v1/deny") && line.contains("\"address\":\"127.0.0.4/30\""),
        "{line}"
    );
    // A reload keeps the list.
    assert_eq!(observed.call("POST", "/v1/reload", FULL).status, 200);
    assert!(is_refused(&observed, 5));
    let removed = client.command(&["deny", "remove", "127.0.0.6/30"]);
    assert_eq!(removed, "2001:db8::/32\n");
    assert!(!is_refused(&observed, 5));
    // The admin service is open even to a denied address.
    client.command(&["deny", "add", "127.0.0.0/8"]);
    assert!(is_refused(&observed, 20));
    assert_eq!(observed.call("GET", TARGET, READ).status, 200);
}

#[test]
fn entries_end_by_themselves() {
    let observed = server();
    let client = StatusClient::new(PROGRAM, observed.socket());
    let added = client.command(&["deny", "add", "127.0.0.5", "--for", "1s"]);
    assert!(added.starts_with("127.0.0.5 until 20"), "{added}");
    client.command(&["deny", "add", "127.0.0.6", "--for", "1h"]);
    wait_until("the end of the entry", || {
        (!is_refused(&observed, 5)).then_some(())
    });
    assert!(is_refused(&observed, 6));
    let listed = observed.call("GET", TARGET, READ).text();
    assert_eq!(addresses(&listed), ["127.0.0.6"]);
}

#[test]
fn changes_need_the_present_list_and_are_complete_or_refused() {
    let observed = server();
    let first = observed.call("GET", TARGET, READ);
    assert_eq!(first.text(), "{\"entries\":[]}");
    let tag = first.field("etag").expect("a tag").to_owned();
    let condition = format!("If-Match: {tag}\r\n");
    let list =
        json!({ "entries": [{ "address": "10.1.2.3/8" }, { "address": "::1", "for": "1h" }] });
    let replaced = change(&observed, "PUT", &condition, &list);
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(addresses(&replaced.text()), ["10.0.0.0/8", "::1"]);
    // The tag is that of the empty list.
    let stale = change(&observed, "PUT", &condition, &json!({ "entries": [] }));
    assert_eq!(stale.status, 412);
    for (method, body, status) in [
        ("PATCH", json!({}), 400),
        (
            "PATCH",
            json!({ "add": [{ "address": "10.0.0.300" }] }),
            400,
        ),
        (
            "PATCH",
            json!({ "add": [{ "address": "::ffff:1.2.3.4" }] }),
            400,
        ),
        (
            "PATCH",
            json!({ "add": [{ "address": "10.0.0.1", "for": "soon" }] }),
            400,
        ),
        (
            "PATCH",
            json!({ "add": [{ "address": "10.0.0.1", "until": 1 }] }),
            400,
        ),
        // One of them is not in the list.
        ("PATCH", json!({ "remove": ["::1", "10.0.0.0/9"] }), 404),
        ("PUT", json!({ "add": [] }), 400),
        // These would only end an earlier entry of the address.
        (
            "PATCH",
            json!({ "add": [{ "address": "::1", "for": "0s" }] }),
            400,
        ),
        (
            "PATCH",
            json!({ "add": [{ "address": "::1", "until_s": 5 }] }),
            400,
        ),
        (
            "PATCH",
            json!({ "add": [{ "address": "::1", "for": "1h", "until_s": 5_000_000_000_u64 }] }),
            400,
        ),
    ] {
        let refused = change(&observed, method, "", &body);
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
    }
    let listed = observed.call("GET", TARGET, READ).text();
    assert_eq!(addresses(&listed), ["10.0.0.0/8", "::1"]);
    let long_list = |count: usize| {
        let entries = (0..count).map(|at| {
            let address = format!("2001:db8:1234:5678:9abc:def0:{:x}:{:x}", at / 250, at % 250);
            json!({ "address": address, "until_s": 5_000_000_000_u64 })
        });
        json!({ "entries": entries.collect::<Vec<Value>>() })
    };
    assert_eq!(change(&observed, "PUT", "", &long_list(10_000)).status, 200);
    // PUT accepts the reply to GET.
    let full = observed.call("GET", TARGET, READ).text();
    let again = observed.call_with_json("PUT", TARGET, "", &full);
    assert_eq!((again.status, &again.text()), (200, &full));
    assert_eq!(change(&observed, "PUT", "", &long_list(10_001)).status, 409);
    let one_more = json!({ "add": [{ "address": "10.0.0.1" }] });
    assert_eq!(change(&observed, "PATCH", "", &one_more).status, 409);
    assert_eq!(observed.call("GET", TARGET, READ).text(), full);
    let ended = json!({ "entries": [{ "address": "10.0.0.1", "until_s": 5 }] });
    assert_eq!(change(&observed, "PUT", "", &ended).text(), first.text());
    // Other bodies are shorter.
    let long = json!({ "level": "x".repeat(65_536) }).to_string();
    let refused = observed.call_with_json("PATCH", "/v1/log", "", &long);
    assert_eq!(refused.status, 413);
    let emptied = change(&observed, "PUT", "", &json!({ "entries": [] }));
    assert_eq!(emptied.text(), first.text());
    let denied = observed.call("GET", TARGET, "");
    assert_eq!(denied.status, 401);
    let fields = format!("Authorization: Bearer {READ}\r\nContent-Length: 2\r\n");
    let denied = observed.call_with_body("PUT", TARGET, &fields, "{}");
    assert_eq!(denied.status, 403);
}
