//! Tests that the end of an application leaves no processes or threads. This is a separate test process, since the test
//! counts the threads of its process.

use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowroad_child_processes::ChildNotice;
use lowroad_child_processes::supervisor::{ApplicationSpec, ApplicationSupervisor};
use lowroad_testkit::wait_until;

/// Number of ends of the application after which the test checks.
const ENDS: usize = 4;

/// Starts two processes that leave the application's group and hold its error output open: one with the mark, and one
/// with a cleared environment. Prints their pids.
const SCRIPT: &str = "
known=$(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null' &)
unknown=$(setsid env -i sh -c 'echo $$; exec sleep 1000 >/dev/null' &)
echo known $known
echo unknown $unknown
";

type Lines = Arc<Mutex<Vec<String>>>;

/// The remainder of each line with this prefix.
fn after(lines: &Lines, front: &str) -> Vec<String> {
    let lines = lines.lock().expect("a lock");
    let found = lines.iter().filter_map(|line| line.strip_prefix(front));
    found.map(String::from).collect()
}

/// Whether the process with this pid still runs the script's sleep.
fn is_running(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x001000\0")
}

/// The number of supervising threads.
fn threads() -> usize {
    let all = fs::read_dir("/proc/self/task").expect("our threads");
    let names = all
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "supervise").count()
}

#[test]
fn processes_outside_the_group_are_killed_with_the_application() {
    let lines = Lines::default();
    let to = lines.clone();
    let notice: ChildNotice = Arc::new(move |line| to.lock().expect("a lock").push(line.into()));
    let application = ApplicationSpec {
        command: ["sh", "-c", SCRIPT].map(String::from).into(),
        folder: None,
        env: Vec::new(),
        stop_timeout: Duration::from_secs(5),
    };
    let supervisor = ApplicationSupervisor::start(application, notice).expect("a thread");
    wait_until("its ends", || {
        let messages = after(&lines, "sh left 1 processes in other process groups");
        (messages.len() >= ENDS).then_some(())
    });
    assert_eq!(threads(), 1);
    drop(supervisor);
    wait_until("all threads to end", || (threads() == 0).then_some(()));
    let (known, unknown) = (after(&lines, "known "), after(&lines, "unknown "));
    let running_count = |pids: &[String]| pids.iter().filter(|pid| is_running(pid)).count();
    let counts = (running_count(&known), running_count(&unknown));
    // The supervisor can't find these, so the test ends them.
    let _ = Command::new("kill")
        .args(["-s", "KILL"])
        .args(&unknown)
        .status();
    assert!(known.len() >= ENDS, "{known:?}");
    assert_eq!(counts, (0, unknown.len()));
}
