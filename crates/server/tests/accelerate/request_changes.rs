//! Requests to origins that differ from the client's in path and fields, and the responses to them.

use std::io::{Read, Write};

use lowroad_testkit::TempFolder;
use lowroad_testkit::origin::TestOrigin;

use crate::front::{OriginRequest, TestAccelerator, numbered_response, response};

/// An accelerator with one route of this pattern and these settings; `URL` stands for the origin's.
fn front(origin: TestOrigin, pattern: &str, lines: &str) -> TestAccelerator {
    TestAccelerator::with_site(
        origin,
        &format!("[[site.route]]\npattern = \"{pattern}\"\n{lines}\n"),
    )
}

/// An origin that answers with the head of each request.
fn echo() -> TestOrigin {
    TestOrigin::with_response(|request| response("200 OK", "", &request.head))
}

#[test]
fn prefix_of_path_is_replaced_and_reported() {
    let front = front(
        echo(),
        "/api/**",
        "origin = \"URL\"\nstrip_prefix = \"/api\"\nadd_prefix = \"/v2\"",
    );
    let echoed = front.get("/%61pi//a%2Fb/?x=/api/", "X-Forwarded-Prefix: /evil\r\n");
    assert!(
        echoed
            .text()
            .starts_with("GET /v2//a%2Fb/?x=/api/ HTTP/1.1\r\n"),
        "{}",
        echoed.text()
    );
    let request = front.origin.requests().remove(0);
    assert_eq!(request.field("x-forwarded-prefix"), Some("/api"));
    let destination = "Destination: http://test/api/b\r\n";
    front.request("MOVE", "/api/a", destination);
    let moved = front.origin.requests().pop().expect("a request");
    assert_eq!(moved.field("destination"), Some("http://test/v2/b"));
    let destination = "Destination: http://test/api/%2e%2e/b\r\n";
    front.request("MOVE", "/api/a", destination);
    let moved = front.origin.requests().pop().expect("a request");
    assert_eq!(moved.field("destination"), None);
}

#[test]
fn path_in_url_replaces_front_of_pattern() {
    for (pattern, url, target, expected) in [
        ("/api/**", "URL/app/", "/api/x?y", "/app/x?y"),
        ("/api/**", "URL/app", "/api/", "/app/"),
        ("/api/**", "URL/", "/api/x", "/api/x"),
        ("/api", "URL/app/", "/api?y", "/app/?y"),
    ] {
        let lines = format!("origin = \"{url}\"");
        let front = front(echo(), pattern, &lines);
        front.get(target, "");
        assert_eq!(
            front.origin.requests()[0].target,
            expected,
            "{pattern} {url}"
        );
    }
}

/// An origin that redirects each path without a slash at its end to the path with one, and sets a cookie.
fn slash_origin() -> TestOrigin {
    TestOrigin::with_response(|request| match request.target.strip_suffix('/') {
        Some(_) => response(
            "200 OK",
            "Set-Cookie: a=b; Path=/\r\nContent-Location: /x/\r\n",
            "ok",
        ),
        None => {
            let fields = format!("Location: {}/\r\nRefresh: 0; url={0}/\r\n", request.target);
            response("302 Found", &fields, "")
        }
    })
}

#[test]
fn redirects_and_cookies_lead_back_below_the_prefix() {
    let lines = "origin = \"URL\"\nstrip_prefix = \"/api\"\n";
    let mapped = front(slash_origin(), "/api/**", lines);
    // A client that follows redirects arrives, instead of going round in circles.
    let mut path = "/api/x".to_string();
    let mut answer = mapped.get(&path, "");
    assert_eq!(answer.field("refresh"), Some("0; url=/api/x/"));
    for _ in 0..3 {
        let Some(location) = answer.field("location") else {
            break;
        };
        path = location.to_string();
        answer = mapped.get(&path, "");
    }
    assert_eq!((answer.status, &*path), (200, "/api/x/"));
    assert_eq!(answer.field("set-cookie"), Some("a=b; Path=/api"));
    assert_eq!(answer.field("content-location"), Some("/api/x/"));
    let unchanged = front(
        slash_origin(),
        "/api/**",
        &format!("{lines}restore_prefix = false"),
    );
    assert_eq!(unchanged.get("/api/x", "").field("location"), Some("/x/"));
}

