//! The commands `explain`, `status` and `check`. The access log is in `access_log`.

use std::fs;
use std::process::Command;

use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Runs the program. Returns whether it succeeded, its output, and its error messages.
fn command(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .output()
        .expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{arguments:?}: {code:?}");
    (code == Some(0), text(&output.stdout), text(&output.stderr))
}

/// Starts a server with an admin socket. Also returns the folder, and the socket's path.
fn asked() -> (TempFolder, TestServer, String) {
    let folder = TempFolder::new();
    folder.file("root/small.txt", "hello");
    folder.file("root/page.css", "p { color: #123 }\n".repeat(100));
    folder.file("root/large.bin", vec![b'l'; 3 << 20]);
    folder.file("root/folder/file", "x");
    let path = folder.path().display();
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"{path}/admin\"\n\
         [[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\n\
         [[site.redirect]]\nfrom = \"/old/*\"\nto = \"/new/$1\"\n"
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let admin = folder.path().join("admin").display().to_string();
    (folder, server, admin)
}

/// Splits the lines of an output into names and values.
fn account(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(' ').expect("a name");
            (name.to_string(), rest.trim().to_string())
        })
        .collect()
}

#[test]
fn explain_shows_the_decision_without_side_effects() {
    let (folder, server, admin) = asked();
    let port = server.address().port();
    let ask = |path: &str, options: &[&str]| {
        let url = format!("http://a.example:{port}{path}");
        let arguments = [&["explain", "--admin", &admin, &url], options].concat();
        let (done, said, complaint) = command(&arguments);
        assert!(done, "{complaint}");
        assert!(said.starts_with(&format!("GET {url}\n")), "{said}");
        account(&said)
    };
    let is = |account: &[(String, String)], name: &str, start: &str| {
        let line = account.iter().find(|(known, _)| known == name);
        let (_, text) = line.unwrap_or_else(|| panic!("no {name} in {account:?}"));
        assert!(text.starts_with(start), "{name}: {text}, not {start}");
    };
    for stored in [
        "not now: a helper thread would load it",
        "not now: a helper thread would load it",
    ] {
        let said = ask("/small.txt?q#fragment", &[]);
        let root = folder.path().join("root").canonicalize().expect("a root");
        is(
            &said,
            "site",
            &format!("a.example (root {})", root.display()),
        );
        is(
            &said,
            "answer",
            "200 OK, 5 bytes, text/plain; charset=utf-8",
        );
        is(&said, "stored", stored);
    }
    let watched = || StatusClient::new(PROGRAM, &admin).value("folders_watched");
    assert_eq!(watched(), 0);
    let mut client = server.connect();
    let mut get = |path: &str, fields: &str| {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
        ));
        client.response()
    };
    let got = get("/small.txt", "");
    assert_eq!(watched(), 1);
    let said = ask("/small.txt", &[]);
    is(&said, "stored", "yes");
    is(&said, "fresh", "watched");
    is(&said, "level", "worker");
    is(&said, "etag", got.field("etag").expect("a tag"));
    is(
        &said,
        "encoding",
        "identity; available besides identity: no other",
    );
    let accept = ["-H", "Accept-Encoding: gzip"];
    let said = ask("/page.css", &accept);
    is(
        &said,
        "encoding",
        "gzip; available besides identity: br, zstd, gzip",
    );
    is(&said, "stored", "not now");
    let got = get("/page.css", "Accept-Encoding: gzip\r\n");
    let said = ask("/page.css", &accept);
    is(&said, "stored", "yes");
    is(
        &said,
        "answer",
        &format!("200 OK, {} bytes, text/css", got.body.len()),
    );
    let said = ask("/large.bin", &[]);
    is(&said, "stored", "no: longer than cache_object");
    for (path, answer) in [
        ("/missing", "404 Not Found"),
        ("/folder", "301 Moved Permanently"),
        ("/folder/", "403 Forbidden"),
        ("/old/x", "301 Moved Permanently"),
        ("/../x", "400 Bad Request"),
    ] {
        is(&ask(path, &[]), "answer", answer);
    }
    assert_eq!(watched(), 1);
    // As with curl, the URL names the server, and a Host the site: clients behind a port mapping send another port.
    let url = format!("http://127.0.0.1:{port}/small.txt");
    for host in ["Host: a.example:8080", "host:A.example"] {
        let (_, said, complaint) = command(&["explain", "--admin", &admin, &url, "-H", host]);
        assert_eq!(complaint, "");
        is(&account(&said), "site", "a.example");
    }
    let (_, said, _) = command(&["explain", "--admin", &admin, &url, "-H", "Host:"]);
    is(&account(&said), "answer", "400 Bad Request");
    // No site has the server's address as its name.
    let url = format!("http://127.0.0.1:{port}/");
    let (_, said, _) = command(&["explain", "--admin", &admin, &url]);
    is(&account(&said), "answer", "421 Misdirected Request");
}

