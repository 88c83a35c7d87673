//! Each challenge type, with Pebble as the authority.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use lowroad_acme::{ChallengeMethod, DnsHook, ExternalAccount, RenewalStep};
use lowroad_tls::certificates::CertificateStore;
use lowroad_tls::{TlsAcceptor, TlsClock, TlsServerSettings as TlsSettings};

use crate::kit::pebble::{Options, Pebble};
use crate::kit::{Folder, Running, stored, web};

const DAY_S: u64 = 86_400;

#[test]
fn http_01_issues_certificates() {
    let Some(mut pebble) = Pebble::start("http_01_issues_certificates", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example", "www.a.example"], &["b.example"]]);
    let listener = pebble.http.take().expect("a port");
    let running = Running::start(settings.clone());
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("a.example: got a certificate");
    running.wait_for("b.example: got a certificate");
    let certificates = running.store.current();
    assert!(certificates.covers("a.example") && certificates.covers("www.a.example"));
    assert!(certificates.covers("b.example") && !certificates.covers("c.example"));

    let pair = running.manager.pair("A.example").expect("a certificate");
    assert!(pair.dns_names().any(|name| name == "www.a.example"));
    assert!(running.manager.pair("www.a.example").is_none());

    let state = running.state("a.example");
    assert_eq!(state.authority, Some(pebble.url()));
    assert_eq!(state.last_error, None);
    let left_s = state.not_after_s.expect("a certificate") - state.now_s;
    assert!((89 * DAY_S..=90 * DAY_S).contains(&left_s), "{left_s}");
    assert!(
        matches!(state.next, RenewalStep::Order(at_s) if at_s > state.now_s + 50 * DAY_S),
        "{state}"
    );

    // One account for both certificates, readable by its owner only.
    let accounts = fs::read_dir(settings.folder.join("accounts")).expect("a folder");
    let accounts = accounts.flatten().filter(|file| {
        let mode = file.metadata().expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
        file.path()
            .extension()
            .is_some_and(|extension| extension == "json")
    });
    assert_eq!(accounts.count(), 1);
    let pem = stored(&settings.folder, "a.example");
    assert_eq!(pem.matches("BEGIN PRIVATE KEY").count(), 1);
    assert!(pem.matches("BEGIN CERTIFICATE").count() >= 2);

    // After a restart, the stored files suffice, even without the authority.
    drop(running);
    pebble.down();
    let again = Running::start(settings.clone());
    assert!(again.store.current().covers("www.a.example"));
    let state = again.state("a.example");
    assert!(
        matches!(state.next, RenewalStep::Order(at_s) if at_s > state.now_s + 50 * DAY_S),
        "{state}"
    );
    assert_eq!(stored(&settings.folder, "a.example"), pem);
}

#[test]
fn tls_alpn_01_issues_certificates() {
    let Some(mut pebble) = Pebble::start("tls_alpn_01_issues_certificates", Options::default())
    else {
        return;
    };
    let folder = Folder::new();
    let mut settings = pebble.settings(&folder, &[&["a.example", "b.example"]]);
    settings.challenge = ChallengeMethod::TlsAlpn01;
    let listener = pebble.tls.take().expect("a port");
    let running = Running::start(settings);
    serve_tls(listener, running.store.clone());
    running.wait_for("a.example: got a certificate");
    assert!(running.store.current().covers("b.example"));
}

/// Does a TLS handshake with each client.
fn serve_tls(listener: TcpListener, store: CertificateStore) {
    let now_s = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs();
    let settings = TlsSettings::new(store, TlsClock::new(now_s));
    let acceptor = TlsAcceptor::new(&settings).expect("settings");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let acceptor = acceptor.clone();
            thread::spawn(move || {
                let mut server = acceptor.accept().expect("a server");
                let (mut wire, mut plain) = ([0; 4096], Vec::new());
                while let Ok(len @ 1..) = stream.read(&mut wire) {
                    let mut to_send = Vec::new();
                    let done = server.receive(&mut wire[..len], &mut plain, &mut to_send);
                    if stream.write_all(&to_send).is_err() || done.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A hook that configures the DNS server of Pebble, and logs its invocations.
pub fn hook(pebble: &Pebble, folder: &Folder) -> DnsHook {
    let path = folder.path().join("hook.sh");
    let (log, addr) = (folder.path().join("hook.log"), pebble.dns_management);
    let script = format!(
        r#"#!/bin/sh
set -e
echo "$1 $2" >> {}
case "$1" in
present) curl -sSf -d '{{"host":"'"$2"'.","value":"'"$3"'"}}' http://{addr}/set-txt ;;
cleanup) curl -sSf -d '{{"host":"'"$2"'."}}' http://{addr}/clear-txt ;;
esac
"#,
        log.display()
    );
    fs::write(&path, script).expect("a script");
    DnsHook {
        command: vec!["/bin/sh".into(), path.display().to_string()],
        timeout_s: 60,
    }
}

#[test]
fn dns_01_issues_wildcard_certificate() {
    let Some(pebble) = Pebble::start("dns_01_issues_wildcard_certificate", Options::default())
    else {
        return;
    };
    let folder = Folder::new();
    let mut settings = pebble.settings(&folder, &[&["*.a.example", "a.example"]]);
    settings.challenge = ChallengeMethod::Dns01(hook(&pebble, &folder));
    let running = Running::start(settings.clone());
    running.wait_for("*.a.example: got a certificate");
    let certificates = running.store.current();
    assert!(certificates.covers("a.example") && certificates.covers("any.a.example"));
    stored(&settings.folder, "_.a.example");

    let log = fs::read_to_string(folder.path().join("hook.log")).expect("a log");
    let actions: Vec<&str> = log.lines().collect();
    let record = "_acme-challenge.a.example";
    let expected = ["present", "present", "cleanup", "cleanup"];
    assert_eq!(actions, expected.map(|action| format!("{action} {record}")));
}

#[test]
fn failure_of_dns_hook_is_reported() {
    let Some(pebble) = Pebble::start("failure_of_dns_hook_is_reported", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let mut settings = pebble.settings(&folder, &[&["a.example"]]);
    settings.challenge = ChallengeMethod::Dns01(DnsHook {
        command: ["/bin/sh", "-c", "echo no such zone; exit 7"]
            .map(str::to_owned)
            .to_vec(),
        timeout_s: 60,
    });
    let running = Running::start(settings);
    let lines = running.wait_for("a.example: no certificate");
    let line = lines
        .iter()
        .find(|line| line.contains("no certificate"))
        .expect("a line");
    assert!(line.contains("exit status: 7: no such zone"), "{line}");
}

#[test]
fn external_account_and_profile_are_used() {
    let external = ExternalAccount {
        key_id: "kid-1".into(),
        key: "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W".into(),
    };
    let options = Options {
        external: Some(external),
        ..Options::default()
    };
    let Some(mut pebble) = Pebble::start("external_account_and_profile_are_used", options) else {
        return;
    };
    let folder = Folder::new();
    let listener = pebble.http.take().expect("a port");
    let mut settings = pebble.settings(&folder, &[&["a.example"]]);

    // Without the key, the authority refuses to create an account.
    settings.authorities[0].external_account = None;
    let without = Running::start(settings.clone());
    without.wait_for("refuses to create an account: externalAccountRequired");
    drop(without);

    // The authority does not have this profile.
    settings.authorities[0] = pebble.authority();
    settings.authorities[0].profile = Some("eternal".into());
    settings.folder = folder.path().join("other");
    let eternal = Running::start(settings.clone());
    eternal.wait_for("has no profile eternal; it offers: default, short");
    drop(eternal);

    settings.authorities[0].profile = Some("short".into());
    settings.folder = folder.path().join("third");
    let running = Running::start(settings);
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("a.example: got a certificate");
    let state = running.state("a.example");
    let left_s = state.not_after_s.expect("a certificate") - state.now_s;
    assert!(left_s <= 6 * DAY_S, "{left_s}");
}
