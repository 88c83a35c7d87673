//! Real clients in front of a real Apache: responses are right, and the level answers every request that it can.

use lowroad_testkit::TempFolder;
use lowroad_testkit::net::{
    LinkMangling, SERVER, TestPage, TestPath, TestSite, WebServer, is_installed,
};

use crate::attached::{Attached, get, send_request, server_v4, servers};
use crate::cables::Cable;
use crate::skipped;

/// A redirect, compression, and a freshness lifetime for all pages except a private one.
const DIRECTIVES: &str = "\
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
TypesConfig /dev/null
AddType text/plain .txt
AddType text/html .html
AddType text/css .css
AddOutputFilterByType DEFLATE text/plain
Redirect permanent /old /page.txt
Header always set Cache-Control max-age=60
";

const TEXT: &str = "All work and no play makes Jack a dull boy. ";

struct Net {
    path: TestPath,
    site: TestSite,
    _apache: WebServer,
}

fn network() -> Net {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(501, &[300]);
    let write = |name: &str, content: &str| {
        let name = std::path::Path::new("root").join(name);
        site.folder().file(name, content);
    };
    write("page.txt", &TEXT.repeat(20));
    write(
        "index.html",
        "<!doctype html><link rel=stylesheet href=style.css><title>t</title><h1>Hot</h1>",
    );
    write("style.css", "h1 { color: #123456 }");
    let apache = WebServer::apache(&path.server, &site, 80, DIRECTIVES).expect("apache");
    Net {
        path,
        site,
        _apache: apache,
    }
}

impl Net {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", SERVER.0)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let said = self.path.client.run(program, arguments);
        said.unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
fn curl_gets_each_kind_of_response_from_the_level() {
    let test = "curl_gets_each_kind_of_response_from_the_level";
    if skipped(test, &["apache2", "curl"]) {
        return;
    }
    let net = network();
    let attached = Attached::start(&net.path.server, 80, &[]);
    let file = std::fs::read(net.site.root().join("0-300.bin")).expect("a page");
    let url = net.url("/0-300.bin");
    let head = net.run("curl", &["-sI", &url]);
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
    let condition = format!("If-None-Match: {}", etag.expect("an entity tag"));
    let text = net.url("/page.txt");
    let (old, missing) = (net.url("/old"), net.url("/missing"));
    let cases: [(&str, &str, &[&str]); 9] = [
        ("200", "/", &[&url]),
        ("200", "HEAD", &["-I", &url]),
        ("304", "304", &["-H", &condition, &url]),
        ("200", "close", &["-H", "Connection: close", &url]),
        ("200", "1.0", &["-0", &url]),
        (
            "200",
            "1.0 keep-alive",
            &["-0", "-H", "Connection: keep-alive", &url],
        ),
        ("200", "gzip", &["--compressed", &text]),
        ("301", "redirect", &[&old]),
        ("404", "404", &[&missing]),
    ];
    for (status, name, arguments) in cases {
        let format = "%{stderr}%{http_code} %{size_header}";
        let all = [
            &["-s", "--max-time", "20", "-D", "-", "-w", format],
            arguments,
        ]
        .concat();
        // The first response comes from Apache. The level has stored it by the second request at the latest.
        let first = net.run("curl", &all);
        let mut last = String::new();
        lowroad_testkit::wait_until(name, || {
            let hits = attached.count("answer_hit");
            last = net.run("curl", &all);
            (attached.count("answer_hit") > hits).then_some(())
        });
        assert!(
            last.starts_with(&format!("HTTP/1.1 {status}")),
            "{name}: {last}"
        );
        assert_eq!(comparable(&first), comparable(&last), "{name}");
        assert!(last.contains("\r\nDate: "), "{name}: {last}");
    }
    // Compares the bodies that the level sends byte by byte.
    let hits = attached.count("answer_hit");
    let body = net.path.client.enter(|| {
        send_request(
            server_v4(80),
            &format!(
                "GET /0-300.bin HTTP/1.1\r\nHost: {}\r\nUser-Agent: x\r\n\r\n",
                SERVER.0
            ),
        )
    });
    assert_eq!(body.body, file);
    let said = net.run("curl", &["-s", "--compressed", &text]);
    assert_eq!(said, TEXT.repeat(20));
    assert_eq!(attached.count("answer_hit"), hits + 2);
    eprintln!("{:?}", attached.counts());
}

/// The parts of a response that must be equal: the sorted head without fields that differ between responses, and the
/// body.
fn comparable(response: &str) -> (Vec<&str>, &str) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let differs = ["Date:", "Age:", "Keep-Alive:", "Connection:"];
    let same = |line: &&str| !differs.iter().any(|name| line.starts_with(name));
    let mut lines: Vec<&str> = head.lines().filter(same).collect();
    lines[1..].sort_unstable();
    (lines, body)
}

