//! Certificate files that are missing or damaged, or that another process has replaced.

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

/// The fault that is reported, and a function that causes it.
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
    // The key is replaced by that of another certificate.
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

/// Puts a certificate into the folder. Returns settings with an authority that fails all orders, and the number of
/// requests to it.
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

/// Whether a new manager finds a certificate in the folder.
fn is_readable(settings: &AcmeSettings) -> bool {
    let other = Running::start(settings.clone());
    other.store.current().covers("a.example")
}

#[test]
fn damaged_file_is_restored_from_certificate_in_use() {
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

/// Without inotify, no changes are reported to the manager.
#[test]
fn files_are_checked_every_minute() {
    let folder = Folder::new();
    let (settings, _) = with_certificate(&folder);
    let running = Running::start(settings.clone());
    running.wait_until_idle();
    fs::remove_file(certificate_file(&folder)).expect("a file");
    settings.clock.advance(60);
    running.wait_for("a.example: certificate.pem is missing; it was restored");
}

#[test]
fn failed_restore_is_retried_and_logged_once() {
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
    // Tried in each check, but logged once.
    running.wait_until_idle();
    assert_eq!(running.lines().len(), 1, "{:#?}", running.lines());
    fs::remove_dir(&file).expect("a folder");
    settings.clock.advance(60);
    running.wait_for("a.example: certificate.pem can be written again");
    assert_eq!(running.state("a.example").last_error, None);
    assert!(is_readable(&settings));
}

#[test]
fn file_damaged_before_start_is_reordered_immediately() {
    let test = "file_damaged_before_start_is_reordered_immediately";
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
    // The damage that removes the name's folder is omitted, since the folder also contains the stored state.
    let remaining_damages = DAMAGES.into_iter().enumerate().filter(|(at, _)| *at != 1);
    for (at, (fault, damage)) in remaining_damages {
        let first = stored(&settings.folder, "a.example");
        damage(&file);
        let running = start();
        let severity = running.severity(&format!("a.example: certificate.pem {fault}"));
        assert_eq!(severity, Severity::Error, "{at}");
        // Within an hour after the last certificate was issued.
        running.wait_for("a.example: got a certificate");
        assert_ne!(stored(&settings.folder, "a.example"), first, "{at}");
        assert_eq!(running.count("acme.files_damaged"), 1, "{at}");
        running.wait_until_saved(&settings.folder, "a.example");
    }
}

#[test]
fn damaged_account_file_is_replaced() {
    let Some(mut pebble) = Pebble::start("damaged_account_file_is_replaced", Options::default())
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

/// The authority can reach only one of two processes; the other has failed, and would wait for a quarter of an hour.
#[test]
fn failed_process_adopts_certificate_of_another() {
    let test = "failed_process_adopts_certificate_of_another";
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

/// Two processes with different names that use the same folder must not overwrite each other's file forever.
#[test]
fn certificate_for_other_names_is_not_overwritten() {
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