#[test]
fn upgraded_connection_works_below_a_prefix() {
    let origin = TestOrigin::start(|request, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\
                    Set-Cookie: a=b; path=/chat\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(request.target.as_bytes());
        let mut piece = [0; 100];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            let _ = stream.write_all(&piece[..len]);
        }
        false
    });
    let front = front(origin, "/ws/**", "origin = \"URL\"\nstrip_prefix = \"/ws\"");
    let mut client = front.connect();
    client.send("GET /ws/chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let switched = client.response();
    assert_eq!(switched.status, 101);
    assert_eq!(switched.field("set-cookie"), Some("a=b; path=/ws/chat"));
    client.send("hello");
    let end = client.stream().shutdown(std::net::Shutdown::Write);
    end.expect("the connection is open");
    assert!(client.wait_for_close());
    assert_eq!(client.received, b"/chathello");
}

#[test]
fn fields_of_requests_are_set_appended_and_removed() {
    let front = front(
        echo(),
        "/api/**",
        "origin = \"URL\"\n[site.route.request]\nhost = \"$host:81\"\nremove = \"cookie\"\n\
         append = { X-Tag = \"b\" }\n[site.route.request.set]\nX-Client = \"$client:$client_port\"\n\
         X-Url = \"$scheme $method $path $arg_q $1\"\nX-Empty = \"$header_x_none\"\nX-Forwarded-For = \"a, $client\"\n",
    );
    let fields = "Cookie: a=b\r\nX-Tag: a\r\nX-Client: evil\r\nX-Empty: evil\r\nX-CLIENT: evil\r\n";
    front.get("/api/a%0d%0aX-Evil:%20b?q=c%0d%0aX-Evil:d", fields);
    let request = front.origin.requests().remove(0);
    assert_eq!(request.field("host"), Some("test:81"));
    assert_eq!(request.field("cookie"), None);
    assert_eq!(request.field("x-empty"), None);
    assert_eq!(request.field("x-evil"), None, "{}", request.head);
    assert_eq!(request.field("x-forwarded-for"), Some("a, 127.0.0.1"));
    assert_eq!(
        request.field("x-url"),
        Some("http GET /api/a%0D%0AX-Evil: b c%0D%0AX-Evil:d a%0D%0AX-Evil: b")
    );
    let values = |name: &str| -> Vec<&str> {
        let lines = request
            .head
            .lines()
            .filter_map(|line| line.split_once(": "));
        let named = lines.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value).collect()
    };
    assert_eq!(values("x-tag"), ["a", "b"]);
    let [client] = values("x-client")[..] else {
        panic!("one value: {}", request.head);
    };
    assert!(client.starts_with("127.0.0.1:"), "{client}");
}

/// An origin with storable responses, which contain the number of the request.
fn storable(request: &OriginRequest) -> String {
    numbered_response(request, "Cache-Control: max-age=60\r\nX-Path: own\r\n")
}

/// Whether the response to a second request with these fields is that to the first.
fn is_shared(set: &str, first: &str, second: &str) -> bool {
    let lines = format!("origin = \"URL\"\nrequest = {{ set = {{ {set} }} }}");
    let front = front(TestOrigin::with_response(storable), "/**", &lines);
    let first = front.get("/a?q=1", first).text();
    front.get("/a?q=1", second).text() == first
}

