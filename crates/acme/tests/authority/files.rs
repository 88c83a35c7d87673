//! Certificate files that are missing or damaged, or that another process has written.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lowroad_acme::{AcmeSettings, Severity};
use lowroad_testkit::wait_until;

use crate::kit::fake::{fake, place_certificate, settings};
use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{Answer, TokensSlot};
use crate::kit::{Folder, Running, stored};

const DAY_S: u64 = 86_400;

/// Kinds of damage to a file.
type Damage = (&'static str, fn(&Path));

const DAMAGES: [Damage; 6] = [
    ("is missing", |file| fs::remove_file(file).expect("a file")),
    ("is missing", |file| {
        let own = file.parent().expect("a folder");
        fs::remove_dir_all(own).expect("a folder");
    }),
    ("is damaged", |file| fs::write(file, "").expect("a file")),
    ("is damaged", |file| {
        let text = fs::read(file).expect("a file");
        fs::write(file, &text[..text.len() / 3]).expect("a file");
    }),
    ("is damaged", |file| {
        fs::write(file, "rubbish").expect("a file");
    }),
    // The key of another certificate.
    ("is damaged", |file| {
        let own = fs::read_to_string(file).expect("a file");
        let other = Folder::new();
        place_certificate(other.path(), "a.example", 1_800_000_000);
        let other = stored(other.path(), "a.example");
        let (key, _) = other.split_once("-----BEGIN CERT").expect("a certificate");
        let (_, chain) = own.split_once("-----BEGIN CERT").expect("a certificate");
        fs::write(file, format!("{key}-----BEGIN CERT{chain}")).expect("a file");
    }),
];

/// A folder with a certificate, an authority that refuses all orders, and the number of its requests.
fn with_certificate(folder: &Folder) -> (AcmeSettings, Arc<AtomicUsize>) {
    let orders = Arc::new(AtomicUsize::new(0));
    let count = orders.clone();
    let addr = fake(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::new(503, "")
    });
    let settings = settings(folder, addr);
    place_certificate(folder.path(), "a.example", settings.clock.unix_s());
    (settings, orders)
}

fn certificate_file(folder: &Folder) -> std::path::PathBuf {
    folder.path().join("names/a.example/certificate.pem")
}

/// Whether a new process finds a certificate in the folder.
fn is_readable(settings: &AcmeSettings) -> bool {
    let other = Running::start(settings.clone());
    other.store.current().covers("a.example")
}

#[test]
fn a_damaged_file_gets_the_certificate_in_use_again() {
    for (at, (fault, damage)) in DAMAGES.into_iter().enumerate() {
        let folder = Folder::new();
        let (settings, orders) = with_certificate(&folder);
        let text = stored(folder.path(), "a.example");
        let running = Running::start(settings.clone());
        assert!(running.store.current().covers("a.example"));
        running.wait_until_idle();
        damage(&certificate_file(&folder));
        running.manager.check_files();
        let severity = running.severity(&format!("a.example: certificate.pem {fault}"));
        assert_eq!(severity, Severity::Warning, "{at}");
        assert_eq!(stored(folder.path(), "a.example"), text, "{at}");
        let counts = ["acme.files_damaged", "acme.files_restored"].map(|name| running.count(name));
        assert_eq!(counts, [1, 1], "{at}");
        assert!(running.store.current().covers("a.example"));
        assert!(is_readable(&settings), "{at}");
        assert_eq!(orders.load(Ordering::Relaxed), 0, "{at}");
    }
}

/// Without inotify no change is reported.
#[test]
fn files_are_looked_at_each_minute() {
    let folder = Folder::new();
    let (settings, _) = with_certificate(&folder);
    let running = Running::start(settings.clone());
    running.wait_until_idle();
    fs::remove_file(certificate_file(&folder)).expect("a file");
    settings.clock.advance(60);
    running.wait_for("a.example: certificate.pem is missing; it was restored");
}

#[test]
fn a_file_that_cannot_be_written_back_is_tried_again() {
    let folder = Folder::new();
    let (settings, _) = with_certificate(&folder);
    let running = Running::start(settings.clone());
    running.wait_until_idle();
    let file = certificate_file(&folder);
    fs::remove_file(&file).expect("a file");
    fs::create_dir(&file).expect("a folder in the way");
    running.manager.check_files();
    let severity = running.severity("the certificate in use cannot be written back");
    assert_eq!(severity, Severity::Warning);
    let state = running.state("a.example").to_string();
    assert!(state.contains("cannot be written back"), "{state}");
    // It is tried each time, and logged once.
    running.wait_until_idle();
    assert_eq!(running.lines().len(), 1, "{:#?}", running.lines());
    fs::remove_dir(&file).expect("a folder");
    settings.clock.advance(60);
    running.wait_for("a.example: certificate.pem can be written again");
    assert_eq!(running.state("a.example").last_error, None);
    assert!(is_readable(&settings));
}

