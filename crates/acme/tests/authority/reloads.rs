//! Reloads: other names or settings while certificates are in use, and while they are ordered.

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
fn a_reload_keeps_the_certificate_in_use_of_a_damaged_file() {
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
        // Otherwise the check at the start would find the damage, and its log line could be lost with the manager.
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
    // With other names, this certificate is better than none.
    fs::remove_file(&file).expect("a file");
    let sites = [names(&["a.example", "b.example"])];
    running.manager.replace_sites(&sites).expect("names");
    assert!(running.store.current().covers("a.example"));
    running.wait_for_some("it was restored", 3);
}

/// As when moving from a test authority to a real one: the other folder's certificate stays in use until there is a
/// new one.
#[test]
fn another_folder_begins_anew() {
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

/// The certificate in use is newer than its file, as after a full disk.
#[test]
fn a_reload_keeps_a_certificate_that_is_newer_than_its_file() {
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

/// The site is removed and restored, or gets other names, while the authority validates: one order, and its certificate
/// counts as this process's.
#[test]
fn a_reload_during_an_order_waits_for_it() {
    let test = "a_reload_during_an_order_waits_for_it";
    let Some(mut pebble) = Pebble::start(test, Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example", "b.example"]]);
    let running = Running::start(settings);
    let (asked_sender, asked) = mpsc::channel();
    let (go_sender, go) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new((asked_sender, go)));
    let tokens = running.manager.tokens();
    web::serve(pebble.http.take().expect("a port"), move |_, target| {
        {
            // Holds up the authority until the test has reloaded.
            let gate = gate.lock().expect("a gate");
            let _ = gate.0.send(());
            let _ = gate.1.recv();
        }
        let token = target.strip_prefix(PATH_PREFIX);
        let answer = token.and_then(|token| tokens.find(token));
        Answer::new(200, answer.as_deref().unwrap_or_default())
    });
    asked.recv().expect("a question");
    running.manager.replace_sites(&[]).expect("no names");
    let sites = [names(&["a.example"])];
    running.manager.replace_sites(&sites).expect("names");
    running.wait_until_idle();
    assert_eq!(running.count("acme.orders"), 1);
    drop(go_sender);
    running.wait_for("a.example: got a certificate from");
    assert!(running.store.current().covers("a.example"));
    assert_eq!(pebble.count("Added order"), 1);
    assert_eq!(running.lines().len(), 1, "{:#?}", running.lines());
}

/// A certificate ordered by this process and found by a manager in the folder does not count as another process's.
#[test]
fn a_certificate_of_this_process_is_not_anothers() {
    let test = "a_certificate_of_this_process_is_not_anothers";
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
    // As if the reload came before the order stored it.
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
