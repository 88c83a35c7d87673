//! The commands for a level in front of a port (status, top, explain, purge and doctor) in network namespaces. The test
//! `attach` checks the level's responses.

mod daemon;
mod ends;
mod mounts;
mod place;

use std::process::{Command, Stdio};

use lowroad_testkit::net::{DEVICE, NetNamespace};
use lowroad_testkit::wait_until;

use place::{HOST, PROGRAM, Place, can_run};

#[test]
fn status_shows_levels_and_their_counters() {
    if !can_run("status_shows_levels_and_their_counters") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    place.get("/small", "Cookie: a=b\r\n");
    let text = place.command_output(&["status"]);
    for part in [
        "ports                  8080\n",
        "eth0, TC ingress",
        "mode                   serving",
        "answer_hit         a stored response",
        "up_cookie          a Cookie",
        "published              1 of 8,192",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let pid = format!("process {}, heartbeat", place.attached.pid());
    assert!(text.contains(&pid), "{text}");
    let json = place.command_output(&["status", "--json", "--stats"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let level = &json["levels"][0];
    assert_eq!(level["ports"][0], 8080);
    assert_eq!(level["daemon"]["alive"], true);
    assert_eq!(level["published"]["now"], 1);
    assert!(
        level["counters"]["answer_hit"].as_u64() >= Some(1),
        "{json}"
    );
    assert_eq!(level["runs"][0]["link"], "out-eth0");
    assert_eq!(level["runs"][1]["link"], "tc-eth0");
}

#[test]
fn status_and_top_show_answer_shares() {
    if !can_run("status_and_top_show_answer_shares") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    let first = place.shares();
    place.warm("/small");
    let before = place.shares();
    // So far the server has answered all but one request; these include requests of the daemon.
    let warmed = |name: &str| before["server"][name].as_u64() > first["server"][name].as_u64();
    assert!(warmed("requests") && warmed("bytes"), "{before}");
    let (hits, misses) = (30, 10);
    let mut len = 0;
    for _ in 0..hits {
        let response = place.get("/small", "");
        len += response.head.len() + response.body.len();
    }
    for _ in 0..misses {
        place.get("/small", "Cookie: a=b\r\n");
    }
    let after = place.shares();
    let grew = |of: &str, name: &str| {
        after[of][name].as_u64().expect("a number") - before[of][name].as_u64().expect("a number")
    };
    assert_eq!(grew("answered", "requests"), hits);
    assert_eq!(usize::try_from(grew("answered", "bytes")), Ok(len));
    // The daemon refreshes responses that are in use at 80 % of their lifetime.
    assert!((misses..misses + 3).contains(&grew("server", "requests")));
    let up = |shares: &serde_json::Value| shares["handed_up"].as_u64().expect("a number");
    assert_eq!(up(&after) - up(&before), misses);
    let share = after["requests"].as_f64().expect("a share");
    let (here, all) = (
        after["answered"]["requests"].as_u64(),
        after["server"]["requests"].as_u64(),
    );
    let (here, all) = (here.expect("a number"), all.expect("a number"));
    let wanted = f64::from(u32::try_from(here).expect("few"))
        / f64::from(u32::try_from(here + all).expect("few"));
    assert!((share - wanted).abs() < 1e-9, "{after}");
    let text = place.command_output(&["status"]);
    let requests = format!(
        "{here} answered here ({:.1} %), {all} by the server (process ",
        100.0 * share
    );
    for part in [
        &*requests,
        "10  up_cookie          `attach --ignore-cookies`, if pages",
        "most frequent reasons not to answer here",
        "here for ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    wait_until("a page that is too long", || {
        place.get("/large", "");
        let text = place.command_output(&["status"]);
        text.contains("  size               longer than the 14,480 bytes")
            .then_some(())
    });
    let text = place.command_output(&["top", "--count", "1", "--interval", "0.1"]);
    assert!(text.contains("requests: 0 answered here ("), "{text}");
}

#[test]
fn purged_response_is_not_answered_by_the_fast_path() {
    if !can_run("purged_response_is_not_answered_by_the_fast_path") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    place.warm("/other");
    let url = format!("http://{HOST}/small");
    // The purge includes the server, which runs in this namespace, too.
    let said = place.command_output(&["purge", &url]);
    assert!(
        said.ends_with("; purged 1 response of the levels below\n"),
        "{said}"
    );
    // Here, responses from the server's cache have no Age.
    assert_eq!(place.get("/small", "").field("age"), None);
    place.warm("/small");
    let nothing = place.command_output(&["purge", "http://another/*"]);
    assert!(
        nothing.starts_with("no stored response matched"),
        "{nothing}"
    );
    place.warm("/other");
    let prefix = format!("{HOST}/*");
    let other = place.command_output(&["purge", &prefix, "--port", "8080"]);
    assert!(other.contains("purged "), "{other}");
    assert_eq!(place.get("/other", "").field("age"), None);
    // Levels do not know cache tags, so all responses of the server are removed.
    place.warm("/small");
    let mut lowroad = Command::new(PROGRAM);
    place.server.prepare(lowroad.args(["purge", "tag:any"]));
    let tagged = lowroad.output().expect("the program starts");
    let said = String::from_utf8_lossy(&tagged.stdout).into_owned();
    assert!(said.contains("purged "), "{tagged:?}");
    assert_eq!(place.get("/small", "").field("age"), None);
    let wrong = place.output(&["purge", "all", "--port", "81"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && said.contains("does not listen at port 81"),
        "{said}"
    );
}

#[test]
fn explain_names_the_answering_level_and_reason() {
    if !can_run("explain_names_the_answering_level_and_reason") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    let url = |path: &str| format!("http://{HOST}{path}");
    let text = place.command_output(&["explain", &url("/small")]);
    assert!(
        text.contains("not now: it is published when it is requested again"),
        "{text}"
    );
    // The Date of the response may be of the previous second.
    let lifetimes = ["60 s, by --ttl", "59 s, by --ttl"];
    assert!(lifetimes.iter().any(|said| text.contains(said)), "{text}");
    place.warm("/small");
    let text = place.command_output(&["explain", &url("/small")]);
    assert!(
        text.contains("yes, from the segment of the request"),
        "{text}"
    );
    let text = place.command_output(&["explain", &url("/small"), "-H", "Accept-Encoding: br"]);
    assert!(text.contains("published also for"), "{text}");
    let text = place.command_output(&["explain", &url("/large")]);
    assert!(text.contains("at most 4344"), "{text}");
    let text = place.command_output(&["explain", &url("/small"), "-H", "Cookie: a=b"]);
    assert!(
        text.contains("no: a Cookie (Cookie: a=b): passed to the server"),
        "{text}"
    );
}

#[test]
fn explain_gives_the_ebpf_punt_reasons() {
    if !can_run("explain_gives_the_ebpf_punt_reasons") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    for (reason, said, field) in [
        ("answer_hit", "yes, from the segment", "Accept: */*"),
        ("up_miss", "not now", "Accept-Encoding: x"),
        ("up_cookie", "a Cookie", "COOKIE: a"),
        ("up_field", "(Range: ", "Range: bytes=0-1"),
        ("up_field", "(Authorization: ", "Authorization: x"),
        ("up_field", "(Cache-Control: ", "Cache-Control: max-age=0"),
        (
            "up_field",
            "(If-Unmodified-Since: ",
            "If-Unmodified-Since: x",
        ),
        ("up_field", "(HTTP2-Settings: ", "HTTP2-Settings: x"),
        ("up_field", "(Connection: ", "Connection: foo"),
        // The client sends two, but explain replaces the URL's.
        ("up_host", "not now", "Host: b"),
        ("up_syntax", "(X_Y: z)", "X_Y: z"),
        ("answer_hit", "yes, from the segment", "X-Y: z"),
    ] {
        let before = place.counter(reason);
        place.get("/small", &format!("{field}\r\n"));
        assert_eq!(place.counter(reason), before + 1, "{field}");
        let url = format!("{HOST}/small");
        let text = place.command_output(&["explain", &url, "-H", field]);
        assert!(text.contains(said), "{field}: {text}");
    }
}

#[test]
fn explain_reports_missing_freshness_lifetime() {
    if !can_run("explain_reports_missing_freshness_lifetime") {
        return;
    }
    let place = Place::new(&[]);
    let text = place.command_output(&["explain", &format!("{HOST}/missing")]);
    assert!(
        text.contains("no: the response has no freshness lifetime"),
        "{text}"
    );
}

#[test]
fn top_writes_a_block_per_interval() {
    if !can_run("top_writes_a_block_per_interval") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let text = place.command_output(&["top", "--count", "2", "--interval", "0.1"]);
    assert_eq!(text.matches("hit share").count(), 2, "{text}");
    assert!(text.contains("http://10.77.0.2:8080/small"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn doctor_checks_machine_interface_and_port() {
    if !can_run("doctor_checks_machine_interface_and_port") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    let text = place.command_output(&["doctor", "--port", "8080"]);
    for part in [
        "eth0: native XDP",
        "eth0: TC ingress",
        "port 8080",
        "veth leaves no room",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let text = place.command_output(&["doctor", "--interface", DEVICE, "--try"]);
    assert!(text.contains("tried"), "{text}");
    place
        .server
        .set("ipv4/tcp_syncookies", "0")
        .expect("root may");
    let output = place.output(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("sysctl -w net.ipv4.tcp_syncookies=1"),
        "{text}"
    );
}

#[test]
fn commands_fail_if_nothing_is_attached() {
    if !can_run("commands_fail_if_nothing_is_attached") {
        return;
    }
    let namespace = NetNamespace::new("empty").expect("a namespace");
    for command in [&["purge", "all"][..], &["status"], &["top", "--count", "1"]] {
        let mut lowroad = Command::new(PROGRAM);
        lowroad.args(command).args(["--netns", &namespace.path()]);
        let output = lowroad.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command:?}");
        assert!(
            said.contains("nothing is attached here"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn closed_stdout_pipe_is_not_an_error() {
    if !can_run("closed_stdout_pipe_is_not_an_error") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let url = format!("http://{HOST}/small");
    for arguments in [
        &["explain", &url][..],
        &["status"],
        &["status", "--json"],
        &["top", "--count", "2", "--interval", "0.1"],
        &["doctor"],
        &["purge", "all"],
        &["detach", "8080", "--drain", "1"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = place.command(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn();
        let output = child.and_then(std::process::Child::wait_with_output);
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.is_empty(),
            "{arguments:?}: {said}"
        );
    }
}
