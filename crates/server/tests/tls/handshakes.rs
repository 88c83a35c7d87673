//! Versions, protocols and resumption, with `openssl s_client`.

use std::process::Command;

use lowroad_testkit::TestServer;

use super::support::{PROGRAM, Place, ProgramOutput, run};

/// A request that also closes the connection.
const LAST: &str = "GET /file HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

#[test]
fn only_tls_1_2_and_1_3_are_accepted() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = place.s_client(server.address(), &[option, "-ign_eof"], LAST);
        assert!(
            said.all().contains(&format!("New, {version}, Cipher is")),
            "{}",
            said.all()
        );
        assert!(said.text().contains("\r\n\r\nhello"), "{}", said.all());
    }
    // OpenSSL offers TLS 1.1 only at security level 0.
    let old = &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"];
    let said = place.s_client(server.address(), old, LAST);
    assert!(
        said.errors.contains("alert handshake failure"),
        "{}",
        said.all()
    );
    assert_eq!(place.count("tls.nothing_in_common"), 1);
    assert_eq!(place.count("handshake_failures"), 1);
    server.wait_for_error_line(
        "TLS handshake with a client failed: no TLS version or cipher suite in common",
    );
}

#[test]
fn min_version_setting_is_enforced() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    let server = place.run(&place.site("a", "", "min_version = \"1.3\""));
    let said = place.s_client(server.address(), &["-tls1_2"], LAST);
    assert!(
        said.errors.contains("alert protocol version"),
        "{}",
        said.all()
    );
    let said = place.s_client(server.address(), &["-tls1_3"], LAST);
    assert!(said.all().contains("New, TLSv1.3"), "{}", said.all());
}

#[test]
fn sessions_are_resumed() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    let file = place.path("session").display().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let said = talk(&place, &server, version, ["-sess_out", &file]);
        assert!(said.all().contains("New, TLS"), "{}", said.all());
        let said = talk(&place, &server, version, ["-sess_in", &file]);
        assert!(said.all().contains("Reused, TLS"), "{}", said.all());
        assert!(said.text().contains("hello"), "{}", said.all());
    }
}

#[test]
fn sessions_are_resumed_after_a_restart_and_by_another_process() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    place.certify("a", &["a.example"]);
    let config = place.site("a", "", "");
    let keys = format!("ticket_keys = \"{}\"\n", place.path("tickets").display());
    let file = place.path("session").display().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let server = place.run_with(&keys, &config);
        let said = talk(&place, &server, version, ["-sess_out", &file]);
        assert!(said.all().contains("New, TLS"), "{}", said.all());
        drop(server);
        let server = place.run_with(&keys, &config);
        let said = talk(&place, &server, version, ["-sess_in", &file]);
        assert!(said.all().contains("Reused, TLS"), "{}", said.all());
        // Without the key file, the server can't decrypt the ticket.
        drop(server);
        let server = place.run(&config);
        let said = talk(&place, &server, version, ["-sess_in", &file]);
        assert!(said.all().contains("New, TLS"), "{}", said.all());
    }
}

#[test]
fn ticket_keys_readable_by_others_are_not_used() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("tickets", "");
    let keys = format!(
        "[server]\nticket_keys = \"{}\"\n",
        place.path("tickets").display()
    );
    let config = place
        .folder
        .file("lowroad.toml", keys + &place.site("a", "", ""));
    let mut command = Command::new(PROGRAM);
    let said = run(command.args(["run", "-c"]).arg(config), b"");
    assert_eq!(said.code, Some(1), "{}", said.errors);
    assert!(
        said.errors.contains("ticket_keys") && said.errors.contains("chmod 600"),
        "{}",
        said.errors
    );
}

/// One request, with a session from or to a file.
fn talk(place: &Place, server: &TestServer, version: &str, session: [&str; 2]) -> ProgramOutput {
    let [option, file] = session;
    let arguments = &[
        version,
        "-ign_eof",
        "-servername",
        "a.example",
        option,
        file,
    ];
    place.s_client(server.address(), arguments, LAST)
}

#[test]
fn alpn_selects_the_protocol() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    for (offer, agreed) in [
        ("h2,http/1.1", "ALPN protocol: h2"),
        // The server's preference decides (RFC 7301 §3.2).
        ("http/1.1,h2", "ALPN protocol: h2"),
        ("foo,http/1.1", "ALPN protocol: http/1.1"),
    ] {
        let said = place.s_client(server.address(), &["-alpn", offer], "");
        assert!(said.all().contains(agreed), "{offer}: {}", said.all());
    }
    // Without ALPN, HTTP/1.1 is used.
    let said = place.s_client(server.address(), &["-ign_eof"], LAST);
    assert!(said.text().contains("HTTP/1.1 200 OK"), "{}", said.all());
    let said = place.s_client(server.address(), &["-alpn", "foo"], "");
    assert!(
        said.errors.contains("no application protocol"),
        "{}",
        said.all()
    );
    assert_eq!(place.count("tls.nothing_in_common"), 1);
}

#[test]
fn close_notify_is_sent() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    let said = place.s_client(server.address(), &["-ign_eof", "-msg"], LAST);
    let end = said.text();
    let end = end.rsplit("<<<").next().unwrap_or_default();
    assert!(
        end.contains("close_notify") || end.contains("01 00"),
        "{end}"
    );
    assert!(!said.all().contains("unexpected eof"), "{}", said.all());
}

#[test]
fn serve_uses_a_locally_trusted_certificate() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let data = place.path("data");
    let trust = run(
        Command::new(PROGRAM)
            .arg("trust")
            .env("XDG_DATA_HOME", &data),
        b"",
    );
    let authority = data.join("lowroad/authority/authority.pem");
    assert!(
        trust.text().contains(&authority.display().to_string()),
        "{}",
        trust.all()
    );
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--tls",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]);
    command.arg(place.path("site")).env("XDG_DATA_HOME", &data);
    let server = TestServer::spawn(command);
    let url = format!("https://localhost:{}/file", server.address().port());
    for trusted in [true, false] {
        let mut command = Command::new("curl");
        let ca = if trusted {
            authority.display().to_string()
        } else {
            place.ca()
        };
        let said = run(command.args(["-sS", "--ipv4", "--cacert", &ca, &url]), b"");
        assert_eq!(said.code == Some(0), trusted, "{}", said.all());
        assert_eq!(said.text() == "hello", trusted);
    }
}
