//! A site's own rules for error pages, Cache-Control, redirects and header fields; and a server without a cache.

use lowroad_testkit::{TempFolder, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Runs a server for a site with this folder, and these keys and tables.
fn run(folder: &TempFolder, rules: &str) -> TestServer {
    let root = folder.path().display();
    let config = format!("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n{rules}");
    TestServer::run(PROGRAM, folder, &config)
}

#[test]
fn custom_error_pages_are_served_and_follow_changes() {
    let folder = TempFolder::new();
    folder.file("404.html", "<p>own 404");
    folder.file("errors/403.txt", "own 403");
    folder.file("errors/416.html", "own 416");
    folder.file("bare/file", "0123456789");
    let server = run(
        &folder,
        "[site.error_pages]\n404 = \"/404.html\"\n403 = \"/errors/403.txt\"\n416 = \"/errors/416.html\"\n",
    );
    let mut client = server.connect();
    let got = client.get("/missing", "");
    assert_eq!(
        got.dateless_head(),
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 10\r\n\r\n"
    );
    assert_eq!(got.text(), "<p>own 404");
    client.send("HEAD /missing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.response_to_head().dateless_head(),
        got.dateless_head()
    );
    let got = client.get("/bare/", "");
    assert_eq!((got.status, got.text().as_str()), (403, "own 403"));
    assert_eq!(got.field("content-type"), Some("text/plain; charset=utf-8"));
    let got = client.get("/bare/file", "Range: bytes=10-\r\n");
    assert_eq!((got.status, got.text().as_str()), (416, "own 416"));
    assert_eq!(got.field("content-range"), Some("bytes */10"));
    // Requested by its path, the error page is an ordinary file.
    assert_eq!(client.get("/404.html", "").status, 200);

    folder.file("404.html", "<p>another 404");
    wait_until("the new page", || {
        (client.get("/missing", "").text() == "<p>another 404").then_some(())
    });
    std::fs::remove_file(folder.path().join("404.html")).expect("a file");
    wait_until("the built-in page", || {
        let got = client.get("/missing", "");
        (got.status == 404 && got.text().contains("<h1>404 Not Found</h1>")).then_some(())
    });
    folder.file("404.html", "<p>back");
    wait_until("the page's return", || {
        (client.get("/missing", "").text() == "<p>back").then_some(())
    });
}

#[test]
fn error_page_outside_the_site_is_not_served() {
    let (folder, outside) = (TempFolder::new(), TempFolder::new());
    outside.file("secret", "a secret");
    std::os::unix::fs::symlink(
        outside.path().join("secret"),
        folder.path().join("404.html"),
    )
    .expect("a link");
    let server = run(&folder, "[site.error_pages]\n404 = \"/404.html\"\n");
    let got = server.get("/missing");
    assert_eq!(got.status, 404);
    assert!(
        got.text().contains("<h1>404 Not Found</h1>"),
        "{}",
        got.text()
    );
}

#[test]
fn serve_uses_404_html_by_default() {
    let folder = TempFolder::new();
    folder.file("404.html", "own");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    assert_eq!(server.get("/missing").text(), "own");
}

#[test]
fn first_matching_pattern_sets_cache_control() {
    let folder = TempFolder::new();
    for name in [
        "index.html",
        "a.css",
        "img/a.css",
        "img/deep/b.png",
        "other",
        "large.bin",
    ] {
        folder.file(name, "x");
    }
    folder.file("large.bin", vec![b'x'; 3 << 20]);
    let server = run(
        &folder,
        "[[site.cache_control]]\npattern = \"/img/**\"\nvalue = \"max-age=1\"\n\
         [[site.cache_control]]\npattern = \"*.css\"\nvalue = \"max-age=2\"\n\
         [[site.cache_control]]\npattern = \"*.html\"\nvalue = \"no-cache\"\n\
         [[site.cache_control]]\npattern = \"/large.*\"\nvalue = \"max-age=3\"\n",
    );
    let mut client = server.connect();
    for (path, value) in [
        ("/", Some("no-cache")),
        ("/index.html", Some("no-cache")),
        ("/a.css", Some("max-age=2")),
        ("/img/a.css", Some("max-age=1")),
        ("/img/deep/b.png", Some("max-age=1")),
        ("/large.bin", Some("max-age=3")),
        ("/other", None),
        ("/missing.css", None),
    ] {
        let got = client.get(path, "");
        assert_eq!(got.field("cache-control"), value, "{path}");
        let Some(tag) = got.field("etag") else {
            continue;
        };
        let again = client.get(path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(
            (again.status, again.field("cache-control")),
            (304, value),
            "{path}"
        );
        let part = client.get(path, "Range: bytes=0-0\r\n");
        assert_eq!(
            (part.status, part.field("cache-control")),
            (206, value),
            "{path}"
        );
    }
}

#[test]
fn index_file_rules_apply_in_every_encoding() {
    let folder = TempFolder::new();
    folder.file("made/index.html", "text that is worth it ".repeat(100));
    // Only the second index file exists; a stray sibling of the first must not replace it.
    folder.file("prepared/index.html", "text that is worth it ".repeat(100));
    folder.file("prepared/index.html.gz", "as prepared");
    folder.file("prepared/home.html.gz", "a stray");
    let server = run(
        &folder,
        "index = [\"home.html\", \"index.html\"]\n\
         [[site.cache_control]]\npattern = \"*.html\"\nvalue = \"no-cache\"\n",
    );
    let mut client = server.connect();
    for path in ["/made/", "/prepared/", "/made/index.html"] {
        for encoding in ["identity", "gzip", "br"] {
            let got = client.get(path, &format!("Accept-Encoding: {encoding}\r\n"));
            assert_eq!(
                got.field("cache-control"),
                Some("no-cache"),
                "{path} {encoding}"
            );
            let said = got.field("content-encoding").unwrap_or("identity");
            assert_eq!(said, encoding, "{path}");
        }
    }
    let got = client.get("/prepared/", "Accept-Encoding: gzip\r\n");
    assert_eq!(got.text(), "as prepared");
}

#[test]
fn redirect_rules_are_applied() {
    let folder = TempFolder::new();
    folder.file("old/here.html", "shadowed by a rule");
    folder.file("new/a b", "found");
    let server = run(
        &folder,
        "[[site.redirect]]\nfrom = \"/old/**\"\nto = \"/new/$1\"\n\
         [[site.redirect]]\nfrom = \"/elsewhere/*\"\nto = \"https://example.org/x/$1?own\"\nstatus = 302\n\
         [[site.redirect]]\nfrom = \"/exact\"\nto = \"/new/\"\nstatus = 308\n\
         [[site.redirect]]\nfrom = \"/top/**\"\nto = \"/$1\"\nstatus = 307\n",
    );
    let mut client = server.connect();
    for (path, status, location) in [
        ("/old/here.html", 301, "/new/here.html"),
        ("/old/a%20b?q=1&r=%41", 301, "/new/a%20b?q=1&r=%41"),
        ("/old/%E4%0d%0a", 301, "/new/%E4%0d%0a"),
        ("/elsewhere/a?q", 302, "https://example.org/x/a?own"),
        ("/exact?q", 308, "/new/?q"),
        ("/top/a/b", 307, "/a/b"),
        ("/top//evil.example", 307, "/evil.example"),
        ("/top/", 307, "/"),
    ] {
        for method in ["GET", "HEAD"] {
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let got = match method {
                "HEAD" => client.response_to_head(),
                _ => client.response(),
            };
            let found = (got.status, got.field("location").unwrap_or(""));
            assert_eq!(found, (status, location), "{method} {path}");
        }
    }
    assert_eq!(client.get("/elsewhere/a/b", "").status, 404);
    assert_eq!(client.get("/exact/", "").status, 404);
    assert_eq!(client.get("/new/a%20b", "").text(), "found");
}

#[test]
fn header_rules_set_and_remove_fields() {
    let folder = TempFolder::new();
    folder.file("a.html", "x");
    folder.file("b.txt", vec![b'x'; 200_000]);
    let server = run(
        &folder,
        "[[site.cache_control]]\npattern = \"/**\"\nvalue = \"max-age=1\"\n\
         [[site.header]]\nset = { X-Own = \"all\", X-Other = \"kept\" }\n\
         [[site.header]]\npattern = \"*.html\"\nset = { X-OWN = \"html\", Cache-Control = \"private\" }\n\
         [[site.header]]\npattern = \"*.txt\"\nremove = [\"Cache-Control\"]\n",
    );
    let mut client = server.connect();
    let of = |client: &mut lowroad_testkit::TestClient, path: &str, fields: &str| {
        let got = client.get(path, fields);
        ["x-own", "x-other", "cache-control"].map(|name| {
            assert!(got.head.matches(&format!("\r\n{name}:")).count() < 2);
            got.field(name).unwrap_or("none").to_string()
        })
    };
    for fields in ["", "Range: bytes=0-0\r\n", "If-None-Match: *\r\n"] {
        assert_eq!(
            of(&mut client, "/a.html", fields),
            ["html", "kept", "private"],
            "{fields}"
        );
        assert_eq!(
            of(&mut client, "/b.txt", fields),
            ["all", "kept", "none"],
            "{fields}"
        );
    }
}

#[test]
fn header_rules_apply_to_every_status() {
    let folder = TempFolder::new();
    folder.file("a/file", "0123456789");
    let server = run(
        &folder,
        "[[site.redirect]]\nfrom = \"/old\"\nto = \"/a/file\"\n\
         [[site.header]]\nset = { Strict-Transport-Security = \"max-age=1\", Cache-Control = \"private\" }\n\
         [[site.header]]\npattern = \"/a/**\"\nset = { X-Own = \"a\" }\n\
         [[site.header]]\npattern = \"/a/none\"\nremove = \"X-Own\"\n",
    );
    let mut client = server.connect();
    for (path, fields, status, own, cache) in [
        ("/a/file", "", 200, Some("a"), Some("private")),
        (
            "/a/file",
            "Range: bytes=1-2\r\n",
            206,
            Some("a"),
            Some("private"),
        ),
        (
            "/a/file",
            "If-None-Match: *\r\n",
            304,
            Some("a"),
            Some("private"),
        ),
        ("/a/file", "Range: bytes=10-\r\n", 416, Some("a"), None),
        ("/a", "", 301, None, Some("private")),
        ("/old", "", 301, None, Some("private")),
        ("/a/missing", "", 404, Some("a"), None),
        ("/a/none", "", 404, None, None),
    ] {
        let got = client.get(path, fields);
        assert_eq!(got.status, status, "{path} {fields}");
        assert_eq!(
            got.field("strict-transport-security"),
            Some("max-age=1"),
            "{path} {fields}"
        );
        assert_eq!(got.field("x-own"), own, "{path} {fields}");
        assert_eq!(got.field("cache-control"), cache, "{path} {fields}");
    }
    client.send("OPTIONS /a/file HTTP/1.1\r\nHost: a\r\n\r\n");
    let got = client.response();
    assert_eq!((got.status, got.field("x-own")), (204, Some("a")));
}

#[test]
fn responses_are_equal_without_a_cache() {
    let folder = TempFolder::new();
    folder.file("index.html", "home");
    folder.file("empty.txt", "");
    folder.file("tail.bin", vec![b't'; 16 * 1024]);
    folder.file("medium.bin", vec![b'm'; 100_000]);
    folder.file("large.bin", vec![b'l'; 3 << 20]);
    folder.file("a.txt", vec![b'a'; 10_000]);
    folder.file("a.txt.gz", "prepared");
    let server = TestServer::serve(
        PROGRAM,
        &folder,
        &["--cache", "0", "--listing", "--log", "json"],
    );
    let mut client = server.connect();
    let paths = [
        ("/", 4, b'h'),
        ("/empty.txt", 0, b'e'),
        ("/tail.bin", 16 * 1024, b't'),
        ("/medium.bin", 100_000, b'm'),
        ("/large.bin", 3 << 20, b'l'),
    ];
    for round in 0..2 {
        for (path, len, byte) in paths {
            let got = client.get(path, "");
            assert_eq!((got.status, got.body.len()), (200, len), "{path} {round}");
            assert!(path == "/" || got.body.iter().all(|b| *b == byte), "{path}");
            let line = server.wait_for_line("\"request\"");
            assert!(line.contains("\"outcome\":\"miss\""), "{line}");
        }
    }
    // Several responses in one write, each from a file.
    for (path, ..) in paths {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    for (path, len, _) in paths {
        assert_eq!(client.response().body.len(), len, "{path}");
    }
    let tag = client
        .get("/medium.bin", "")
        .field("etag")
        .expect("a tag")
        .to_string();
    assert_eq!(
        client
            .get("/medium.bin", &format!("If-None-Match: {tag}\r\n"))
            .status,
        304
    );
    let part = client.get("/medium.bin", "Range: bytes=-7\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "mmmmmmm"));
    let parts = client.get("/medium.bin", "Range: bytes=0-1,50000-89999,-1\r\n");
    assert_eq!(parts.status, 206);
    // No other line of the parts has an m followed by another.
    assert_eq!(parts.text().matches("mm").count(), 1 + 20_000);
    let packed = client.get("/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.text(), "prepared");
    let plain = client.get("/a.txt", "Accept-Encoding: br\r\n");
    assert_eq!(
        (plain.body.len(), plain.field("content-encoding")),
        (10_000, None)
    );
}
