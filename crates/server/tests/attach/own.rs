//! `lowroad serve --softirq`: the server's own level.

use std::fs;
use std::process::{Command, Stdio};

use lowroad_softirq::layout::REASONS;
use lowroad_softirq::level::Level;
use lowroad_testkit::net::{DEVICE, Manglings, Path, Site};
use lowroad_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::attached::{get, one, place, server_v4};
use crate::skipped;

#[test]
fn our_own_server_answers_below_itself() {
    if skipped("our_own_server_answers_below_itself", &[]) {
        return;
    }
    let path = Path::new(&Manglings::default(), 1500).expect("a path");
    let site = Site::new(701, &[100]);
    let page = site.root().join("page.txt");
    fs::write(&page, "old").expect("a page");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command
        .arg("serve")
        .arg(site.root())
        .args(["--listen", "*:80", "--softirq", DEVICE])
        .stdout(Stdio::null());
    let mut server = path.server.spawn(command).expect("lowroad starts");
    let folder = place(&path.server, 80);
    let level = wait_until("the level", || {
        let ended = server.child().try_wait().expect("a child of ours");
        assert_eq!(ended, None, "the server ended");
        let level = Level::open(&folder).ok()?;
        (level.control().heartbeat_ns > 0).then_some(level)
    });
    let hits = || {
        let at = REASONS.iter().position(|(name, _)| *name == "answer_hit");
        level.counters().expect("counters")[at.expect("a reason's name")]
    };
    let ask = || path.client.enter(|| one(server_v4(80), &get("/page.txt")));
    let before = hits();
    let hit = wait_until("a hit", || {
        let response = ask();
        (hits() > before).then_some(response)
    });
    assert_eq!((hit.status, hit.text()), (200, "old".into()));
    assert_eq!(hit.field("age"), None, "it is the origin's own answer");

    fs::write(&page, "new").expect("a page");
    wait_until("the change", || (ask().text() == "new").then_some(()));
    let before = hits();
    wait_until("a hit of the new page", || {
        assert_eq!(ask().text(), "new");
        (hits() > before).then_some(())
    });

    let pid = Pid::from_child(server.child());
    kill_process(pid, Signal::TERM).expect("it lives");
    let status = server.child().wait().expect("a child of ours");
    assert!(status.success(), "{status}");
    assert!(!folder.exists(), "the level has gone before the server");
}
