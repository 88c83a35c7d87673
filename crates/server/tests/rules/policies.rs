//! Policies of a whole site: CORS, security fields, the canonical URL, maintenance, error pages of origins, and log rules.

use std::fs;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{ClientResponse, TempFolder, wait_until};

use crate::place::{Place, SAY, by_http2, check, program};

fn request(place: &Place, head: &str) -> ClientResponse {
    let mut client = place.server.connect();
    client.send(format!("{head}\r\n"));
    match head.starts_with("HEAD") {
        true => client.response_to_head(),
        false => client.response(),
    }
}

fn preflight(place: &Place, path: &str, origin: &str, fields: &str) -> ClientResponse {
    request(
        place,
        &format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n{fields}"
        ),
    )
}

const CORS: &str = "[[site.rule]]\npattern = \"/api/**\"\nmethods = \"OPTIONS\"\ndeny = 403\n\
    [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
    [[site.cors]]\npattern = [\"/api/**\", \"/f.txt\"]\norigins = [\"https://a.example\", \"https://*.b.example\"]\n\
    methods = [\"GET\", \"PUT\"]\nheaders = [\"X-A\"]\nexpose = \"X-B\"\ncredentials = true\nmax_age = \"10m\"\n\
    [[site.cors]]\npattern = \"/open/**\"\norigins = \"*\"\nheaders = \"*\"\n";

#[test]
fn listed_origins_may_read_responses_and_others_may_not() {
    let folder = TempFolder::new();
    program(
        &folder,
        "root/api/own.cgi",
        "#!/bin/sh\ncat > /dev/null\nprintf 'Content-Type: text/plain\\nAccess-Control-Allow-Origin: *\\nAccess-Control-Max-Age: 9\\nVary: Accept\\n\\nok'\n",
    );
    let place = Place::after(folder, &["root/f.txt", "root/open/o.txt"], CORS);
    for path in ["/f.txt", "/api/own.cgi", "/api/none"] {
        for (origin, allowed) in [
            ("https://a.example", true),
            ("https://x.b.example", true),
            ("https://b.example", false),
            ("https://evil-a.example", false),
            ("https://a.example.evil", false),
            ("null", false),
        ] {
            let got = place.get_with(path, &format!("Origin: {origin}\r\n"));
            let value = allowed.then_some(origin);
            assert_eq!(
                got.field("access-control-allow-origin"),
                value,
                "{path} {origin}"
            );
            let credentials = allowed.then_some("true");
            assert_eq!(got.field("access-control-allow-credentials"), credentials);
            let exposed = allowed.then_some("X-B");
            assert_eq!(got.field("access-control-expose-headers"), exposed);
            assert_eq!(got.field("access-control-max-age"), None);
            assert!(got.head.contains("Vary: Origin\r\n"), "{}", got.head);
        }
        assert!(place.get(path).head.contains("Vary: Origin\r\n"));
    }
    // Two fields are no origin.
    let twice = "Origin: https://a.example\r\nOrigin: https://a.example\r\n";
    let got = place.get_with("/f.txt", twice);
    assert_eq!(got.field("access-control-allow-origin"), None);
    // One response is for all origins, so caches need not distinguish them.
    let open = place.get_with("/open/o.txt", "Origin: https://x.example\r\n");
    assert_eq!(open.field("access-control-allow-origin"), Some("*"));
    assert!(!open.head.contains("Vary: Origin"));
    let explained = place.explain("/f.txt");
    assert!(explained.contains("Vary: Origin"), "{explained}");
    assert_eq!(
        by_http2(&place, "/f.txt").unwrap_or("root/f.txt".into()),
        "root/f.txt"
    );
}

#[test]
fn preflights_are_answered_before_the_rules() {
    let place = Place::new(&["root/f.txt"], CORS);
    let got = preflight(
        &place,
        "/api/x",
        "https://a.example",
        "Access-Control-Request-Headers: x-a\r\n",
    );
    assert_eq!(got.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://a.example"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "X-A"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(got.field(name), Some(value), "{name}");
    }
    assert!(
        got.field("vary")
            .is_some_and(|vary| vary.contains("Origin"))
    );
    // The refusal names no origin, so scripts can't read it.
    let refused = preflight(&place, "/api/x", "https://evil.example", "");
    assert_eq!(refused.status, 403);
    assert_eq!(refused.field("access-control-allow-origin"), None);
    let all = preflight(
        &place,
        "/open/x",
        "https://x.example",
        "Access-Control-Request-Headers: x-q, authorization\r\n",
    );
    assert_eq!(
        all.field("access-control-allow-headers"),
        Some("x-q, authorization")
    );
    assert_eq!(all.field("access-control-allow-origin"), Some("*"));
    // Without the fields of a preflight the rules apply.
    let plain = request(&place, "OPTIONS /api/x HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(plain.status, 403);
    // A path without a table is answered as any OPTIONS.
    let other = preflight(&place, "/other", "https://a.example", "");
    assert_eq!(other.field("access-control-allow-origin"), None);
}

#[test]
fn security_fields_are_added_unless_set_otherwise() {
    let folder = TempFolder::new();
    program(
        &folder,
        "root/own.cgi",
        "#!/bin/sh\ncat > /dev/null\nprintf 'Content-Type: text/plain\\nX-Frame-Options: DENY\\n\\nok'\n",
    );
    let place = Place::after(
        folder,
        &["root/f.txt"],
        "security_headers = { Referrer-Policy = \"no-referrer\", Content-Security-Policy = false, X-More = \"1\" }\n\
         [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
         [[site.header]]\nset = { Cross-Origin-Opener-Policy = \"unsafe-none\" }\n",
    );
    for (path, frame) in [
        ("/f.txt", "SAMEORIGIN"),
        ("/own.cgi", "DENY"),
        ("/none", "SAMEORIGIN"),
    ] {
        let got = place.get(path);
        for (name, value) in [
            ("x-content-type-options", Some("nosniff")),
            ("x-frame-options", Some(frame)),
            ("referrer-policy", Some("no-referrer")),
            ("content-security-policy", None),
            ("cross-origin-opener-policy", Some("unsafe-none")),
            ("x-more", Some("1")),
        ] {
            assert_eq!(got.field(name), value, "{path} {name}");
        }
    }
}

#[test]
fn requests_are_redirected_to_the_canonical_url() {
    let folder = TempFolder::new();
    program(&folder, "root/say.cgi", SAY);
    let place = Place::after(
        folder,
        &[
            "root/f.txt",
            "root/.well-known/acme-challenge/token",
            "root/d/index.html",
        ],
        "names = [\"a.example\", \"www.a.example\", \"*.b.example\"]\ncanonical_host = true\ntrailing_slash = \"remove\"\n\
         [[site.route]]\npattern = \"/app/**\"\norigin = \"http://127.0.0.1:9\"\nmethods = \"POST\"\n\
         [[site.route]]\npattern = \"/say.cgi\"\ncgi = true\n",
    );
    let at = |host: &str, path: &str, method: &str| {
        let got = request(
            &place,
            &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n"),
        );
        (got.status, got.field("location").map(str::to_owned))
    };
    let to = |url: &str| Some(url.to_owned());
    assert_eq!(at("a.example", "/f.txt", "GET"), (200, None));
    assert_eq!(at("A.example.:8080", "/f.txt", "GET"), (200, None));
    assert_eq!(
        at("www.a.example:8080", "/x?y=1", "GET"),
        (301, to("http://a.example:8080/x?y=1"))
    );
    assert_eq!(
        at("q.b.example", "//evil/", "POST"),
        (308, to("http://a.example//evil/"))
    );
    // The challenge of another ACME client is not redirected.
    let challenge = "/.well-known/acme-challenge/token";
    assert_eq!(at("www.a.example", challenge, "GET").0, 200);
    assert_eq!(
        at("a.example", "/say.cgi/?q", "GET"),
        (301, to("/say.cgi?q"))
    );
    assert_eq!(
        at("a.example", "/app//x//?q", "GET"),
        (301, to("/app//x?q"))
    );
    assert_eq!(at("a.example", "//say.cgi//", "GET"), (301, to("/say.cgi")));
    // Folders of files keep their slash.
    assert_eq!(at("a.example", "/d/", "GET"), (200, None));
    assert_eq!(at("a.example", "/none/", "GET").0, 404);
}

#[test]
fn canonical_redirects_are_one_with_the_fields_of_the_site() {
    let place = Place::new(
        &[],
        "names = [\"a.example\", \"www.a.example\"]\ncanonical_host = true\ntrailing_slash = \"add\"\nsecurity_headers = true\n\
         [[site.header]]\nset = { Strict-Transport-Security = \"max-age=9\", X-Who = \"$client\" }\n\
         [[site.redirect]]\nfrom = \"/app/old\"\nto = \"/app/new\"\n\
         [[site.route]]\npattern = \"/app/**\"\norigin = \"http://127.0.0.1:9\"\n",
    );
    let at = |host: &str, path: &str| {
        request(&place, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n"))
    };
    for (host, path, location) in [
        ("www.a.example", "/app/x?q=1", "http://a.example/app/x/?q=1"),
        ("www.a.example", "/app/x/", "http://a.example/app/x/"),
        ("a.example", "/app/x?q=1", "/app/x/?q=1"),
        // The rule for the path without a slash comes first.
        ("www.a.example", "/app/old", "http://a.example/app/old"),
        ("a.example", "/app/old", "/app/new"),
    ] {
        let got = at(host, path);
        assert_eq!(
            (got.status, got.field("location")),
            (301, Some(location)),
            "{host}{path}"
        );
        for (name, value) in [
            ("strict-transport-security", "max-age=9"),
            ("x-content-type-options", "nosniff"),
            ("x-who", "127.0.0.1"),
        ] {
            assert_eq!(got.field(name), Some(value), "{host}{path} {name}");
        }
    }
    // The URL has the address, so that no name has to be resolved.
    let explain = |host: &str| {
        let url = format!("http://{}/app/x", place.server.address());
        let host = format!("Host: {host}");
        place.run(&["explain", &url, "-H", &host, "--admin", &place.admin()])
    };
    // Both keys are named, since either may be the one to change.
    let explained = explain("www.a.example");
    assert!(
        explained.contains("canonical_host and trailing_slash: to http://a.example/app/x/"),
        "{explained}"
    );
    assert!(
        explained.contains("X-Content-Type-Options: nosniff"),
        "{explained}"
    );
    let explained = explain("a.example");
    assert!(
        explained.contains("trailing_slash: to /app/x/"),
        "{explained}"
    );
    let metrics = place.run(&["status", "--json", "--admin", &place.admin()]);
    // The JSON is indented for people.
    let compact: String = metrics.chars().filter(|it| !it.is_whitespace()).collect();
    for (action, count) in [("https", 3), ("redirect", 2)] {
        let sample = format!("\"action\":\"{action}\",\"site\":\"a.example\"}},\"value\":{count}");
        assert!(compact.contains(&sample), "{action}: {metrics}");
    }
}

/// The lines of Cache-Control, joined.
fn cache_control(got: &ClientResponse) -> String {
    let lines = got
        .head
        .lines()
        .filter_map(|line| line.strip_prefix("Cache-Control: "));
    lines.collect::<Vec<_>>().join(" | ")
}

#[test]
fn responses_that_depend_on_the_client_are_private_in_one_field() {
    let place = Place::new(
        &["root/f.txt", "root/c/f.txt", "root/k/f.txt", "root/v/f.txt"],
        "[[site.cache_control]]\npattern = \"/**\"\nvalue = \"public, max-age=5\"\n\
         [[site.header]]\npattern = \"/c/**\"\nset = { X-Who = \"$client\" }\n\
         [[site.header]]\npattern = \"/k/**\"\naddresses = \"192.0.2.1\"\nset = { X-Who = \"it\" }\n\
         [[site.header]]\npattern = \"/v/**\"\nset = { X-Who = \"$header_x_a\", CDN-Cache-Control = \"max-age=9\" }\n",
    );
    for (path, expected) in [
        ("/f.txt", "public, max-age=5"),
        ("/c/f.txt", "private, max-age=5"),
        ("/k/f.txt", "private, max-age=5"),
        ("/v/f.txt", "public, max-age=5"),
    ] {
        // The second request is answered from memory.
        for _ in 0..2 {
            let got = place.get(path);
            assert_eq!(
                (got.status, &cache_control(&got)[..]),
                (200, expected),
                "{path}"
            );
        }
        // A part of a file has another head.
        let part = place.get_with(path, "Range: bytes=0-0\r\n");
        assert_eq!(
            (part.status, &cache_control(&part)[..]),
            (206, expected),
            "{path}"
        );
    }
}

#[test]
fn maintenance_is_turned_on_by_command_and_by_file() {
    let folder = TempFolder::new();
    let switch = folder.path().join("switch");
    let lines = format!(
        "names = \"a\"\nerror_pages = {{ 503 = \"/down.html\" }}\n[site.maintenance]\nfile = \"{}\"\nretry_after = \"30m\"\n\
         except = [{{ header = \"X-Probe\" }}, {{ cookie = \"preview=1\" }}]\n",
        switch.display()
    );
    let place = Place::after(folder, &["root/f.txt", "root/down.html"], &lines);
    let get = |fields: &str| {
        request(
            &place,
            &format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{fields}"),
        )
    };
    let admin = place.admin();
    assert_eq!(get("").status, 200);
    let said = place.run(&["maintenance", "on", "--site", "a", "--admin", &admin]);
    assert_eq!(said, "a: maintenance is on\n");
    let got = get("");
    assert_eq!((got.status, &got.text()[..]), (503, "root/down.html"));
    assert_eq!(got.field("retry-after"), Some("1800"));
    assert_eq!(got.field("cache-control"), Some("no-store"));
    assert_eq!(get("X-Probe: 1\r\n").status, 200);
    assert_eq!(get("Cookie: preview=1\r\n").status, 200);
    assert_eq!(get("Cookie: preview=2\r\n").status, 503);
    let url = format!("http://a:{}/f.txt", place.server.address().port());
    let explained = place.run(&["explain", &url, "--admin", &admin]);
    assert!(explained.contains("maintenance mode"), "{explained}");
    // A reload keeps the mode.
    place.run(&["reload", "--admin", &admin]);
    assert_eq!(get("").status, 503);
    let said = place.run(&["maintenance", "off", "--admin", &admin]);
    assert_eq!(said, "a: maintenance is off\n");
    assert_eq!(get("").status, 200);
    // A mistyped name must not look like success.
    let said = place.run(&["maintenance", "on", "--site", "b", "--admin", &admin]);
    assert!(
        said.contains("no site is named \"b\"; the sites are a"),
        "{said}"
    );
    fs::write(&switch, "").expect("a file");
    wait_until("the maintenance", || (get("").status == 503).then_some(()));
    let said = place.run(&["maintenance", "off", "--admin", &admin]);
    assert_eq!(said, "a: maintenance is off, but its file is there\n");
    fs::remove_file(&switch).expect("the file");
    wait_until("its end", || (get("").status == 200).then_some(()));
}

#[test]
fn error_pages_replace_errors_of_origins() {
    let origin = TestOrigin::with_response(|request| {
        let (status, fields) = match request.target.as_str() {
            "/o/401" => (
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"x\"\r\nX-Own: 1\r\n",
            ),
            "/o/stored" => ("404 Not Found", "Cache-Control: max-age=60\r\n"),
            "/o/500" => ("500 Internal Server Error", ""),
            "/o/200" => ("200 OK", ""),
            _ => ("404 Not Found", ""),
        };
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 3\r\n\r\nown")
    });
    let url = origin.url();
    let lines = format!(
        "error_pages = {{ 401 = \"/e401.html\", 404 = \"/e404.html\" }}\n\
         [[site.route]]\npattern = \"/o/**\"\norigin = \"{url}\"\nintercept_errors = true\n\
         [[site.route]]\npattern = \"/p/**\"\norigin = \"{url}\"\n"
    );
    let place = Place::new(&["root/e401.html", "root/e404.html"], &lines);
    for (path, status, body) in [
        ("/o/200", 200, "own"),
        ("/o/401", 401, "root/e401.html"),
        ("/o/404", 404, "root/e404.html"),
        ("/o/stored", 404, "root/e404.html"),
        ("/o/stored", 404, "root/e404.html"),
        ("/o/500", 500, "own"),
        ("/p/404", 404, "own"),
    ] {
        let got = place.get(path);
        assert_eq!((got.status, &got.text()[..]), (status, body), "{path}");
    }
    let got = place.get("/o/401");
    assert_eq!(got.field("www-authenticate"), Some("Basic realm=\"x\""));
    assert_eq!(got.field("x-own"), None);
    assert_eq!(got.field("cache-control"), Some("no-store"));
    for path in ["/o/404", "/o/stored"] {
        let explained = place.explain(path);
        let expected = "401, 404 are replaced by the site's pages";
        assert!(explained.contains(expected), "{explained}");
    }
    assert!(!place.explain("/p/404").contains("replaced"));
    // The origin's response is stored as it is, and replaced when it is sent.
    let stored = origin
        .requests()
        .iter()
        .filter(|it| it.target == "/o/stored")
        .count();
    assert_eq!(stored, 1);
}

#[test]
fn error_pages_have_another_status() {
    let origin = TestOrigin::with_response(|request| {
        let status = request.target.rsplit('/').next().unwrap_or_default();
        format!("HTTP/1.1 {status} X\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\nown")
    });
    let lines = format!(
        "error_pages = {{ 404 = \"/e404.html\", 503 = \"/e503.html\" }}\n\
         [[site.route]]\npattern = \"/o/**\"\norigin = \"{}\"\nintercept_errors = {{ \"5xx\" = 503, 404 = 200, 501 = 500 }}\n\
         [[site.route]]\npattern = \"/down/**\"\norigin = \"http://127.0.0.1:9\"\nintercept_errors = {{ 502 = 503 }}\n",
        origin.url()
    );
    let place = Place::new(&["root/e404.html", "root/e503.html"], &lines);
    for (path, status, body) in [
        ("/o/404", 200, "root/e404.html"),
        // The second response is a stored one.
        ("/o/404", 200, "root/e404.html"),
        ("/o/500", 503, "root/e503.html"),
        ("/o/410", 410, "own"),
        ("/o/200", 200, "own"),
        ("/down/x", 503, "root/e503.html"),
        ("/none", 404, "root/e404.html"),
    ] {
        let got = place.get(path);
        assert_eq!((got.status, &got.text()[..]), (status, body), "{path}");
        // Pages in place of errors must not be stored: the origin may recover.
        let replaced = body.starts_with("root/e") && path != "/none";
        assert_eq!(
            got.field("cache-control") == Some("no-store"),
            replaced,
            "{path}"
        );
    }
    let explained = place.explain("/o/x");
    let expected = "404 as 200, 501 as 500, 5xx as 503 are replaced";
    assert!(explained.contains(expected), "{explained}");
    // A status precedes its class; there is no page for 500 or 501.
    let got = place.get("/o/501");
    assert!(
        got.status == 500 && got.text().contains("500"),
        "{}",
        got.head
    );
    for (value, problem) in [
        ("{ 200 = 404 }", "\"200\" is not a status of an error"),
        ("{ 404 = 302 }", "302 is not a status for an error page"),
        ("\"all\"", "\"all\" is not a boolean or a table"),
    ] {
        let problems = check(&format!(
            "[[site.route]]\npattern = \"/o/**\"\norigin = \"http://a\"\nintercept_errors = {value}\n"
        ));
        assert!(problems.contains(problem), "{problems}");
    }
}

/// The server's own clock is not in the hands of a test, so only completeness and the chosen limit are checked here; the
/// simulator checks times.
#[test]
fn limited_responses_are_complete() {
    let folder = TempFolder::new();
    let long = "x".repeat(300_000);
    folder.file("root/long.bin", &long);
    let origin = TestOrigin::with_response(|_| {
        let long = "y".repeat(300_000);
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 300000\r\n\r\n{long}"
        )
    });
    let lines = format!(
        "rate = \"2MB/s\"\nafter = \"64K\"\n[[site.rule]]\nheader = \"X-Fast\"\nrate = \"1GB/s\"\n\
         [[site.route]]\npattern = [\"/o/**\", \"/p/**\"]\norigin = \"{}\"\nrate = \"1MB/s\"\n",
        origin.url()
    );
    let place = Place::after(folder, &[], &lines);
    for fields in ["", "X-Fast: 1\r\n", "Range: bytes=1-299998\r\n"] {
        for (path, letter) in [
            ("/long.bin", 'x'),
            ("/o/x", 'y'),
            ("/o/x", 'y'),
            ("/p/x", 'y'),
        ] {
            let got = place.get_with(path, fields);
            let len = if fields.starts_with("Range") {
                299_998
            } else {
                300_000
            };
            let text = got.text();
            assert!(
                text.len() == len && text.chars().all(|it| it == letter),
                "{path} {fields}"
            );
        }
    }
    // Without curl, the expected text stands in.
    let by_http2 = by_http2(&place, "/o/x").unwrap_or("y".repeat(300_000));
    assert_eq!(by_http2.len(), 300_000);
    let explained = place.explain("/o/x");
    assert!(
        explained.contains("1048576 bytes/s after 0 bytes"),
        "{explained}"
    );
    let explained = place.explain("/long.bin");
    assert!(
        explained.contains("2097152 bytes/s after 65536 bytes"),
        "{explained}"
    );
}

#[test]
fn rules_select_what_is_logged() {
    let place = Place::new(
        &["root/f.txt", "root/health"],
        "[[site.rule]]\npattern = [\"/health\", \"/ping\"]\nlog = false\n\
         [[site.rule]]\nheader = \"X-Log: yes\"\nlog = true\n",
    );
    // One connection, so one worker writes the lines.
    let mut client = place.server.connect();
    for (path, fields) in [
        ("/health", ""),
        ("/ping", ""),
        ("/f.txt?1", ""),
        ("/health?2", "X-Log: yes\r\n"),
        ("/f.txt?end", ""),
    ] {
        client.get(path, fields);
    }
    let log = place.folder.path().join("access.log");
    let lines = wait_until("the log", || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("?end").then_some(text)
    });
    let paths: Vec<&str> = lines
        .lines()
        .filter_map(|it| it.split(' ').nth(6))
        .collect();
    assert_eq!(paths, ["/f.txt?1", "/health?2", "/f.txt?end"]);
}

#[test]
fn fields_have_conditions_for_responses_of_every_source() {
    let folder = TempFolder::new();
    program(
        &folder,
        "root/own.cgi",
        "#!/bin/sh\ncat > /dev/null\nprintf 'Content-Type: text/plain\\nContent-Length: 2\\nX-A: own\\nX-B: own\\n\\nok'\n",
    );
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nX-A: own\r\nX-B: own\r\nContent-Length: 2\r\n\r\nok".into()
    });
    let lines = format!(
        "[[site.route]]\npattern = \"*.cgi\"\ncgi = true\n[[site.route]]\npattern = \"/o/**\"\norigin = \"{}\"\n\
         [[site.header]]\nset = {{ X-C = \"always\", X-D = \"first\" }}\n\
         [[site.header]]\nheader = \"X-Kind: beta\"\nset = {{ X-A = \"beta $host\" }}\nremove = [\"X-B\", \"X-C\"]\nappend = {{ X-D = \"second\" }}\n",
        origin.url()
    );
    let place = Place::after(folder, &["root/f.txt"], &lines);
    for path in ["/f.txt", "/own.cgi", "/o/x", "/o/x", "/none"] {
        let has_own = path.starts_with("/o");
        let own = has_own.then_some("own");
        let plain = place.get(path);
        assert_eq!(
            (plain.field("x-a"), plain.field("x-b")),
            (own, own),
            "{path}"
        );
        assert_eq!(plain.field("x-c"), Some("always"), "{path}");
        let beta = place.get_with(path, "X-Kind: beta\r\n");
        assert_eq!(beta.field("x-a"), Some("beta test"), "{path}");
        assert_eq!(
            (beta.field("x-b"), beta.field("x-c")),
            (None, None),
            "{path}"
        );
        assert!(beta.head.contains("X-D: first\r\n") && beta.head.contains("X-D: second\r\n"));
        for got in [&plain, &beta] {
            assert!(got.head.contains("Vary: X-Kind\r\n"), "{}", got.head);
            let framing = ["\r\nContent-Length: ", "\r\nTransfer-Encoding: "];
            let framing = framing.map(|it| got.head.matches(it).count());
            assert_eq!(framing.iter().sum::<usize>(), 1, "{}", got.head);
        }
        assert_eq!(
            beta.text(),
            plain.text(),
            "{path}: {} {}",
            plain.head,
            beta.head
        );
    }
    // A part of a file takes another way through the writer.
    let partial = place.get_with("/f.txt", "X-Kind: beta\r\nRange: bytes=0-0\r\n");
    assert_eq!((partial.status, partial.field("x-c")), (206, None));
}

/// A path with an encoded backslash has the fields of the path that programs may take it for.
#[test]
fn fields_apply_to_backslash_forms_of_paths() {
    let origin =
        TestOrigin::with_response(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into());
    let lines = format!(
        "[[site.route]]\npattern = \"/o/**\"\norigin = \"{}\"\n[[site.header]]\npattern = \"/o/**\"\nset = {{ X-A = \"1\" }}\n",
        origin.url()
    );
    let place = Place::new(&[], &lines);
    for path in ["/o/x", "/o%5Cx", "/o%5C%5Cx", "/o%2Fx"] {
        let got = place.get(path);
        assert_eq!((got.status, got.field("x-a")), (200, Some("1")), "{path}");
    }
}
