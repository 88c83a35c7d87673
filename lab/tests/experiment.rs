//! Experiment files, and the runner with a bench that computes figures: order, resuming, incomplete lines, Ctrl-C,
//! capacity. No server runs, and no time is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use lowroad_lab::experiment::counting::CountUnit;
use lowroad_lab::experiment::fake::FakeBench;
use lowroad_lab::experiment::plan::{self, RunSelection};
use lowroad_lab::experiment::progress::ProgressSink;
use lowroad_lab::experiment::results::{self, MeasurementRole, PointResult, StoredResults};
use lowroad_lab::experiment::runner::{self, RunOutcome, RunSetting};
use lowroad_lab::experiment::schema::{AxisValue, ExperimentConfig};
use lowroad_lab::load::RequestPace;

const SMALL: &str = r#"
title = "Small"
paper = "000"
figure = "figure 2"
question = "Which?"
repeats = 2

[workload]
name = "webstone"
settings = { size = "64" }

[sweep]
parameter = "connections"
label = "simultaneous connections"
values = [8, 64]

[load]
pace = "closed"

[[server]]
name = "nginx"
peer = "nginx"

[[server]]
name = "lowroad"
peer = "lowroad"

[[server]]
name = "later"
peer = "lowroad-softirq"

[[draw]]
figure = "figure 2"
title = "Requests"
measure = "requests_per_s"
"#;

fn small() -> ExperimentConfig {
    ExperimentConfig::parse("small", SMALL).expect("a good file")
}

/// Collects progress lines.
#[derive(Default)]
struct Lines(Vec<String>);

impl ProgressSink for Lines {
    fn line(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn passing(&mut self, _text: &str) {}
}

/// A folder of results, and the settings of a run.
struct Place {
    folder: PathBuf,
    extent: RunSelection,
    fresh: bool,
    lines: Lines,
}

impl Place {
    fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = std::fs::remove_dir_all(&folder);
        Self {
            folder,
            extent: RunSelection::default(),
            fresh: false,
            lines: Lines::default(),
        }
    }

    fn run(
        &mut self,
        experiment: &ExperimentConfig,
        bench: &mut FakeBench,
    ) -> Result<RunOutcome, String> {
        let stop = AtomicBool::new(false);
        let setting = RunSetting {
            results: &self.folder,
            selection: &self.extent,
            fresh: self.fresh,
            stop: &stop,
        };
        runner::run(experiment, &setting, bench, &mut self.lines)
    }

    fn file(&self) -> PathBuf {
        results::path(&self.folder, "small")
    }

    fn stored(&self) -> StoredResults {
        results::read(&self.file()).expect("results")
    }
}

fn problem(change: impl Fn(&str) -> String) -> String {
    ExperimentConfig::parse("small", &change(SMALL)).expect_err("a bad file")
}

