//! The hosted image with several cores, each a thread with a queue of the tap device. The responses are right with any
//! core as the receiver of a frame, and the status includes all cores.

use std::process::Command;
use std::thread;

use lowroad_testkit::net::{NetNamespace, is_installed};
use lowroad_testkit::{TempFolder, TestClient, skip, wait_until};

use crate::database::{Database, URL, site as site_of_pages};
use crate::hosted::{Hosted, IP, can_run};
use crate::place::{PROGRAM, RunningCommand};

const CLIENTS: usize = 60;
const STATUS: [&str; 2] = ["--status-from", "198.18.0.1"];

fn start(site: &TempFolder, cores: &str, more: &[&str]) -> Hosted {
    let arguments = [&["--cores", cores], &STATUS[..], more].concat();
    Hosted::start(site, &arguments)
}

fn site() -> TempFolder {
    let site = TempFolder::new();
    site.file("index.html", "<p>small");
    let long = (0..400_000u32).map(|at| (at.wrapping_mul(at) >> 9) as u8);
    site.file("long.bin", long.collect::<Vec<u8>>());
    site
}

fn number(client: &mut TestClient, name: &str) -> u64 {
    let status = client.get("/.lowroad/status", "").text().to_string();
    let mut lines = status.lines().map(|line| line.split_once(' '));
    let line = lines.find_map(|line| line.filter(|line| line.0 == name));
    let (_, number) = line.unwrap_or_else(|| panic!("no {name} in {status}"));
    number.trim().parse().expect("a number")
}

#[test]
fn several_cores_send_complete_responses() {
    if !can_run("several_cores_send_complete_responses") {
        return;
    }
    let site = site();
    let long = std::fs::read(site.path().join("long.bin")).expect("a file");
    for cores in ["2", "5"] {
        let hosted = start(&site, cores, &[]);
        let clients: Vec<TestClient> = (0..CLIENTS).map(|_| hosted.connect()).collect();
        thread::scope(|scope| {
            for mut client in clients {
                let long = &long;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let small = client.get("/", "");
                        assert_eq!((small.status, &small.body[..]), (200, &b"<p>small"[..]));
                        let got = client.get("/long.bin", "");
                        assert!(got.status == 200 && got.body == *long, "other bytes");
                    }
                });
            }
        });
        let mut client = hosted.connect();
        assert_eq!(number(&mut client, "cores").to_string(), cores);
        // The kernel chooses the queue for the first frames of a connection, which is often the wrong one. A few frames
        // are ARP.
        let forwarded = number(&mut client, "cores_frames_forwarded");
        assert!(forwarded > CLIENTS as u64 / 3, "{forwarded}");
        // The counters of the other cores become visible with a delay.
        let mut asked = CLIENTS as u64 * 10 + 2;
        wait_until("the counters of all cores", || {
            let requests = number(&mut client, "http_requests");
            assert!(requests <= asked, "{requests} of {asked}");
            let is_all = requests == asked;
            asked += 1;
            is_all.then_some(())
        });
        let log = client.get("/.lowroad/log", "").text().to_string();
        assert!(
            log.contains("\"GET /.lowroad/status HTTP/1.1\" 200"),
            "{log}"
        );
        assert!(log.matches("\"GET /long.bin HTTP/1.1\" 200 400000").count() > 100);
        assert!(hosted.stop().success());
    }
}

#[test]
fn load_generators_report_no_errors_with_two_cores() {
    let mut hosted = None;
    let site = site();
    for (program, arguments, fine) in [
        (
            "ab",
            &["-q", "-n", "2000", "-c", "16"][..],
            "Failed requests:        0",
        ),
        ("wrk", &["-t1", "-c16", "-d1s"], "requests in"),
        (
            "h2load",
            &["--h1", "-n5000", "-c16"],
            "5000 succeeded, 0 failed, 0 errored, 0 timeout",
        ),
    ] {
        let test = format!("load_generators_report_no_errors_with_two_cores ({program})");
        if !is_installed(program) {
            skip(&test, &format!("there is no {program}"));
            continue;
        }
        if !can_run(&test) {
            return;
        }
        let hosted = hosted.get_or_insert_with(|| start(&site, "2", &[]));
        let arguments = [arguments, &["http://198.18.0.2/"]].concat();
        let said = hosted.namespace.run(program, &arguments);
        let said = said.unwrap_or_else(|error| panic!("{error}"));
        assert!(said.contains(fine), "{said}");
        for words in ["Non-2xx", "Socket errors"] {
            assert!(!said.contains(words), "{said}");
        }
    }
}

#[test]
fn pages_are_rendered_on_all_cores() {
    let test = "pages_are_rendered_on_all_cores";
    if !can_run(test) {
        return;
    }
    let hosted = start(&site_of_pages(), "3", &["--database", URL]);
    let Some(_database) = Database::start(test, &hosted.namespace) else {
        return;
    };
    let mut client = hosted.connect();
    wait_until("a connection of each core", || {
        (client.get("/bare.lrp", "").status == 200 && number(&mut client, "database_connects") >= 3)
            .then_some(())
    });
    let clients: Vec<TestClient> = (0..30).map(|_| hosted.connect()).collect();
    // Each core has its own neighbour table, so each may have to resolve the address.
    thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || {
                for _ in 0..5 {
                    let page = wait_until("a page", || {
                        let page = client.get("/bare.lrp?size=10217", "");
                        (page.status == 200).then_some(page)
                    });
                    assert_eq!(page.body.len(), 10_217);
                }
            });
        }
    });
    wait_until("the statements of all cores", || {
        (number(&mut client, "database_statements") >= 150).then_some(())
    });
}

#[test]
fn device_with_one_queue_is_reported() {
    let test = "device_with_one_queue_is_reported";
    if !can_run(test) {
        return;
    }
    let site = site();
    let namespace = NetNamespace::new("queues").expect("root may");
    let add = |name: &str, more: &[&str]| {
        let add = ["tuntap", "add", "dev", name, "mode", "tap"];
        namespace
            .run("ip", &[&add[..], more].concat())
            .expect("ip does it");
    };
    add("one", &[]);
    add("more", &["multi_queue"]);
    for (tap, cores, wanted) in [("one", "2", "multi_queue"), ("more", "1", "--cores")] {
        let mut command = Command::new(PROGRAM);
        command.args([
            "image", "run", "--hosted", tap, "--ip", IP, "--cores", cores,
        ]);
        command.arg(site.path());
        namespace.prepare(&mut command);
        let done = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(wanted), "{said}");
    }
    // An existing multi-queue device is used without changes.
    let running = RunningCommand::start(on(&namespace, &site, "more", "--hosted"));
    running.wait_for("http://198.18.0.2/");
    assert!(running.stop().success());
}

/// `image run` with two cores on this tap device. `how` is `--hosted` or `--tap`.
fn on(namespace: &NetNamespace, site: &TempFolder, tap: &str, how: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["image", "run", how, tap, "--ip", IP, "--cores", "2"]);
    command.arg(site.path());
    namespace.prepare(&mut command);
    command
}

#[test]
fn device_is_refused_while_in_use() {
    let test = "device_is_refused_while_in_use";
    if !can_run(test) {
        return;
    }
    let site = site();
    let hosted = start(&site, "2", &[]);
    for how in ["--hosted", "--tap"] {
        let mut second = RunningCommand::start(on(&hosted.namespace, &site, "tap0", how));
        assert!(!second.end().success(), "{how}: both have the device");
    }
    // The first process still has the device and answers.
    assert_eq!(hosted.connect().get("/", "").status, 200);
    assert!(hosted.stop().success());
}
