//! The report about a server, from the snapshots that the dashboard also gets.

use std::collections::BTreeMap;

use lowroad_site::url_table::URL_LEVELS;
use serde_json::Value;

use super::table::{
    TableCell, TableColumn, TextTable, bytes, duration, number_column, percent, rate, short_rate,
    text_column, visible, whole_percent,
};
use super::window::{SeriesRate, SnapshotWindow, label, number};

const REQUESTS: &str = "lowroad_requests";
const DURATIONS: &str = "lowroad_request_duration_seconds";
const RESPONSE_TIMES: &str = "lowroad_upstream_response_seconds";
const BODY_BYTES: &str = "lowroad_response_body_bytes";
const SOFTIRQ_ANSWERS: &str = "lowroad_softirq_answers";

/// The content that a view shows as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportTable {
    /// The hottest URLs.
    Urls,
    /// Sites and routes.
    Sites,
    /// Upstream servers.
    Origins,
    /// The latest errors and warnings.
    Errors,
}

const URL_COLUMNS: [TableColumn; 4] = [
    text_column("URL", 22),
    number_column("req/s", 8),
    text_column("level", 8),
    number_column("share", 8),
];
/// All columns fit in 80 cells. The columns of errors are rates, too; with `/s` their titles would be too wide.
const SITE_COLUMNS: [TableColumn; 9] = [
    text_column("site and route", 22),
    number_column("req/s", 6),
    number_column("p50", 7),
    number_column("p99", 7),
    number_column("hits", 5),
    number_column("5xx", 5),
    number_column("4xx", 5),
    number_column("body/s", 7),
    number_column("cut", 5),
];
/// All columns fit in 80 cells.
const ORIGIN_COLUMNS: [TableColumn; 8] = [
    text_column("server", 22),
    text_column("health", 9),
    number_column("resp/s", 7),
    number_column("fail/s", 7),
    number_column("p50", 7),
    number_column("p99", 7),
    number_column("open", 5),
    text_column("reason", 9),
];
const ERROR_COLUMNS: [TableColumn; 3] = [
    text_column("message", 27),
    text_column("level", 5),
    number_column("age", 8),
];

/// The requests of a level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelRate {
    /// The name.
    pub name: &'static str,
    /// Requests per second; `None` for a level that this server does not have.
    pub rate: Option<f64>,
}

/// The report about a server at one moment.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// The version, and the time since the start.
    pub title: String,
    /// Requests per second.
    pub total: f64,
    /// The levels, the highest first.
    pub levels: Vec<LevelRate>,
    /// Names and values of the key figures.
    pub figures: Vec<(&'static str, String)>,
    urls: TextTable,
    sites: TextTable,
    origins: TextTable,
    errors: TextTable,
}

impl ServerReport {
    /// Computes the report; `None` before there are two snapshots.
    pub fn new(window: &SnapshotWindow) -> Option<ServerReport> {
        let latest = window.latest().filter(|_| window.seconds() > 0.0)?;
        let requests = window.rates(REQUESTS);
        let softirq = softirq_rate(window);
        let traffic = TrafficSum::new(&requests, softirq.unwrap_or(0.0));
        Some(ServerReport {
            title: title(window, latest),
            total: traffic.total,
            levels: levels(&requests, softirq),
            figures: figures(window, &traffic),
            urls: urls(latest),
            sites: sites(window, &requests),
            origins: origins(window, latest),
            errors: errors(latest),
        })
    }

    /// A table of the report.
    pub fn table(&self, table: ReportTable) -> &TextTable {
        match table {
            ReportTable::Urls => &self.urls,
            ReportTable::Sites => &self.sites,
            ReportTable::Origins => &self.origins,
            ReportTable::Errors => &self.errors,
        }
    }
}

/// Requests per second by outcome and class.
#[derive(Default)]
struct TrafficSum {
    total: f64,
    hits: f64,
    lookups: f64,
    failures: f64,
    client_errors: f64,
}

impl TrafficSum {
    fn new<'a>(requests: impl IntoIterator<Item = &'a SeriesRate<'a>>, softirq: f64) -> TrafficSum {
        let mut sum = TrafficSum {
            total: softirq,
            hits: softirq,
            lookups: softirq,
            ..TrafficSum::default()
        };
        for series in requests {
            let rate = series.rate;
            sum.total += rate;
            match series.label("outcome") {
                "hit" | "stale" => {
                    sum.hits += rate;
                    sum.lookups += rate;
                }
                "miss" | "revalidated" => sum.lookups += rate,
                _ => {}
            }
            match series.label("code_class") {
                "5xx" => sum.failures += rate,
                "4xx" => sum.client_errors += rate,
                _ => {}
            }
        }
        sum
    }

    fn hit_ratio(&self) -> Option<f64> {
        (self.lookups > 0.0).then(|| self.hits / self.lookups)
    }
}

