//! Changed certificates and keys, reloads, and graceful shutdown.

use std::process::Command;

use lowroad_testkit::wait_until;
use lowroad_tls::certificates::{CertificatePaths, read};

use super::support::{PROGRAM, Place, run, unix_s};

/// The SHA-256 of the certificate in a file, in the format of `openssl` for a connection.
fn fingerprint(place: &Place, name: &str) -> String {
    let files = CertificatePaths {
        certificates: place.path(&format!("{name}.pem")),
        key: place.path(&format!("{name}.key")),
        staple: None,
    };
    let (pair, _) = read(&files, unix_s()).expect("a certificate");
    pair.fingerprint().to_ascii_lowercase()
}

/// The SHA-256 of the certificate that a server presents.
fn presented_fingerprint(place: &Place, server: &lowroad_testkit::TestServer) -> String {
    let said = place.s_client(server.address(), &["-servername", "a.example"], "");
    let text = said.text();
    let start = text.find("-----BEGIN").expect("a certificate");
    let end = text.find("-----END CERTIFICATE-----").expect("its end");
    let pem = &text[start..end + 25];
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-fingerprint", "-sha256"]);
    let said = run(&mut command, format!("{pem}\n").as_bytes()).text();
    let hex = said.split('=').nth(1).expect("a fingerprint");
    hex.trim().replace(':', "").to_ascii_lowercase()
}

#[test]
fn changed_certificate_files_are_reloaded() {
    let place = Place::new();
    let server = place.run_with_certificate();
    let first = fingerprint(&place, "a");
    assert_eq!(presented_fingerprint(&place, &server), first);
    place.certify("a", &["a.example", "new.example"]);
    let second = fingerprint(&place, "a");
    server.wait_for_error_line("a.pem: reloaded, valid until ");
    assert_eq!(presented_fingerprint(&place, &server), second);
    assert!(place.status("certificate")[0].contains("new.example"));
    // If the key does not match the certificate, the server keeps the previous pair and logs a message.
    place.certify("other", &["a.example"]);
    std::fs::copy(place.path("other.pem"), place.path("a.pem")).expect("a file");
    server.wait_for_error_line("the previous certificate stays in use: ");
    assert_eq!(presented_fingerprint(&place, &server), second);
    // When the matching key arrives, the server uses the new pair.
    std::fs::copy(place.path("other.key"), place.path("a.key")).expect("a file");
    server.wait_for_error_line("a.pem: reloaded, valid until ");
    assert_eq!(
        presented_fingerprint(&place, &server),
        fingerprint(&place, "other")
    );
    // A missing file is reported, but changes nothing.
    std::fs::remove_file(place.path("a.key")).expect("a file");
    server.wait_for_error_line("changes can't be detected");
    assert_eq!(
        presented_fingerprint(&place, &server),
        fingerprint(&place, "other")
    );
}

#[test]
fn reload_keeps_connections_and_changes_certificates() {
    let place = Place::new();
    place.folder.file("site/file", vec![b'x'; 8 << 20]);
    place.certify("b", &["a.example"]);
    let server = place.run_with_certificate();
    let mut command = Command::new("curl");
    command.args(["-sS", "--limit-rate", "4M", "--cacert", &place.ca()]);
    let to = format!("::127.0.0.1:{}", server.address().port());
    command.args(["--connect-to", &to, "https://a.example/file"]);
    let long = std::thread::spawn(move || run(&mut command, b""));
    wait_until("the connection", || {
        (place.count("handshakes") == 1).then_some(())
    });
    let text = std::fs::read_to_string(place.path("lowroad.toml")).expect("a file");
    let text = text.replace("a.pem", "b.pem").replace("a.key", "b.key");
    place.folder.file("lowroad.toml", &text);
    server.signal("HUP");
    server.wait_for_error_line("lowroad.toml is in force");
    assert_eq!(
        presented_fingerprint(&place, &server),
        fingerprint(&place, "b")
    );
    // If a key is unreadable, the previous configuration stays in force.
    place
        .folder
        .file("lowroad.toml", text.replace("b.key", "none.key"));
    server.signal("HUP");
    server.wait_for_error_line("the previous configuration stays in force");
    assert_eq!(
        presented_fingerprint(&place, &server),
        fingerprint(&place, "b")
    );
    let long = long.join().expect("curl");
    assert_eq!(
        (long.code, long.out.len()),
        (Some(0), 8 << 20),
        "{}",
        long.errors
    );
}