#[test]
fn explain_reports_why_it_failed() {
    let (folder, server, admin) = asked();
    let url = format!("http://a.example:{}/", server.address().port());
    let (done, _, complaint) = command(&["explain", "--admin", &admin, &url, "-H", "nonsense"]);
    assert!(
        !done && complaint.contains("-H nonsense: not a field"),
        "{complaint}"
    );
    let (done, _, complaint) = command(&["explain", "--admin", &admin, "http://a.example:1/"]);
    assert!(
        !done && complaint.contains("does not listen at http://a.example:1/, but at 127.0.0.1:"),
        "{complaint}"
    );
    let nowhere = folder.path().join("nowhere").display().to_string();
    for arguments in [
        &["explain", "--admin", &nowhere, &url][..],
        &["status", "--admin", &nowhere],
        &["status", "--json", "--admin", &nowhere],
        &["purge", "all", "--admin", &nowhere],
        &["reload", "--admin", &nowhere],
        &["stop", "--admin", &nowhere],
        &["dashboard", "--admin", &nowhere],
    ] {
        let (done, _, complaint) = command(arguments);
        let expected = format!("{nowhere}: no running server has this admin socket");
        assert!(!done && complaint.contains(&expected), "{complaint}");
        assert!(!complaint.contains("attach"), "{complaint}");
    }
    let (done, _, complaint) = command(&["status", "--admin", "127.0.0.1:9000"]);
    assert!(!done && complaint.contains("with a token"), "{complaint}");
    let (done, _, complaint) = command(&["purge", "all", "--port", "1", "--admin", &admin]);
    assert!(
        !done && complaint.contains("does not listen at port 1"),
        "{complaint}"
    );
}

#[test]
fn status_as_json_has_the_metrics_of_the_server() {
    let (_folder, _server, admin) = asked();
    let (done, said, complaint) = command(&["status", "--json", "--admin", &admin]);
    assert!(done, "{complaint}");
    let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let server = &value["servers"][0];
    assert_eq!(server["admin"], *admin);
    let samples = &server["metrics"]["lowroad_connections_accepted"]["samples"];
    assert_eq!(samples[0]["value"], 0);
}

