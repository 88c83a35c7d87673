//! Selection of the certificate and of the site by name.

use super::support::{Place, VERSIONS};

const STATUS: [&str; 4] = ["-o", "/dev/null", "-w", "%{http_code}"];

/// Sites `a.example` and `c.example` with one certificate; `b.example` and all subdomains of `w.example` with others.
fn three(place: &Place) -> lowroad_testkit::TestServer {
    place.certify("a", &["a.example", "c.example"]);
    place.certify("b", &["b.example"]);
    place.certify("w", &["*.w.example"]);
    for site in ["a", "b", "w"] {
        place.folder.file(format!("site/{site}/who"), site);
    }
    let site = |root: &str, names: &str| {
        let site = place.site(root, &format!("names = [{names}]"), "");
        site.replace("root = \"site\"", &format!("root = \"site/{root}\""))
    };
    place.run(&format!(
        "{}{}{}",
        site("a", "\"a.example\", \"c.example\""),
        site("b", "\"b.example\""),
        site("w", "\"*.w.example\"")
    ))
}

#[test]
fn sni_selects_the_certificate() {
    let place = Place::new();
    let server = three(&place);
    for version in VERSIONS {
        for (host, site) in [
            ("a.example", "a"),
            ("b.example", "b"),
            ("any.w.example", "w"),
        ] {
            let url = format!("https://{host}/who");
            assert_eq!(place.fetch(server.address(), &[version, &url]), site);
        }
    }
    // A client without SNI, or with an unknown name, gets the first certificate.
    for name in [&["-noservername"][..], &["-servername", "x.example"]] {
        let shown = place.s_client(server.address(), name, "").all();
        let verified = place.s_client(
            server.address(),
            &[name, &["-verify_hostname", "a.example"]].concat(),
            "",
        );
        assert!(
            verified.all().contains("Verify return code: 0 (ok)"),
            "{shown}"
        );
    }
    let said = place.curl(server.address(), &["https://x.example/"]);
    assert_eq!(said.code, Some(60), "{}", said.errors);
}

/// With `strict_sni`, a client without a server name, or with an unknown one, gets no certificate.
#[test]
fn strict_sni_refuses_handshakes_for_unknown_names() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.certify("b", &["b.example"]);
    let server = place.run(&format!(
        "{}{}",
        place.site("a", "names = \"a.example\"", ""),
        place.site("b", "names = [\"b.example\", \"_\"]", "strict_sni = true")
    ));
    for version in VERSIONS {
        for host in ["a.example", "b.example"] {
            let url = format!("https://{host}/missing");
            let arguments = [&STATUS[..], &[version, &url]].concat();
            assert_eq!(place.fetch(server.address(), &arguments), "404", "{host}");
        }
    }
    for name in [&["-noservername"][..], &["-servername", "x.example"]] {
        let shown = place.s_client(server.address(), name, "").all();
        assert!(shown.contains("no peer certificate available"), "{shown}");
        // RFC 6066 §3: unrecognized_name.
        assert!(shown.contains("alert number 112"), "{shown}");
    }
}

#[test]
fn host_with_another_certificate_gets_421() {
    let place = Place::new();
    let server = three(&place);
    let ask = |version: &str, url: &str, host: &str| {
        let host = format!("Host: {host}");
        let arguments = [&STATUS[..], &[version, "-H", &host, url]].concat();
        place.fetch(server.address(), &arguments)
    };
    for version in VERSIONS {
        for (host, status) in [
            ("a.example", "200"),
            ("A.Example:443", "200"),
            ("a.example.", "200"),
            ("c.example", "200"),
            // The handshake verified another certificate (RFC 9110 §7.4, §15.5.20).
            ("b.example", "421"),
            ("b.example:8443", "421"),
            ("x.w.example", "421"),
            // A name without a certificate gets that of the first site, but no site has this name.
            ("x.example", "421"),
        ] {
            let got = ask(version, "https://a.example/who", host);
            assert_eq!(got, status, "{version} {host}");
        }
    }
}

#[test]
fn ecdsa_certificate_is_preferred_over_rsa() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout rsa.key -out rsa.pem -days 5 -subj /CN=r -addext subjectAltName=DNS:a.example",
    );
    let site = place.site("a", "", "");
    let both = site.replace("\"a.pem\"", "[\"rsa.pem\", \"a.pem\"]");
    let server = place.run(&both.replace("\"a.key\"", "[\"rsa.key\", \"a.key\"]"));
    for (takes, shown) in [
        (&[][..], "ECDSA"),
        (&["-sigalgs", "RSA-PSS+SHA256"], "RSA-PSS"),
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            "RSA",
        ),
    ] {
        let arguments = [&["-servername", "a.example"], takes].concat();
        let said = place.s_client(server.address(), &arguments, "").all();
        let line = said
            .lines()
            .find(|line| line.contains("Peer signature type"));
        assert!(line.is_some_and(|line| line.contains(shown)), "{said}");
    }
}