#[test]
fn graceful_shutdown_finishes_responses() {
    let place = Place::new();
    place.folder.file("site/file", vec![b'x'; 8 << 20]);
    for version in super::support::VERSIONS {
        let mut server = place.run_with_certificate();
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            version,
            "--limit-rate",
            "8M",
            "--cacert",
            &place.ca(),
        ]);
        let to = format!("::127.0.0.1:{}", server.address().port());
        command.args(["--connect-to", &to, "https://a.example/file"]);
        let long = std::thread::spawn(move || run(&mut command, b""));
        wait_until("the request", || {
            (place.count("requests") == 1).then_some(())
        });
        server.signal("TERM");
        let long = long.join().expect("curl");
        assert_eq!(
            (long.code, long.out.len()),
            (Some(0), 8 << 20),
            "{}",
            long.errors
        );
        assert!(server.wait_for_end().success());
    }
}

#[test]
fn check_names_invalid_tls_settings() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.certify("b", &["b.example"]);
    place.folder.file("garbage", "garbage");
    let check = |config: &str| {
        let file = place.folder.file("check.toml", config);
        let said = run(Command::new(PROGRAM).args(["check", "-c"]).arg(file), b"");
        (said.code, said.all())
    };
    let named = |name: &str| place.site("a", &format!("names = \"{name}\""), "");
    let (code, said) = check(&named("a.example"));
    assert_eq!(code, Some(0), "{said}");
    for (config, says) in [
        (
            named("b.example"),
            "the site has no certificate for b.example",
        ),
        (
            named("*.example"),
            "the site has no certificate for *.example",
        ),
        (
            named("a.example").replace("a.key", "b.key"),
            "the key does not match",
        ),
        (
            named("a.example").replace("a.pem", "none.pem"),
            "cannot be read",
        ),
        (
            place.site("a", "", "client = \"require\"\nclient_ca = \"garbage\"\n"),
            "garbage: ",
        ),
        (
            named("a.example").replace("a.key", "a.pem"),
            "it contains no private key",
        ),
    ] {
        let (code, said) = check(&config);
        if says == "cannot be read" {
            assert!(said.contains("check.toml:"), "{said}");
        }
        // Problems with which `run` would start are only warnings.
        let expected = if says.starts_with("the site has no certificate") {
            3
        } else {
            1
        };
        assert_eq!(code, Some(expected), "{config}: {said}");
        assert!(said.contains(says), "{config}: {said}");
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(place.path("a.key"), PermissionsExt::from_mode(0o644))
        .expect("a file");
    let (_, said) = check(&named("a.example"));
    assert!(said.contains("every user can read the key"), "{said}");
    place.private(
        "a.key",
        std::fs::read_to_string(place.path("a.key")).expect("a key"),
    );
    // Without the authority's certificate in the chain.
    let chain = std::fs::read_to_string(place.path("a.pem")).expect("a chain");
    let end = chain.find("-----END CERTIFICATE-----\n").expect("its end") + 26;
    place.folder.file("a.pem", &chain[..end]);
    let (_, said) = check(&named("a.example"));
    assert!(
        said.contains("no problems"),
        "its root is not public: {said}"
    );
}

#[test]
fn reloads_and_new_certificates_fail_no_requests() {
    let place = Place::new();
    if !std::path::Path::new("/usr/bin/h2load").exists() {
        return lowroad_testkit::skip("reloads_and_new_certificates_fail_no_requests", "no h2load");
    }
    place
        .folder
        .file("site/file", super::support::noise(20_000));
    let server = place.run_with_certificate();
    for protocol in ["h2", "http/1.1"] {
        let url = format!("https://{}/file", server.address());
        let load = std::thread::spawn({
            let protocol = format!("--npn-list={protocol}");
            move || {
                let mut command = Command::new("timeout");
                command.args(["100", "h2load", "-c4", "-m4", "-n", "6000", &protocol, &url]);
                run(&mut command, b"").text()
            }
        });
        let mut rounds = 0;
        while !load.is_finished() {
            place.certify("a", &["a.example"]);
            server.signal("HUP");
            server.wait_for_error_line("is in force");
            rounds += 1;
        }
        let said = load.join().expect("h2load");
        assert!(
            said.contains("6000 succeeded, 0 failed, 0 errored"),
            "{protocol}, {rounds}: {said}"
        );
        assert!(rounds > 2, "{rounds}");
    }
}
