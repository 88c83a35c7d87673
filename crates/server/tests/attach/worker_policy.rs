//! One policy per command: the options of `attach --worker` for cookies, paths, lifetimes and clients apply to the
//! workers as well as to the level below them. A purge also reaches both.

use std::net::IpAddr;
use std::process::Command;

use lowroad_testkit::ClientResponse;
use lowroad_testkit::net::{CLIENT, NetNamespace};

use crate::attached::{send_request, server_v4};
use crate::skipped;
use crate::worker::{ALONE, PROGRAM, ServerLink, WITH_LEVEL, Workers, seen};

/// Makes Apache copy the cookie of the request into the response.
const WHO: &str = "Header set Who \"expr=%{req:Cookie}\"\n";

fn ask(line: &ServerLink, page: &str, fields: &str) -> ClientResponse {
    let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    line.path
        .client
        .enter(|| send_request(server_v4(80), &request))
}

/// Whether the workers answer a repeated request from the cache.
fn is_stored(line: &ServerLink, page: &str, fields: &str) -> bool {
    ask(line, page, fields);
    ask(line, page, fields).field("age").is_some()
}

/// The remaining freshness lifetime of a stored response in seconds, from its Cache-Status.
fn ttl_s(response: &ClientResponse) -> i64 {
    let status = response.field("cache-status").expect("a Cache-Status");
    let ttl = status
        .split(';')
        .find_map(|part| part.trim().strip_prefix("ttl="));
    ttl.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{status}"))
}

#[test]
fn response_for_one_cookie_is_not_sent_to_another() {
    if skipped(
        "response_for_one_cookie_is_not_sent_to_another",
        &["apache2"],
    ) {
        return;
    }
    for options in [ALONE, WITH_LEVEL] {
        let line = ServerLink::apache_with(&[2_000, 30_000], WHO);
        let _workers = Workers::start(&line.path.server, options);
        for page in [line.page(0), line.page(1)] {
            for cookie in ["id=a", "id=b", "id=a"] {
                let response = ask(&line, page, &format!("Cookie: {cookie}\r\n"));
                assert_eq!(response.field("who"), Some(cookie), "{}", response.head);
                assert_eq!(response.field("age"), None, "{}", response.head);
            }
            assert!(is_stored(&line, page, ""), "without one it is everybody's");
            let response = ask(&line, page, "Cookie: id=c\r\n");
            assert_eq!(response.field("who"), Some("id=c"), "{}", response.head);
        }
    }
}

