//! The command `icount` with real guests: a guest boots, a figure is measured, and no process or device remains.

mod own;

use std::path::Path;
use std::process::{Command, Output};

use lowroad_testkit::{TempFolder, skip};

/// Whether a guest can be started on this machine; otherwise the test is skipped.
fn can_run(test: &str) -> bool {
    let needs = lowroad_lab::icount::needs::check();
    if let Err(why) = &needs {
        skip(test, why);
    }
    needs.is_ok()
}

fn icount(arguments: &[&str]) -> (Output, u32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad-lab"));
    command.arg("icount").args(arguments);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("our own program");
    let process = child.id();
    (child.wait_with_output().expect("its end"), process)
}

/// Counts Lowroad; its path is appended to the arguments `words`. Returns the output and the process id; `None` if the
/// test is skipped.
fn icount_lowroad(test: &str, words: &str) -> Option<(String, u32)> {
    let lowroad = own::for_guest(test)?.display().to_string();
    let words: Vec<&str> = words.split(' ').chain(["--lowroad", &lowroad]).collect();
    let (output, process) = icount(&words);
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("apt") && !output.status.success() {
        skip(test, &said); // no kernel of Debian's to be had here
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some((said, process))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that no network device and no QEMU of that process remains.
fn assert_nothing_left(process: u32) {
    let devices = std::fs::read_dir("/sys/class/net").expect("network devices");
    let names = devices.map(|entry| text(entry.expect("a device").file_name().as_encoded_bytes()));
    let left: Vec<String> = names
        .filter(|name| name.starts_with(&format!("ic{process}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    for entry in std::fs::read_dir("/proc").expect("processes") {
        let line = std::fs::read(entry.expect("a process").path().join("cmdline"));
        let line = text(&line.unwrap_or_default());
        assert!(
            !line.contains(&format!("ifname=ic{process}-")),
            "still there: {line}"
        );
    }
}

#[test]
fn icount_writes_a_figure_and_leaves_no_process() {
    let test = "icount: writes a figure and leaves no process";
    let folder = TempFolder::new();
    let json = folder.path().join("figures.json").display().to_string();
    let words = format!("--server lowroad --size 64 --mode ka -n 600 --json {json}");
    let Some((_, process)) = icount_lowroad(test, &words) else {
        return;
    };
    let rows = std::fs::read(&json).expect("the figures");
    let rows: serde_json::Value = serde_json::from_slice(&rows).expect("JSON");
    let figure = rows[0]["instructions"].as_u64().expect("a figure");
    // The upper bound allows a debug build, which needs several times the instructions of a release build.
    assert!((10_000..200_000).contains(&figure), "{figure} instructions");
    assert_nothing_left(process);
}

/// Times are virtual times of the guest, so they are independent of the machine's load.
#[test]
fn offered_rates_are_answered_in_virtual_time() {
    let test = "icount: offered rates are answered in virtual time";
    let words = "--server lowroad --size 64 --mode ka --rate 1k --rate 2k --rate 3k";
    let Some((said, process)) = icount_lowroad(test, words) else {
        return;
    };
    let lines = said.lines().filter(|line| line.starts_with("lowroad "));
    let lines: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, rate) in lines.iter().zip(["1000", "2000", "3000"]) {
        let [_, "ka", "64", "B", offered, answered, _, "%", p50, .., "0"] = line[..] else {
            panic!("{said}");
        };
        assert_eq!((offered, answered), (rate, rate), "{said}");
        // A request takes at least the time of its instructions, and at a load of a few per cent no request waits for
        // another.
        let p50_us: u64 = p50.parse().expect("a number");
        assert!((5..1000).contains(&p50_us), "{said}");
    }
    assert_nothing_left(process);
}

#[test]
fn proxy_is_counted_with_its_origin_outside_the_guest() {
    let test = "icount: proxy is counted with its origin outside the guest";
    let words = "--server lowroad-proxy --size 64 --mode ka -n 120 --warmup 10 --post 3000";
    let Some((said, process)) = icount_lowroad(test, words) else {
        return;
    };
    assert!(said.contains("lowroad-proxy"), "{said}");
    assert_nothing_left(process);
}

#[test]
fn paper_003_page_uses_a_database_outside_the_guest() {
    let test = "icount: paper 003 page uses a database outside the guest";
    let Some(lowroad) = own::for_guest(test) else {
        return;
    };
    let folder = TempFolder::new();
    let json = folder.path().join("figures.json").display().to_string();
    let lowroad = lowroad.display().to_string();
    let words = "--paper 003 --server lowroad-bare --load rows1-kept -n 60 --repeats 1";
    let words: Vec<&str> = words.split(' ').collect();
    let (output, process) =
        icount(&[&words[..], &["--lowroad", &lowroad, "--json", &json]].concat());
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("left out") || said.contains("apt") && !output.status.success() {
        return skip(test, &said); // no MariaDB, or no kernel of Debian's, to be had here
    }
    assert!(output.status.success(), "{said}");
    let figures = std::fs::read(&json).expect("the figures");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    let figure = figures[0]["instructions"][0].as_u64().expect("a figure");
    // The upper bound allows a debug build, which needs several times the instructions of a release build.
    assert!((5_000..500_000).contains(&figure), "{figure} instructions");
    assert!(said.contains("| page of 211 B (1 row), kept |"), "{said}");
    assert_nothing_left(process);
}

#[test]
fn custom_server_is_driven_by_workload_or_command() {
    let test = "icount: custom server is driven by workload or command";
    if !can_run(test) {
        return;
    }
    // The guest's busybox serves the files.
    let server = ["--cmd", "httpd -p 80 -h /srv", "-n", "60", "--warmup", "5"];
    let traffics: [&[&str]; 2] = [
        &["--workload", "webstone"],
        &[
            "--drive",
            "for i in $(seq {n}); do curl -fsS {url}/a >&2; done",
            "--file",
            "/etc/hosts:/srv/a",
        ],
    ];
    for traffic in traffics {
        let (output, process) = icount(&[&server, traffic].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        if said.contains("apt") && !output.status.success() {
            return skip(test, &said); // no kernel of Debian's to be had here
        }
        assert!(output.status.success(), "{said}");
        assert!(said.contains("instructions a request"), "{said}");
        assert_nothing_left(process);
    }
}

#[test]
fn exited_server_is_reported_with_its_output() {
    let test = "icount: exited server is reported with its output";
    if !can_run(test) || !Path::new("/bin/sh").exists() {
        return;
    }
    let (output, process) = icount(&[
        "--file",
        "/bin/sh:/no/such/place/sh",
        "--cmd",
        "echo no luck",
        "--port",
        "9",
    ]);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    if !said.contains("apt") {
        assert!(
            said.contains("no answer at port 9") && said.contains("no luck"),
            "{said}"
        );
    }
    assert_nothing_left(process);
}

#[test]
fn invalid_arguments_list_valid_names() {
    if !can_run("icount: invalid arguments list valid names") {
        return;
    }
    let told = |arguments: &[&str]| text(&icount(arguments).0.stderr);
    assert!(told(&["--server", "zeus"]).contains("server \"zeus\""));
    assert!(told(&["--paper", "7"]).contains("003"));
    assert!(told(&["--paper", "003", "--server", "iis"]).contains("apache-mod-php"));
    assert!(told(&["--paper", "003", "--load", "x"]).contains("static-kept"));
    assert!(told(&["--load", "static-kept"]).contains("--paper"));
    assert!(told(&["--workload", "zeus"]).contains("webbench"));
    assert!(told(&["--workload", "webstone", "--set", "size"]).contains("KEY=VALUE"));
    assert!(told(&["--drive", "true"]).contains("--cmd"));
    assert!(told(&["--kernel", "/no/such/image"]).contains("/no/such/image"));
    assert!(told(&["--cmd", "true", "--file", "/no/such/file"]).contains("/no/such/file"));
}