#[test]
fn schema_errors_name_line_and_key() {
    let of = |from: &str, to: &str| problem(|text| text.replace(from, to));
    let unknown_key = of("pace = \"closed\"", "pace = \"closed\"\nthreds = 2");
    assert!(
        unknown_key.contains("line 19") && unknown_key.contains("threds"),
        "{unknown_key}"
    );
    let measure = of("\"requests_per_s\"", "\"requests\"");
    assert!(
        measure.contains("line 35") && measure.contains("connections_per_s"),
        "{measure}"
    );
    let parameter = of("parameter = \"connections\"", "parameter = \"conns\"");
    assert!(
        parameter.contains("line 13") && parameter.contains("workload.SETTING"),
        "{parameter}"
    );
    let pace = of("\"closed\"", "\"requests\"");
    assert!(
        pace.contains("line 18") && pace.contains("needs a rate"),
        "{pace}"
    );
    let twice = of("name = \"lowroad\"", "name = \"nginx\"");
    assert!(twice.contains("two servers"), "{twice}");
    let missing = of("[load]\npace = \"closed\"", "");
    assert!(missing.contains("load"), "{missing}");
    let subject = problem(|text| format!("{text}subject = \"ngin\"\n"));
    assert!(
        subject.contains("line 36: subject") && subject.contains("nginx, lowroad"),
        "{subject}"
    );
    let values = of("values = [8, 64]", "values = [8, \"many\"]");
    assert!(values.contains("line 15: values"), "{values}");
    let also = of(
        "peer = \"nginx\"",
        "peer = \"nginx\"\nalso = [1100, \"many\"]",
    );
    assert!(also.contains("line 23: also"), "{also}");
    let endless = of("values = [8, 64]", "values = [8, inf]");
    assert!(endless.contains("line 15: values"), "{endless}");
    let counted = of("[load]", "[instructions]\nvalues = [8, inf]\n[load]");
    assert!(
        counted.contains("line 17: [instructions]: values must be numbers"),
        "{counted}"
    );
    for (line, bound) in [
        ("requests = 0", "requests: must be 1 to"),
        ("requests = 18446744073709551615", "requests: must be 1 to"),
        ("warmup = 18446744073709551615", "warmup: must be at most"),
    ] {
        let asked = of("[load]", &format!("[instructions]\n{line}\n[load]"));
        assert!(asked.contains(&format!("line 18: {bound}")), "{asked}");
    }
    let by_mtu = |changes: [(&str, &str); 2]| {
        let changes = [("\"connections\"", "\"mtu\""), ("[8, 64]", "[1500, 65521]")]
            .into_iter()
            .chain(changes);
        problem(|text| {
            let mut text = text.to_owned();
            for (from, to) in changes.clone() {
                text = text.replacen(from, to, 1);
            }
            text
        })
    };
    for (wrong, place) in [
        (("65521]", "65522]"), "line 15: values: must be whole"),
        (("1500", "67"), "line 15: values: must be whole"),
        (("1500", "1500.5"), "line 15: values: must be whole"),
        (
            ("[load]", "[instructions]\nvalues = [67]\n[load]"),
            "line 17: [instructions]: values must be whole",
        ),
        (
            ("peer = \"nginx\"", "peer = \"nginx\"\nalso = [1e9]"),
            "line 23: also: must be whole",
        ),
    ] {
        let mtu = by_mtu([("", ""), wrong]);
        assert!(mtu.contains(place), "{mtu}");
    }
    let capacity = of("\"requests_per_s\"", "\"capacity\"");
    assert!(capacity.contains("[search]"), "{capacity}");
    let repeats = of("repeats = 2", "repeats = 0");
    assert!(repeats.contains("line 6: repeats"), "{repeats}");
}

#[test]
fn missing_experiment_file_is_named() {
    let error = ExperimentConfig::read(Path::new("nowhere/x.toml")).expect_err("no file");
    assert!(error.starts_with("nowhere/x.toml:"), "{error}");
}