#[test]
fn stored_response_is_sent_only_if_the_origin_would_get_the_same_request() {
    let tenant = ("X-Tenant: a\r\n", "X-Tenant: b\r\n");
    // The key distinguishes the values.
    assert!(is_shared(
        "X = \"$host$arg_q$path$scheme\"",
        tenant.0,
        tenant.1
    ));
    // Vary names the field on which the request depends.
    assert!(is_shared("X = \"$header_x_tenant\"", tenant.0, tenant.0));
    assert!(!is_shared("X = \"$header_x_tenant\"", tenant.0, tenant.1));
    assert!(!is_shared(
        "X = \"$cookie_t\"",
        "Cookie: t=a\r\n",
        "Cookie: t=b\r\n"
    ));
    // Vary can't name the client.
    assert!(!is_shared("X = \"$client\"", "", ""));
    assert!(!is_shared("X = \"$client_port\"", "", ""));
    // Forwarding fields, and identifiers, are sent without such a setting, too.
    assert!(is_shared("X-Real-IP = \"$client\"", "", ""));
    assert!(is_shared("X-Request-ID = \"$request_id\"", "", ""));
    let lines = "origin = \"URL\"\nrequest = { set = { X = \"$header_x_tenant$cookie_a\" } }";
    let front = front(TestOrigin::with_response(storable), "/**", lines);
    let vary = front.get("/", "");
    assert_eq!(vary.field("vary"), Some("x-tenant, Cookie"));
}

/// The fields Cache-Control and Vary of a public response to `/x` with these lines in the site.
fn caching_fields(lines: &str) -> (String, String) {
    let origin = TestOrigin::with_response(|_| {
        response(
            "200 OK",
            "Cache-Control: public, s-maxage=60, max-age=5\r\n",
            "x",
        )
    });
    let front = TestAccelerator::with_site(origin, lines);
    let answer = front.get("/x", "");
    let values = |name: &str| {
        let fields = answer.head.lines().filter_map(|line| line.split_once(": "));
        let named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let values: Vec<&str> = named.map(|(_, value)| value).collect();
        values.join(", ")
    };
    (values("cache-control"), values("vary"))
}

#[test]
fn caches_in_front_learn_of_conditions() {
    let route = "[[site.route]]\npattern = \"/**\"\norigin = \"URL\"\n";
    let rewrite = "[[site.rewrite]]\nfrom = \"/x\"\nto = \"/y\"\n";
    let (public, _) = caching_fields(route);
    assert!(
        public.contains("public") && public.contains("s-maxage"),
        "{public}"
    );
    for condition in [
        "addresses = \"192.0.2.1\"",
        "not = { time = \"Mon 00:00-00:01\" }",
    ] {
        let other = format!("[[site.route]]\npattern = \"/**\"\norigin = \"URL\"\n{condition}\n");
        for lines in [
            format!("{other}{route}"),
            format!("{rewrite}{condition}\n{route}"),
        ] {
            let (control, _) = caching_fields(&lines);
            assert!(
                control.contains("private") && control.contains("max-age=5"),
                "{control}"
            );
            assert!(
                !control.contains("public") && !control.contains("s-maxage"),
                "{control}"
            );
        }
    }
    let (control, vary) = caching_fields(&format!("{rewrite}header = \"X-Mobile\"\n{route}"));
    assert!(
        control.contains("public") && vary == "X-Mobile",
        "{control} {vary}"
    );
    let (control, vary) = caching_fields(&format!("{rewrite}argument = \"mobile\"\n{route}"));
    assert!(
        control.contains("public") && vary.is_empty(),
        "{control} {vary}"
    );
}

/// A front with these cache keys, and an origin that sends storable, numbered responses.
fn keyed(cache: &str) -> TestAccelerator {
    let lines = format!("origin = \"URL\"\n[site.route.cache]\n{cache}");
    front(TestOrigin::with_response(storable), "/**", &lines)
}

