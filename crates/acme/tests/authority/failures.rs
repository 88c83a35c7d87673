//! Failures and expiries are logged with the right severity, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use lowroad_acme::{AcmeSettings, Severity};

use crate::kit::fake::{fake, place_certificate, settings};
use crate::kit::web::Answer;
use crate::kit::{Folder, Running};

const DAY_S: u64 = 86_400;

/// The counter of a failure, and settings that cause it.
type Failure = (&'static str, fn(&Folder) -> AcmeSettings);

const FAILURES: [Failure; 6] = [
    ("acme.unreachable", |folder| {
        settings(folder, ([127, 0, 0, 1], 1).into())
    }),
    ("acme.unreachable", |folder| {
        settings(folder, fake(|_, _| Answer::new(503, "")))
    }),
    ("acme.rate_limited", |folder| {
        settings(folder, fake(|_, _| Answer::new(429, "")))
    }),
    ("acme.refused", |folder| {
        let problem = r#"{"type":"urn:ietf:params:acme:error:caa","detail":"no"}"#;
        settings(folder, fake(move |_, _| Answer::new(403, problem)))
    }),
    ("acme.wrong_answers", |folder| {
        settings(folder, fake(|_, _| Answer::new(200, "<html>")))
    }),
    ("acme.local_errors", |folder| {
        let mut settings = settings(folder, fake(|_, _| Answer::new(503, "")));
        settings.authorities[0].roots = Some("/nowhere/roots.pem".into());
        settings
    }),
];

#[test]
fn failure_without_certificate_is_an_error() {
    for (counter, settings) in FAILURES {
        let folder = Folder::new();
        let running = Running::start(settings(&folder));
        let severity = running.severity("a.example: no certificate");
        assert_eq!(severity, Severity::Error, "{counter}");
        assert_eq!(running.count(counter), 1, "{counter}");
        assert_eq!(running.count("acme.orders_failed"), 1, "{counter}");
        assert_eq!(running.count("acme.missing"), 1, "{counter}");
    }
}

#[test]
fn failure_with_valid_certificate_is_a_warning() {
    for (counter, settings) in FAILURES {
        let folder = Folder::new();
        let settings = settings(&folder);
        place_certificate(folder.path(), "a.example", settings.clock.unix_s());
        settings.clock.advance(300 * DAY_S);
        let running = Running::start(settings);
        let severity = running.severity("a.example: not renewed");
        assert_eq!(severity, Severity::Warning, "{counter}");
        assert_eq!(running.count(counter), 1, "{counter}");
        assert_eq!(running.count("acme.valid"), 1, "{counter}");
    }
}

/// A certificate that lacks a name of the site is useless to some clients.
#[test]
fn failure_with_certificate_for_other_names_is_an_error() {
    let folder = Folder::new();
    let mut settings = settings(&folder, fake(|_, _| Answer::new(503, "")));
    settings.sites[0].push("b.example".into());
    place_certificate(folder.path(), "a.example", settings.clock.unix_s());
    let running = Running::start(settings);
    let severity = running.severity("a.example: no certificate that covers all of its names");
    assert_eq!(severity, Severity::Error);
    assert_eq!(running.count("acme.missing"), 1);
}

#[test]
fn certificate_expiry_is_logged_and_counted() {
    let folder = Folder::new();
    let status = Arc::new(AtomicU16::new(503));
    let answered = status.clone();
    let addr = fake(move |_, _| Answer::new(answered.load(Ordering::Relaxed), ""));
    let settings = settings(&folder, addr);
    let clock = settings.clock.clone();
    place_certificate(folder.path(), "a.example", clock.unix_s());
    let running = Running::start(settings);
    let gauges = || {
        let names = [
            "acme.valid",
            "acme.expiring",
            "acme.expired",
            "acme.missing",
        ];
        names.map(|name| running.count(name))
    };
    assert_eq!(gauges(), [1, 0, 0, 0]);

    clock.advance(300 * DAY_S);
    running.wait_for_some("not renewed, and the certificate expires on", 1);
    clock.advance(70 * DAY_S);
    let severity = running.severity("a.example: the certificate expires soon");
    assert_eq!(severity, Severity::Error);
    assert_eq!(gauges(), [0, 1, 0, 0]);
    running.wait_for_some("not renewed, and the certificate expires on", 2);
    let log = running.log();
    let failures = log
        .iter()
        .filter(|(_, line)| line.contains("not renewed, and"));
    let severities: Vec<Severity> = failures.map(|(severity, _)| *severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Error]);

    clock.advance(30 * DAY_S);
    let severity = running.severity("a.example: the certificate has expired and is still in use");
    assert_eq!(severity, Severity::Error);
    assert_eq!(gauges(), [0, 0, 1, 0]);
    let severity = running.severity("not renewed, and the certificate has expired on");
    assert_eq!(severity, Severity::Error);
    // Each event is logged once.
    let lines = running.lines();
    for text in ["expires soon", "has expired and"] {
        let matching_lines = lines.iter().filter(|line| line.contains(text));
        assert_eq!(matching_lines.count(), 1, "{lines:#?}");
    }
    assert!(running.store.current().covers("a.example"));
}

/// The authority fails all requests for renewal windows: one log line per outage, not per hour.
#[test]
fn failed_renewal_window_request_is_logged_once() {
    let folder = Folder::new();
    let settings = settings(&folder, ([127, 0, 0, 1], 1).into());
    let clock = settings.clock.clone();
    place_certificate(folder.path(), "a.example", clock.unix_s());
    let state = format!(
        r#"{{"names": ["a.example"], "on_demand": false, "authority": "{}", "plan":
            {{"authorities": [], "local": {{"failures": 0, "until_s": 0}}, "held": null, "last_error": null}}}}"#,
        settings.authorities[0].directory
    );
    let file = folder.path().join("names/a.example/state.json");
    std::fs::write(file, state).expect("a file");
    let running = Running::start(settings);
    let severity = running.severity("renewal information is unavailable");
    assert_eq!(severity, Severity::Warning);
    clock.advance(3600);
    lowroad_testkit::wait_until("another question", || {
        (running.count("acme.window_failures") == 2).then_some(())
    });
    assert_eq!(running.lines().len(), 1);
}
