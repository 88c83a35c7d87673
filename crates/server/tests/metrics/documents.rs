//! The documents for operators: the dashboard, the alerts and the table of metrics refer only to existing metrics.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::status_names::status_names;
use crate::support::{ObservedServer, has_prometheus, promtool};
use crate::text_format::Scrape;

/// Families that the server of these tests does not have, because they need a feature or an event.
pub const CONDITIONAL: [&str; 3] = [
    "lowroad_certificate_renewal_failing",
    "lowroad_certificate_renewal_timestamp_seconds",
    "lowroad_softirq_answers_total",
];

/// Series that Prometheus itself adds.
const OF_PROMETHEUS: [&str; 1] = ["up"];

/// A file of the folder `docs`.
pub fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// The text of a file of the folder `docs`.
pub fn read(name: &str) -> String {
    std::fs::read_to_string(document(name)).expect("a document")
}

/// The expressions of the dashboard's panels and variables.
pub fn dashboard_expressions() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("observe/grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets.flatten().map(|target| &target["expr"]);
    expressions
        .map(|expression| expression.as_str().expect("a text").to_owned())
        .collect()
}

/// The queries of the table in docs/observe.md.
pub fn documented_queries() -> Vec<String> {
    let page = read("observe.md");
    let table = page.split("| query |\n").nth(1).expect("a table");
    let lines = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(1);
    let queries = lines.map(|line| line.split('`').nth(1).expect("a query"));
    // A vertical bar within a table cell is escaped.
    queries.map(|query| query.replace("\\|", "|")).collect()
}

/// The metric names in a text.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let is_name = |word: &&str| word.starts_with("lowroad_") || word.starts_with("process_");
    words.filter(is_name).collect()
}

fn assert_names_exist(text: &str, scrape: &Scrape) {
    for name in names_in(text) {
        let is_there = scrape.family_of(name).is_some();
        assert!(
            is_there || CONDITIONAL.contains(&name),
            "there is no {name}"
        );
    }
}

fn full_scrape() -> Scrape {
    let observed = ObservedServer::start();
    observed.make_requests();
    observed.scrape()
}

const TABLE_HEAD: &str =
    "| metric | `lowroad status` | type | labels | meaning |\n|---|---|---|---|---|\n";

#[test]
fn dashboard_and_alerts_use_existing_metrics() {
    let scrape = full_scrape();
    let expressions = dashboard_expressions();
    assert!(expressions.len() > 50, "{}", expressions.len());
    assert_names_exist(&read("observe/grafana.json"), &scrape);
    documented_queries()
        .iter()
        .for_each(|query| assert_names_exist(query, &scrape));
    let alerts = read("observe/alerts.yml");
    assert_names_exist(&alerts, &scrape);
    // Each rule refers to a metric of the server or of Prometheus.
    for rule in alerts.split("- alert: ").skip(1) {
        let is_known = |name: &&str| rule.contains(&format!("{name}{{"));
        let has_metric = !names_in(rule).is_empty() || OF_PROMETHEUS.iter().any(is_known);
        assert!(has_metric, "{rule}");
    }
}

#[test]
fn dashboard_panels_do_not_overlap() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("observe/grafana.json")).expect("JSON");
    let (mut cells, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64()), "{}", panel["id"]);
        let position = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        let (x, y) = (position("x"), position("y"));
        assert!(x + position("w") <= 24, "{}", panel["title"]);
        for (column, line) in (x..x + position("w"))
            .flat_map(|column| (y..y + position("h")).map(move |line| (column, line)))
        {
            assert!(cells.insert((column, line)), "{} overlaps", panel["title"]);
        }
    }
}

/// Names in code font, separated by commas.
fn quoted<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[test]
fn metrics_table_matches_a_scrape() {
    let observed = ObservedServer::start();
    observed.make_requests();
    let scrape = observed.scrape();
    let status_names = status_names(&observed, &scrape);
    let mut table = TABLE_HEAD.to_owned();
    for (name, family) in &scrape.families {
        let mut labels = BTreeSet::new();
        for (sample, of_sample, _) in &scrape.samples {
            if scrape.family_of(sample) == Some(name) {
                labels.extend(of_sample.keys().filter(|label| *label != "le"));
            }
        }
        let kind = match name.strip_suffix("_info") {
            Some(_) => "info",
            None => &family.kind,
        };
        let help = family.help.trim_end_matches('.');
        writeln!(
            table,
            "| `{name}` | {} | {kind} | {} | {help} |",
            quoted(status_names.get(name).into_iter().flatten()),
            quoted(labels.into_iter())
        )
        .expect("a string");
    }
    let page = read("observe/metrics.md");
    let start = page.find("| metric |").expect("a table");
    let end = page[start..].find("\n\n").expect("an end") + start + 1;
    // Writes the table to the page again.
    if std::env::var_os("LOWROAD_WRITE_METRICS").is_some() {
        let page = format!("{}{table}{}", &page[..start], &page[end..]);
        std::fs::write(document("observe/metrics.md"), page).expect("a document");
        return;
    }
    assert!(
        page[start..end] == table,
        "docs/observe/metrics.md differs from the metrics; write it anew: \
         LOWROAD_WRITE_METRICS=1 cargo test -p lowroad --test metrics metrics_table"
    );
}

#[test]
fn promtool_accepts_configuration_and_alerts() {
    if !has_prometheus("promtool_accepts_configuration_and_alerts") {
        return;
    }
    let folder = lowroad_testkit::TempFolder::new();
    let token = folder.file("token", "0123456789abcdef");
    let config = read("observe/prometheus.yml");
    let config = config.replace(
        "/etc/prometheus/lowroad.token",
        &token.display().to_string(),
    );
    let config = folder.file("prometheus.yml", config);
    let alerts = folder.file("alerts.yml", read("observe/alerts.yml"));
    let path = |path: PathBuf| path.display().to_string();
    promtool(&["check", "config", &path(config)], "");
    let said = promtool(&["check", "rules", &path(alerts)], "");
    assert!(said.contains("SUCCESS"), "{said}");
    let cases = folder.file("cases.yml", include_str!("alert_cases.yml"));
    promtool(&["test", "rules", &path(cases)], "");
}