#[test]
fn arguments_are_ignored_and_sorted_in_keys() {
    let front = keyed("ignore_arguments = [\"utm_*\", \"gclid\"]\nsort_arguments = true\n");
    let first = front.get("/a?b=1&utm_source=x&a=2", "").text();
    for target in ["/a?a=2&b=1", "/a?gclid=7&b=1&%75tm_y&a=2"] {
        assert_eq!(front.get(target, "").text(), first, "{target}");
    }
    // The origin gets the whole query of the first request.
    assert_eq!(front.origin.requests()[0].target, "/a?b=1&utm_source=x&a=2");
    assert_ne!(front.get("/a?a=2&b=3", "").text(), first);
    let url = format!("http://{}/a?b=1&a=2&utm_z=1", front.server.address());
    let explained = front.run_command(&["explain", &url, "-H", "Host: test"]);
    assert!(
        explained.contains("stored                 yes"),
        "{explained}"
    );
    front.run_command(&["purge", "http://test/a?b=1&a=2&utm_z=1"]);
    let second = front.get("/a?a=2&b=1", "").text();
    assert_ne!(second, first);
    // A successful unsafe request invalidates the normalized key.
    front.request("POST", "/a?utm_x=1&b=1&a=2", "Content-Length: 0\r\n");
    assert_ne!(front.get("/a?a=2&b=1", "").text(), second);
}

#[test]
fn conditions_bypass_the_cache() {
    let front = keyed("bypass = [{ cookie = \"session\" }, { argument = \"draft\" }]\n");
    let first = front.get("/a", "").text();
    assert_eq!(front.get("/a", "Cookie: other=1\r\n").text(), first);
    let with_session = front.get("/a", "Cookie: session=1\r\n").text();
    assert_ne!(with_session, first);
    assert_eq!(front.get("/a", "").text(), first, "it is not stored");
    let draft = front.get("/a?draft", "").text();
    assert_ne!(front.get("/a?draft", "").text(), draft);
    let url = format!("http://{}/a", front.server.address());
    let explained = front.run_command(&["explain", &url, "-H", "Cookie: session=1"]);
    assert!(explained.contains("bypasses the cache"), "{explained}");
}

#[test]
fn rules_give_lifetimes_by_status_path_and_condition() {
    let origin = TestOrigin::with_response(|request| {
        let (status, control) = match request.target.split('?').next().unwrap_or_default() {
            "/500" => ("500 Internal Server Error", ""),
            "/404" => ("404 Not Found", "Cache-Control: no-cache\r\n"),
            "/img/private" => ("200 OK", "Cache-Control: private\r\n"),
            "/img/refused" => ("400 Bad Request", ""),
            "/img/x" => ("200 OK", "Cache-Control: no-cache, max-age=0\r\n"),
            _ => ("200 OK", "Cache-Control: max-age=60\r\n"),
        };
        let number = request.number;
        let text = format!("{number:06}");
        format!("HTTP/1.1 {status}\r\n{control}Content-Length: 6\r\n\r\n{text}")
    });
    let lines = "origin = \"URL\"\n[site.route.cache]\nrule = [\n\
         { argument = \"draft\", no_store = true },\n\
         { status = \"5xx\", ttl = \"1m\" },\n\
         { status = 404, ttl = \"1m\" },\n\
         { pattern = \"/img/**\", ttl = \"1m\", override = true },\n]\n";
    let front = front(origin, "/**", lines);
    for (target, is_stored) in [
        ("/a", true),
        ("/a?draft", false),
        ("/500", true),
        // Without `override`, no-cache demands validation.
        ("/404", false),
        ("/img/x", true),
        ("/img/private", false),
        // The refusal of one client's request is not the response for all: no rule names its status.
        ("/img/refused", false),
    ] {
        // The text has the number of the request at the origin.
        let first = front.get(target, "");
        let second = front.get(target, "");
        assert_eq!(first.text() == second.text(), is_stored, "{target}");
        assert_eq!(first.status, second.status, "{target}");
    }
    // Clients get the fields of the origin.
    let sent = front.get("/img/x", "");
    assert_eq!(sent.field("cache-control"), Some("no-cache, max-age=0"));
    let url = format!("http://{}/img/new?draft", front.server.address());
    let explained = front.run_command(&["explain", &url, "-H", "Host: test"]);
    for text in [
        "with argument draft: no_store",
        "/img/**: ttl 60 s, override",
    ] {
        assert!(explained.contains(text), "{explained}");
    }
}

