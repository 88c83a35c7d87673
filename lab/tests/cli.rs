//! The command line of the lab: exit status, output, Ctrl-C.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use lowroad_testkit::TempFolder;
use rustix::process::{Pid, Signal, kill_process};

const LAB: &str = env!("CARGO_BIN_EXE_lowroad-lab");

/// Answers every request with the same bytes.
fn server(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() && stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn lab(arguments: &[&str]) -> Output {
    let output = Command::new(LAB).args(arguments).output();
    output.expect("the program of this test")
}

fn load(address: SocketAddr, more: &[&str]) -> Output {
    let url = format!("http://{address}/");
    let mut arguments = vec!["load", &url, "-c", "2", "-d", "5s"];
    arguments.extend(more);
    lab(&arguments)
}

fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn load_prints_figures_as_text_or_json() {
    let address = server(HELLO);
    let text = load(address, &["-n", "50", "-q"]);
    assert!(text.status.success(), "{text:?}");
    assert!(text.stderr.is_empty(), "{text:?}");
    let printed = String::from_utf8_lossy(&text.stdout);
    assert!(printed.contains("(50 right answers in"), "{printed}");
    let json = load(address, &["-n", "50", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(found["requests"], 50);
    assert!(found["requests_per_s"].as_f64().expect("a number") > 0.0);
    assert!(found["latency_us"]["p99"].is_u64());
    assert_eq!(found["errors_by_kind"], serde_json::json!({}));
}

#[test]
fn errors_are_explained_and_set_the_exit_status() {
    let missing = server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let output = load(missing, &["-n", "10", "-q"]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors_of(&output);
    assert!(
        said.contains("10 times: an answer had an unexpected status"),
        "{said}"
    );
    assert!(said.contains("0 right answers were counted"), "{said}");

    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = nobody.local_addr().expect("its address");
    drop(nobody);
    let output = load(address, &["-q"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors_of(&output).contains("refused the connection"),
        "{output:?}"
    );
}

#[test]
fn responses_are_compared_with_files_under_root() {
    let folder = TempFolder::new();
    folder.file("right/index.html", "hello");
    folder.file("wrong/index.html", "jello");
    let address = server(HELLO);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let right = load(address, &["-n", "10", "-q", "--root", &path("right")]);
    assert!(right.status.success(), "{right:?}");
    let wrong = load(address, &["-n", "10", "-q", "--root", &path("wrong")]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        errors_of(&wrong).contains("content of an answer differed from the file"),
        "{wrong:?}"
    );
    let none = load(address, &["-n", "10", "-q", "--root", &path("none")]);
    assert!(errors_of(&none).contains("can't read"), "{none:?}");
}

#[test]
fn invalid_arguments_are_explained() {
    for (arguments, says) in [
        (vec!["load", "localhost"], "begins with http://"),
        (
            vec!["load", "http://a/", "https://a/"],
            "must be of one server",
        ),
        (vec!["load", "http://127.0.0.1/", "-c", "0"], "at least 1"),
        (
            vec!["load", "http://127.0.0.1/", "--rate", "0"],
            "more than 0",
        ),
        (vec!["load", "http://127.0.0.1/", "-d", "soon"], "10s"),
        (vec!["load", "http://127.0.0.1/", "-H", "x"], "Name: value"),
        (
            vec!["load", "http://127.0.0.1/", "--workload", "specweb98"],
            "specweb99",
        ),
        (
            vec!["load", "http://127.0.0.1/", "--set", "a=b"],
            "--workload",
        ),
        (vec!["load", "http://no.such.name.invalid/"], "can't find"),
        (
            vec!["load", "https://127.0.0.1/", "--ca", "/no/such.pem"],
            "no certificates",
        ),
        (
            vec!["files", "specweb99", "/no/such/folder", "--set", "dirs=x"],
            "dirs",
        ),
        (vec!["run", "no-such-experiment"], "no-such-experiment"),
    ] {
        let output = lab(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = errors_of(&output);
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn low_descriptor_limit_is_reported_before_the_run() {
    let script = format!("ulimit -n 100 && exec {LAB} load http://127.0.0.1:1/ -c 500");
    let output = Command::new("sh").args(["-c", &script]).output();
    let said = errors_of(&output.expect("a shell"));
    assert!(
        said.contains("500 connections need 564 descriptors"),
        "{said}"
    );
}

#[test]
fn sigint_ends_the_run_with_partial_figures() {
    let url = format!("http://{}/", server(HELLO));
    let mut child: Child = Command::new(LAB)
        .args(["load", &url, "-c", "2", "-d", "60s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program of this test");
    // The first progress line shows that the run has started.
    let mut progress = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    progress.read_line(&mut line).expect("progress");
    assert!(line.contains("requests/s"), "{line}");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("it runs");
    let mut figures = String::new();
    let mut out = child.stdout.take().expect("a pipe");
    out.read_to_string(&mut figures).expect("text");
    assert_eq!(child.wait().expect("its end").code(), Some(130));
    assert!(figures.contains("right answers in"), "{figures}");
}

/// Runs a rehearsal of two counted experiments, with several measurements in parallel.
fn rehearse(folder: &TempFolder, results: &str) -> Output {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let experiments = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");
    lab(&[
        "run",
        "002-figure-4",
        "002-figure-2",
        "--experiments",
        experiments,
        "--measure",
        "instructions",
        "--rehearse",
        "--jobs",
        "3",
        "--results",
        &path(results),
        "--data",
        &path("data"),
    ])
}

#[test]
fn parallel_measurements_share_stored_results() {
    let folder = TempFolder::new();
    let first = rehearse(&folder, "results");
    assert!(first.status.success(), "{}", errors_of(&first));
    let said = errors_of(&first);
    let measured = said
        .lines()
        .filter(|line| line.contains("(repeat "))
        .count();
    // The total grows when repeats disagree.
    let all = said
        .lines()
        .filter_map(|line| line.split_once(']')?.0.rsplit_once('/'));
    let all = all.filter_map(|(_, all)| all.parse::<usize>().ok()).max();
    assert!(
        measured > 10 && all.is_some_and(|all| all >= measured),
        "{said}"
    );
    for name in ["002-figure-4", "002-figure-2"] {
        let file = folder
            .path()
            .join(format!("results/{name}-by-instructions.jsonl"));
        let text = std::fs::read_to_string(file).expect("results");
        assert!(text.lines().count() > 5, "{text}");
    }
    let again = errors_of(&rehearse(&folder, "results"));
    assert!(
        !again.contains("requests/10"),
        "nothing is measured twice: {again}"
    );
}

#[test]
fn report_against_compares_two_runs_by_point() {
    let folder = TempFolder::new();
    for results in ["one", "other"] {
        assert!(rehearse(&folder, results).status.success());
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let experiments = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");
    let compare = |other: &str| {
        let results = path("one");
        let other = path(other);
        let from = ["report", "--experiments", experiments, "--results"];
        lab(&[&from[..], &[&results, "--against", &other]].concat())
    };
    let output = compare("other");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("others: ") && text.contains("points are within 3 %"),
        "{text}"
    );
    let nothing = compare("nowhere");
    assert!(!nothing.status.success());
    assert!(errors_of(&nothing).contains("no point in common"));
}