fn shipped() -> Vec<ExperimentConfig> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let paths = lowroad_lab::experiment::cli::files_in(&folder).expect("shipped experiments");
    paths
        .iter()
        .map(|path| ExperimentConfig::read(path).unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

#[test]
fn shipped_experiments_are_valid() {
    const PEERS: &[&str] = &[
        "nginx",
        "apache-prefork",
        "apache-event",
        "lighttpd",
        "h2o",
        "varnish",
        "haproxy",
        "howl",
        "lowroad",
        "nginx-php",
        "apache-php",
        "lowroad-softirq",
        "lowroad-module",
        "lowroad-wasm",
        "lowroad-fastcgi",
        "lowroad-cgi",
        "lowroad-pages",
        "nginx-fastcgi",
        "lowroad-bare",
        "lowroad-accelerate",
        "lowroad-uring",
        "apache-mod-php",
        "apache-softirq",
        "caddy",
        "nginx-cache",
        "squid",
        "trafficserver",
    ];
    const WORKLOADS: &[&str] = &["specweb99", "specweb96", "webstone", "webbench", "bare"];
    let all = shipped();
    for experiment in &all {
        let name = &experiment.name;
        assert!(
            WORKLOADS.contains(&experiment.workload.name.as_str()),
            "{name}"
        );
        for server in &experiment.servers {
            assert!(
                PEERS.contains(&server.peer.as_str()),
                "{name}: {}",
                server.peer
            );
        }
    }
    let papers: BTreeSet<&str> = all
        .iter()
        .map(|experiment| experiment.paper.as_str())
        .collect();
    assert_eq!(papers, BTreeSet::from(["000", "002", "003", "004"]));
    let figures: Vec<&str> = all
        .iter()
        .map(|experiment| experiment.figure.as_str())
        .collect();
    let all_figures = figures.join("; ");
    for figure in [
        "figure 2",
        "figures 7 and 14, table 1",
        "figures 4 and 5",
        "figure 16",
    ] {
        assert!(all_figures.contains(figure), "{figure}");
    }
}

#[test]
fn repeat_of_a_shipped_experiment_takes_minutes() {
    for experiment in shipped() {
        let points = experiment.sweep.values.len() + experiment.sweep.relative_to_capacity.len();
        let here = experiment
            .servers
            .iter()
            .filter(|server| !server.peer.contains("lowroad-"));
        let each_s = plan::expected_s(&experiment, &RunSelection::default());
        let all_s = each_s * (points * here.count()) as f64;
        assert!(all_s < 250.0, "{}: {all_s} s", experiment.name);
    }
}

#[test]
fn clock_plan_repeats_outermost_and_rotates_servers() {
    let experiment = small();
    let extent = RunSelection::default();
    let points = plan::points(&experiment, None, &extent);
    let steps = plan::steps(&experiment, &points, &extent);
    let order: Vec<(u32, String, usize)> = steps
        .iter()
        .map(|step| (step.repeat, step.x.to_string(), step.server))
        .collect();
    let expected = [
        (0, "8", 0),
        (0, "8", 1),
        (0, "8", 2),
        (0, "64", 0),
        (0, "64", 1),
        (0, "64", 2),
        (1, "8", 1),
        (1, "8", 2),
        (1, "8", 0),
        (1, "64", 1),
        (1, "64", 2),
        (1, "64", 0),
    ];
    let expected: Vec<_> = expected.map(|(r, x, s)| (r, x.to_owned(), s)).to_vec();
    assert_eq!(order, expected);
}

#[test]
fn counted_plan_groups_points_by_server_and_adds_extra_points() {
    let text = SMALL.replace("peer = \"nginx\"", "peer = \"nginx\"\nalso = [1100]");
    let experiment = ExperimentConfig::parse("small", &text).expect("a good file");
    let counted = experiment
        .for_unit(CountUnit::Instructions)
        .expect("countable");
    let order = |experiment: &ExperimentConfig| {
        let extent = RunSelection::default();
        let points = plan::points(experiment, None, &extent);
        let steps = plan::steps(experiment, &points, &extent);
        let place = |step: plan::MeasurementStep| (step.server, step.repeat, step.x.to_string());
        steps.into_iter().map(place).collect::<Vec<_>>()
    };
    let found = order(&counted);
    let own = |server, repeat, x: &str| (server, repeat, x.to_owned());
    assert_eq!(
        found[..8],
        [
            own(0, 0, "8"),
            own(0, 1, "8"),
            own(0, 0, "64"),
            own(0, 1, "64"),
            own(0, 0, "1100"),
            own(0, 1, "1100"),
            own(1, 0, "8"),
            own(1, 1, "8"),
        ]
    );
    let by_clock = order(&experiment);
    assert!(by_clock.iter().all(|(_, _, x)| x != "1100"));
}

#[test]
fn disagreeing_counts_are_repeated() {
    let mut place = Place::new("counts_that_do_not_agree");
    let counted = small()
        .for_unit(CountUnit::Instructions)
        .expect("countable");
    let mut bench = FakeBench {
        is_learning: true,
        ..FakeBench::default()
    };
    let whole = Ok(RunOutcome::Complete { failed: 0 });
    assert_eq!(place.run(&counted, &mut bench), whole);
    let records = results::read(&results::path(&place.folder, &counted.name));
    let records = records.expect("results").records;
    let mut repeats = BTreeMap::new();
    for record in records.values().filter(|it| it.measured().is_some()) {
        let point = (record.server.clone(), record.x.to_string());
        *repeats.entry(point).or_insert(0) += 1;
    }
    assert!(repeats.values().all(|count| (3..=5).contains(count)));
    let all = repeats.values().sum::<i32>();
    let last = place.lines.0.last().expect("a line of each");
    let of_the_absent = 4;
    let end = format!("/{}]", all + of_the_absent);
    assert!(last.contains(&end), "{all} and {of_the_absent}: {last}");
    let mut again = FakeBench::default();
    assert_eq!(place.run(&counted, &mut again), whole);
    assert!(again.started.is_empty(), "all is there");
}

#[test]
fn run_selection_limits_servers_and_points() {
    let experiment = small();
    let only = RunSelection {
        only: vec!["lowroad".into()],
        ..RunSelection::default()
    };
    let points = plan::points(&experiment, None, &only);
    let steps = plan::steps(&experiment, &points, &only);
    assert!(steps.len() == 4 && steps.iter().all(|step| step.server == 1));
    let quick = RunSelection {
        quick: true,
        ..RunSelection::default()
    };
    let steps = plan::steps(&experiment, &points, &quick);
    let job = plan::job(&experiment, &steps[0], &quick);
    assert!((job.duration_s - 0.3).abs() < 1e-9 && steps.len() == 6);
}

#[test]
fn run_appends_a_record_for_each_measurement() {
    let mut place = Place::new("run_appends_a_record_for_each_measurement");
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    let stored = place.stored();
    let measured = stored
        .records
        .values()
        .filter(|record| record.measured().is_some())
        .count();
    assert_eq!((measured, bench.started.len()), (8, 8));
    let absent: Vec<_> = stored
        .records
        .values()
        .filter(|r| r.server == "later")
        .collect();
    assert_eq!(absent.len(), 1, "an absent server is recorded once");
    assert!(
        matches!(&absent[0].found, PointResult::Failed { text, .. } if text.contains("softirq"))
    );
    let first = stored.records.values().next().expect("records");
    assert!(first.pretended && !first.machine.kernel.is_empty() && first.unix_s > 0);
    assert!(place.lines.0[0].contains("[ 1/12]"), "{}", place.lines.0[0]);
}

/// A small mounted disk, unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn new(folder: &Path, len: &str) -> Option<Disk> {
        std::fs::create_dir_all(folder).expect("a folder");
        let disk = Disk(folder.to_owned());
        disk.mount(&format!("size={len}")).then_some(disk)
    }

    fn grow(&self, len: &str) {
        assert!(self.mount(&format!("remount,size={len}")), "a larger disk");
    }

    fn mount(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let done = mount.arg(&self.0).output();
        done.is_ok_and(|done| done.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_leaves_complete_lines() {
    const NAME: &str = "full_disk_leaves_complete_lines";
    let mut place = Place::new(NAME);
    // The first result is shorter than a page; two results are longer.
    let Some(disk) = Disk::new(&place.folder, "4k") else {
        return lowroad_testkit::skip(NAME, "no disk may be mounted here");
    };
    let why = place.run(&small(), &mut FakeBench::default());
    assert!(why.is_err_and(|why| why.contains("No space left")));
    let text = std::fs::read(place.file()).expect("results");
    assert!(text.ends_with(b"\n"), "half a line is there");
    disk.grow("1m");
    let mut again = FakeBench::default();
    let whole = Ok(RunOutcome::Complete { failed: 0 });
    assert_eq!(place.run(&small(), &mut again), whole);
    assert!(place.stored().notes.is_empty() && again.started.len() < 8);
}

#[test]
fn failed_measurements_are_counted_and_retried() {
    let mut place = Place::new("broken");
    let mut bench = FakeBench {
        broken: Some("nginx".into()),
        ..FakeBench::default()
    };
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 4 })
    );
    assert!(place.lines.0[0].contains("it ended with status 1"));
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!(bench.started.len(), 4);
}

