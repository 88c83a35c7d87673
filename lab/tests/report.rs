//! The report with computed figures: charts are well-formed without overlapping text, ratios and sentences match the
//! data, and missing results are listed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use lowroad_lab::experiment::counting::CountUnit;
use lowroad_lab::experiment::fake::FakeBench;
use lowroad_lab::experiment::plan::RunSelection;
use lowroad_lab::experiment::progress::ProgressSink;
use lowroad_lab::experiment::results::{
    self, MeasurementRole, MissingReason, PointResult, ResultRecord,
};
use lowroad_lab::experiment::runner::{self, RunSetting};
use lowroad_lab::experiment::schema::{AxisValue, ExperimentConfig};
use lowroad_lab::experiment::{MeasurementResult, machine::MachineInfo};
use lowroad_lab::icount::paper::figure::CountedFigure;
use lowroad_lab::icount::paper::find_paper;
use lowroad_lab::report::claims::CountedPaper;
use lowroad_lab::report::instructions::CountedResults;
use lowroad_lab::report::model::ExperimentStudy;
use lowroad_lab::report::sentence::sentence;
use lowroad_lab::report::svg::text_width;
use lowroad_lab::report::{beside, chart, html, markdown};

const FILE: &str = r#"
title = "Known <data> & more"
paper = "002"
figure = "figure 3"
question = "Which?"
repeats = 2

[workload]
name = "webstone"

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

[[not_here]]
name = "Zeus"
reason = "not sold any more"

[[draw]]
figure = "figure 3"
title = "Requests"
measure = "requests_per_s"
subject = "lowroad"
against = "nginx"

[[draw.paper_ratio]]
what = "AFPA over Zeus"
value = 3.6
place = "section 5.1"
ours = { of = "lowroad", over = "nginx", at = 8 }

[[draw.paper_ratio]]
what = "AFPA over IIS"
value = 3.0
place = "section 5.1"
ours = { of = "later", over = "nginx" }

[[draw.paper_series]]
name = "Zeus"
points = [[64, 2843]]
unit = "requests/s"
place = "section 5.1"
ours = "nginx"
"#;

fn record(server: &str, x: f64, repeat: u32, found: PointResult) -> ResultRecord {
    ResultRecord {
        experiment: "known".into(),
        fingerprint: String::new(),
        role: MeasurementRole::Point,
        server: server.into(),
        x: AxisValue::Number(x),
        repeat,
        found,
        version: format!("{server} 1.0"),
        configuration: "workers 1; <none>".into(),
        unix_s: 1_795_269_600,
        machine: MachineInfo {
            kernel: "Linux 6".into(),
            cpu: "some".into(),
            cores: 2,
            memory_mib: 1,
        },
        pretended: false,
    }
}

fn figures(requests_per_s: f64, errors: u64) -> PointResult {
    let mut measured = MeasurementResult::default();
    measured.outcome.requests_per_s = requests_per_s;
    measured.outcome.requests = (requests_per_s * 2.0) as u64;
    measured.outcome.errors = errors;
    measured.outcome.duration_s = 2.0;
    PointResult::Measured(Box::new(measured))
}

fn study(records: Vec<ResultRecord>) -> ExperimentStudy {
    let experiment = ExperimentConfig::parse("known", FILE).expect("a good file");
    let records = records
        .into_iter()
        .map(|record| (record.key(), record))
        .collect();
    ExperimentStudy {
        experiment,
        records,
        notes: Vec::new(),
    }
}

fn known_study() -> ExperimentStudy {
    let absent = PointResult::Failed {
        why: MissingReason::Absent,
        text: "does not exist yet".into(),
    };
    study(vec![
        record("nginx", 8.0, 0, figures(10_000.0, 0)),
        record("nginx", 8.0, 1, figures(10_200.0, 0)),
        record("nginx", 64.0, 0, figures(20_000.0, 0)),
        record("nginx", 64.0, 1, figures(20_200.0, 400)),
        record("lowroad", 8.0, 0, figures(15_000.0, 0)),
        record("lowroad", 8.0, 1, figures(15_300.0, 0)),
        record("lowroad", 64.0, 0, figures(26_100.0, 0)),
        record("lowroad", 64.0, 1, figures(26_160.0, 0)),
        record("later", 8.0, 0, absent),
    ])
}

