//! The scheme https: in requests to origins, stored responses, redirects and `explain`.

use std::net::SocketAddr;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TestClient, TestServer};

use super::support::{PROGRAM, Place, VERSIONS, run};

/// The addresses of a site's plain and TLS listeners.
fn both(server: &TestServer) -> (SocketAddr, SocketAddr) {
    (server.addresses[0], server.addresses[1])
}

/// An origin that returns the scheme of the request in storable responses.
fn origin() -> TestOrigin {
    TestOrigin::with_response(|asked| {
        let scheme = asked
            .field("X-Forwarded-Proto")
            .unwrap_or("none")
            .to_string();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{scheme}",
            scheme.len()
        )
    })
}

#[test]
fn stored_responses_are_keyed_by_scheme() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    let origin = origin();
    let route = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let site = place.site(
        "a",
        "listen = \"127.0.0.2:0\"\npurge_from = \"127.0.0.1\"",
        "",
    );
    let server = place.run(&format!("{site}{route}"));
    let (plain, tls) = both(&server);
    for _ in 0..2 {
        // A scheme in an absolute target or a forged field has no effect.
        let forged = &["-H", "X-Forwarded-Proto: https", "http://a.example/x"];
        assert_eq!(place.fetch(plain, forged), "http");
        for version in VERSIONS {
            let forged = &[
                version,
                "-H",
                "X-Forwarded-Proto: http",
                "https://a.example/x",
            ];
            assert_eq!(place.fetch(tls, forged), "https", "{version}");
        }
    }
    assert_eq!(origin.count(), 2, "each was stored");
    // A purge removes the responses of both schemes.
    let purge = &["-X", "PURGE", "http://a.example/x"];
    place.fetch(plain, purge);
    place.fetch(plain, &["http://a.example/x"]);
    place.fetch(tls, &["https://a.example/x"]);
    assert_eq!(origin.count(), 4);
    // So does an unsafe method.
    place.fetch(tls, &["-d", "change", "https://a.example/x"]);
    place.fetch(plain, &["http://a.example/x"]);
    place.fetch(tls, &["https://a.example/x"]);
    assert_eq!(origin.count(), 7);
}

#[test]
fn http_is_redirected_to_https() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", "hello");
    let keys = "names = [\"a.example\", \"_\"]\nlisten = \"127.0.0.2:0\"";
    let server = place.run(&place.site("a", keys, "redirect = true\nhsts = true"));
    let (plain, tls) = both(&server);
    let head = |to, arguments: &[&str]| {
        let arguments = [&["-D", "-", "-o", "/dev/null"], arguments].concat();
        place.fetch(to, &arguments).to_ascii_lowercase()
    };
    let port = tls.port();
    let got = head(plain, &["http://a.example:8080/file?x=%20y"]);
    assert!(got.starts_with("http/1.1 301"), "{got}");
    assert!(
        got.contains(&format!(
            "location: https://a.example:{port}/file?x=%20y\r\n"
        )),
        "{got}"
    );
    assert!(!got.contains("strict-transport-security"), "{got}");
    let got = head(plain, &["-d", "x", "http://a.example/missing"]);
    assert!(got.starts_with("http/1.1 308"), "{got}");
    for version in VERSIONS {
        for path in ["file", "missing"] {
            let got = head(tls, &[version, &format!("https://a.example/{path}")]);
            assert!(
                got.contains("strict-transport-security: max-age=31536000\r\n"),
                "{got}"
            );
        }
    }
}

#[test]
fn tls_terminating_proxy_is_not_redirected() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", "hello");
    let keys =
        "names = [\"a.example\", \"_\"]\nlisten = \"127.0.0.2:0\"\ntrusted_proxies = \"127.0.0.1\"";
    let server = place.run(&place.site("a", keys, "redirect = true\nhsts = true"));
    let (plain, _) = both(&server);
    let head = |scheme: &str| {
        let field = format!("X-Forwarded-Proto: {scheme}");
        let arguments = [
            "-D",
            "-",
            "-o",
            "/dev/null",
            "-H",
            &field,
            "http://a.example/file",
        ];
        place.fetch(plain, &arguments).to_ascii_lowercase()
    };
    let got = head("https");
    assert!(got.starts_with("http/1.1 200"), "{got}");
    assert!(
        got.contains("strict-transport-security: max-age=31536000\r\n"),
        "{got}"
    );
    // The proxy uses the default port of https, regardless of this server's port.
    let got = head("http");
    assert!(
        got.contains("location: https://a.example/file\r\n"),
        "{got}"
    );
}

#[test]
fn explain_accepts_https_urls() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", "hello");
    let server = place.run(&place.site("a", "names = \"a.example\"", ""));
    let admin = place.path("admin").display().to_string();
    let url = format!("https://a.example:{}/file", server.address().port());
    let said = run(
        std::process::Command::new(PROGRAM).args(["explain", &url, "--admin", &admin]),
        b"",
    );
    assert!(said.text().contains("200 OK"), "{}", said.all());
    let said = run(
        std::process::Command::new(PROGRAM).args([
            "explain",
            &url.replace("https", "http"),
            "--admin",
            &admin,
        ]),
        b"",
    );
    assert!(!said.text().contains("200 OK"), "{}", said.all());
}

/// Some requests are answered over plain http although the site redirects: those without a host, refused ones, and
/// challenges of ACME.
#[test]
fn hsts_is_sent_over_tls_only() {
    const PATHS: [&str; 4] = [
        "/file",
        "/missing",
        "/%00",
        "/.well-known/acme-challenge/token",
    ];
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", "hello");
    place
        .folder
        .file("site/.well-known/acme-challenge/token", "answer");
    let keys = "names = [\"a.example\", \"_\"]\nlisten = \"127.0.0.2:0\"";
    let server = place.run(&place.site("a", keys, "redirect = true\nhsts = true"));
    let (plain, tls) = both(&server);
    let encrypted = |path: &str| {
        let url = format!("https://a.example{path}");
        let got = place.fetch(tls, &["-D", "-", "-o", "/dev/null", &url]);
        got.to_ascii_lowercase()
            .contains("strict-transport-security")
    };
    // The responses are stored by requests of one scheme, and used by the other.
    for path in PATHS {
        assert!(encrypted(path), "{path}");
        for host in ["HTTP/1.0\r\n", "HTTP/1.1\r\nHost: a.example\r\n"] {
            let mut client = TestClient::connect(plain);
            client.send(format!("GET {path} {host}\r\n"));
            let head = client.response().dateless_head();
            let has_hsts = head.to_ascii_lowercase().contains("strict-transport");
            assert!(!has_hsts, "{path}: {head}");
        }
        assert!(encrypted(path), "{path} again");
    }
    for preflight in [
        "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "OPTIONS /file HTTP/1.0\r\n\r\n",
    ] {
        let mut client = TestClient::connect(plain);
        client.send(preflight);
        let head = client.response().dateless_head();
        assert!(!head.contains("Strict-Transport"), "{head}");
    }
}
