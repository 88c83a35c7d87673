//! A soak test: clients of HTTP/1, TLS and HTTP/2 send requests while Prometheus scrapes and a reload happens; at the end
//! Prometheus has the totals that the clients have counted. It takes `LOWROAD_SOAK_S` seconds, 20 by default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient, wait_until};
use serde_json::Value;

use crate::prometheus::{TestPrometheus, number};
use crate::support::{FULL, ObservedServer, has_prometheus, run};

const SOAK_S_DEFAULT: u64 = 20;
/// The paths that are requested in turn, with the expected class of status.
const PATHS: [(&str, &str); 5] = [
    ("/", "2xx"),
    ("/app/stored", "2xx"),
    ("/none", "4xx"),
    ("/app/plain", "2xx"),
    ("/app/fail", "5xx"),
];
/// The requests of one run of curl, which uses one connection.
const CURL_REQUESTS: usize = 40;

/// The totals of a client: the number of requests by route and class of status, and the bytes of all bodies.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClientTotals {
    requests: BTreeMap<(String, String), u64>,
    body_bytes: u64,
}

impl ClientTotals {
    fn add(&mut self, path: &str, class: &str, body_len: u64) {
        let route = if path.starts_with("/app/") { "app" } else { "" };
        let key = (route.to_owned(), class.to_owned());
        *self.requests.entry(key).or_default() += 1;
        self.body_bytes += body_len;
    }

    fn append(&mut self, other: ClientTotals) {
        for (key, count) in other.requests {
            *self.requests.entry(key).or_default() += count;
        }
        self.body_bytes += other.body_bytes;
    }
}

/// A client of HTTP/1 without TLS, with connections of 100 requests.
fn use_http1(to: SocketAddr, end: Instant) -> ClientTotals {
    let mut totals = ClientTotals::default();
    while Instant::now() < end {
        let mut client = TestClient::connect(to);
        for (path, class) in PATHS.iter().cycle().take(100) {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            let response = client.response();
            assert_eq!(format!("{}xx", response.status / 100), *class, "{path}");
            totals.add(path, class, response.body.len() as u64);
            // A moderate load, since other tests run beside this one.
            thread::sleep(Duration::from_millis(2));
        }
    }
    totals
}

/// A client of TLS with curl, with this version of HTTP.
fn use_tls(to: SocketAddr, version: &str, expected: &str, end: Instant) -> ClientTotals {
    let mut totals = ClientTotals::default();
    while Instant::now() < end {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", version, "--max-time", "60", "--connect-to"]);
        curl.arg(format!("::{to}"));
        curl.args(["-w", "\n= %{http_version} %{http_code} %{size_download}\n"]);
        let paths = PATHS.iter().cycle().take(CURL_REQUESTS);
        curl.args(paths.map(|(path, _)| format!("https://a.example{path}")));
        let output = run(&mut curl, "");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let results = text.lines().filter_map(|line| line.strip_prefix("= "));
        let mut count = 0;
        for (result, (path, class)) in results.zip(PATHS.iter().cycle()) {
            let words: Vec<&str> = result.split(' ').collect();
            assert_eq!(
                (words[0], &words[1][..1]),
                (expected, &class[..1]),
                "{path}"
            );
            totals.add(path, class, words[2].parse().expect("a length"));
            count += 1;
        }
        assert_eq!(count, CURL_REQUESTS, "{text}");
    }
    totals
}

/// A server with a certificate from files, which a reload reads again.
fn server(folder: &TempFolder) -> ObservedServer {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "5"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-keyout", "key.pem", "-out", "cert.pem"]);
    openssl.args([
        "-subj",
        "/CN=a.example",
        "-addext",
        "subjectAltName=DNS:a.example",
    ]);
    let output = run(openssl.current_dir(folder.path()), "");
    assert!(output.status.success(), "{output:?}");
    let origin = TestOrigin::with_response(|request| {
        let (status, caching) = match request.target.as_str() {
            "/app/stored" => ("200 OK", "max-age=600"),
            "/app/fail" => ("500 Internal Server Error", "no-store"),
            _ => ("200 OK", "no-store"),
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nCache-Control: {caching}\r\n\r\nhello")
    });
    let (path, url) = (folder.path().display(), origin.url());
    let tables = format!(
        "[[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
         [site.tls]\nlisten = \"127.0.0.2:0\"\ncertificate = \"{path}/cert.pem\"\nkey = \"{path}/key.pem\"\n\
         [[site.route]]\npattern = \"/app/**\"\norigin = \"{url}\"\n"
    );
    ObservedServer::with(&tables, origin)
}

/// The totals that Prometheus has.
fn scraped_totals(prometheus: &TestPrometheus) -> ClientTotals {
    let requests = prometheus.query("sum by (route, code_class) (lowroad_requests_total)");
    let requests = requests.iter().map(|element: &Value| {
        let label = |name| element["metric"][name].as_str().unwrap_or_default();
        let route = if label("route").is_empty() { "" } else { "app" };
        let key = (route.to_owned(), label("code_class").to_owned());
        (key, number(element) as u64)
    });
    let bytes = prometheus.query("sum(lowroad_response_body_bytes_total)");
    ClientTotals {
        requests: requests.collect(),
        body_bytes: bytes.first().map_or(0, |sum| number(sum) as u64),
    }
}

#[test]
fn totals_of_prometheus_equal_those_of_clients() {
    if !has_prometheus("totals_of_prometheus_equal_those_of_clients") {
        return;
    }
    let seconds = std::env::var("LOWROAD_SOAK_S").ok();
    let seconds = seconds.map_or(SOAK_S_DEFAULT, |text| text.parse().expect("LOWROAD_SOAK_S"));
    let folder = TempFolder::new();
    let observed = server(&folder);
    let prometheus = TestPrometheus::start(&observed, &[]);
    let (plain, tls) = (observed.server.addresses[0], observed.server.addresses[1]);
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let mut totals = ClientTotals::default();
    thread::scope(|scope| {
        let clients = [
            scope.spawn(|| use_http1(plain, end)),
            scope.spawn(|| use_tls(tls, "--http1.1", "1.1", end)),
            scope.spawn(|| use_tls(tls, "--http2", "2", end)),
        ];
        thread::sleep(Duration::from_secs(seconds) / 2);
        let reload = observed.call("POST", "/v1/reload", FULL);
        assert_eq!(reload.status, 200, "{}", reload.text());
        for client in clients {
            totals.append(client.join().expect("a client"));
        }
    });
    assert_eq!(totals.requests.len(), 4, "{totals:?}");
    wait_until("Prometheus to have the totals of the clients", || {
        (scraped_totals(&prometheus) == totals).then_some(())
    });
    let all: u64 = totals.requests.values().sum();
    for query in [
        "sum(lowroad_request_duration_seconds_count)",
        "sum(lowroad_request_heads_received_total)",
    ] {
        // Counted in another turn of the event loop, so perhaps in a later scrape.
        wait_until(query, || {
            let sum = prometheus.query(query);
            (number(sum.first()?) == all as f64).then_some(())
        });
    }
    let reloads = prometheus.query("lowroad_config_reloads_total");
    assert_eq!(number(&reloads[0]), 1.0);
    let failures = prometheus.query("sum(lowroad_responses_cut_total)");
    assert!(failures.is_empty(), "{failures:?}");
}
