//! A real browser loads the example site: what it makes of our answers is what users see.
//!
//! Without a browser on the machine nothing is tested, and the test says so.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use lowroad_testkit::{Folder, Server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site");
const BROWSERS: [&str; 3] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

/// A browser, and a folder for what it leaves behind.
struct Browser {
    program: &'static str,
    folder: Folder,
}

impl Browser {
    fn find() -> Option<Browser> {
        let program = BROWSERS.into_iter().find(|path| Path::new(path).exists());
        if program.is_none() {
            println!("skipped: no chromium");
        }
        let folder = Folder::new();
        program.map(|program| Browser { program, folder })
    }

    /// Visits a page with these further options; what it writes to standard output.
    fn visit(&self, url: &str, options: &[&str]) -> String {
        let profile = self.folder.path().join("profile");
        let output = Command::new("timeout")
            .args(["60", self.program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(options)
            .arg(url)
            .output()
            .expect("timeout(1)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The value of a string or number of a line of the JSON log.
fn value<'l>(line: &'l str, key: &str) -> &'l str {
    let rest = line.split_once(&format!("\"{key}\":")).expect("the key").1;
    let rest = rest.trim_start_matches('"');
    rest.split(['"', ',']).next().unwrap_or_default()
}

/// Ends the server; the statuses of the answers by path.
fn answers(mut server: Server) -> BTreeMap<String, Vec<String>> {
    server.signal("TERM");
    server.wait_for_end();
    let mut answers = BTreeMap::<String, Vec<String>>::new();
    for line in server.rest_of_output() {
        let path = value(&line, "request").split(' ').nth(1).expect("a target");
        let status = value(&line, "status").to_string();
        assert_eq!(
            value(&line, "whole").trim_end_matches('}'),
            "true",
            "{line}"
        );
        answers.entry(path.into()).or_default().push(status);
    }
    answers
}

fn serve() -> Server {
    let arguments = [
        "serve",
        SITE,
        "--listen",
        "127.0.0.1:0",
        "--listing",
        "--log",
        "json",
    ];
    Server::start(PROGRAM, &arguments)
}

#[test]
fn a_browser_shows_the_example_site() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let server = serve();
    let home = format!("http://{}/", server.address());
    let picture = browser.folder.path().join("home.png");
    let screenshot = format!("--screenshot={}", picture.display());
    let dom = browser.visit(
        &home,
        &["--dump-dom", &screenshot, "--window-size=1200,900"],
    );
    assert!(dom.contains("<h1>The short way to an answer</h1>"), "{dom}");
    let png = fs::read(&picture).expect("a picture");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000);
    // The second visit has the profile of the first, and with it what that one kept.
    let dom = browser.visit(&home, &["--dump-dom"]);
    assert!(dom.contains("<h1>The short way to an answer</h1>"), "{dom}");

    let answers = answers(server);
    for path in ["/", "/style.css", "/art/mark.svg", "/art/levels.svg"] {
        assert_eq!(
            answers.get(path).map(|all| &*all[0]),
            Some("200"),
            "{path}: {answers:?}"
        );
    }
    for (path, statuses) in &answers {
        let fine = statuses
            .iter()
            .all(|status| status == "200" || status == "304");
        assert!(fine, "{path}: {statuses:?}");
    }
}

#[test]
fn a_browser_speaks_http_2_over_tls() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let mut command = Command::new(PROGRAM);
    command.args(["serve", SITE, "--tls", "--log", "json"]);
    command.args(["--listen", "127.0.0.1:0"]);
    command.env("XDG_DATA_HOME", browser.folder.path().join("data"));
    let mut server = Server::spawn(command);
    let home = format!("https://localhost:{}/", server.address().port());
    let dom = browser.visit(&home, &["--dump-dom", "--ignore-certificate-errors"]);
    assert!(dom.contains("<h1>The short way to an answer</h1>"), "{dom}");
    server.signal("TERM");
    server.wait_for_end();
    let lines = server.rest_of_output();
    for path in ["/", "/style.css", "/art/mark.svg", "/art/levels.svg"] {
        let request = format!("GET {path} HTTP/2");
        let of_path = |line: &&String| value(line, "request").starts_with(&request);
        let line = lines.iter().find(of_path);
        let line = line.unwrap_or_else(|| panic!("{path}: {lines:?}"));
        assert_eq!(
            (value(line, "status"), value(line, "tls")),
            ("200", "TLSv1.3")
        );
    }
}

#[test]
fn a_browser_shows_a_folder() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let server = serve();
    let list = format!("http://{}/downloads/", server.address());
    let dom = browser.visit(&list, &["--dump-dom"]);
    assert!(dom.contains("<h1>/downloads/</h1>"), "{dom}");
    assert!(dom.contains("href=\"./numbers.txt\""), "{dom}");
    assert_eq!(answers(server)["/downloads/"], ["200"]);
}
