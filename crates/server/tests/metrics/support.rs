//! The server of these tests: it has an admin address, an origin with good and failing responses, an unreachable
//! upstream, and TLS by the local authority.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lowroad_testkit::origin::{OriginRequest, TestOrigin, chunks};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer};

use crate::text_format::Scrape;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// A token for all operations.
pub const FULL: &str = "full-0123456789abcdef";
/// A token for read-only operations.
pub const READ: &str = "read-0123456789abcdef";
/// The length of the origin's bodies.
pub const BODY_LEN: u64 = 100;

/// Counts of requests by site, route, level, outcome and class of status.
pub type RequestCounts = BTreeMap<[String; 5], u64>;

/// A running server.
pub struct ObservedServer {
    pub folder: TempFolder,
    pub server: TestServer,
    /// The admin address on TCP.
    pub admin: SocketAddr,
    pub origin: TestOrigin,
}

impl ObservedServer {
    /// A server with the site `a.example`, which gives all kinds of responses.
    pub fn start() -> ObservedServer {
        let origin = TestOrigin::with_response(|request: &OriginRequest| {
            let (status, caching) = match request.target.rsplit('/').next() {
                Some("stored") => ("200 OK", "max-age=600"),
                Some("fail") => ("500 Internal Server Error", "no-store"),
                _ => ("200 OK", "no-store"),
            };
            let body = "x".repeat(BODY_LEN as usize);
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {BODY_LEN}\r\nCache-Control: {caching}\r\n\r\n{body}"
            )
        });
        let tables = format!(
            "[[class]]\nname = \"all\"\n\
             [[origin]]\nname = \"down\"\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n\
             [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
             [site.tls]\nlisten = \"127.0.0.2:0\"\nlocal = true\n\
             [[site.redirect]]\nfrom = \"/moved\"\nto = \"/\"\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"{}\"\n\
             [[site.route]]\npattern = \"/down/**\"\norigin = \"down\"\n",
            origin.url()
        );
        ObservedServer::with(&tables, origin)
    }

    /// A server with these tables.
    pub fn with(tables: &str, origin: TestOrigin) -> ObservedServer {
        let folder = TempFolder::new();
        folder.file("root/index.html", "hello");
        folder.file("full.token", format!("{FULL}\n"));
        folder.file("read.token", format!("{READ}\n"));
        let config = folder.file("lowroad.toml", config(tables));
        let mut command = Command::new(PROGRAM);
        // The local authority creates its files there.
        command.env("XDG_DATA_HOME", folder.path());
        command.args(["run", "-c"]).arg(config).stdin(Stdio::null());
        let server = TestServer::spawn(command);
        let line = server.wait_for_error_line("metrics and commands at http://");
        let admin = line
            .rsplit("//")
            .next()
            .map(|end| end.trim_end_matches('/'));
        ObservedServer {
            admin: admin.and_then(|it| it.parse().ok()).expect("an address"),
            folder,
            server,
            origin,
        }
    }

    /// Replaces the configuration file, for the next reload.
    pub fn configure(&self, tables: &str) {
        self.folder.file("lowroad.toml", config(tables));
    }

    /// The admin service's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// Sends a request to the admin service. The token is omitted if it is empty.
    pub fn call(&self, method: &str, target: &str, token: &str) -> ClientResponse {
        let fields = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        self.call_with(method, target, &fields)
    }

    /// Sends a request with these field lines to the admin service.
    pub fn call_with(&self, method: &str, target: &str, fields: &str) -> ClientResponse {
        self.call_with_body(method, target, fields, "")
    }

    /// Sends a request with these field lines and a body to the admin service.
    pub fn call_with_body(
        &self,
        method: &str,
        target: &str,
        fields: &str,
        body: &str,
    ) -> ClientResponse {
        let mut client = TestClient::connect(self.admin);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n{fields}\r\n{body}"
        ));
        assert!(client.wait_for_close(), "{method} {target}: reset");
        whole(&client.received, method != "HEAD")
    }

    /// Sends a JSON body with the full token, and with these further field lines.
    pub fn call_with_json(
        &self,
        method: &str,
        target: &str,
        fields: &str,
        body: &str,
    ) -> ClientResponse {
        let len = body.len();
        let fields = format!("Authorization: Bearer {FULL}\r\nContent-Length: {len}\r\n{fields}");
        self.call_with_body(method, target, &fields, body)
    }

    /// A scrape in the text format.
    pub fn scrape(&self) -> Scrape {
        let response = self.call("GET", "/metrics", READ);
        assert_eq!(response.status, 200, "{}", response.text());
        Scrape::read(&response.text())
    }

    /// Sends a GET to the first address; returns the status.
    pub fn get(&self, host: &str, path: &str) -> u16 {
        let mut client = self.server.connect();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
        client.response().status
    }

    /// Sends a GET to the TLS address with curl.
    pub fn get_by_tls(&self, path: &str) {
        let to = self.server.addresses[1];
        let mut curl = Command::new("curl");
        curl.args([
            "-sSk",
            "--max-time",
            "20",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        curl.args([
            "--connect-to",
            &format!("::{to}"),
            &format!("https://a.example{path}"),
        ]);
        let output = run(&mut curl, "");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "{output:?}");
    }

    /// Sends requests of all kinds; returns their counts.
    pub fn make_requests(&self) -> RequestCounts {
        let (site, app) = (
            "a.example",
            format!("/app/** to origin {}", self.origin.url()),
        );
        let down = "/down/** to origin down";
        let mut counts = RequestCounts::new();
        let mut count = |site: &str, route: &str, rest: [&str; 3], count: u64| {
            let [level, outcome, class] = rest;
            let key = [site, route, level, outcome, class].map(str::to_owned);
            *counts.entry(key).or_default() += count;
        };
        for (path, times, status) in [
            ("/", 5, 200),
            ("/none", 1, 404),
            ("/moved", 1, 301),
            ("/app/stored", 4, 200),
            ("/app/plain", 2, 200),
            ("/app/fail", 3, 500),
            ("/down/x", 2, 502),
        ] {
            for _ in 0..times {
                assert_eq!(self.get(site, path), status, "{path}");
            }
        }
        self.get_by_tls("/");
        assert_eq!(self.get("b.example", "/"), 421);
        assert_eq!(self.get("a b", "/"), 400);
        count(site, "", ["worker", "miss", "2xx"], 1);
        count(site, "", ["worker", "hit", "2xx"], 4 + 1);
        count(site, "", ["worker", "miss", "4xx"], 1);
        count(site, "", ["worker", "made", "3xx"], 1);
        count(site, &app, ["origin", "miss", "2xx"], 1);
        count(site, &app, ["worker", "hit", "2xx"], 3);
        count(site, &app, ["origin", "pass", "2xx"], 2);
        count(site, &app, ["origin", "pass", "5xx"], 3);
        count(site, down, ["origin", "pass", "5xx"], 2);
        count("", "", ["worker", "made", "4xx"], 2);
        counts
    }
}