#[test]
fn status_shows_counters() {
    let (_folder, server, admin) = asked();
    let status = || {
        let (done, said, complaint) = command(&["status", "--admin", &admin]);
        assert!(done, "{complaint}");
        assert!(said.starts_with("lowroad 0.1.0\n"), "{said}");
        account(&said)
    };
    let value = |account: &[(String, String)], name: &str| {
        let line = account.iter().find(|(known, _)| known == name);
        line.unwrap_or_else(|| panic!("no {name} in {account:?}"))
            .1
            .clone()
    };
    let before = status();
    assert!(value(&before, "process").starts_with(&format!("{}, up ", server.pid())));
    assert_eq!(value(&before, "listens"), server.address().to_string());
    assert_eq!(value(&before, "workers"), "1");
    assert_eq!(value(&before, "open"), "0 connections");
    assert_eq!(value(&before, "requests"), "0");
    let mut client = TestClient::connect(server.address());
    for _ in 0..5 {
        client.send("GET /small.txt HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    let after = status();
    for (name, wanted) in [
        ("open", "1 connections"),
        ("connections", "1"),
        ("requests", "5"),
        ("deferred", "1"),
        ("cache_hits", "4"),
        ("cache_misses", "1"),
        ("cache_objects", "1"),
        ("folders_watched", "1"),
    ] {
        assert_eq!(value(&after, name), wanted, "{name}: {after:?}");
    }
    assert_ne!(value(&after, "arena_bytes"), "0");
    drop(client);
    wait_until("the connection's end", || {
        (value(&status(), "open") == "0 connections").then_some(())
    });
}

#[test]
fn check_reports_problems_with_their_lines() {
    let folder = TempFolder::new();
    fs::create_dir(folder.path().join("root")).expect("a folder");
    let check = |config: &str| {
        let file = folder.file("lowroad.toml", config);
        let file = file.display().to_string();
        let (done, said, complaint) = command(&["check", "-c", &file]);
        (
            done,
            said.replace(&file, "FILE") + &complaint.replace(&file, "FILE"),
        )
    };
    let site = "[[site]]\nroot = \"root\"\n";
    assert_eq!(check(site), (true, "FILE: 1 site, no problems\n".into()));
    let two = format!("{site}{site}names = \"a.example\"\n");
    assert_eq!(check(&two), (true, "FILE: 2 sites, no problems\n".into()));
    let (done, said) = check("[server]\nworker = 2\n[[site]]\nroot = \"gone\"\nlisten = \"80x\"\n");
    assert!(!done);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "lowroad: the configuration can't be used");
    assert!(lines[1].starts_with("FILE:2:1: server.worker: "), "{said}");
    assert!(
        lines[1].contains("(allowed: ") && lines[1].contains("workers"),
        "{said}"
    );
    assert!(
        lines[2].starts_with("FILE:4:8: site[0].root: ") && lines[2].contains("gone"),
        "{said}"
    );
    assert!(
        lines[3].starts_with("FILE:5:10: site[0].listen: ") && lines[3].contains("80x"),
        "{said}"
    );
    assert_eq!(lines.len(), 4, "{said}");
    let (done, said) = check(&format!(
        "[server]\nuser = \"nobody-of-this-name\"\n[log]\nerror = \"none/error.log\"\n\
         [[database]]\nname = \"shop\"\nurl = \"mysql://shop:${{NOT_SET_HERE}}@host/shop\"\n\
         [[module]]\nname = \"text\"\nlibrary = \"lowroad.toml\"\n{site}"
    ));
    assert!(!done);
    for problem in [
        "user nobody-of-this-name does not exist",
        "FILE:4: log: can't write",
        "none/error.log",
        "${NOT_SET_HERE} is not set",
        "FILE is no shared library",
    ] {
        assert!(said.contains(problem), "{problem}: {said}");
    }
    folder.file("garbage", "garbage");
    let route = "[[site.route]]\npattern = \"/o/**\"\norigin = \"app\"\n\
                 [[origin]]\nname = \"app\"\nservers = \"https://127.0.0.1:1\"\n";
    let tls = |lines: &str| format!("{site}{route}[origin.tls]\n{lines}");
    for (config, problem) in [
        (
            format!("[buffering]\ntemp_path = \"gone\"\n{site}"),
            "gone: can't create a file there",
        ),
        (
            format!("[server]\nticket_keys = \"gone/keys\"\n{site}"),
            "gone/keys: No such file",
        ),
        (
            format!("[server]\nticket_keys = \"garbage\"\n{site}"),
            "garbage: other users can read or change it",
        ),
        (
            format!("[log]\nerror = \"root\"\n{site}"),
            "root: is a directory",
        ),
        (tls("ca = \"gone.pem\"\n"), "gone.pem: No such file"),
        (tls("ca = \"garbage\"\n"), "garbage: no certificates"),
        (
            tls("certificate = \"garbage\"\nkey = \"garbage\"\n"),
            "garbage: ",
        ),
        (
            format!(
                "[server]\nuser = \"root\"\n{site}[[site.route]]\npattern = \"/c/**\"\n\
                 cgi = \"root\"\nuser = \"nobody-of-this-name\"\n"
            ),
            "cgi: user nobody-of-this-name does not exist",
        ),
    ] {
        let (done, said) = check(&config);
        assert!(!done, "{config}: {said}");
        assert!(said.contains(problem), "{problem}: {said}");
    }
    let (done, said) = check("[[site]\n");
    assert!(!done && said.contains("FILE:1:"), "{said}");
    let (done, _, said) = command(&["check", "-c", "/nonexistent/lowroad.toml"]);
    assert!(
        !done && said.contains("/nonexistent/lowroad.toml:1:1: cannot be read"),
        "{said}"
    );
}
