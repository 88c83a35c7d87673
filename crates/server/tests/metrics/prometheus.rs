//! A real Prometheus scrapes the server. Its query API must return the totals of the requests.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TempFolder, TestClient, wait_until};
use serde_json::Value;

use crate::documents::{dashboard_expressions, documented_queries, read};
use crate::support::{ObservedServer, READ, RequestCounts, has_prometheus};

/// A running Prometheus with the configuration and alerts of docs/observe. It is killed when dropped.
pub struct TestPrometheus {
    child: Child,
    address: SocketAddr,
    _folder: TempFolder,
}

impl TestPrometheus {
    /// Starts Prometheus with these options, and waits until it listens.
    pub fn start(observed: &ObservedServer, options: &[&str]) -> TestPrometheus {
        let folder = TempFolder::new();
        let token = folder.file("token", READ);
        let config = read("observe/prometheus.yml")
            .replace(
                "/etc/prometheus/lowroad.token",
                &token.display().to_string(),
            )
            .replace("127.0.0.1:9145", &observed.admin.to_string())
            .replace("_interval: 15s", "_interval: 1s");
        let config = folder.file("prometheus.yml", config);
        folder.file("alerts.yml", read("observe/alerts.yml"));
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}/data",
                folder.path().display()
            ))
            .arg("--web.listen-address=127.0.0.1:0")
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("Prometheus starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let mut prometheus = TestPrometheus {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            _folder: folder,
        };
        let mut lines = log.lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            address.trim().parse().ok()
        });
        prometheus.address = address.expect("an address");
        // Prometheus would block if the pipe were full.
        std::thread::spawn(move || lines.for_each(drop));
        prometheus
    }

    /// The data of a response of Prometheus' API; `None` while Prometheus is starting.
    fn api(&self, target: &str) -> Option<Value> {
        let mut client = TestClient::connect(self.address);
        // Responses to HTTP/1.0 are not chunked.
        client.send(format!("GET /api/v1/{target} HTTP/1.0\r\nHost: p\r\n\r\n"));
        client.wait_for_close();
        let text = String::from_utf8_lossy(&client.received).into_owned();
        let (_, body) = text.split_once("\r\n\r\n")?;
        let mut answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{target}: {answer}");
        Some(answer["data"].take())
    }

    /// The result vector of a query.
    pub fn query(&self, query: &str) -> Vec<Value> {
        let data = self.api(&format!("query?query={}", encoded(query)));
        let result = data.map(|mut data| data["result"].take());
        match result {
            Some(Value::Array(vector)) => vector,
            _ => Vec::new(),
        }
    }

    /// Waits until Prometheus has scraped all these requests, by all labels.
    fn wait_for(&self, expected: &RequestCounts) {
        wait_until("Prometheus to have the totals", || {
            let names = ["site", "route", "level", "outcome", "code_class"];
            let counts = self.query("lowroad_requests_total").into_iter().map(|it| {
                // An empty label is the same as a missing one.
                let label = |name| it["metric"][name].as_str().unwrap_or_default().to_owned();
                (names.map(label), number(&it) as u64)
            });
            (counts.collect::<RequestCounts>() == *expected).then_some(())
        });
    }
}

impl Drop for TestPrometheus {
    fn drop(&mut self) {
        // The process may have ended already; waiting avoids a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of an element of a vector.
pub fn number(element: &Value) -> f64 {
    let text = element["value"][1].as_str();
    text.and_then(|it| it.parse().ok()).expect("a number")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn prometheus_scrapes_the_totals() {
    if !has_prometheus("prometheus_scrapes_the_totals") {
        return;
    }
    let observed = ObservedServer::start();
    let prometheus = TestPrometheus::start(&observed, &[]);
    let mut expected = observed.make_requests();
    prometheus.wait_for(&expected);
    // Later scrapes must add further requests.
    for _ in 0..50 {
        assert_eq!(observed.get("a.example", "/"), 200);
    }
    let hits = ["a.example", "", "worker", "hit", "2xx"].map(str::to_owned);
    *expected.get_mut(&hits).expect("hits") += 50;
    prometheus.wait_for(&expected);
    let scrapes = prometheus.query("count_over_time(up[10m])");
    assert!(number(&scrapes[0]) >= 2.0, "{scrapes:?}");
    let all: u64 = expected.values().sum();
    wait_until("Prometheus to have all durations", || {
        let sum = prometheus.query("sum(lowroad_request_duration_seconds_count)");
        sum.first()
            .filter(|sum| number(sum) == all as f64)
            .map(drop)
    });

    every_panel_has_a_valid_query(&prometheus, &observed);
    every_alert_is_evaluated(&prometheus);
}

/// Sends the query of each panel, for all instances and sites, and those of the page for operators.
fn every_panel_has_a_valid_query(prometheus: &TestPrometheus, observed: &ObservedServer) {
    let mut filled = 0;
    let expressions = dashboard_expressions();
    for expression in &expressions {
        let query = expression
            .replace("$job", "lowroad")
            .replace("$instance", &observed.admin.to_string())
            .replace("$site", ".*")
            .replace("$__rate_interval", "10m");
        assert!(!query.contains('$'), "{query}");
        // An invalid query fails the test.
        filled += usize::from(!prometheus.query(&query).is_empty());
    }
    // Only the softirq level has no data here.
    assert_eq!(filled, expressions.len() - 1);
    let queries = documented_queries();
    assert!(queries.len() > 5, "{queries:?}");
    queries
        .iter()
        .for_each(|query| drop(prometheus.query(query)));
}

fn every_alert_is_evaluated(prometheus: &TestPrometheus) {
    let rules = wait_until("all alerts to be evaluated", || {
        let data = prometheus.api("rules?type=alert")?;
        let rules = data["groups"][0]["rules"].as_array()?.clone();
        let is_done = |rule: &Value| rule["health"] != "unknown";
        (!rules.is_empty() && rules.iter().all(is_done)).then_some(rules)
    });
    assert!(rules.len() > 10, "{}", rules.len());
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

#[test]
fn prometheus_reads_native_histograms() {
    if !has_prometheus("prometheus_reads_native_histograms") {
        return;
    }
    let observed = ObservedServer::start();
    let prometheus = TestPrometheus::start(&observed, &["--enable-feature=native-histograms"]);
    let expected = observed.make_requests();
    prometheus.wait_for(&expected);
    let all: u64 = expected.values().sum();
    let query = "sum(histogram_count(lowroad_request_duration_seconds))";
    wait_until("a native histogram of all requests", || {
        let count = prometheus.query(query);
        count
            .first()
            .filter(|count| number(count) == all as f64)
            .map(drop)
    });
    let slowest = "max(histogram_quantile(1, lowroad_request_duration_seconds))";
    let slowest = number(&prometheus.query(slowest)[0]);
    let sum = number(&prometheus.query("sum(histogram_sum(lowroad_request_duration_seconds))")[0]);
    // A bucket's upper bound exceeds the durations in it by at most 9.1 %.
    assert!(slowest > 0.0 && slowest <= sum * 1.091, "{slowest} {sum}");
}
