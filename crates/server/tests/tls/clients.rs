//! Client certificates: requested or required.

use lowroad_testkit::TestServer;

use super::support::{Place, VERSIONS};

const ENVIRONMENT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\nCache-Control: max-age=60\\n\\n'\nenv | grep -E '^(HTTPS|SSL_|REQUEST_SCHEME)' | grep -v CERT | sort\n";

/// A server that requests certificates of an authority; `one.pem` is signed by it, `other.pem` is self-signed.
fn server(place: &Place, wants: &str) -> TestServer {
    server_with(place, wants, "")
}

/// The same with further keys of `[site.tls]`.
fn server_with(place: &Place, wants: &str, keys: &str) -> TestServer {
    use std::os::unix::fs::PermissionsExt;
    place.certify("a", &["a.example"]);
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    place.openssl(&format!(
        "req -x509 {curve} -keyout ca.key -out clients.pem -days 5 -subj /CN=Clients"
    ));
    place.openssl(&format!(
        "req {curve} -keyout one.key -out one.csr -subj /CN=One/O=Ours"
    ));
    place.folder.file("ext", "extendedKeyUsage=clientAuth\n");
    place.openssl(
        "x509 -req -in one.csr -CA clients.pem -CAkey ca.key -CAcreateserial -out one.pem -days 5 -extfile ext",
    );
    place.openssl(&format!(
        "req -x509 {curve} -keyout other.key -out other.pem -days 5 -subj /CN=Other"
    ));
    let script = place.folder.file("cgi/env", ENVIRONMENT);
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).expect("a script");
    let tls = format!("client = \"{wants}\"\nclient_ca = \"clients.pem\"\n{keys}");
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"cgi\"\n";
    place.run(&format!("{}{route}", place.site("a", "", &tls)))
}

/// The variables of programs for a client with this certificate, or without one.
fn told(place: &Place, server: &TestServer, version: &str, shown: Option<&str>) -> Option<String> {
    let (cert, key) = match shown {
        Some(name) => (
            place.path(&format!("{name}.pem")).display().to_string(),
            place.path(&format!("{name}.key")).display().to_string(),
        ),
        None => Default::default(),
    };
    let mut arguments = vec![version, "https://a.example/cgi/env"];
    if shown.is_some() {
        arguments.extend(["--cert", &cert, "--key", &key]);
    }
    let said = place.curl(server.address(), &arguments);
    (said.code == Some(0)).then(|| said.text())
}

#[test]
fn who_is_asked_may_say_nothing() {
    let place = Place::new();
    let server = server(&place, "request");
    for version in VERSIONS {
        let nobody = told(&place, &server, version, None).expect("a response");
        assert!(nobody.contains("SSL_CLIENT_VERIFY=NONE\n"), "{nobody}");
        assert!(nobody.contains("HTTPS=on\n"), "{nobody}");
        assert!(nobody.contains("REQUEST_SCHEME=https\n"), "{nobody}");
        assert!(nobody.contains("SSL_PROTOCOL=TLSv1.3\n"), "{nobody}");
        assert!(
            nobody.contains("SSL_CIPHER=TLS_AES_128_GCM_SHA256\n"),
            "{nobody}"
        );
        assert!(nobody.contains("SSL_TLS_SNI=a.example\n"), "{nobody}");
        // A response stored for another client does not answer it, though the program allows caching.
        let one = told(&place, &server, version, Some("one")).expect("a response");
        assert!(one.contains("SSL_CLIENT_VERIFY=SUCCESS\n"), "{one}");
        assert!(one.contains("SSL_CLIENT_S_DN=O=Ours,CN=One\n"), "{one}");
        let nobody_again = told(&place, &server, version, None);
        assert_eq!(nobody_again, Some(nobody), "{version}");
        assert_eq!(told(&place, &server, version, Some("other")), None);
    }
    assert_eq!(place.count("tls.client_certificate"), 2);
}

#[test]
fn who_must_show_a_certificate_is_nobody_without() {
    let place = Place::new();
    let server = server(&place, "require");
    for version in VERSIONS {
        assert_eq!(told(&place, &server, version, None), None);
        assert_eq!(told(&place, &server, version, Some("other")), None);
        let one = told(&place, &server, version, Some("one")).expect("a response");
        assert!(one.contains("SSL_CLIENT_VERIFY=SUCCESS\n"), "{one}");
    }
    assert_eq!(place.count("tls.client_certificate"), 4);
}

#[test]
fn some_paths_are_for_clients_with_certificates_only() {
    let place = Place::new();
    place.folder.file("site/admin/file", "secret");
    place.folder.file("site/file", "open");
    let paths = "client_paths = [\"/admin\", \"/admin/**\", \"/cgi/**\"]";
    let server = server_with(&place, "request", paths);
    let path = |name: &str| place.path(name).display().to_string();
    let one = ["--cert", &path("one.pem"), "--key", &path("one.key")];
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    for version in VERSIONS {
        let ask = |url: &str, more: &[&str]| {
            let arguments = [&[version, "--path-as-is", url], more].concat();
            place.fetch(server.address(), &arguments)
        };
        // Also with the file in memory, and for each spelling of the path.
        for _ in 0..2 {
            assert_eq!(ask("https://a.example/admin/file", &one), "secret");
            for name in [
                "/admin/file",
                "//admin/file",
                "/%61dmin/file",
                "/admin/",
                "/admin",
                "/cgi/env",
            ] {
                let url = format!("https://a.example{name}");
                assert_eq!(ask(&url, &code), "403", "{version} {name}");
            }
            assert_eq!(ask("https://a.example/file", &[]), "open");
        }
        assert!(ask("https://a.example/cgi/env", &one).contains("SSL_CLIENT_VERIFY=SUCCESS"));
    }
}

#[test]
fn no_other_path_leads_to_what_they_mean() {
    let place = Place::new();
    for name in ["admin/index.html", "list.txt", "list.txt.gz"] {
        place.folder.file(format!("site/{name}"), "secret");
    }
    let paths = "client_paths = [\"/admin/index.html\", \"/cgi/env\", \"*.txt\"]";
    let server = server_with(&place, "request", paths);
    for name in [
        "/admin/",
        "/admin/index.html",
        "/cgi/env",
        "/cgi/env/",
        "/cgi/env/info",
        "/list.txt",
        "/list.txt.gz",
    ] {
        let url = format!("https://a.example{name}");
        let arguments = [&url, "-o", "/dev/null", "-w", "%{http_code}"];
        assert_eq!(place.fetch(server.address(), &arguments), "403", "{name}");
    }
}

#[test]
fn such_paths_are_not_served_without_tls() {
    let place = Place::new();
    place.folder.file("site/admin/file", "secret");
    let paths = "client_paths = \"/admin/**\"";
    place.certify("a", &["a.example"]);
    let tls = format!("client = \"request\"\nclient_ca = \"a.pem\"\n{paths}");
    let server = place.run(&place.site("a", "listen = \"127.0.0.2:0\"", &tls));
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    let arguments = [&["http://a.example/admin/file"], &code[..]].concat();
    assert_eq!(place.fetch(server.addresses[0], &arguments), "403");
}
