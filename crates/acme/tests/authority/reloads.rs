//! Reloads with other names or settings, while certificates are in use or being ordered.

use std::fs;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use lowroad_acme::{PATH_PREFIX, Severity};
use lowroad_testkit::wait_until;

use crate::kit::fake::{fake, place_certificate, settings};
use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{self, Answer, TokensSlot};
use crate::kit::{Folder, Running, names, stored};

#[test]
fn reload_keeps_certificate_whose_file_is_damaged() {
    let folder = Folder::new();
    let settings = settings(&folder, fake(|_, _| Answer::new(503, "")));
    place_certificate(folder.path(), "a.example", settings.clock.unix_s());
    let text = stored(folder.path(), "a.example");
    let file = folder.path().join("names/a.example/certificate.pem");
    let mut running = Running::start(settings.clone());
    let damages: [fn(&std::path::Path); 2] = [
        |file| fs::write(file, "rubbish").expect("a file"),
        |file| fs::remove_file(file).expect("a file"),
    ];
    for (at, damage) in (1..).zip(damages) {
        // Otherwise the first check of the manager would find the damage, and its log line could be lost with the
        // manager.
        running.wait_until_idle();
        damage(&file);
        let mut other = settings.clone();
        other.contact = vec![format!("mailto:{at}@example.org")];
        running.succeed(other);
        assert!(running.store.current().covers("a.example"), "{at}");
        running.wait_for_some("it was restored", at);
        assert_eq!(stored(folder.path(), "a.example"), text, "{at}");
    }
    running.wait_until_idle();
    // Even for additional names, this certificate is better than none.
    fs::remove_file(&file).expect("a file");
    let sites = [names(&["a.example", "b.example"])];
    running.manager.replace_sites(&sites).expect("names");
    assert!(running.store.current().covers("a.example"));
    running.wait_for_some("it was restored", 3);
}

/// The operator switches from a test authority to a real one, with another folder: the certificate from the previous
/// folder stays in use until a new one is issued.
#[test]
fn reload_with_other_folder_keeps_certificate_in_use() {
    let folder = Folder::new();
    let settings = settings(&folder, fake(|_, _| Answer::new(503, "")));
    place_certificate(folder.path(), "a.example", settings.clock.unix_s());
    let mut running = Running::start(settings.clone());
    let mut other = settings;
    other.folder = folder.path().join("other");
    let file = other.folder.join("names/a.example/certificate.pem");
    running.succeed(other);
    assert!(running.store.current().covers("a.example"));
    let severity = running.severity("a.example: not renewed");
    assert_eq!(severity, Severity::Warning);
    running.wait_until_idle();
    assert!(!file.exists());
    assert!(running.store.current().covers("a.example"));
}

/// The certificate in use is newer than its file, for example after a full disk.
#[test]
fn reload_keeps_certificate_newer_than_its_file() {
    let folder = Folder::new();
    let settings = settings(&folder, fake(|_, _| Answer::new(503, "")));
    let now_s = settings.clock.unix_s();
    place_certificate(folder.path(), "a.example", now_s - 100);
    let old = stored(folder.path(), "a.example");
    place_certificate(folder.path(), "a.example", now_s);
    let new = stored(folder.path(), "a.example");
    let mut running = Running::start(settings.clone());
    running.wait_until_idle();
    let file = folder.path().join("names/a.example/certificate.pem");
    fs::write(&file, old).expect("a file");
    let mut other = settings;
    other.contact = vec!["mailto:other@example.org".into()];
    running.succeed(other);
    running.wait_for("a.example: certificate.pem can be written again");
    assert_eq!(stored(folder.path(), "a.example"), new);
}

/// While the authority validates, the site is removed and added again with other names. There is only one order, and
/// its certificate is logged as one that this process has ordered.
#[test]
fn reload_during_order_does_not_order_again() {
    let test = "reload_during_order_does_not_order_again";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example", "b.example"]]);
    let running = Running::start(settings);
    let (validation_started_sender, validation_started) = mpsc::channel();
    let (continue_sender, continue_validation) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new((validation_started_sender, continue_validation)));
    let tokens = running.manager.tokens();
    web::serve(pebble.http.take().expect("a port"), move |_, target| {
        {
            // Blocks the authority until the test has reloaded.
            let gate = gate.lock().expect("a gate");
            let _ = gate.0.send(());
            let _ = gate.1.recv();
        }
        let token = target.strip_prefix(PATH_PREFIX);
        let answer = token.and_then(|token| tokens.find(token));
        Answer::new(200, answer.as_deref().unwrap_or_default())
    });
    validation_started.recv().expect("a question");
    running.manager.replace_sites(&[]).expect("no names");
    let sites = [names(&["a.example"])];
    running.manager.replace_sites(&sites).expect("names");
    running.wait_until_idle();
    assert_eq!(running.count("acme.orders"), 1);
    drop(continue_sender);
    running.wait_for("a.example: got a certificate from");
    assert!(running.store.current().covers("a.example"));
    assert_eq!(pebble.count("Added order"), 1);
    assert_eq!(running.lines().len(), 1, "{:#?}", running.lines());
}

/// If a manager finds a certificate in the folder that this process has ordered, it does not count as another
/// process's.
#[test]
fn certificate_ordered_by_this_process_is_not_counted_as_adopted() {
    let test = "certificate_ordered_by_this_process_is_not_counted_as_adopted";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let mut running = Running::start(settings.clone());
    let tokens = TokensSlot::serve(pebble.http.take().expect("a port"));
    tokens.set(running.manager.tokens());
    running.wait_for("got a certificate");
    let text = stored(&settings.folder, "a.example");
    pebble.down();
    // Simulates a reload before the order has stored the certificate.
    running.manager.replace_sites(&[]).expect("no names");
    let file = settings.folder.join("names/a.example/certificate.pem");
    fs::remove_file(&file).expect("a file");
    let mut other = settings;
    other.contact = vec!["mailto:other@example.org".into()];
    running.succeed(other);
    running.wait_for("a.example: no certificate");
    fs::write(&file, text).expect("a file");
    running.manager.check_files();
    wait_until("the certificate", || {
        running.store.current().covers("a.example").then_some(())
    });
    let lines = running.wait_for("from an order made before the reload");
    let others = lines.iter().filter(|line| line.contains("another process"));
    assert_eq!(others.count(), 0, "{lines:#?}");
}