#[test]
fn load_generators_report_no_errors() {
    let mut net = None;
    for (program, arguments, fine) in [
        ("wrk", &["-t1", "-c16", "-d1s"][..], &["requests in"][..]),
        (
            "h2load",
            &["--h1", "-n20000", "-c16"],
            &[
                "20000 succeeded, 0 failed, 0 errored, 0 timeout",
                "20000 2xx",
            ],
        ),
    ] {
        let test = format!("load_generators_report_no_errors ({program})");
        if skipped(&test, &["apache2", program]) {
            continue;
        }
        let net = net.get_or_insert_with(network);
        let attached = Attached::start(&net.path.server, 80, &[]);
        let url = net.url("/0-300.bin");
        // Connections that were opened before the responses were stored stay with the server, so only the second run
        // counts.
        for run in 0..2 {
            let before = (attached.count("answer_hit"), attached.count("up_miss"));
            let said = net.run(program, &[arguments, &[&url]].concat());
            for words in fine {
                assert!(said.contains(words), "{said}");
            }
            for words in ["Non-2xx", "Socket errors"] {
                assert!(!said.contains(words), "{said}");
            }
            if run == 1 {
                assert!(attached.count("answer_hit") >= before.0 + 1000, "{said}");
                assert_eq!(attached.count("up_miss"), before.1, "{said}");
            }
        }
        eprintln!("{program}: {:?}", attached.counts());
    }
}

#[test]
fn browser_renders_responses_of_the_level() {
    let test = "browser_renders_responses_of_the_level";
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let found = browsers.into_iter().find(|name| is_installed(name));
    if skipped(test, &["apache2", found.unwrap_or("chromium")]) {
        return;
    }
    let net = network();
    // A headless browser sends Cache-Control only when it reloads a page.
    let attached = Attached::start(&net.path.server, 80, &["--ignore-cache-control"]);
    lowroad_testkit::wait_until("hits for the browser", || {
        let folder = TempFolder::new();
        let profile = format!("--user-data-dir={}", folder.path().display());
        let hits = attached.count("answer_hit");
        let options = [
            "60",
            found.expect("checked"),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &profile,
            "--dump-dom",
        ];
        let dom = net.run(
            "timeout",
            &[&options[..], &[&net.url("/index.html")]].concat(),
        );
        assert!(dom.contains("<h1>Hot</h1>"), "{dom}");
        (attached.count("answer_hit") > hits).then_some(())
    });
    eprintln!("{:?}", attached.counts());
}

#[test]
fn ipv4_ipv6_and_local_clients_are_served() {
    if skipped("ipv4_ipv6_and_local_clients_are_served", &["apache2"]) {
        return;
    }
    let net = network();
    let attached = Attached::start(&net.path.server, 80, &["--interface", "lo"]);
    let request = "GET /page.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    for address in servers(80) {
        let response = attached.warm(&net.path.client, address, request);
        assert_eq!(response.text(), TEXT.repeat(20));
        let response = attached.warm(&net.path.server, address, request);
        assert_eq!(response.text(), TEXT.repeat(20));
    }
}

#[test]
fn client_reuses_its_ports_after_closing_first() {
    let test = "client_reuses_its_ports_after_closing_first";
    if skipped(test, &["nginx"]) {
        return;
    }
    let cable = Cable::new();
    let site = TestSite::new(502, &[900, 40_000]);
    let _nginx = WebServer::nginx(&cable.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&cable.server, 80, &["--ttl", "60"]);
    for address in servers(80) {
        attached.warm(&cable.client, address, &get(&site.pages[0].path));
    }
    // Without timestamps, ports in TIME_WAIT are not reused, and there are fewer ports than connections.
    for (name, value) in [
        ("tcp_tw_reuse", "1"),
        ("tcp_tw_reuse_delay", "1"),
        ("ip_local_port_range", "40000 40019"),
    ] {
        let name = format!("ipv4/{name}");
        cable.client.set(&name, value).expect("a parameter");
    }
    for address in servers(80) {
        let hits = attached.count("answer_hit");
        for _ in 0..50 {
            for page in &site.pages {
                let response = cable
                    .client
                    .enter(|| send_request(address, &get(&page.path)));
                assert_eq!(TestPage::new(&page.path, &response.body), *page);
            }
        }
        assert!(attached.count("answer_hit") >= hits + 50, "{address}");
    }
}
