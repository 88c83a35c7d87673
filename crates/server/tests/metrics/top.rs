//! `lowroad top` with a real server, on a pseudoterminal and as text.

use std::process::{Command, Stdio};

use lowroad_testkit::TestServer;
use lowroad_testkit::pseudo_terminal::PseudoTerminal;

use crate::support::{ObservedServer, PROGRAM, run};

/// A URL with the C1 control character CSI, which some terminals obey.
const EVIL: &str = "/\u{9b}31m";

/// Sends requests, so that the views have rows.
fn make_requests(observed: &ObservedServer) {
    for _ in 0..4 {
        assert_eq!(observed.get("a.example", "/app/x?q=/stored"), 200);
    }
    assert_eq!(observed.get("a.example", "/down/x"), 502);
    assert!(observed.get("a.example", EVIL) >= 400);
}

#[test]
fn screen_shows_the_server_and_follows_keys() {
    let mut observed = ObservedServer::start();
    make_requests(&observed);
    let socket = observed.socket().display().to_string();
    let mut screen = PseudoTerminal::start(PROGRAM, &["top", "--admin", &socket], 100, 30);
    for word in [
        "live",
        "http://a.example/app/x?q=/stored",
        "softirq",
        "req/s",
    ] {
        screen.wait_for_text(word);
    }
    // A change of the size draws the whole screen.
    screen.forget();
    screen.resize(40, 12);
    screen.wait_for_text("handler");
    let press = |screen: &mut PseudoTerminal, keys: &str, word: &str| {
        screen.forget();
        // Ctrl-L draws the whole screen; otherwise only changed characters would be in the output.
        screen.press(keys);
        screen.press("\u{c}");
        screen.wait_for_text(word);
    };
    press(&mut screen, "?", "half-life");
    // Any key closes the help.
    press(&mut screen, " ", "live");
    screen.resize(110, 30);
    press(&mut screen, "3", "http://127.0.0.1:1");
    press(&mut screen, "1/nothing\r", "contains");
    // The server ends, and another one takes its place.
    assert_eq!(
        observed
            .call("POST", "/v1/stop", crate::support::FULL)
            .status,
        200
    );
    observed.server.wait_for_end();
    screen.wait_for_text("trying");
    screen.forget();
    let mut command = Command::new(PROGRAM);
    command.env("XDG_DATA_HOME", observed.folder.path());
    command
        .args(["run", "-c"])
        .arg(observed.folder.path().join("lowroad.toml"));
    command.stdin(Stdio::null());
    let _restarted = TestServer::spawn(command);
    screen.wait_for_text("live");
    screen.press(" ");
    screen.wait_for_text("paused");
    assert!(!screen.text().contains('\u{9b}'));
    screen.press("q");
    assert!(screen.wait_for_end().success());
    // The terminal has its previous screen again.
    screen.wait_for_text("\u{1b}[?1049l");
}

#[test]
fn huge_terminal_is_drawn_in_part() {
    let observed = ObservedServer::start();
    let socket = observed.socket().display().to_string();
    let mut screen = PseudoTerminal::start(PROGRAM, &["top", "--admin", &socket], 100, 30);
    screen.wait_for_text("live");
    // A frame of all cells would need more memory than the machine has.
    screen.resize(60_000, 60_000);
    screen.forget();
    screen.press("?\u{c}");
    screen.wait_for_text("half-life");
    screen.press("\u{3}");
    assert!(screen.wait_for_end().success());
}

#[test]
fn output_that_is_no_terminal_gets_one_report() {
    let observed = ObservedServer::start();
    make_requests(&observed);
    let socket = observed.socket().display().to_string();
    let output = run(Command::new(PROGRAM).args(["top", "--admin", &socket]), "");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in [
        "\nlevels\n",
        "\n  softirq  not configured\n",
        "\n  http://a.example/app/x?q=/stored ",
        "\norigins\n",
        "\nfast path\n  not visible: ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains(['\u{9b}', '\u{1b}']), "{text}");
    assert_eq!(text.matches("hottest URLs").count(), 1);
}

#[test]
fn server_that_does_not_run_is_an_error() {
    let missing = ["top", "--once", "--admin", "/nonexistent/admin.sock"];
    let output = run(Command::new(PROGRAM).args(missing), "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("/nonexistent/admin.sock"), "{text}");
}
