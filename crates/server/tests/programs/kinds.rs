//! Every handler with every method, and with all framings of a request's body.

use lowroad_testkit::skip;

use crate::host::Host;
use crate::talk::{self, End, ask, post, post_chunked};

/// A path for each handler, and the response to GET. `say` programs return their request.
const KINDS: [(&str, &str); 7] = [
    ("/linked?name=You", "Hi, You!\n"),
    ("/library?name=You", "Hi, You!\n"),
    ("/separate?name=You", "Hi, You!\n"),
    ("/wasm?name=You", "Hello, You, from C\n"),
    ("/cgi/say", "GET |"),
    ("/page.lrp", "42"),
    ("/say.php", "GET |"),
];

/// The handlers that are available on this machine.
fn kinds(host: &Host, test: &str) -> Vec<(&'static str, &'static str)> {
    let mut kinds = KINDS.to_vec();
    if !host.has_php() {
        skip(test, "no php-fpm");
        kinds.retain(|(path, _)| !path.ends_with(".php"));
    }
    kinds
}

/// Whether the program at this path returns its request.
fn echoes_request(path: &str) -> bool {
    path.contains("say")
}

#[test]
fn every_handler_answers_get_and_head() {
    let host = Host::start(&[]);
    for (path, said) in kinds(&host, "every_handler_answers_get_and_head") {
        let mut client = host.connect();
        let (got, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!(
            (got.status, got.text().trim_end()),
            (200, said.trim_end()),
            "{path}"
        );
        assert_eq!(got.head.matches("\r\nDate: ").count(), 1, "{path}");
        // A response to HEAD has no body, so the next response follows the head directly.
        let (head, _) = talk::request_on(&mut client, "HEAD", path, "");
        assert_eq!(head.status, 200, "{path}");
        let (again, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!((again.status, again.body), (200, got.body), "{path}");
    }
}

#[test]
fn every_handler_gets_unknown_methods() {
    let host = Host::start(&[]);
    for (path, said) in kinds(&host, "every_handler_gets_unknown_methods") {
        for method in ["PROPFIND", "M-SEARCH", "brew", "PURGE"] {
            let (got, _) = ask(host.address(), method, path, "");
            let (status, text) = (got.status, got.text());
            match path {
                _ if echoes_request(path) => {
                    assert_eq!((status, &*text), (200, &*format!("{method} |")))
                }
                // A page accepts unsafe methods only from its own forms.
                "/page.lrp" => assert_eq!(status, 403, "{text}"),
                _ => assert_eq!((status, text.trim_end()), (200, said.trim_end()), "{path}"),
            }
        }
    }
}

#[test]
fn every_handler_gets_bodies_in_every_framing() {
    let host = Host::start(&[]);
    for (path, _) in kinds(&host, "every_handler_gets_bodies_in_every_framing") {
        let mut client = host.connect();
        let allowed = |status| status == 200 || path.ends_with(".lrp");
        for method in ["POST", "PUT"] {
            client.send(format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
            ));
            let (got, _) = talk::answer(&mut client, method);
            assert!(allowed(got.status), "{path}: {got:?}");
            if got.field("connection") == Some("close") {
                client = host.connect();
            }
            if echoes_request(path) {
                assert_eq!(got.text(), format!("{method} 5|hello"), "{path}");
            }
        }
        let (got, _) = post_chunked(&mut client, path, &["hel", "lo, ", "you"]);
        assert!(allowed(got.status), "{path}: {got:?}");
        if echoes_request(path) {
            assert_eq!(got.text(), "POST 10|hello, you", "{path}");
        }
        // The connection persists, unless the response was sent before the whole body had arrived.
        if got.field("connection") == Some("close") {
            assert!(!echoes_request(path), "{path}");
            client = host.connect();
        }
        let (got, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!(got.status, 200, "{path}");
    }
}

#[test]
fn every_handler_answers_expect_100_continue() {
    let host = Host::start(&[]);
    for (path, _) in kinds(&host, "every_handler_answers_expect_100_continue") {
        let mut client = host.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
             Expect: 100-continue\r\n\r\n"
        ));
        let (first, _) = talk::answer(&mut client, "POST");
        if first.status == 100 {
            client.send("hello");
            let (got, _) = talk::answer(&mut client, "POST");
            if echoes_request(path) {
                assert_eq!(got.text(), "POST 5|hello", "{path}");
            }
        } else {
            // A program that ignores the body may respond at once.
            assert!(!echoes_request(path), "{path}: {first:?}");
        }
    }
}

#[test]
fn options_is_answered_by_the_program() {
    let host = Host::start(&[]);
    let (got, _) = ask(host.address(), "OPTIONS", "/cgi/say", "");
    assert_eq!((got.status, got.text()), (200, "OPTIONS |".into()));
    let (got, _) = ask(host.address(), "OPTIONS", "/file.txt", "");
    assert_eq!(got.status, 204);
}

#[test]
fn trace_and_connect_get_405() {
    let host = Host::start(&[("note", "echo x >>DIR/state/noted\nprintf '\\n'\n")]);
    for (path, _) in [KINDS.as_slice(), &[("/cgi/note", "")]].concat() {
        let (got, _) = ask(host.address(), "TRACE", path, "Cookie: secret\r\n");
        assert_eq!(got.status, 405, "{path}");
        assert!(!got.text().contains("secret"), "{path}");
        let (got, _) = ask(host.address(), "CONNECT", path, "");
        assert!((400..500).contains(&got.status), "{path}: {got:?}");
    }
    assert_eq!(host.state("noted"), "");
    ask(host.address(), "GET", "/cgi/note", "");
    assert_eq!(host.state("noted"), "x\n");
}

#[test]
fn pipelined_requests_to_different_handlers_are_answered_in_order() {
    let host = Host::start(&[]);
    let mut client = host.connect();
    let mut all = String::new();
    for path in ["/cgi/say", "/linked", "/file.txt", "/wasm", "/cgi/say"] {
        all.push_str(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    all.push_str("POST /cgi/say HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    all.push_str("GET /linked HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(all);
    let wasm = "Hello, World, from C\n";
    let said = [
        "GET |",
        "Hi, world!\n",
        "a file\n",
        wasm,
        "GET |",
        "POST 2|hi",
    ];
    for said in said.into_iter().chain(["Hi, world!\n"]) {
        let (got, _) = talk::answer(&mut client, "GET");
        assert_eq!((got.status, got.text().as_str()), (200, said));
    }
}

#[test]
fn connection_persists_after_a_post() {
    let host = Host::start(&[]);
    let mut client = host.connect();
    for round in 1..5 {
        let body = "x".repeat(round * 10_000);
        let (got, end) = post(&mut client, "/cgi/say", &body);
        assert_eq!(got.text(), format!("POST {}|{body}", body.len()));
        assert_ne!(end, End::Close);
    }
}
