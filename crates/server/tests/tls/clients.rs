//! Client certificates: optional or required.

use lowroad_testkit::{TestServer, wait_until};

use super::support::{Place, VERSIONS};

const ENVIRONMENT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\nCache-Control: max-age=60\\n\\n'\nenv | grep -E '^(HTTPS|SSL_|REQUEST_SCHEME)' | grep -v CERT | sort\n";

/// A server that asks for certificates of an authority, which has signed `one.pem`; `other.pem` is self-signed.
fn server(place: &Place, wants: &str) -> TestServer {
    server_with(place, wants, "")
}

/// As `server`, with further keys of `[site.tls]`, and further tables.
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

/// The CGI variables for a client with this certificate, or without a certificate; `None` if the handshake failed.
fn program_variables(
    place: &Place,
    server: &TestServer,
    version: &str,
    shown: Option<&str>,
) -> Option<String> {
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
fn requested_client_certificate_is_optional() {
    let place = Place::new();
    let server = server(&place, "request");
    for version in VERSIONS {
        let nobody = program_variables(&place, &server, version, None).expect("a response");
        assert!(nobody.contains("SSL_CLIENT_VERIFY=NONE\n"), "{nobody}");
        assert!(nobody.contains("HTTPS=on\n"), "{nobody}");
        assert!(nobody.contains("REQUEST_SCHEME=https\n"), "{nobody}");
        assert!(nobody.contains("SSL_PROTOCOL=TLSv1.3\n"), "{nobody}");
        assert!(
            nobody.contains("SSL_CIPHER=TLS_AES_128_GCM_SHA256\n"),
            "{nobody}"
        );
        assert!(nobody.contains("SSL_TLS_SNI=a.example\n"), "{nobody}");
        // Although the program allows caching, a response stored for one client does not answer another one.
        let one = program_variables(&place, &server, version, Some("one")).expect("a response");
        assert!(one.contains("SSL_CLIENT_VERIFY=SUCCESS\n"), "{one}");
        assert!(one.contains("SSL_CLIENT_S_DN=O=Ours,CN=One\n"), "{one}");
        let nobody_again = program_variables(&place, &server, version, None);
        assert_eq!(nobody_again, Some(nobody), "{version}");
        assert_eq!(
            program_variables(&place, &server, version, Some("other")),
            None
        );
    }
    assert_eq!(place.count("tls.client_certificate"), 2);
}

#[test]
fn required_client_certificate_is_enforced() {
    let place = Place::new();
    let server = server(&place, "require");
    for version in VERSIONS {
        assert_eq!(program_variables(&place, &server, version, None), None);
        assert_eq!(
            program_variables(&place, &server, version, Some("other")),
            None
        );
        let one = program_variables(&place, &server, version, Some("one")).expect("a response");
        assert!(one.contains("SSL_CLIENT_VERIFY=SUCCESS\n"), "{one}");
    }
    assert_eq!(place.count("tls.client_certificate"), 4);
}

#[test]
fn client_paths_require_a_client_certificate() {
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
        // Also if the file is in memory, and for each spelling of the path.
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
fn client_paths_can_not_be_bypassed_by_other_paths() {
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
fn client_paths_are_not_served_without_tls() {
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

#[test]
fn access_log_has_the_session_and_the_certificate() {
    let place = Place::new();
    let format = "$ssl_protocol|$ssl_cipher|$ssl_server_name|$ssl_session_reused|$ssl_client_verify|\
                  $ssl_client_s_dn|$ssl_client_i_dn|$server_protocol|$connection_requests|$status";
    let log = format!("[log]\naccess = \"log\"\nformat = '{format}'\n");
    let server = server_with(&place, "request", &log);
    let url = "https://a.example/cgi/env";
    let (cert, key) = (place.path("one.pem"), place.path("one.key"));
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let shown = ["--cert", &cert, "--key", &key, url, url];
    for arguments in [&["--http1.1", url][..], &shown] {
        place.fetch(server.address(), arguments);
    }
    let lines = wait_until("the log", || {
        let text = std::fs::read_to_string(place.path("log")).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= 3).then_some(lines)
    });
    let start = "TLSv1.3|TLS_AES_128_GCM_SHA256|a.example|.";
    let one = format!("{start}|SUCCESS|O=Ours,CN=One|CN=Clients|HTTP/2.0");
    assert_eq!(
        lines,
        [
            format!("{start}|NONE|-|-|HTTP/1.1|1|200"),
            format!("{one}|1|200"),
            format!("{one}|2|200"),
        ]
    );
}