#[test]
fn ignore_cookies_option_applies_to_workers() {
    if skipped("ignore_cookies_option_applies_to_workers", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache_with(&[30_000], WHO);
    let options = [ALONE, &["--ignore-cookies", "--ignore-cache-control"]].concat();
    let _workers = Workers::start(&line.path.server, &options);
    assert!(is_stored(&line, line.page(0), ""));
    for fields in ["Cookie: id=a\r\n", "Cache-Control: max-age=0\r\n"] {
        let response = ask(&line, line.page(0), fields);
        assert!(response.field("age").is_some(), "{}", response.head);
    }
}

#[test]
fn workers_bypass_the_same_requests_as_the_level() {
    if skipped(
        "workers_bypass_the_same_requests_as_the_level",
        &["apache2"],
    ) {
        return;
    }
    let line = ServerLink::apache(&[30_000]);
    for path in ["private/a", "intern/a", "open/a"] {
        line.site
            .folder()
            .file(format!("root/{path}"), [b'x'; 30_000]);
    }
    let options = [ALONE, &["--exclude", "/intern"]].concat();
    let _workers = Workers::start(&line.path.server, &options);
    assert!(is_stored(&line, "/open/a", ""));
    for page in ["/private/a", "/intern/a", "//INTERN/a", "/server-status"] {
        assert!(!is_stored(&line, page, ""), "{page}");
    }
    for fields in [
        "Cache-Control: no-cache\r\n",
        "Pragma: no-cache\r\n",
        "Authorization: Basic eDp5\r\n",
        "X-Forwarded-Proto: https\r\n",
    ] {
        let response = ask(&line, "/open/a", fields);
        assert_eq!(response.field("age"), None, "{fields}: {}", response.head);
    }
}

#[test]
fn workers_use_lifetimes_of_the_level() {
    if skipped("workers_use_lifetimes_of_the_level", &["nginx", "touch"]) {
        return;
    }
    for (options, most_s) in [(&[][..], 5), (&["--ttl", "7"][..], 7)] {
        // The response has no freshness information, and its Last-Modified is long ago.
        let line = ServerLink::nginx(
            &[30_000],
            "location /refused { add_header Cache-Control max-age=600 always; deny all; }",
        );
        let file = line.site.root().join(&line.page(0)[1..]);
        let touched = Command::new("touch")
            .args(["-d", "2020-01-01"])
            .arg(&file)
            .status();
        assert!(touched.expect("touch").success());
        let _workers = Workers::start(&line.path.server, &[ALONE, options].concat());
        ask(&line, line.page(0), "");
        let again = ask(&line, line.page(0), "");
        assert!(again.field("age").is_some(), "{}", again.head);
        let ttl_s = ttl_s(&again);
        assert!((0..=most_s).contains(&ttl_s), "{ttl_s}");
        // Another client might be permitted to see this page, so the refusal is not stored.
        assert!(!is_stored(&line, "/refused", ""));
    }
}

#[test]
fn denied_clients_are_left_to_the_server() {
    if skipped("denied_clients_are_left_to_the_server", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[30_000]);
    let client: IpAddr = CLIENT.0.into();
    for options in [ALONE, WITH_LEVEL] {
        for how in ["--deny", "--allow"] {
            let prefix = match how {
                "--deny" => format!("{client}/24"),
                _ => "192.0.2.0/24".to_owned(),
            };
            let options = [options, &[how, &prefix]].concat();
            let _workers = Workers::start(&line.path.server, &options);
            assert!(!is_stored(&line, line.page(0), ""));
            let response = ask(&line, line.page(0), "");
            assert_eq!(seen(&response), (client, String::new()), "{options:?}");
        }
    }
}

#[test]
fn purge_of_namespace_reaches_its_workers() {
    if skipped("purge_of_namespace_reaches_its_workers", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[1_000, 30_000]);
    let _workers = Workers::start(&line.path.server, WITH_LEVEL);
    let netns = line.path.server.path();
    let purge = |what: &str| {
        let arguments = ["purge", what, "--netns", &netns];
        line.path.server.run(PROGRAM, &arguments).expect("a purge")
    };
    assert!(is_stored(&line, line.page(1), ""));
    let said = purge(&format!("http://test{}", line.page(1)));
    assert!(
        said.starts_with("removed ") || said.contains("; purged "),
        "{said}"
    );
    let fresh = ask(&line, line.page(1), "");
    assert_eq!(fresh.field("age"), None, "{}", fresh.head);
    // Servers of other namespaces must not get the purge.
    let other = NetNamespace::new("empty").expect("a namespace");
    let arguments = ["purge", "all", "--netns", &other.path()];
    assert!(other.run(PROGRAM, &arguments).is_err());
    assert!(is_stored(&line, line.page(1), ""));
}

#[test]
fn explain_shows_the_status() {
    if skipped("explain_shows_the_status", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[1_000]);
    let _workers = Workers::start(&line.path.server, WITH_LEVEL);
    let netns = line.path.server.path();
    for (page, status) in [("/missing", "404 Not Found"), (line.page(0), "200 OK")] {
        let url = format!("http://test{page}");
        let arguments = ["explain", &url, "--netns", &netns];
        let said = line
            .path
            .server
            .run(PROGRAM, &arguments)
            .expect("an explanation");
        assert!(said.contains(status), "{said}");
    }
}