#[test]
fn a_file_that_is_damaged_at_the_start_is_replaced_at_once() {
    let test = "a_file_that_is_damaged_at_the_start_is_replaced_at_once";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let tokens = TokensSlot::serve(pebble.http.take().expect("a port"));
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let start = || {
        let running = Running::start(settings.clone());
        tokens.set(running.manager.tokens());
        running
    };
    let running = start();
    running.wait_for("got a certificate");
    running.wait_until_saved(&settings.folder, "a.example");
    drop(running);
    let file = settings.folder.join("names/a.example/certificate.pem");
    // Not the case that removes the name's folder, which has the certificate's state too.
    let kept = DAMAGES.into_iter().enumerate().filter(|(at, _)| *at != 1);
    for (at, (fault, damage)) in kept {
        let first = stored(&settings.folder, "a.example");
        damage(&file);
        let running = start();
        let severity = running.severity(&format!("a.example: certificate.pem {fault}"));
        assert_eq!(severity, Severity::Error, "{at}");
        // Less than an hour after the last certificate.
        running.wait_for("a.example: got a certificate");
        assert_ne!(stored(&settings.folder, "a.example"), first, "{at}");
        assert_eq!(running.count("acme.files_damaged"), 1, "{at}");
        running.wait_until_saved(&settings.folder, "a.example");
    }
}

#[test]
fn a_damaged_account_is_replaced() {
    let Some(mut pebble) = Pebble::start("a_damaged_account_is_replaced", Options::default())
    else {
        return;
    };
    let tokens = TokensSlot::serve(pebble.http.take().expect("a port"));
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let running = Running::start(settings.clone());
    tokens.set(running.manager.tokens());
    running.wait_for("got a certificate");
    drop(running);
    let accounts = fs::read_dir(settings.folder.join("accounts")).expect("a folder");
    let mut accounts = accounts.flatten().map(|file| file.path());
    let account = accounts
        .find(|file| file.extension().is_some_and(|it| it == "json"))
        .expect("an account");
    fs::write(&account, "{\"directory\":").expect("a file");
    settings.clock.advance(62 * DAY_S);
    let running = Running::start(settings);
    tokens.set(running.manager.tokens());
    assert_eq!(
        running.severity("the file is damaged, so a new account is created"),
        Severity::Warning
    );
    running.wait_for("got a certificate");
    assert!(account.with_extension("old").exists());
}

/// The authority reaches only one of two processes; the other has failed, and would wait for a quarter of an hour.
#[test]
fn a_process_that_has_failed_takes_the_certificate_of_another() {
    let test = "a_process_that_has_failed_takes_the_certificate_of_another";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let tokens = TokensSlot::serve(pebble.http.take().expect("a port"));
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let unlucky = Running::start(settings.clone());
    assert_eq!(
        unlucky.severity("a.example: no certificate"),
        Severity::Error
    );
    let lucky = Running::start(settings.clone());
    lucky.manager.retry();
    tokens.set(lucky.manager.tokens());
    wait_until("a certificate", || {
        lucky.manager.retry();
        lucky.store.current().covers("a.example").then_some(())
    });
    settings.clock.advance(60);
    let severity = unlucky.severity("a.example: another process got a certificate");
    assert_eq!(severity, Severity::Info);
    assert!(unlucky.store.current().covers("a.example"));
    assert_eq!(unlucky.count("acme.adopted"), 1);
    assert_eq!(unlucky.state("a.example").last_error, None);
    let fingerprint = |running: &Running| {
        let pair = running.manager.pair("a.example").expect("a certificate");
        pair.fingerprint().to_owned()
    };
    assert_eq!(fingerprint(&unlucky), fingerprint(&lucky));
}

/// Two processes with different names in one folder must not replace each other's file for ever.
#[test]
fn a_certificate_for_other_names_is_left_alone() {
    let folder = Folder::new();
    let (settings, _) = with_certificate(&folder);
    let running = Running::start(settings.clone());
    running.wait_until_idle();
    let other = Folder::new();
    place_certificate(other.path(), "b.example", settings.clock.unix_s());
    let text = stored(other.path(), "b.example");
    fs::write(certificate_file(&folder), &text).expect("a file");
    running.manager.check_files();
    let severity = running.severity("another certificate, which does not cover all names");
    assert_eq!(severity, Severity::Warning);
    running.manager.check_files();
    settings.clock.advance(60);
    running.wait_until_idle();
    assert_eq!(running.lines().len(), 1);
    assert_eq!(stored(folder.path(), "a.example"), text);
    assert!(running.store.current().covers("a.example"));
}
