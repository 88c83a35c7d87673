//! Folders: index files, redirects to the form with a trailing slash, directory listings; content types by file name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use lowroad_testkit::{TempFolder, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

#[test]
fn folder_serves_its_index_file() {
    let folder = TempFolder::new();
    folder.file("index.html", "home");
    folder.file("sub/index.html", "below");
    folder.file("bare/file", "x");
    folder.file(
        "odd/index.html/file",
        "a folder of that name is no index file",
    );
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let got = server.get("/");
    assert_eq!((got.status, got.text().as_str()), (200, "home"));
    assert_eq!(got.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(server.get("/sub/").text(), "below");
    assert_eq!(server.get("/sub/?query").text(), "below");
    assert_eq!(server.get("/bare/").status, 403);
    assert_eq!(server.get("/odd/").status, 403);
    assert_eq!(server.get("/sub/index.html/").status, 404);
}

#[test]
fn missing_index_file_is_warned_about() {
    let folder = TempFolder::new();
    folder.file("bare/file", "x");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let warned = server.wait_for_error_line("/ is not served");
    assert!(warned.contains("there is no index.html"), "{warned}");
    assert!(warned.contains("--listing"), "{warned}");
    let page = server.get("/bare/");
    assert_eq!(page.status, 403);
    assert!(page.text().contains("has no index page"), "{}", page.text());
}

#[test]
fn explain_names_the_cause_of_an_error_status() {
    let folder = TempFolder::new();
    folder.file("site/index.html", "home");
    folder.file("site/bare/file", "x");
    folder.file("site/.git/config", "x");
    folder.file("outside.txt", "x");
    let root = folder.path().join("site");
    symlink("../outside.txt", root.join("out.txt")).expect("a link");
    symlink("away", root.join("bare/index.html")).expect("a link");
    symlink("nothing", root.join("dangling")).expect("a link");
    let config = format!(
        "[server]\nadmin = \"{0}/admin\"\nuser = \"nobody\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}/site\"\n",
        folder.path().display()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let admin = folder.path().join("admin");
    for (path, status, why) in [
        ("/bare/", 403, "index.html: no file or folder has this name"),
        ("/out.txt", 403, "leads out of the site's folder"),
        ("/dangling", 404, "no file or folder has this name"),
        ("/.git/config", 404, "begin with a dot"),
        ("/none/such", 404, "/none: no file or folder has this name"),
        (
            "/index.html/x",
            404,
            "a file, but the path continues after its name",
        ),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
        let url = format!("http://{}{path}", server.address());
        let said = std::process::Command::new(PROGRAM)
            .args(["explain", &url, "--admin"])
            .arg(&admin)
            .output()
            .expect("explain runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(why), "{path}: {said}");
    }
}

#[test]
fn index_names_are_tried_in_order() {
    let folder = TempFolder::new();
    folder.file("both/home.txt", "second");
    folder.file("both/start.html", "first");
    folder.file("one/home.txt", "second");
    folder.file("none/index.html", "not asked for");
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\nindex = [\"start.html\", \"home.txt\"]\n",
        folder.path().display()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    assert_eq!(server.get("/both/").text(), "first");
    let second = server.get("/one/");
    assert_eq!(second.text(), "second");
    assert_eq!(
        second.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(server.get("/none/").status, 403);
}

#[test]
fn folder_without_trailing_slash_is_redirected() {
    let folder = TempFolder::new();
    folder.file("sub/index.html", "below");
    folder.file("a b&c/d\u{e9}/index.html", "odd");
    folder.file("evil.example/index.html", "a folder with a host's name");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    for (path, location) in [
        ("/sub", "/sub/"),
        ("/sub?", "/sub/?"),
        ("/sub?a=1&b=%0d%0aX:y", "/sub/?a=1&b=%0d%0aX:y"),
        ("/a%20b&c/d%C3%A9", "/a%20b%26c/d%C3%A9/"),
        ("/a%20b%26c", "/a%20b%26c/"),
        // A Location that begins with two slashes would name another host.
        ("//evil.example", "/evil.example/"),
        ("///evil.example?q", "/evil.example/?q"),
        ("//evil.example//", ""),
    ] {
        let got = server.get(path);
        let found = (got.status, got.field("location").unwrap_or(""));
        let status = if location.is_empty() { 200 } else { 301 };
        assert_eq!(found, (status, location), "{path}");
    }
}

#[test]
fn folder_redirect_never_leads_to_another_host() {
    let folder = TempFolder::new();
    folder.file("evil.example/sub/index.html", "x");
    folder.file("index.html", "home");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    for path in [
        "//evil.example/..",
        "//evil.example/%2e%2e",
        "/%2f/evil.example",
        "/%5cevil.example",
        "/\\evil.example",
        "/%2F%2Fevil.example/..",
        "//evil.example/../evil.example",
        "/.//evil.example",
    ] {
        let got = server.get(path);
        assert_eq!((got.status, got.field("location")), (400, None), "{path}");
        assert_eq!(got.field("connection"), Some("close"), "{path}");
    }
    // The client chooses the authority of an absolute target, so a redirect must not repeat it.
    let mut client = server.connect();
    client.send("GET http://evil.example//evil.example/sub HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    let got = client.response();
    assert_eq!(
        (got.status, got.field("location")),
        (301, Some("/evil.example/sub/"))
    );
}

/// The links of a listing, in order.
fn links(page: &str) -> Vec<String> {
    page.split("href=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split('"').next()?.to_string()))
        .collect()
}

#[test]
fn directory_listing_is_sorted_escaped_and_linked() {
    let folder = TempFolder::new();
    for name in [
        "b.txt",
        "a.txt",
        "B.txt",
        "<i>&\".txt",
        "a b.txt",
        "50%.txt",
        "c:d.txt",
        "\u{fc}.txt",
    ] {
        folder.file(format!("list/{name}"), name);
    }
    let not_utf_8 = OsStr::from_bytes(b"list/\xff.txt");
    folder.file(not_utf_8, "\u{ff}");
    folder.file("list/z folder/file", "x");
    folder.file("list/.secret", "x");
    folder.file("list/back\\slash", "no request can name it");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("list/out")).expect("a link");
    let server = TestServer::serve(PROGRAM, &folder, &["--listing"]);
    let got = server.get("/list/");
    assert_eq!(got.field("content-type"), Some("text/html; charset=utf-8"));
    let page = got.text();
    assert_eq!(
        links(&page),
        [
            "../",
            "./z%20folder/",
            "./50%25.txt",
            "./%3Ci%3E%26%22.txt",
            "./B.txt",
            "./a%20b.txt",
            "./a.txt",
            "./b.txt",
            "./c%3Ad.txt",
            "./%C3%BC.txt",
            "./%FF.txt",
        ]
    );
    assert!(page.contains(">&lt;i&gt;&amp;&quot;.txt</a>"), "{page}");
    assert!(page.contains(">\u{fffd}.txt</a>"), "not UTF-8: {page}");
    assert!(page.contains("width=device-width"));
    assert!(!page.contains("secret") && !page.contains("slash") && !page.contains("passwd"));
    for link in links(&page) {
        let path = format!("/list/{}", link.trim_start_matches("./"));
        assert_eq!(
            server.get(&path).status,
            if link == "../" { 400 } else { 200 },
            "{link}"
        );
    }
    assert!(
        !server.get("/").text().contains("../"),
        "nothing above the root"
    );
}

#[test]
fn directory_listing_requires_the_listing_option() {
    let folder = TempFolder::new();
    folder.file("sub/file", "x");
    folder.file(".well-known/file", "x");
    let plain = TestServer::serve(PROGRAM, &folder, &[]);
    assert_eq!(plain.get("/sub/").status, 403);
    let open = TestServer::serve(PROGRAM, &folder, &["--listing", "--hidden"]);
    assert!(open.get("/").text().contains("./.well-known/"));
}

#[test]
fn content_type_follows_the_file_extension() {
    let folder = TempFolder::new();
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTM", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.json", "application/json; charset=utf-8"),
        ("a.xml", "text/xml; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.ico", "image/x-icon"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.tar.gz", "application/gzip"),
        ("a.zip", "application/zip"),
        ("a.own", "text/x-own; charset=utf-8"),
        ("a.unheardof", "application/octet-stream"),
        ("README", "application/octet-stream"),
    ];
    for (name, _) in types {
        folder.file(name, "x");
    }
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n\
         types = {{ own = \"text/x-own; charset=utf-8\" }}\n",
        folder.path().display()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    for (name, content_type) in types {
        let got = client.get(&format!("/{name}"), "");
        assert_eq!(got.field("content-type"), Some(content_type), "{name}");
    }
}