#[test]
fn sentence_compares_servers_at_the_same_x() {
    let study = known_study();
    assert_eq!(
        sentence(&study.figure_data()[0]),
        "At 64 simultaneous connections, lowroad reaches 26,130 requests/s, 1.3 times the 20,100 requests/s of nginx \
         (1.29 to 1.31)."
    );
}

#[test]
fn best_points_at_another_x_are_added() {
    let study = study(vec![
        record("nginx", 8.0, 0, figures(300.0, 0)),
        record("nginx", 64.0, 0, figures(100.0, 0)),
        record("lowroad", 8.0, 0, figures(200.0, 0)),
        record("lowroad", 64.0, 0, figures(250.0, 0)),
    ]);
    assert_eq!(
        sentence(&study.figure_data()[0]),
        "At 64 simultaneous connections, lowroad reaches 250 requests/s, 2.5 times the 100 requests/s of nginx; nginx is \
         best at 8 simultaneous connections with 300 requests/s."
    );
}

#[test]
fn ratio_below_one_is_inverted() {
    let study = study(vec![
        record("nginx", 8.0, 0, figures(100_000.0, 0)),
        record("lowroad", 8.0, 0, figures(50.0, 0)),
    ]);
    let said = sentence(&study.figure_data()[0]);
    assert!(
        said.contains("50 requests/s, 2000 times less than the 100,000"),
        "{said}"
    );
}

#[test]
fn interval_of_a_ratio_below_one_is_inverted() {
    let study = study(vec![
        record("nginx", 8.0, 0, figures(100_000.0, 0)),
        record("nginx", 8.0, 1, figures(90_000.0, 0)),
        record("lowroad", 8.0, 0, figures(50.0, 0)),
        record("lowroad", 8.0, 1, figures(40.0, 0)),
    ]);
    let said = sentence(&study.figure_data()[0]);
    assert!(said.contains(" of nginx (1800 to 2500)"), "{said}");
}

#[test]
fn ten_repeats_give_a_confidence_interval() {
    let repeats = |server: &'static str, first: f64| {
        (0..10).map(move |repeat| {
            let value = first + f64::from(repeat % 3);
            record(server, 8.0, repeat, figures(value, 0))
        })
    };
    let records = repeats("nginx", 100.0).chain(repeats("lowroad", 200.0));
    let said = sentence(&study(records.collect()).figure_data()[0]);
    assert!(
        said.contains("(95 %: 1.97 to 2)") || said.contains("(95 %: 1.98 to 2"),
        "{said}"
    );
}

#[test]
fn sentence_marks_differences_that_may_be_chance() {
    let study = study(vec![
        record("nginx", 8.0, 0, figures(100.0, 0)),
        record("nginx", 8.0, 1, figures(110.0, 0)),
        record("lowroad", 8.0, 0, figures(104.0, 0)),
        record("lowroad", 8.0, 1, figures(112.0, 0)),
    ]);
    let said = sentence(&study.figure_data()[0]);
    assert!(
        said.contains("1.03 times") && said.contains("no more than the repeats"),
        "{said}"
    );
}

#[test]
fn tables_show_measured_ratios_beside_the_papers() {
    let study = known_study();
    let tables = beside::tables(&study.figure_data()[0]);
    assert_eq!(tables[0].rows[0][..3], ["AFPA over Zeus", "3.6 ×", "1.5 ×"]);
    assert_eq!(tables[0].rows[1][2], "not here: later");
    assert_eq!(
        tables[1].rows[0][1..4],
        ["2843 requests/s", "20,100 requests/s", "nginx"]
    );
}