#[test]
fn response_fields_with_variables_are_not_stored() {
    let front = TestAccelerator::with_site(
        TestOrigin::with_response(storable),
        "[[site.header]]\npattern = \"/a/*\"\nset = { X-Path = \"$1 $arg_q\", X-Id = \"$request_id\" }\n\
         append = { Access-Control-Allow-Origin = \"$header_origin\" }\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"URL\"\n",
    );
    let first = front.get("/a/b?q=c%0d%0aX-Evil:d", "Origin: http://one\r\n");
    let second = front.get("/a/b?q=c%0d%0aX-Evil:d", "Origin: http://two\r\n");
    assert_eq!(first.text(), second.text(), "the response is stored");
    for (answer, origin) in [(&first, "http://one"), (&second, "http://two")] {
        assert_eq!(answer.field("x-path"), Some("b c%0D%0AX-Evil:d"));
        assert_eq!(answer.field("x-evil"), None);
        assert_eq!(answer.field("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.field("vary"), Some("origin"));
        assert_eq!(answer.field("x-id").map(str::len), Some(32));
    }
    assert_ne!(first.field("x-id"), second.field("x-id"));
    let without = front.get("/a/b?q=c%0d%0aX-Evil:d", "");
    assert_eq!(without.field("access-control-allow-origin"), None);
    // Refusals, 304 and other methods get them, too; other paths don't.
    assert_eq!(
        front.request("TRACE", "/a/x", "").field("x-path"),
        Some("x")
    );
    let other = front.get("/b/b", "");
    assert_eq!(
        (other.field("x-path"), other.field("x-id")),
        (Some("own"), None)
    );
}

#[test]
fn redirect_and_rewrite_have_the_same_variables() {
    let front = TestAccelerator::with_site(
        echo(),
        "[[site.redirect]]\nfrom = \"/old/**\"\nto = \"https://$host/$1?from=$request_uri\"\n\
         [[site.rewrite]]\nfrom = \"/by-host/**\"\nto = \"/$host/$1\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"URL\"\n",
    );
    let answer = front.get("/old/a%2Fb?c=d&e", "");
    let location = "https://test/a%2Fb?from=%2Fold%2Fa%252Fb%3Fc%3Dd%26e";
    assert_eq!(answer.field("location"), Some(location));
    front.get("/by-host/x?y", "");
    assert_eq!(front.origin.requests()[0].target, "/test/x?y");
}

#[test]
fn explain_shows_the_changed_request() {
    let folder = TempFolder::new();
    let key = folder.file("key", "hunter2\n");
    let lines = format!(
        "origin = \"URL/app\"\nrequest = {{ set = {{ X-Client = \"$client\", X-Key = {{ file = {key:?} }} }} }}"
    );
    let front = front(echo(), "/api/**", &lines);
    let url = format!("http://{}/api/x", front.server.address());
    let explained = front.run_command(&["explain", &url, "--method", "POST"]);
    assert!(!explained.contains("hunter2"), "{explained}");
    for text in [
        "POST /app/x HTTP/1.1",
        "X-Key: (a secret)",
        "X-Client: 127.0.0.1",
        "X-Forwarded-Prefix: /api",
    ] {
        assert!(explained.contains(text), "{explained}");
    }
    assert!(front.origin.requests().is_empty());
    assert!(
        front
            .get("/api/x", "")
            .text()
            .contains("X-Key: hunter2\r\n")
    );
}