#[test]
fn stopped_run_is_continued() {
    let mut place = Place::new("goes_on");
    let mut bench = FakeBench {
        stop_after: Some(3),
        ..FakeBench::default()
    };
    assert_eq!(place.run(&small(), &mut bench), Ok(RunOutcome::Stopped));
    let whole = |place: &Place| {
        place
            .stored()
            .records
            .values()
            .filter(|record| record.measured().is_some())
            .count()
    };
    assert_eq!(whole(&place), 3, "the measurement that was cut is not kept");
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!((whole(&place), bench.started.len()), (8, 5));
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!(bench.started.len(), 0, "nothing is measured twice");
}

#[test]
fn incomplete_last_line_is_skipped_and_truncated() {
    let mut place = Place::new("half_line");
    place
        .run(&small(), &mut FakeBench::default())
        .expect("a run");
    let text = std::fs::read(place.file()).expect("results");
    std::fs::write(place.file(), &text[..text.len() - 40]).expect("cut");
    assert_eq!(place.stored().notes.len(), 1);
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&small(), &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert!(bench.started.len() == 1 && place.stored().notes.is_empty());
    assert!(
        place
            .lines
            .0
            .iter()
            .any(|line| line.contains("is incomplete"))
    );
}

#[test]
fn invalid_record_line_is_an_error() {
    let error = results::parse(b"{\"x\":1}\n").expect_err("no record");
    assert!(
        error.contains("line 1") && error.contains("--fresh"),
        "{error}"
    );
}

