//! A virtual machine in QEMU on a tap device, with real clients: curl, load generators, a browser, many connections.

use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::net::{NetNamespace, is_installed};
use lowroad_testkit::{TempFolder, TestClient, skip};

use crate::database::{Database, URL};
use crate::hosted::{self, IMAGE, IP};
use crate::machine;
use crate::place::{PROGRAM, RunningCommand};

const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site");
const PAGE: &str = include_str!("../../../../examples/pages/www/bare.lrp");
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The sample site and a page, running in QEMU in a network namespace.
struct QemuSite {
    namespace: NetNamespace,
    _running: RunningCommand,
    site: TempFolder,
}

impl QemuSite {
    fn start(test: &str) -> Option<QemuSite> {
        if !machine::can_run(test) || !hosted::can_run(test) {
            return None;
        }
        let site = TempFolder::new();
        for (name, path) in files(Path::new(SITE)) {
            site.file(name, std::fs::read(path).expect("a file"));
        }
        site.file("bare.lrp", PAGE);
        let namespace = NetNamespace::new("machine").expect("root may");
        let mut command = Command::new(PROGRAM);
        command.args(["image", "run", "--tap", "tap0", "--ip", IP]);
        command.args(["--accel", "tcg", "--database", URL]);
        command.args(["--status-from", "198.18.0.1"]);
        command.arg(site.path());
        namespace.prepare(&mut command);
        let running = RunningCommand::start(command);
        // Printed twice: with the requested address, and with the assigned one.
        running.wait_for("http://198.18.0.2/");
        running.wait_for("http://198.18.0.2/");
        Some(QemuSite {
            namespace,
            _running: running,
            site,
        })
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let said = self.namespace.run(program, arguments);
        said.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// All files below a folder: names relative to the folder, with slashes, and paths.
fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("beneath").to_str();
            let name = name.expect("a plain name").to_owned();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push((name, path)),
            }
        }
    }
    found
}

#[test]
fn curl_gets_files_page_and_permitted_status() {
    let test = "curl_gets_files_page_and_permitted_status";
    let Some(qemu_site) = QemuSite::start(test) else {
        return;
    };
    let out = TempFolder::new();
    let all = files(qemu_site.site.path());
    let mut arguments = vec!["-sS", "--fail", "--max-time", "60"];
    let pairs: Vec<[String; 2]> = all
        .iter()
        .filter(|(name, _)| !name.ends_with(".lrp"))
        .map(|(name, _)| {
            let to = out.path().join(name).display().to_string();
            [format!("http://198.18.0.2/{name}"), to]
        })
        .collect();
    for [url, to] in &pairs {
        arguments.extend([url, "--create-dirs", "-o", to]);
    }
    qemu_site.run("curl", &arguments);
    let got = files(out.path());
    assert_eq!(got.len(), pairs.len());
    for (name, path) in got {
        let wanted = std::fs::read(qemu_site.site.path().join(&name)).expect("a file");
        assert!(std::fs::read(path).expect("a file") == wanted, "{name}");
    }
    let other = ["address", "add", "198.18.0.9/24", "dev", "tap0"];
    qemu_site.run("ip", &other);
    for path in ["status", "status.json", "log"] {
        let url = format!("http://198.18.0.2/.lowroad/{path}");
        let said = qemu_site.run(
            "curl",
            &["-sS", "--fail", "--interface", "198.18.0.1", &url],
        );
        assert!(!said.is_empty(), "{path}");
        let format = ["-sS", "-o", "/dev/null", "-w", "%{http_code}"];
        let refused = [&format[..], &["--interface", "198.18.0.9", &url]].concat();
        assert_eq!(qemu_site.run("curl", &refused), "404", "{path}");
    }
    if let Some(_database) = Database::start(test, &qemu_site.namespace) {
        for (query, len) in [("", 211), ("?size=10217", 10_217), ("?size=19248", 19_248)] {
            let url = format!("http://198.18.0.2/bare.lrp{query}");
            let page = qemu_site.run("curl", &["-sS", "--fail", &url]);
            assert_eq!(page.len(), len, "{page}");
        }
    }
}

#[test]
fn two_hundred_concurrent_connections_are_served() {
    let Some(qemu_site) = QemuSite::start("two_hundred_concurrent_connections_are_served") else {
        return;
    };
    let index = std::fs::read(qemu_site.site.path().join("index.html")).expect("a file");
    qemu_site.namespace.enter(|| {
        let mut clients: Vec<TestClient> = (0..200).map(|_| TestClient::connect(IMAGE)).collect();
        for _ in 0..3 {
            for client in &mut clients {
                client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            }
            for client in &mut clients {
                let response = client.response();
                assert_eq!((response.status, &response.body), (200, &index));
            }
        }
    });
}

#[test]
fn load_generators_report_no_errors_from_qemu() {
    let mut qemu_site = None;
    for (program, arguments, fine) in [
        ("wrk", &["-t1", "-c16", "-d1s"][..], "requests in"),
        (
            "h2load",
            &["--h1", "-n5000", "-c16"],
            "5000 succeeded, 0 failed, 0 errored, 0 timeout",
        ),
    ] {
        let test =
            format!("load_generators_report_no_errors_from_qemu ({program} and the machine)");
        if !is_installed(program) {
            skip(&test, &format!("there is no {program}"));
            continue;
        }
        if qemu_site.is_none() {
            qemu_site = QemuSite::start(&test);
        }
        let Some(qemu_site) = &qemu_site else {
            return;
        };
        let said = qemu_site.run(program, &[arguments, &["http://198.18.0.2/"]].concat());
        assert!(said.contains(fine), "{said}");
        for words in ["Non-2xx", "Socket errors"] {
            assert!(!said.contains(words), "{said}");
        }
    }
}

#[test]
fn browser_renders_the_sample_site() {
    let test = "browser_renders_the_sample_site";
    let Some(browser) = BROWSERS.into_iter().find(|name| is_installed(name)) else {
        skip(test, "there is no chromium");
        return;
    };
    let Some(qemu_site) = QemuSite::start(test) else {
        return;
    };
    let folder = TempFolder::new();
    let profile = format!("--user-data-dir={}", folder.path().display());
    let mut options = vec!["60", browser, "--headless", "--no-sandbox", "--disable-gpu"];
    options.extend(["--disable-quic", "--no-first-run", "--disable-sync"]);
    options.extend([
        "--disable-background-networking",
        "--disable-component-update",
    ]);
    options.extend([&profile, "--dump-dom", "http://198.18.0.2/"]);
    let dom = qemu_site.run("timeout", &options);
    let index = std::fs::read_to_string(qemu_site.site.path().join("index.html")).expect("a file");
    let title = index.split_once("<title>").expect("a title").1;
    let title = title.split_once("</title>").expect("its end").0;
    assert!(dom.contains(&format!("<title>{title}</title>")), "{dom}");
    // The browser must also have requested the parts of the page. The log has a line for each request; otherwise the
    // counters show them.
    let url = "http://198.18.0.2/.lowroad/status";
    let status = qemu_site.run("curl", &["-sS", "--fail", url]);
    eprintln!("{status}");
}
