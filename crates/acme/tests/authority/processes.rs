//! If two processes need the same certificate at the same time, only one of them orders it.

use std::process::{Child, Command, Stdio};

use lowroad_acme::{AcmeSettings, AuthoritySettings, ChallengeMethod, DnsHook};

use crate::challenges::hook;
use crate::kit::pebble::{Options, Pebble};
use crate::kit::{Folder, Running, names};

const SETTINGS: &str = "LOWROAD_ACME_CHILD";

/// Starts a child process with these settings: folder, directory URL, roots, hook.
fn child(settings: &AcmeSettings, hook: &DnsHook) -> Child {
    let authority = &settings.authorities[0];
    let roots = authority.roots.as_ref().expect("roots");
    let child_settings = [
        settings.folder.display().to_string(),
        authority.directory.clone(),
        roots.display().to_string(),
        hook.command[1].clone(),
    ];
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::child_process_main", "--nocapture"])
        .env(SETTINGS, child_settings.join("\n"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// The main function of the child processes in the test below; otherwise this test does nothing.
#[test]
fn child_process_main() {
    let Ok(child_settings) = std::env::var(SETTINGS) else {
        return;
    };
    let child_settings: Vec<&str> = child_settings.split('\n').collect();
    let mut settings = AcmeSettings::new(child_settings[0]);
    settings.terms_agreed = true;
    settings.authorities = vec![AuthoritySettings {
        directory: child_settings[1].into(),
        roots: Some(child_settings[2].into()),
        ..AuthoritySettings::default()
    }];
    settings.challenge = ChallengeMethod::Dns01(DnsHook {
        command: vec!["/bin/sh".into(), child_settings[3].into()],
        timeout_s: 60,
    });
    settings.sites = vec![names(&["a.example"])];
    let running = Running::start(settings);
    let lines = running.wait_for("got a certificate");
    for line in lines {
        println!("said: {line}");
    }
}

#[test]
fn two_processes_place_one_order() {
    let Some(pebble) = Pebble::start("two_processes_place_one_order", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let hook = hook(&pebble, &folder);
    let children = [child(&settings, &hook), child(&settings, &hook)];
    let outputs = children.map(|child| {
        let output = child.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    });
    let count_with = |text: &str| {
        outputs
            .iter()
            .filter(|outputs| outputs.contains(text))
            .count()
    };
    assert_eq!(count_with("got a certificate from"), 1, "{outputs:#?}");
    assert_eq!(
        count_with("another process got a certificate"),
        1,
        "{outputs:#?}"
    );
    assert_eq!(pebble.count("Added order"), 1);
    assert_eq!(pebble.count("There are now 1 accounts"), 1);
}