fn config(tables: &str) -> String {
    format!(
        "[server]\nworkers = 2\nadmin = \"admin.sock\"\ndisk_cache = \"disk\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"full.token\"\nread_token_file = \"read.token\"\n\
         {tables}"
    )
}

/// The counts of requests in a scrape.
pub fn request_counts(scrape: &Scrape) -> RequestCounts {
    let own = scrape.samples.iter();
    let own = own.filter(|(name, ..)| name == "lowroad_requests_total");
    own.map(|(_, labels, value)| {
        let names = ["site", "route", "level", "outcome", "code_class"];
        (names.map(|name| labels[name].clone()), *value as u64)
    })
    .collect()
}

/// A response that was received until the connection closed, with chunked bodies decoded.
fn whole(received: &[u8], has_body: bool) -> ClientResponse {
    let mut rest = received.to_vec();
    let mut response = ClientResponse::take(&mut rest, has_body)
        .unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(received)));
    if response.field("transfer-encoding").is_some() {
        // Fails without the last chunk, because then the body is incomplete.
        rest.extend_from_slice(b"0\r\n\r\n");
        response.body = chunks(&rest).expect("chunks").0;
    }
    response
}

/// Runs a program with this standard input.
pub fn run(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // The program may end before it has read all input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("its output")
}

/// Runs promtool successfully; returns its output.
pub fn promtool(arguments: &[&str], input: &str) -> String {
    let output = run(Command::new("promtool").args(arguments), input);
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

/// Whether Prometheus is installed; if not, reports a skip.
pub fn has_prometheus(test: &str) -> bool {
    let has = ["promtool", "prometheus"].iter().all(|program| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null());
        version
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if !has {
        lowroad_testkit::skip(test, "Prometheus is not installed");
    }
    has
}
