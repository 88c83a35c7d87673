//! Certificates are renewed in time, despite failures of the authority.

use lowroad_acme::RenewalStep;
use lowroad_testkit::wait_until;

use crate::kit::pebble::{Options, Pebble};
use crate::kit::{Folder, Running, stored, web};

const DAY_S: u64 = 86_400;
const HOUR_S: u64 = 3600;

#[test]
fn a_certificate_is_renewed_with_a_new_key() {
    let Some(mut pebble) = Pebble::start("a_certificate_is_renewed", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let listener = pebble.http.take().expect("a port");
    let clock = settings.clock.clone();
    let running = Running::start(settings.clone());
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("got a certificate");
    let first = stored(&settings.folder, "a.example");
    clock.advance(62 * DAY_S);
    running.wait_for_some("got a certificate", 2);
    let second = stored(&settings.folder, "a.example");
    let key = |pem: &str| pem.split("-----END").next().expect("a key").to_owned();
    assert_ne!(key(&first), key(&second));
    assert_eq!(pebble.count("There are now 1 accounts"), 1);
}

/// The authority moves the renewal window to a time long before two thirds of the lifetime, as after an incident.
#[test]
fn renewal_window_of_authority_is_obeyed() {
    let Some(mut pebble) = Pebble::start("the_window_of_the_authority", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let listener = pebble.http.take().expect("a port");
    let clock = settings.clock.clone();
    let running = Running::start(settings.clone());
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("got a certificate");
    // Waits for the default window, before another one is set.
    wait_until("the window", || {
        let state = std::fs::read_to_string(settings.folder.join("names/a.example/state.json"));
        state.ok().filter(|text| text.contains("start_s"))
    });
    let pem = stored(&settings.folder, "a.example");
    let begin = pem.find("-----BEGIN CERTIFICATE").expect("a certificate");
    let mark = "-----END CERTIFICATE-----\n";
    let end = pem.find(mark).expect("a certificate") + mark.len();
    let window =
        r#"{"suggestedWindow":{"start":"2020-01-02T04:00:00Z","end":"2020-01-03T04:00:00Z"}}"#;
    let question = serde_json::json!({ "Certificate": &pem[begin..end], "ARIResponse": window });
    set_window(&pebble, &question.to_string());
    clock.advance(7 * HOUR_S);
    running.wait_for_some("got a certificate", 2);
    assert_ne!(stored(&settings.folder, "a.example"), pem);
    let state = running.state("a.example");
    assert!(
        matches!(state.next, RenewalStep::Order(at_s) if at_s > state.now_s + 50 * DAY_S),
        "{state}"
    );
}

/// The management interface of Pebble also requires TLS.
fn set_window(pebble: &Pebble, question: &str) {
    let url = format!("https://{}/set-renewal-info/", pebble.management);
    let status = std::process::Command::new("curl")
        .args(["-sSfk", "-d", question, &url])
        .status();
    assert!(status.expect("curl").success());
}

/// The authority is down for a week, from the day of the renewal on. When it returns, it has lost its state (accounts
/// and orders).
#[test]
fn outage_of_a_week_is_survived() {
    let Some(mut pebble) = Pebble::start("an_authority_that_is_down", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let listener = pebble.http.take().expect("a port");
    let clock = settings.clock.clone();
    let running = Running::start(settings.clone());
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("got a certificate");
    let first = stored(&settings.folder, "a.example");
    pebble.down();
    clock.advance(62 * DAY_S);
    let mut failures = 1;
    running.wait_for_some("cannot be reached", failures);
    for _ in 0..14 {
        clock.advance(12 * HOUR_S);
        failures += 1;
        running.wait_for_some("cannot be reached", failures);
        assert!(running.store.current().covers("a.example"));
    }
    let state = running.state("a.example");
    let error = state.last_error.as_ref().expect("an error");
    assert!(error.text.contains(&pebble.url()), "{state}");
    assert!(error.text.contains("refused"), "{state}");
    assert!(matches!(state.next, RenewalStep::Order(at_s) if at_s <= state.now_s + 2 * HOUR_S));

    pebble.up();
    clock.advance(2 * HOUR_S);
    running.wait_for("accountDoesNotExist");
    clock.advance(2 * HOUR_S);
    running.wait_for_some("got a certificate", 2);
    assert_ne!(stored(&settings.folder, "a.example"), first);
    assert_eq!(running.state("a.example").last_error, None);
}

#[test]
fn next_authority_is_used_if_first_is_down() {
    let Some(mut pebble) = Pebble::start(
        "next_authority_is_used_if_first_is_down",
        Options::default(),
    ) else {
        return;
    };
    let folder = Folder::new();
    let mut settings = pebble.settings(&folder, &[&["a.example"]]);
    let mut down = pebble.authority();
    down.directory = "https://127.0.0.1:1/dir".into();
    settings.authorities.insert(0, down);
    let listener = pebble.http.take().expect("a port");
    let running = Running::start(settings);
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("got a certificate");
    assert_eq!(running.state("a.example").authority, Some(pebble.url()));
}

#[test]
fn rejected_nonces_are_retried() {
    let options = Options {
        bad_nonces: 40,
        ..Options::default()
    };
    let Some(mut pebble) = Pebble::start("rejected_nonces_are_retried", options) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let listener = pebble.http.take().expect("a port");
    let clock = settings.clock.clone();
    let running = Running::start(settings);
    web::serve_tokens(listener, running.manager.tokens());
    // An order takes about ten messages, each of which is tried up to three times. Failed orders are repeated.
    wait_until("a certificate", || {
        if running
            .lines()
            .iter()
            .any(|line| line.contains("got a certificate"))
        {
            return Some(());
        }
        if running.lines().iter().any(|line| line.contains("badNonce")) {
            clock.advance(2 * HOUR_S);
        }
        None
    });
}