#[test]
fn changed_conditions_require_fresh() {
    let mut place = Place::new("changed");
    place
        .run(&small(), &mut FakeBench::default())
        .expect("a run");
    let parse = |text: String| ExperimentConfig::parse("small", &text).expect("a good file");
    let titled = parse(SMALL.replace("title = \"Small\"", "title = \"Other\""));
    assert_eq!(
        place.run(&titled, &mut FakeBench::default()),
        Ok(RunOutcome::Complete { failed: 0 }),
        "titles are free"
    );
    let more = parse(SMALL.replace("[8, 64]", "[8, 64, 128]"));
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&more, &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!(bench.started.len(), 4, "only the new point is measured");
    let longer = parse(SMALL.replace("pace = ", "duration_s = 9.0\npace = "));
    let error = place
        .run(&longer, &mut FakeBench::default())
        .expect_err("changed");
    assert!(error.contains("--fresh"), "{error}");
    place.fresh = true;
    assert_eq!(
        place.run(&longer, &mut FakeBench::default()),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert!(place.file().with_extension("jsonl.old").is_file());
}

#[test]
fn rates_are_relative_to_the_measured_reference_capacity() {
    let text = SMALL
        .replace("parameter = \"connections\"", "parameter = \"rate\"")
        .replace(
            "values = [8, 64]",
            "relative_to_capacity = [0.5, 1.2]\nreference = \"nginx\"",
        )
        .replace("\"closed\"", "\"connections\"");
    let experiment = ExperimentConfig::parse("small", &text).expect("a good file");
    let mut place = Place::new("relative");
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&experiment, &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!(bench.started[0].pace, RequestPace::Closed);
    let stored = place.stored();
    let reference = stored
        .records
        .values()
        .find(|record| record.role == MeasurementRole::Reference);
    let capacity = reference
        .and_then(|r| r.measured())
        .expect("measured")
        .outcome
        .requests_per_s;
    let rates: BTreeSet<String> = stored
        .records
        .values()
        .filter(|r| r.role == MeasurementRole::Point)
        .map(|r| r.x.to_string())
        .collect();
    assert_eq!(
        rates.len(),
        2,
        "all servers are offered the same rates: {rates:?}"
    );
    for rate in rates {
        let share = rate.parse::<f64>().expect("a number") / capacity;
        assert!(
            (share - 0.5).abs() < 0.03 || (share - 1.2).abs() < 0.06,
            "{share}"
        );
    }
    let mut bench = FakeBench::default();
    assert_eq!(
        place.run(&experiment, &mut bench),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    assert_eq!(
        bench.started.len(),
        0,
        "the stored capacity gives the same rates"
    );
}

#[test]
fn capacity_search_runs_under_static_load() {
    let text = SMALL
        .replace(
            "name = \"webstone\"\nsettings = { size = \"64\" }",
            "name = \"bare\"",
        )
        .replace("parameter = \"connections\"", "parameter = \"static_rate\"")
        .replace("values = [8, 64]", "values = [0, 1000]")
        .replace("\"closed\"", "\"connections\"\nshare_setting = \"dynamic\"")
        .replace("[[draw]]", "[search]\nstart = 500\nmax = 1e6\n\n[[draw]]")
        .replace("\"requests_per_s\"", "\"capacity\"");
    let experiment = ExperimentConfig::parse("small", &text).expect("a good file");
    let mut place = Place::new("capacity");
    assert_eq!(
        place.run(&experiment, &mut FakeBench::default()),
        Ok(RunOutcome::Complete { failed: 0 })
    );
    let stored = place.stored();
    let capacity = |server: &str, x: f64| {
        let key = results::key(MeasurementRole::Point, server, &AxisValue::Number(x), 0);
        stored.records[&key]
            .measured()
            .and_then(|m| m.capacity_per_s)
            .expect("found")
    };
    assert!(capacity("lowroad", 0.0) > capacity("nginx", 0.0) * 1.05);
    assert!(capacity("nginx", 0.0) > 5000.0);
}

#[test]
fn dynamic_share_is_computed_from_the_rates() {
    let text = SMALL
        .replace("parameter = \"connections\"", "parameter = \"rate\"")
        .replace("values = [8, 64]", "values = [250]")
        .replace(
            "\"closed\"",
            "\"requests\"\nstatic_rate = 750\nshare_setting = \"dynamic\"",
        );
    let experiment = ExperimentConfig::parse("small", &text).expect("a good file");
    let extent = RunSelection::default();
    let steps = plan::steps(&experiment, &[AxisValue::Number(250.0)], &extent);
    let job = plan::job(&experiment, &steps[0], &extent);
    assert_eq!(job.pace, RequestPace::Requests(1000.0));
    assert_eq!(job.settings["dynamic"], "25.000");
}
