//! Errors of authorities, and a full disk.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lowroad_acme::{RenewalStep, Severity};
use lowroad_testkit::skip;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::kit::fake::{fake, place_certificate, settings};
use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{self, Answer, TokensSlot};
use crate::kit::{Folder, Running, stored};

const DAY_S: u64 = 86_400;
const HOUR_S: u64 = 3600;

/// The error text after a response of the authority, and the delay of the next order in seconds.
fn outcome(order: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> (String, u64) {
    let folder = Folder::new();
    let running = Running::start(settings(&folder, fake(order)));
    running.wait_for("a.example: no certificate");
    let state = running.state("a.example");
    let error = state.last_error.as_ref().expect("an error");
    let RenewalStep::Order(next_s) = state.next else {
        panic!("{state}");
    };
    (error.text.clone(), next_s - error.at_s)
}

#[test]
fn rate_limit_of_authority_is_obeyed() {
    let (text, wait_s) = outcome(|_, _| {
        let problem = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}"#;
        Answer::new(429, problem).with("retry-after", "86400")
    });
    assert!(text.ends_with("rateLimited: too many"), "{text}");
    assert!((DAY_S..DAY_S + HOUR_S).contains(&wait_s), "{wait_s}");
    // A proxy in front of the authority may not send ACME problem documents.
    let (text, wait_s) = outcome(|_, _| Answer::new(429, "<html>").with("retry-after", "7200"));
    assert!(text.ends_with("too many requests"), "{text}");
    assert!((2 * HOUR_S..3 * HOUR_S).contains(&wait_s), "{wait_s}");
}

/// The authority rejects `replaces`: the order is repeated without it.
#[test]
fn rejected_replaces_is_omitted_in_second_order() {
    let folder = Folder::new();
    let orders = Arc::new(AtomicUsize::new(0));
    let count = orders.clone();
    let addr = fake(move |_, _| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Answer::new(
            409,
            r#"{"type":"urn:ietf:params:acme:error:alreadyReplaced"}"#,
        ),
        // The second order fails too, to end the test without a real certificate.
        _ => Answer::new(429, "{}"),
    });
    let settings = settings(&folder, addr);
    let now_s = settings.clock.unix_s();
    place_certificate(folder.path(), "a.example", now_s);
    let own = folder.path().join("names/a.example");
    let state = format!(
        r#"{{"names": ["a.example"], "on_demand": false, "authority": "http://{addr}/dir", "plan":
            {{"authorities": [], "local": {{"failures": 0, "until_s": 0}}, "held": null, "last_error": null}}}}"#
    );
    fs::write(own.join("state.json"), state).expect("a file");
    // The certificate is valid for 13 months, so its renewal is due now.
    settings.clock.advance(300 * DAY_S);
    let running = Running::start(settings);
    running.wait_for("a.example: not renewed");
    // One order with `replaces`, one without.
    assert_eq!(orders.load(Ordering::Relaxed), 2);
    assert!(running.store.current().covers("a.example"));
}

#[test]
fn retry_after_of_503_is_obeyed() {
    let (text, wait_s) = outcome(|_, _| Answer::new(503, "<html>").with("retry-after", "1800"));
    assert!(text.ends_with("answered with status 503"), "{text}");
    assert!((1800..1900).contains(&wait_s), "{wait_s}");
}

#[test]
fn invalid_responses_are_reported() {
    type Case = (fn() -> Answer, &'static str);
    let cases: [Case; 5] = [
        (
            || Answer::new(200, "<html>"),
            "answered with status 200 and a body that is not ACME",
        ),
        (
            || Answer::new(201, "{}"),
            "answered with status 201 and a body that is not ACME",
        ),
        (
            || Answer::new(201, "x".repeat(2 << 20)),
            "length limit exceeded",
        ),
        (
            || {
                Answer::new(
                    201,
                    r#"{"status":"pending","authorizations":[],"finalize":"f"}"#,
                )
            },
            "sent an invalid response: missing data: no order URL found",
        ),
        (
            || {
                Answer::new(
                    201,
                    r#"{"status":"pending","authorizations":["http://ca.example/1"],"finalize":"f"}"#,
                )
                .with("location", "http://ca.example/2")
            },
            "a URL without TLS: http://ca.example/1",
        ),
    ];
    for (order, expected) in cases {
        let (text, wait_s) = outcome(move |_, _| order());
        assert!(text.contains(expected), "{text}");
        assert!((60..400).contains(&wait_s), "{wait_s}");
    }
}

/// The authority is slow and sends no Retry-After, so it is polled repeatedly.
#[test]
fn processing_order_is_polled() {
    let asked = AtomicUsize::new(0);
    let (text, _) = outcome(move |target, base| {
        let order = |status: &str| {
            let content = format!(
                r#"{{"status":"{status}","authorizations":[],"finalize":"{base}/finalize",
                    "error":{}}}"#,
                match status {
                    "invalid" => r#"{"type":"urn:ietf:params:acme:error:caa","detail":"no"}"#,
                    _ => "null",
                }
            );
            Answer::new(200, content).with("location", format!("{base}/one"))
        };
        match target {
            "/order" => order("ready"),
            "/one" if asked.fetch_add(1, Ordering::Relaxed) == 2 => order("invalid"),
            _ => order("processing"),
        }
    });
    assert!(text.ends_with("/dir: caa: no"), "{text}");
}