#[test]
fn page_lists_absent_servers_errors_and_missing_points() {
    let mut partial = known_study();
    partial
        .records
        .retain(|_, record| record.server != "nginx" || record.repeat == 0);
    let page = html::page(
        &[known_study(), partial],
        &["x.toml: <broken>".into()],
        &CountedResults::default(),
    );
    for text in [
        "Known &lt;data&gt; &amp; more",
        "later: does not exist yet",
        "Zeus: not sold any more",
        "400 errors in 121,200 requests",
        "nginx: 2 of 4 measurements",
        "x.toml: &lt;broken&gt;",
        "nginx 1.0",
        "workers 1; &lt;none&gt;",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "no {text}");
    }
    assert!(!page.contains("<script") && !page.contains("http://www.w3.org/1999"));
    assert!(!page.contains("A rehearsal"));
    let summary = markdown::page(
        &[known_study()],
        &[],
        &CountedResults::default(),
        "levels.svg",
    );
    assert!(summary.contains("1.3 times") && summary.contains("| AFPA over Zeus | 3.6 × |"));
    let one_page = markdown::summary(&[known_study()], &CountedResults::default(), "levels.svg");
    assert!(one_page.starts_with("# Results") && !one_page.contains("figures show"));
}

#[test]
fn page_without_results_lists_the_experiments() {
    let page = html::page(&[study(Vec::new())], &[], &CountedResults::default());
    assert!(page.contains("Without a measurement") && page.contains("<li>002, figure 3</li>"));
    assert!(!page.contains("Nothing of this figure"));
}

struct Quiet;

impl ProgressSink for Quiet {
    fn line(&mut self, _text: &str) {}
    fn passing(&mut self, _text: &str) {}
}

/// The results of all shipped experiments, rehearsed.
fn rehearsed(test: &str) -> Vec<ExperimentStudy> {
    let results_folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&results_folder);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let stop = AtomicBool::new(false);
    let paths = lowroad_lab::experiment::cli::files_in(&folder).expect("experiments");
    let read = |path: &std::path::PathBuf| {
        let experiment = ExperimentConfig::read(path).expect("a good file");
        let ways = [CountUnit::Clock, CountUnit::Instructions].map(|by| experiment.for_unit(by));
        ways.into_iter().flatten().collect::<Vec<_>>()
    };
    let one = |experiment: ExperimentConfig| {
        let extent = RunSelection::default();
        let setting = RunSetting {
            results: &results_folder,
            selection: &extent,
            fresh: false,
            stop: &stop,
        };
        runner::run(&experiment, &setting, &mut FakeBench::default(), &mut Quiet).expect("a run");
        let path = results::path(&results_folder, &experiment.name);
        let stored = results::read(&path).expect("results");
        ExperimentStudy {
            experiment,
            records: stored.records,
            notes: stored.notes,
        }
    };
    paths.iter().flat_map(read).map(one).collect()
}

/// Bounding boxes of the texts of a chart.
fn texts(svg: &roxmltree::Document<'_>) -> Vec<(f64, f64, f64, String)> {
    let number = |node: &roxmltree::Node<'_, '_>, name| -> f64 {
        node.attribute(name)
            .and_then(|value| value.parse().ok())
            .expect("a number")
    };
    let of = |node: roxmltree::Node<'_, '_>| {
        let words = node.text().unwrap_or_default().to_owned();
        let (x, width) = (number(&node, "x"), text_width(&words) * 0.9);
        let left = match node.attribute("text-anchor") {
            Some("end") => x - width,
            Some("middle") => x - width / 2.0,
            _ => x,
        };
        (left, left + width, number(&node, "y"), words)
    };
    svg.descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .map(of)
        .collect()
}

#[test]
fn charts_are_well_formed_without_overlapping_text() {
    let studies = rehearsed("charts");
    for study in &studies {
        for shown in study.figure_data() {
            assert!(!sentence(&shown).is_empty());
            for width in [360.0, 820.0] {
                let name = format!("{} {} {width}", study.experiment.name, shown.figure.figure);
                let drawn = chart::draw(&shown, width);
                if shown.series.is_empty() {
                    continue;
                }
                let svg = roxmltree::Document::parse(&drawn).expect(&name);
                assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{name}");
                assert_no_overlap(&name, width, &texts(&svg));
            }
        }
    }
    let page = html::page(&studies, &[], &CountedResults::default());
    assert!(page.contains("A rehearsal"), "computed figures must say so");
}

