//! Requests that are refused before a handler gets them, sent by curl with both versions of HTTP. The response has the
//! site's error page and fields, and the access log has the request.

use std::fs;
use std::process::Command;

use lowroad_testkit::{TempFolder, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const VERSIONS: [(&str, &str); 2] = [
    ("--http1.1", "HTTP/1.1"),
    ("--http2-prior-knowledge", "HTTP/2.0"),
];

/// A server with a body limit of 1 KiB, and a page for each status of [`CASES`].
fn start(folder: &TempFolder) -> TestServer {
    let statuses = [413, 414, 417, 431, 501];
    for status in statuses {
        folder.file(format!("root/{status}.html"), format!("page of {status}"));
    }
    folder.file("big", vec![b'a'; 1 << 20]);
    let pages = statuses.map(|status| format!("{status} = \"/{status}.html\"\n"));
    let path = folder.path().display();
    let text = format!(
        "[server]\nworkers = 1\n[limits]\nbody_len_max = \"1K\"\n\
         [log]\naccess = \"{path}/access.log\"\nformat = \"extended\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\n\
         [[site.header]]\npattern = \"/api/**\"\nset = {{ Access-Control-Allow-Origin = \"*\" }}\n\
         [[site.rule]]\npattern = \"/denied/**\"\ndeny = 403\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"http://127.0.0.1:1\"\n\
         [site.error_pages]\n{}",
        pages.concat()
    );
    TestServer::run(PROGRAM, folder, &text)
}

/// Runs curl for a path. Returns the status, and the head and body.
fn curl(server: &TestServer, version: &str, arguments: &[&str], path: &str) -> (String, String) {
    let url = format!("http://{}{path}", server.address());
    let output = Command::new("curl")
        .args([
            "-s",
            "-i",
            "-m",
            "20",
            "-A",
            "probe",
            "-H",
            "Host: site.example",
        ])
        .args(["-w", "\n%{http_code}", version])
        .args(arguments)
        .arg(url)
        .output();
    let output = output.expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{version} {path}: {:?} {text}",
        output.status
    );
    let (response, status) = text.rsplit_once('\n').expect("a status");
    (status.into(), response.to_ascii_lowercase())
}

#[test]
fn refusals_have_error_page_fields_and_log_line_of_the_site() {
    let folder = TempFolder::new();
    let server = start(&folder);
    let big = format!("@{}", folder.path().join("big").display());
    let cookie = format!("Cookie: {}", "a".repeat(60_000));
    let long = format!("/api/{}", "a".repeat(9_000));
    let cases: [(&str, &[&str], &str, &str); 5] = [
        ("413", &["--data-binary", &big], "POST", "/api/upload"),
        ("414", &[], "GET", &long),
        ("417", &["-H", "Expect: other"], "GET", "/api/x"),
        ("431", &["-H", &cookie], "GET", "/api/y"),
        (
            "501",
            &["-X", "UNHEARD-OF-METHOD-THAT-IS-LONGER-THAN-ANY"],
            "UNHEARD-OF",
            "/api/z",
        ),
    ];
    for (version, protocol) in VERSIONS {
        for (status, arguments, method, path) in cases {
            if (status, protocol) == ("431", "HTTP/2.0") {
                continue; // such a field block ends the connection
            }
            let (got, response) = curl(&server, version, arguments, path);
            assert_eq!(got, status, "{version} {path}: {response}");
            assert!(
                response.contains(&format!("page of {status}")),
                "{version}: {response}"
            );
            assert!(
                response.contains("access-control-allow-origin: *"),
                "{version}: {response}"
            );
            let path = &path[..path.len().min(1_000)];
            let parts = [
                method,
                path,
                protocol,
                &format!(" {status} "),
                "site.example",
                "probe",
            ];
            wait_until("a line with all parts", || {
                let log = fs::read_to_string(folder.path().join("access.log")).ok()?;
                let mut lines = log.lines();
                // The log truncates long lines, so the protocol may be missing.
                let is_there = |line: &str, part: &str| {
                    line.contains(part) || part == protocol && path.len() == 1_000
                };
                let is_it = |line: &str| parts.iter().all(|part| is_there(line, part));
                lines.any(is_it).then_some(())
            });
        }
    }
}

/// 100 (Continue) must not be sent before a file is found and a password is verified.
#[test]
fn refused_request_gets_no_100_continue() {
    let folder = TempFolder::new();
    folder.file("root/good.txt", "good");
    folder.file("cgi/p", "");
    let path = folder.path().display();
    let text = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\n\
         [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"{path}/cgi\"\n"
    );
    let server = TestServer::run(PROGRAM, &folder, &text);
    for (version, protocol) in VERSIONS {
        for target in ["/nofile", "/good.txt"] {
            let fields = ["-H", "Expect: 100-continue", "-d", "hello"];
            let (status, response) = curl(&server, version, &fields, target);
            assert_eq!(status, "405", "{version} {target}: {response}");
            let first = response.lines().next().expect("a status line");
            assert!(first.contains(" 405"), "{protocol} {target}: {response}");
        }
    }
}

#[test]
fn access_rules_precede_body_limit() {
    let folder = TempFolder::new();
    let server = start(&folder);
    let big = folder.path().join("big").display().to_string();
    for (version, _) in VERSIONS {
        for fields in [&["-T", &big][..], &["-T", &big, "-H", "Expect:"]] {
            let (status, response) = curl(&server, version, fields, "/denied/x");
            assert_eq!(status, "403", "{version}: {response}");
            let (status, response) = curl(&server, version, fields, "/api/x");
            assert_eq!(status, "413", "{version}: {response}");
        }
    }
}
