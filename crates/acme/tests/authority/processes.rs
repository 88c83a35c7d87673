//! Two processes need the same certificate at the same time: it is ordered once.

use std::process::{Child, Command, Stdio};

use lowroad_acme::{AcmeSettings, AuthoritySettings, ChallengeMethod, DnsHook};

use crate::challenges::hook;
use crate::kit::pebble::{Options, Pebble};
use crate::kit::{Folder, Running, names};

const SETTINGS: &str = "LOWROAD_ACME_CHILD";

/// The settings of a child: folder, directory, roots, hook.
fn child(settings: &AcmeSettings, hook: &DnsHook) -> Child {
    let authority = &settings.authorities[0];
    let roots = authority.roots.as_ref().expect("roots");
    let told = [
        settings.folder.display().to_string(),
        authority.directory.clone(),
        roots.display().to_string(),
        hook.command[1].clone(),
    ];
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::as_a_child", "--nocapture"])
        .env(SETTINGS, told.join("\n"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// The child process of the test below; otherwise does nothing.
#[test]
fn as_a_child() {
    let Ok(told) = std::env::var(SETTINGS) else {
        return;
    };
    let told: Vec<&str> = told.split('\n').collect();
    let mut settings = AcmeSettings::new(told[0]);
    settings.terms_agreed = true;
    settings.authorities = vec![AuthoritySettings {
        directory: told[1].into(),
        roots: Some(told[2].into()),
        ..AuthoritySettings::default()
    }];
    settings.challenge = ChallengeMethod::Dns01(DnsHook {
        command: vec!["/bin/sh".into(), told[3].into()],
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
fn two_processes_order_once() {
    let Some(pebble) = Pebble::start("two_processes_order_once", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let settings = pebble.settings(&folder, &[&["a.example"]]);
    let hook = hook(&pebble, &folder);
    let children = [child(&settings, &hook), child(&settings, &hook)];
    let said = children.map(|child| {
        let output = child.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    });
    let by = |text: &str| said.iter().filter(|said| said.contains(text)).count();
    assert_eq!(by("got a certificate from"), 1, "{said:#?}");
    assert_eq!(by("another process got a certificate"), 1, "{said:#?}");
    assert_eq!(pebble.count("Added order"), 1);
    assert_eq!(pebble.count("There are now 1 accounts"), 1);
}