/// The requests that the softirq level answers; `None` if the server has no level.
fn softirq_rate(window: &SnapshotWindow) -> Option<f64> {
    if window.samples(SOFTIRQ_ANSWERS).is_empty() {
        return None;
    }
    // A retransmitted response does not count as another request.
    Some(window.rate(SOFTIRQ_ANSWERS, |it| it.label("reason") == "hit"))
}

fn title(window: &SnapshotWindow, latest: &Value) -> String {
    let build = window.samples("lowroad_build").first();
    let version = build.map_or("", |it| label(&it["labels"], "version"));
    let now_s = latest["time_ms"].as_f64().unwrap_or(0.0) / 1000.0;
    let start_s = window.gauge("process_start_time_seconds").unwrap_or(now_s);
    visible(&format!("lowroad {version}, up {}", age(now_s - start_s)))
}

/// A time span in its two largest units.
fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

fn levels(requests: &[SeriesRate<'_>], softirq: Option<f64>) -> Vec<LevelRate> {
    let sum = |name: &str| {
        let own = requests.iter().filter(|it| it.label("level") == name);
        // Not `sum`, which is -0 without levels.
        own.fold(0.0, |sum, it| sum + it.rate)
    };
    let levels = URL_LEVELS.into_iter().rev().map(|name| LevelRate {
        name,
        rate: match name {
            "softirq" => softirq,
            name => Some(sum(name)),
        },
    });
    levels.collect()
}

fn figures(window: &SnapshotWindow, traffic: &TrafficSum) -> Vec<(&'static str, String)> {
    let sent =
        window.rate(BODY_BYTES, |_| true) + window.rate("lowroad_softirq_answered_bytes", |_| true);
    let failures = (traffic.total > 0.0).then(|| traffic.failures / traffic.total);
    let connections = window.gauge("lowroad_open_connections").unwrap_or(0.0);
    vec![
        ("req/s", rate(traffic.total)),
        ("hits", percent(traffic.hit_ratio())),
        ("5xx", percent(failures)),
        ("p50", duration(window.quantile(DURATIONS, 0.5, |_| true))),
        ("p99", duration(window.quantile(DURATIONS, 0.99, |_| true))),
        ("sent", format!("{}/s", bytes(sent))),
        ("connections", format!("{connections:.0}")),
    ]
}

fn number_cell(value: f64) -> TableCell {
    TableCell::from_number(value, short_rate(value))
}

/// The cell of a quantile. Rows without durations are sorted to the end.
fn duration_cell(seconds: Option<f64>) -> TableCell {
    TableCell::from_number(seconds.unwrap_or(-1.0), duration(seconds))
}

fn urls(latest: &Value) -> TextTable {
    let urls = latest["urls"]["urls"].as_array().into_iter().flatten();
    let rows = urls.map(|url| {
        let text = label(url, "url");
        let text = match url["is_cut"].as_bool() {
            Some(true) => format!("{text}..."),
            _ => text.to_owned(),
        };
        let share = url["share"].as_f64().unwrap_or(0.0);
        vec![
            TableCell::from_text(&text),
            number_cell(url["rate"].as_f64().unwrap_or(0.0)),
            TableCell::from_text(label(url, "level")),
            TableCell::from_number(share, percent(Some(share))),
        ]
    });
    TextTable {
        columns: &URL_COLUMNS,
        rows: rows.collect(),
        empty: "No requests in the last minutes.",
    }
}

fn sites(window: &SnapshotWindow, requests: &[SeriesRate<'_>]) -> TextTable {
    let mut scopes: BTreeMap<(&str, &str), Vec<&SeriesRate<'_>>> = BTreeMap::new();
    for series in requests {
        let scope = (series.label("site"), series.label("route"));
        scopes.entry(scope).or_default().push(series);
    }
    let rows = scopes.into_iter().map(|((site, route), series)| {
        let traffic = TrafficSum::new(series, 0.0);
        let sum = |name| {
            window.rate(name, |it| {
                it.label("site") == site && it.label("route") == route
            })
        };
        let quantile = |share| {
            window.quantile(DURATIONS, share, |labels| {
                label(labels, "site") == site && label(labels, "route") == route
            })
        };
        let name = match site {
            "" => "(any host)",
            site => site,
        };
        let body = sum(BODY_BYTES);
        let hits = traffic.hit_ratio();
        vec![
            TableCell::from_text(format!("{name} {route}").trim_end()),
            number_cell(traffic.total),
            duration_cell(quantile(0.5)),
            duration_cell(quantile(0.99)),
            TableCell::from_number(hits.unwrap_or(-1.0), whole_percent(hits)),
            number_cell(traffic.failures),
            number_cell(traffic.client_errors),
            TableCell::from_number(body, bytes(body)),
            number_cell(sum("lowroad_responses_cut")),
        ]
    });
    TextTable {
        columns: &SITE_COLUMNS,
        rows: rows.collect(),
        empty: "No requests yet.",
    }
}

fn origins(window: &SnapshotWindow, latest: &Value) -> TextTable {
    let notes = latest["upstreams"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let rows = window
        .samples("lowroad_upstream_connections_idle")
        .iter()
        .map(|sample| {
            let own = &sample["labels"];
            let (origin, server) = (label(own, "origin"), label(own, "server"));
            let is_own = |labels: &Value| {
                label(labels, "origin") == origin && label(labels, "server") == server
            };
            let gauge = |name: &str| {
                let mut samples = window.samples(name).iter();
                samples.find(|it| is_own(&it["labels"])).map(number)
            };
            let sum = |name| {
                window.rate(name, |it| {
                    it.label("origin") == origin && it.label("server") == server
                })
            };
            let failures = sum("lowroad_upstream_failures");
            let quantile = |share| window.quantile(RESPONSE_TIMES, share, is_own);
            let note = notes.iter().find(|note| is_own(note));
            let note_health = note.map_or("", |it| label(it, "health"));
            let health = match gauge("lowroad_upstream_up") {
                Some(0.0) if note_health.starts_with("half-open") => "half-open",
                Some(0.0) => "down",
                _ if failures > 0.0 => "failing",
                Some(_) => "up",
                None => "-",
            };
            let decision = match note.map_or("", |it| label(it, "state")) {
                "drain" => "drained",
                "down" => "taken down",
                "force" => "forced",
                _ => "",
            };
            let failure = match health {
                "down" | "failing" | "half-open" => {
                    note.map_or("", |it| label(it, "latest_failure"))
                }
                _ => "",
            };
            let reasons = [decision, failure];
            let reasons: Vec<&str> = reasons.into_iter().filter(|it| !it.is_empty()).collect();
            let open = gauge("lowroad_upstream_connections_in_use").unwrap_or(0.0) + number(sample);
            let name = match server.starts_with(origin) {
                true => server.to_owned(),
                false => format!("{origin} {server}"),
            };
            vec![
                TableCell::from_text(&name),
                TableCell::from_text(health),
                number_cell(sum("lowroad_upstream_responses")),
                number_cell(failures),
                duration_cell(quantile(0.5)),
                duration_cell(quantile(0.99)),
                TableCell::from_number(open, format!("{open:.0}")),
                TableCell::from_text(&reasons.join("; ")),
            ]
        });
    TextTable {
        columns: &ORIGIN_COLUMNS,
        rows: rows.collect(),
        empty: "This server has no origins.",
    }
}

fn errors(latest: &Value) -> TextTable {
    let now_ms = latest["time_ms"].as_f64().unwrap_or(0.0);
    let errors = latest["errors"].as_array().into_iter().flatten().rev();
    let rows = errors.map(|error| {
        let age_s = (now_ms - error["time_ms"].as_f64().unwrap_or(now_ms)) / 1000.0;
        vec![
            TableCell::from_text(label(error, "message")),
            TableCell::from_text(label(error, "level")),
            // The youngest first: numbers are sorted from the greatest.
            TableCell::from_number(-age_s, age(age_s)),
        ]
    });
    TextTable {
        columns: &ERROR_COLUMNS,
        rows: rows.collect(),
        empty: "No errors or warnings since the start.",
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A snapshot of a server with all kinds of values; counters have grown by `count` requests.
    fn snapshot(time_ms: u64, count: u64) -> Value {
        let request = |site, route, level, outcome, code, count: u64| {
            json!({"labels": {"site": site, "route": route, "level": level, "outcome": outcome, "code_class": code},
                   "value": count})
        };
        let upstream = |server, value: u64| json!({"labels": {"origin": "app", "server": server}, "value": value});
        let one = |value: f64| json!({"samples": [{"labels": {}, "value": value}]});
        let family = |samples: &[Value]| json!({"samples": samples});
        let url = |path, level, rate: f64| {
            json!({"url": format!("http://a.example{path}"), "site": "a.example", "is_cut": false,
                   "level": level, "rate": rate, "share": rate / 1000.0})
        };
        json!({
            "time_ms": time_ms,
            "metrics": {
                "lowroad_build": {"samples": [{"labels": {"version": "1.2.3"}}]},
                "process_start_time_seconds": one(100.0),
                "lowroad_open_connections": one(42.0),
                "lowroad_requests": family(&[
                    request("a.example", "", "worker", "hit", "2xx", 80 * count),
                    request("a.example", "/app/** to origin app", "origin", "pass", "5xx", 10 * count),
                    request("", "", "worker", "made", "4xx", 10 * count),
                ]),
                "lowroad_response_body_bytes": family(&[
                    json!({"labels": {"site": "a.example", "route": ""}, "value": 500_000 * count}),
                ]),
                "lowroad_request_duration_seconds": family(&[
                    json!({"labels": {"site": "a.example", "route": ""}, "value": {"count": count, "buckets": [[-40, count]]}}),
                ]),
                "lowroad_upstream_response_seconds": family(&[
                    json!({"labels": {"origin": "app", "server": "http://10.0.0.1:3000"},
                           "value": {"count": count, "buckets": [[-20, count]]}}),
                ]),
                "lowroad_upstream_connections_idle": family(&[
                    upstream("http://10.0.0.1:3000", 3), upstream("http://10.0.0.2:3000", 0),
                ]),
                "lowroad_upstream_up": family(&[
                    upstream("http://10.0.0.1:3000", 1), upstream("http://10.0.0.2:3000", 0),
                ]),
                "lowroad_upstream_responses": family(&[upstream("http://10.0.0.1:3000", 10 * count)]),
            },
            "urls": {"urls": [url("/index.html", "worker", 700.0), url("/app/cart?id=1", "origin", 80.0)]},
            "upstreams": [{"origin": "app", "server": "http://10.0.0.2:3000", "state": "drain", "health": "down",
                           "latest_failure": "connection refused"}],
            "errors": [
                {"time_ms": time_ms - 90_000, "level": "warn", "message": "an old warning"},
                {"time_ms": time_ms - 5_000, "level": "error", "message": "origin app: \u{1b}[31mrefused\n"},
            ],
        })
    }

    /// A report for the tests of screens and texts.
    pub fn example_report() -> ServerReport {
        let mut window = SnapshotWindow::new(5_000);
        window.push(snapshot(200_000, 0));
        window.push(snapshot(205_000, 50));
        ServerReport::new(&window).expect("two snapshots")
    }

    #[test]
    fn report_has_rates_of_the_window() {
        let report = example_report();
        assert_eq!(report.title, "lowroad 1.2.3, up 1 min 45 s");
        assert_eq!(report.total, 1000.0);
        let rates: Vec<_> = report.levels.iter().map(|it| (it.name, it.rate)).collect();
        let expected = [
            ("origin", Some(100.0)),
            ("handler", Some(0.0)),
            ("worker", Some(900.0)),
            ("softirq", None),
        ];
        assert_eq!(rates, expected);
        let figure = |name| {
            report
                .figures
                .iter()
                .find(|it| it.0 == name)
                .map(|it| &*it.1)
        };
        assert_eq!(figure("hits"), Some("100.0 %"));
        assert_eq!(figure("5xx"), Some("10.0 %"));
        assert_eq!(figure("sent"), Some("5.0 MB/s"));
        assert_eq!(figure("p50"), Some("29.9 ms"));
    }

    #[test]
    fn tables_have_all_rows_without_control_characters() {
        let report = example_report();
        let texts = |table| -> Vec<Vec<&str>> {
            let rows = report.table(table).rows.iter();
            rows.map(|row| row.iter().map(|cell| &*cell.text).collect())
                .collect()
        };
        let urls = texts(ReportTable::Urls);
        assert_eq!(
            urls[1],
            ["http://a.example/app/cart?id=1", "80.0", "origin", "8.0 %"]
        );
        let sites = texts(ReportTable::Sites);
        assert_eq!(sites[0][..2], ["(any host)", "100"]);
        assert_eq!(sites[2][0], "a.example /app/** to origin app");
        let origins = texts(ReportTable::Origins);
        assert_eq!(origins[0][..3], ["app http://10.0.0.1:3000", "up", "100"]);
        assert_eq!(origins[1][1], "down");
        let reason = "drained; connection refused";
        assert_eq!(origins[1][7], reason);
        let errors = texts(ReportTable::Errors);
        assert_eq!(
            errors[0],
            ["origin app: \u{fffd}[31mrefused\u{fffd}", "error", "5 s"]
        );
        assert_eq!(errors[1][2], "1 min 30 s");
    }

    #[test]
    fn foreign_snapshot_gives_an_empty_report() {
        let mut window = SnapshotWindow::new(5_000);
        window.push(json!({"time_ms": 1000}));
        assert!(ServerReport::new(&window).is_none());
        window.push(json!({"time_ms": 2000, "urls": 7, "errors": "x", "metrics": []}));
        let report = ServerReport::new(&window).expect("two snapshots");
        assert_eq!(report.total, 0.0);
        assert!(report.table(ReportTable::Urls).rows.is_empty());
    }
}
