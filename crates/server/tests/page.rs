//! A real browser loads the example site and shows it as users see it. Without a browser the tests are skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_testkit::{TempFolder, TestServer, skip};
use lowroad_tls::authority::LocalAuthority;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site");
const BROWSERS: [&str; 3] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

/// A browser, and a folder for its files.
struct Browser {
    program: &'static str,
    folder: TempFolder,
}

impl Browser {
    fn find() -> Option<Browser> {
        let program = BROWSERS.into_iter().find(|path| Path::new(path).exists());
        if program.is_none() {
            skip("pages in a browser", "Chromium is not installed");
        }
        let folder = TempFolder::new();
        program.map(|program| Browser { program, folder })
    }

    /// Visits a page with additional options; returns standard output.
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

/// The value of a string or number in a line of the JSON log.
fn value<'l>(line: &'l str, key: &str) -> &'l str {
    let rest = line.split_once(&format!("\"{key}\":")).expect("the key").1;
    let rest = rest.trim_start_matches('"');
    rest.split(['"', ',']).next().unwrap_or_default()
}

/// Ends the server; returns the statuses of its responses by path.
fn statuses_by_path(mut server: TestServer) -> BTreeMap<String, Vec<String>> {
    server.signal("TERM");
    server.wait_for_end();
    let mut answers = BTreeMap::<String, Vec<String>>::new();
    for line in server.rest_of_output() {
        let path = value(&line, "request").split(' ').nth(1).expect("a target");
        let status = value(&line, "status").to_string();
        // The browser may leave before it has its icon.
        if status == "499" {
            continue;
        }
        assert_eq!(
            value(&line, "whole").trim_end_matches('}'),
            "true",
            "{line}"
        );
        answers.entry(path.into()).or_default().push(status);
    }
    answers
}

fn serve() -> TestServer {
    let arguments = [
        "serve",
        SITE,
        "--listen",
        "127.0.0.1:0",
        "--listing",
        "--log",
        "json",
    ];
    TestServer::start(PROGRAM, &arguments)
}

#[test]
fn browser_renders_the_example_site() {
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
    // The second visit uses the profile of the first, with its cache.
    let dom = browser.visit(&home, &["--dump-dom"]);
    assert!(dom.contains("<h1>The short way to an answer</h1>"), "{dom}");

    let answers = statuses_by_path(server);
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
fn browser_uses_http_2_over_tls() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let mut command = Command::new(PROGRAM);
    command.args(["serve", SITE, "--tls", "--log", "json"]);
    command.args(["--listen", "127.0.0.1:0"]);
    command.env("XDG_DATA_HOME", browser.folder.path().join("data"));
    let mut server = TestServer::spawn(command);
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

/// Sends two words to a WebSocket and shows the replies. The load event waits for images, and each image starts loading
/// the next one until the socket is closed, so the browser does not exit before that.
const CHAT: &str = r"<!DOCTYPE html><title>chat</title><body><p id=said></p><script>
const said = [];
let isOver = false;
const socket = new WebSocket('wss://' + location.host + '/chat');
socket.onopen = () => { socket.send('one'); socket.send('two'); };
socket.onmessage = event => { said.push(event.data); if (said.length === 2) socket.close(1000); };
socket.onclose = async event => {
  said.push('closed ' + event.code);
  for (const priority of ['low', 'high']) {
    const answer = await fetch('/chat?' + priority, { priority });
    said.push(await answer.text());
  }
  document.getElementById('said').textContent = said.join(' ');
  isOver = true;
};
const wait = count => {
  const image = new Image();
  // A browser aborts requests when an interface of the machine appears, as other tests create them.
  image.onload = image.onerror = () => { if (!isOver && count < 5000) wait(count + 1); };
  image.src = '/dot.svg?' + count;
  document.body.append(image);
};
wait(0);
</script>";
const DOT: &str =
    "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><circle r='9'/></svg>";

/// The server of `websocket_server.js`, and its port.
fn websocket_server() -> Option<(Child, String)> {
    let mut command = Command::new("node");
    command.args(["-e", include_str!("websocket_server.js")]);
    let Ok(mut server) = command.stdout(Stdio::piped()).spawn() else {
        skip("a browser's WebSocket", "Node is not installed");
        return None;
    };
    let mut port = String::new();
    let stdout = server.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut port).expect("a port");
    Some((server, port.trim().to_owned()))
}

#[test]
fn browser_loads_hundred_objects_and_websocket_on_one_connection() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let Some((mut origin, port)) = websocket_server() else {
        return;
    };
    let folder = &browser.folder;
    let objects: Vec<String> = (0..100).map(|number| format!("/{number}.svg")).collect();
    let images = objects.iter().map(|path| {
        folder.file(format!("site{path}"), DOT);
        format!("<img src='{path}'>")
    });
    let page = format!("{CHAT}{}", images.collect::<String>());
    folder.file("site/index.html", page);
    folder.file("site/dot.svg", DOT);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.expect("a clock").as_secs();
    let authority = LocalAuthority::open(&folder.path().join("ca"), "test", now_s);
    let pem = authority
        .expect("an authority")
        .sign_pem(&["localhost"], now_s);
    let (chain, key) = pem.expect("a certificate");
    folder.file("a.pem", chain);
    let key = folder.file("a.key", key);
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("a file of ours");
    let config = format!(
        "[server]\nuser = \"root\"\nworkers = 1\n[log]\naccess = \"access\"\nformat = \"json\"\n\
         [[site]]\nroot = \"site\"\n[site.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
         [[site.route]]\npattern = \"/chat\"\norigin = \"http://127.0.0.1:{port}\"\n"
    );
    let mut server = TestServer::run(PROGRAM, folder, &config);
    let home = format!("https://localhost:{}/", server.address().port());
    let dom = browser.visit(&home, &["--dump-dom", "--ignore-certificate-errors"]);
    server.signal("TERM");
    server.wait_for_end();
    let _ = origin.kill();
    let _ = origin.wait();
    // The last part shows the browser's priorities (RFC 9218) for a fetch with low priority and one with high priority;
    // the default urgency is 3.
    assert!(dom.contains(">ONE TWO closed 1000 i u=1, i<"), "{dom}");
    let log = fs::read_to_string(folder.path().join("access")).expect("a log");
    let statuses = |request: &str| -> Vec<&str> {
        let lines = log.lines().filter(|line| value(line, "request") == request);
        lines.map(|line| value(line, "status")).collect()
    };
    assert_eq!(statuses("GET /chat HTTP/2.0"), ["101"], "{log}");
    for path in &objects {
        assert_eq!(statuses(&format!("GET {path} HTTP/2.0")), ["200"], "{log}");
    }
}

#[test]
fn browser_renders_a_directory_listing() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let server = serve();
    let list = format!("http://{}/downloads/", server.address());
    let dom = browser.visit(&list, &["--dump-dom"]);
    assert!(dom.contains("<h1>/downloads/</h1>"), "{dom}");
    assert!(dom.contains("href=\"./numbers.txt\""), "{dom}");
    // The script has run: times are in the reader's time zone, and there is a filter.
    assert!(dom.contains(">Changed</th>"), "{dom}");
    assert!(!dom.contains("hidden=\"\""), "{dom}");
    assert_eq!(statuses_by_path(server)["/downloads/"], ["200"]);
}
