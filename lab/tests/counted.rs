//! A small counted experiment with real guests: two servers must get the same traffic and rank as expected.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use lowroad_lab::experiment::results;
use lowroad_testkit::{TempFolder, skip};

/// One process per connection costs more instructions than an event loop, on any machine and with any version.
const FILE: &str = r#"
title = "Static files: an event loop and processes"
paper = "000"
figure = "figure 2"
question = "Which costs more?"
measure = "instructions"
workload = { name = "specweb99", settings = { dirs = "1", dynamic = "0" } }
sweep = { parameter = "none", label = "mix", values = ["static"] }
load = { pace = "closed", connections = 8 }
server = [{ name = "nginx", peer = "nginx" }, { name = "apache", peer = "apache-prefork" }]
draw = [{ figure = "figure 2", title = "t", measure = "requests_per_s", subject = "nginx", against = "apache" }]
"#;

#[test]
fn counted_experiment_sends_equal_work_and_ranks_servers() {
    let test = "counted: experiment sends equal work and ranks servers";
    if let Err(why) = lowroad_lab::icount::needs::check() {
        return skip(test, &why);
    }
    let folder = TempFolder::new();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("small.toml"), FILE).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_lowroad-lab"))
        .args(["run", &path("small.toml"), "--results", &path("results")])
        .args(["--data", &path("data"), "--jobs", "1"])
        .output()
        .expect("our own program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("apt") {
        return skip(test, &said); // no kernel of Debian's to be had here
    }
    let file = results::path(Path::new(&path("results")), "small-by-instructions");
    let stored = results::read(&file).expect("results");
    let of = |server: &str| -> Vec<f64> {
        let records = stored.records.values();
        let records = records.filter(|record| record.server == server);
        records
            .filter_map(|record| record.measured()?.instructions)
            .collect()
    };
    let (nginx, apache) = (of("nginx"), of("apache"));
    if nginx.is_empty() || apache.is_empty() {
        return match said.contains("is not installed") {
            true => skip(test, &said),
            false => panic!("{said}"),
        };
    }
    assert!(output.status.success(), "{said}");
    let measured = stored
        .records
        .values()
        .filter_map(|record| record.measured());
    let work: BTreeSet<_> = measured
        .map(|it| (it.outcome.requests, it.outcome.connections))
        .collect();
    assert_eq!(work.len(), 1, "requests and connections: {work:?}");
    let most = nginx.iter().copied().fold(0.0, f64::max);
    let least = apache.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(most < least, "nginx {nginx:?}, Apache {apache:?}");
}