/// The medians of a measure by server and point, computed from the records.
fn medians(
    study: &ExperimentStudy,
    of: impl Fn(&MeasurementResult) -> f64,
) -> BTreeMap<(String, String), f64> {
    let mut values: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let points = study
        .records
        .values()
        .filter(|one| one.role == MeasurementRole::Point);
    for record in points {
        if let Some(measured) = record.measured() {
            let at = (record.server.clone(), record.x.to_string());
            values.entry(at).or_default().push(of(measured));
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        let half = all.len() / 2;
        match all.len() % 2 {
            0 => (all[half - 1] + all[half]) / 2.0,
            _ => all[half],
        }
    };
    values
        .into_iter()
        .map(|(at, all)| (at, median(all)))
        .collect()
}

#[test]
fn report_numbers_match_the_results() {
    let mut checked = 0;
    for study in &rehearsed("numbers") {
        let page = markdown::page(
            std::slice::from_ref(study),
            &[],
            &CountedResults::default(),
            "x",
        );
        for figure in &study.experiment.figures {
            let of: fn(&MeasurementResult) -> f64 = match figure.measure.name() {
                "requests_per_s" => |measured| measured.outcome.requests_per_s,
                "connections_per_s" => |measured| measured.outcome.connections_per_s,
                "bits_per_s" => |measured| measured.outcome.bytes_per_s * 8.0,
                _ => continue,
            };
            let unit = study.experiment.by.unit(&figure.measure);
            for ((server, x), median) in medians(study, of) {
                let shown = format!("| {} (", unit.show(median));
                assert!(
                    page.contains(&shown),
                    "{}: {server} at {x}: {shown}",
                    study.experiment.name
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "{checked}");
}

/// Checks that texts at about the same height do not overlap, and that no text exceeds the chart.
fn assert_no_overlap(name: &str, width: f64, texts: &[(f64, f64, f64, String)]) {
    for (index, (left, right, y, words)) in texts.iter().enumerate() {
        assert!(
            *left > -4.0 && *right < width + 4.0,
            "{name}: {words:?} leaves the chart"
        );
        for (other_left, other_right, other_y, other) in &texts[index + 1..] {
            let level = (y - other_y).abs() < 10.0;
            let touch = left < other_right && other_left < right;
            assert!(!(level && touch), "{name}: {words:?} and {other:?} touch");
        }
    }
}

#[test]
fn page_shows_counted_claims_of_a_paper() {
    let figure = |server: &str, load: &str, instructions| CountedFigure {
        paper: "003".into(),
        server: server.into(),
        version: "1".into(),
        load: load.into(),
        instructions: vec![instructions],
        requests: 10,
        ..CountedFigure::default()
    };
    let counts = CountedResults {
        papers: vec![CountedPaper {
            paper: find_paper("003").expect("known"),
            figures: vec![
                figure("lowroad-bare", "static-close", 10_000),
                figure("apache-mod-php", "static-close", 19_000),
            ],
        }],
        ..CountedResults::default()
    };
    let page = html::page(&[known_study()], &[], &counts);
    assert!(
        page.contains("<td data-name=\"Ours\">1.9\u{a0}×</td>"),
        "{page}"
    );
    assert!(page.contains("holds, with a smaller ratio") && page.contains("no clock"));
    let summary = markdown::page(&[known_study()], &[], &counts, "levels.svg");
    assert!(
        summary.contains("| 2.0 × | 1.9 × | holds, with a smaller ratio |"),
        "{summary}"
    );
    assert!(
        summary.contains("| 3,593 B, a connection each | 10,000 | 19,000 |"),
        "{summary}"
    );
}
