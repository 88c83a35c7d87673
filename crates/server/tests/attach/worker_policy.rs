//! One policy per command: the options of `attach --worker` for cookies, paths, lifetimes and clients apply to the
//! workers as they do to the level below them; and so does a purge.

use std::net::IpAddr;
use std::process::Command;

use lowroad_testkit::ClientResponse;
use lowroad_testkit::net::{CLIENT, NetNamespace};

use crate::attached::{one, server_v4};
use crate::skipped;
use crate::worker::{ALONE, Line, PROGRAM, WITH_LEVEL, Workers, seen};

/// Makes Apache return the cookie of the request.
const WHO: &str = "Header set Who \"expr=%{req:Cookie}\"\n";

fn ask(line: &Line, page: &str, fields: &str) -> ClientResponse {
    let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    line.path.client.enter(|| one(server_v4(80), &request))
}

/// Whether the workers answer a repeated request from the cache.
fn is_stored(line: &Line, page: &str, fields: &str) -> bool {
    ask(line, page, fields);
    ask(line, page, fields).field("age").is_some()
}

/// The lifetime of a stored response in seconds, as the workers report it.
fn ttl_s(response: &ClientResponse) -> i64 {
    let status = response.field("cache-status").expect("a Cache-Status");
    let ttl = status
        .split(';')
        .find_map(|part| part.trim().strip_prefix("ttl="));
    ttl.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{status}"))
}

#[test]
fn a_page_of_one_cookie_is_not_given_to_another() {
    if skipped("a_page_of_one_cookie_is_not_given", &["apache2"]) {
        return;
    }
    for options in [ALONE, WITH_LEVEL] {
        let line = Line::apache_with(&[2_000, 30_000], WHO);
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
fn what_pages_do_not_depend_on_is_passed_over_where_the_command_says_so() {
    if skipped("what_pages_do_not_depend_on", &["apache2"]) {
        return;
    }
    let line = Line::apache_with(&[30_000], WHO);
    let options = [ALONE, &["--ignore-cookies", "--ignore-cache-control"]].concat();
    let _workers = Workers::start(&line.path.server, &options);
    assert!(is_stored(&line, line.page(0), ""));
    for fields in ["Cookie: id=a\r\n", "Cache-Control: max-age=0\r\n"] {
        let response = ask(&line, line.page(0), fields);
        assert!(response.field("age").is_some(), "{}", response.head);
    }
}

#[test]
fn requests_and_paths_that_the_level_leaves_to_the_server_the_workers_leave_too() {
    if skipped("requests_and_paths_that_the_level_leaves", &["apache2"]) {
        return;
    }
    let line = Line::apache(&[30_000]);
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
fn lifetimes_are_those_of_the_level() {
    if skipped("lifetimes_are_those_of_the_level", &["nginx", "touch"]) {
        return;
    }
    for (options, most_s) in [(&[][..], 5), (&["--ttl", "7"][..], 7)] {
        // The response has no freshness information, and was last changed long ago.
        let line = Line::nginx(
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
        // Another client may be admitted.
        assert!(!is_stored(&line, "/refused", ""));
    }
}

#[test]
fn clients_that_are_denied_are_the_servers_alone() {
    if skipped("clients_that_are_denied_are_the_servers", &["apache2"]) {
        return;
    }
    let line = Line::apache(&[30_000]);
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
fn a_purge_of_a_namespace_reaches_its_workers() {
    if skipped("a_purge_of_a_namespace_reaches_its_workers", &["apache2"]) {
        return;
    }
    let line = Line::apache(&[1_000, 30_000]);
    let _workers = Workers::start(&line.path.server, WITH_LEVEL);
    let netns = line.path.server.path();
    let purge = |what: &str| {
        let arguments = ["purge", what, "--netns", &netns];
        line.path.server.run(PROGRAM, &arguments).expect("a purge")
    };
    assert!(is_stored(&line, line.page(1), ""));
    let said = purge(&format!("http://test{}", line.page(1)));
    assert!(said.starts_with("purged at once"), "{said}");
    let fresh = ask(&line, line.page(1), "");
    assert_eq!(fresh.field("age"), None, "{}", fresh.head);
    // Servers of other namespaces receive no request.
    let other = NetNamespace::new("empty").expect("a namespace");
    let arguments = ["purge", "all", "--netns", &other.path()];
    assert!(other.run(PROGRAM, &arguments).is_err());
    assert!(is_stored(&line, line.page(1), ""));
}

#[test]
fn an_explanation_names_the_status() {
    if skipped("an_explanation_names_the_status", &["apache2"]) {
        return;
    }
    let line = Line::apache(&[1_000]);
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