#[test]
fn failed_validation_is_reported() {
    let Some(mut pebble) = Pebble::start("failed_validation_is_reported", Options::default())
    else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"], &["blocked.example"]]);
    let listener = pebble.http.take().expect("a port");
    let running = Running::start(settings);
    web::serve(listener, |_, _| Answer::new(200, "something else"));
    running.wait_for("a.example: no certificate");
    running.wait_for("blocked.example: no certificate");
    let state = running.state("a.example");
    let error = state.last_error.as_ref().expect("an error");
    assert!(
        error
            .text
            .contains("cannot verify a.example: unauthorized: "),
        "{state}"
    );
    assert!(matches!(state.next, RenewalStep::Order(at_s) if at_s >= error.at_s + 900));
    let state = running.state("blocked.example");
    let error = state.last_error.as_ref().expect("an error");
    assert!(error.text.contains("rejectedIdentifier"), "{state}");
}

/// A small file system that can be filled, to simulate a full disk.
struct Disk(Folder);

impl Disk {
    fn new() -> Result<Disk, rustix::io::Errno> {
        let folder = Folder::new();
        mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=512k"),
        )?;
        Ok(Disk(folder))
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        let full = std::iter::repeat_with(|| std::io::Write::write_all(&mut file, &[0; 4096]));
        assert!(full.take(1000).any(|written| written.is_err()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn full_disk_is_detected_before_ordering() {
    let Some(mut pebble) =
        Pebble::start("full_disk_is_detected_before_ordering", Options::default())
    else {
        return;
    };
    let Ok(disk) = Disk::new() else {
        return skip("full_disk_is_detected_before_ordering", "needs root");
    };
    let settings = pebble.settings(&disk.0, &[&["a.example"]]);
    let listener = pebble.http.take().expect("a port");
    let clock = settings.clock.clone();
    let running = Running::start(settings.clone());
    let tokens = TokensSlot::serve(listener);
    tokens.set(running.manager.tokens());
    running.wait_for("got a certificate");
    let first = stored(&settings.folder, "a.example");
    drop(running);
    disk.fill();
    // Logged long before a certificate must be stored.
    let running = Running::start(settings.clone());
    assert_eq!(
        running.severity("certificates cannot be stored"),
        Severity::Warning
    );
    tokens.set(running.manager.tokens());
    clock.advance(62 * DAY_S);
    // The unwritable folder is detected before an order, and delays it.
    running.wait_for("not renewed");
    clock.advance(2 * HOUR_S);
    running.wait_for_some("not renewed", 2);
    let state = running.state("a.example");
    assert!(
        state.to_string().contains("No space left on device"),
        "{state}"
    );
    assert!(running.store.current().covers("a.example"));
    assert_eq!(stored(&settings.folder, "a.example"), first);
    assert_eq!(pebble.count("Added order"), 1);

    fs::remove_file(disk.filler()).expect("a file");
    clock.advance(2 * HOUR_S);
    running.wait_for("got a certificate");
    assert_ne!(stored(&settings.folder, "a.example"), first);
    assert_eq!(running.state("a.example").last_error, None);
    drop(running);
}

#[test]
fn unusable_folder_is_reported() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let mut settings = settings(&folder, fake(|_, _| Answer::new(500, "")));
    settings.folder = file.join("acme");
    let clock = settings.clock.clone();
    let running = Running::start(settings);
    let lines = running.wait_for("a.example: no certificate");
    assert!(
        lines[0].contains("cannot be written: Not a directory"),
        "{lines:?}"
    );
    fs::remove_file(&file).expect("a file");
    clock.advance(HOUR_S);
    running.wait_for("status 500");
}
