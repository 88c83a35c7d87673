//! Routes that have other conditions in addition to a path.

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer};

use crate::front::{PROGRAM, response};

fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: max-age=60\r\n", name))
}

fn route(origin: &TestOrigin, lines: &str) -> String {
    format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n{lines}\n",
        origin.url()
    )
}

fn front(routes: &[String]) -> (TestServer, TempFolder) {
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nroot = \".\"\nlisten = \"127.0.0.1:0\"\n{}",
        routes.concat()
    );
    (TestServer::run(PROGRAM, &folder, &config), folder)
}

#[test]
fn fields_and_cookies_select_route_and_stored_response() {
    let (beta, group, others) = (named("beta"), named("group"), named("others"));
    let (server, _folder) = front(&[
        route(&beta, "header = \"X-Beta: yes\""),
        route(&group, "cookie = \"group\""),
        route(&others, ""),
    ]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/", "").text(), "others");
        assert_eq!(client.get("/", "x-beta: yes\r\n").text(), "beta");
        assert_eq!(client.get("/", "X-Beta: no\r\n").text(), "others");
        assert_eq!(client.get("/", "Cookie: a=b; group=1\r\n").text(), "group");
        assert_eq!(client.get("/", "Cookie: groups=1\r\n").text(), "others");
    }
    let got = client.get("/", "");
    assert_eq!(
        got.field("vary"),
        Some("X-Beta, Cookie"),
        "for caches before this one"
    );
    assert_eq!((beta.count(), group.count()), (1, 1), "each is stored");
}

#[test]
fn method_selects_the_route() {
    let (reads, writes) = (named("reads"), named("writes"));
    let (server, _folder) = front(&[
        route(&reads, "methods = [\"GET\", \"HEAD\"]"),
        route(&writes, "methods = [\"POST\"]"),
    ]);
    let mut client = server.connect();
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.get("/", "").text(), "reads");
    client.send(post);
    assert_eq!(client.response().text(), "writes");
    client.send("DELETE / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 404);
}

#[test]
fn unknown_methods_are_forwarded_and_not_stored() {
    let (searches, others) = (named("searches"), named("others"));
    let (server, _folder) = front(&[
        route(&searches, "methods = \"M-SEARCH\""),
        route(&others, ""),
    ]);
    let mut client = server.connect();
    let methods = [
        "M-SEARCH",
        "PROPFIND",
        "MKCOL",
        "LOCK",
        "brew",
        "!#$%&'*+-.^_`|~",
    ];
    for method in methods {
        for round in 0..2 {
            let body = "Content-Length: 3\r\n\r\nabc";
            client.send(format!("{method} /a?b HTTP/1.1\r\nHost: h\r\n{body}"));
            let (name, origin) = match method {
                "M-SEARCH" => ("searches", &searches),
                _ => ("others", &others),
            };
            assert_eq!(client.response().text(), name, "{method} {round}");
            let request = origin.requests().pop().expect("it was asked");
            assert_eq!((&*request.method, &*request.target), (method, "/a?b"));
            assert_eq!(request.body, b"abc");
        }
    }
    assert_eq!((searches.count(), others.count()), (2, 10));
    // None of these responses was stored for GET.
    assert_eq!(client.get("/a?b", "").text(), "others");
    assert_eq!(others.count(), 11);
}

#[test]
fn connect_and_trace_are_refused() {
    let others = named("others");
    let (server, _folder) = front(&[route(&others, "")]);
    for head in [
        "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        "connect h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(head);
        let status = client.response().status;
        assert!([405, 501].contains(&status), "{head}: {status}");
    }
    assert_eq!(others.count(), 0);
}

#[test]
fn path_of_conditional_route_is_not_served_from_files() {
    let beta = named("beta");
    let (server, folder) = front(&[route(&beta, "header = \"X-Beta\"")]);
    folder.file("secret.php", "the source");
    let mut client = server.connect();
    let got = client.get("/secret.php", "");
    assert_eq!(got.status, 404);
    assert_eq!(client.get("/secret.php", "X-Beta: 1\r\n").text(), "beta");
}
