//! Rewrites and redirects, with globs and regular expressions.

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, SAY, basic, by_http2, check, program, users};

const FILES: [&str; 7] = [
    "root/a.txt",
    "root/new/a.txt",
    "root/new/b c.txt",
    "root/secret/x.txt",
    "root/dir/index.html",
    "root/empty/x",
    "in/x.pdf",
];

/// A site with the program `say.cgi`, which returns its request.
fn with_program(lines: &str) -> Place {
    with_program_and(&FILES, lines)
}

fn with_program_and(files: &[&str], lines: &str) -> Place {
    let folder = TempFolder::new();
    program(&folder, "root/say.cgi", SAY);
    let route = "[[site.route]]\npattern = \"*.cgi\"\ncgi = true\n";
    Place::after(folder, files, &format!("{lines}{route}"))
}

#[test]
fn rewrite_serves_another_path() {
    let place = with_program(
        "[[site.rewrite]]\nfrom = \"/old/**\"\nto = \"/new/$1\"\n\
         [[site.rewrite]]\nregex = \"^/blog/([0-9]+)(?:-.*)?$\"\nto = \"/say.cgi/post?id=$1&$query\"\n\
         [[site.rewrite]]\nregex = \"^/lang/(..)/(.*)$\"\nto = \"/$2?lang=$1\"\n",
    );
    for (path, said) in [
        ("/old/a.txt", "root/new/a.txt"),
        ("/old/b%20c.txt", "root/new/b c.txt"),
        ("/old/none", "404"),
        ("/new/a.txt", "root/new/a.txt"),
        ("/lang/de/a.txt", "root/a.txt"),
        // The result of a rewrite is not rewritten again.
        ("/lang/de/old/a.txt", "404"),
        (
            "/blog/7",
            "GET uri=/blog/7 query=id=7 script=/say.cgi info=/post",
        ),
        (
            "/blog/7-a%26b?c=d",
            "GET uri=/blog/7-a%26b?c=d query=id=7&c=d script=/say.cgi info=/post",
        ),
        ("/blog/x", "404"),
        ("/old/..%2fa.txt", "400"),
        ("/old/%00", "400"),
    ] {
        assert_eq!(place.body_or_status(path), said, "{path}");
        if let Some(by_http2) = by_http2(&place, path) {
            assert_eq!(by_http2, said, "{path} by HTTP/2");
        }
    }
    assert_eq!(place.get("/old").status, 404);
    let part = place.get_with("/old/a.txt", "Range: bytes=0-3\r\n");
    assert_eq!((part.status, part.text()), (206, "root".into()));
    let told = place.explain("/blog/7");
    let line = "rewrite                ^/blog/([0-9]+)(?:-.*)?$ to /say.cgi/post?id=7\n";
    assert!(told.contains(line), "{told}");
}

#[test]
fn rewrite_sends_missing_paths_to_a_front_controller() {
    let place = with_program(
        "[[site.rewrite]]\nregex = \"^/(.*)$\"\nto = \"/say.cgi?q=$1&$query\"\nmissing = true\n",
    );
    for (path, said) in [
        ("/a.txt", "root/a.txt"),
        ("/dir/", "root/dir/index.html"),
        ("/dir", "301"),
        ("/none", "GET uri=/none query=q=none script=/say.cgi info="),
        (
            "/a/b/?x=y",
            "GET uri=/a/b/?x=y query=q=a/b/&x=y script=/say.cgi info=",
        ),
        (
            "/a&b=c",
            "GET uri=/a&b=c query=q=a%26b%3Dc script=/say.cgi info=",
        ),
        (
            "/a%0Ab",
            "GET uri=/a%0Ab query=q=a%0Ab script=/say.cgi info=",
        ),
        (
            "/AC%2FDC",
            "GET uri=/AC%2FDC query=q=AC%2FDC script=/say.cgi info=",
        ),
        (
            "/empty/",
            "GET uri=/empty/ query=q=empty/ script=/say.cgi info=",
        ),
        ("/.git", "GET uri=/.git query=q=.git script=/say.cgi info="),
        (
            "/say.cgi/x?y",
            "GET uri=/say.cgi/x?y query=y script=/say.cgi info=/x",
        ),
    ] {
        assert_eq!(place.body_or_status(path), said, "{path}");
        if let Some(by_http2) = by_http2(&place, path) {
            assert_eq!(by_http2, said, "{path} by HTTP/2");
        }
    }
    let mut client = place.server.connect();
    client.send("POST /new/thing HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let said = "POST uri=/new/thing query=q=new/thing script=/say.cgi info= hello";
    assert_eq!(client.response().text(), said);
    client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 405);
}

#[test]
fn rewrite_applies_if_its_target_is_a_file() {
    let files = [
        "root/blog.html",
        "root/blog/index.html",
        "root/both.html",
        "root/both.htm",
        "root/docs.htm",
        "root/docs/index.html",
        "root/exact",
        "root/exact.html",
        "root/secret.html",
    ];
    let place = with_program_and(
        &files,
        "[[site.rewrite]]\nregex = \"^/(.*)$\"\nto = \"/$1.html\"\nexists = true\n\
         [[site.rewrite]]\nregex = \"^/(.*)$\"\nto = \"/$1.htm\"\nexists = true\nmissing = true\n\
         [[site.rewrite]]\nfrom = \"/front/**\"\nto = \"/say.cgi?q=$1\"\nmissing = true\n\
         [[site.rule]]\npattern = \"/secret.html\"\ndeny = 403\n",
    );
    // Twice: the second time, all objects are stored.
    for _ in 0..2 {
        for (path, expected) in [
            ("/exact", "root/exact"),
            ("/blog", "root/blog.html"),
            ("/blog/", "root/blog/index.html"),
            ("/both", "root/both.html"),
            // The folder has precedence over a rewrite with `missing`.
            ("/docs", "301"),
            ("/docs/none", "404"),
            ("/secret", "403"),
            ("/none", "404"),
            ("/a%2Fb", "400"),
            (
                "/front/x",
                "GET uri=/front/x query=q=x script=/say.cgi info=",
            ),
        ] {
            assert_eq!(place.body_or_status(path), expected, "{path}");
        }
    }
    let mut client = place.server.connect();
    client.send("HEAD /blog HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
    client.send("POST /blog HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().status, 405);
    let explained = place.explain("/blog");
    assert!(explained.contains("^/(.*)$ to /blog.html\n"), "{explained}");
    // A file that is created later is found.
    place.folder.file("root/none.html", "new");
    wait_until("the new file", || {
        (place.body_or_status("/none") == "new").then_some(())
    });
}

#[test]
fn access_rules_match_requested_and_rewritten_path() {
    let place = Place::new(
        &FILES,
        "[[site.rewrite]]\nfrom = \"/open/**\"\nto = \"/secret/$1\"\n\
         [[site.rewrite]]\nfrom = \"/closed/**\"\nto = \"/$1\"\n\
         [[site.rewrite]]\nregex = \"^/gone/(.*)$\"\nto = \"/secret/$1\"\nmissing = true\n\
         [[site.rewrite]]\nregex = \"^/up/(.*)$\"\nto = \"/$1/\"\n\
         [[site.rule]]\npattern = \"/secret/**\"\ndeny = 403\n\
         [[site.rule]]\npattern = \"/closed/**\"\ndeny = 403\n",
    );
    for path in [
        "/open/x.txt",
        "/op%65n/x.txt",
        "//open//x.txt",
        "/open/%78.txt",
        "/open/x.txt.gz",
        "/closed/a.txt",
        "/closed%2F/a.txt",
        "/closed//a.txt",
        "/gone/x.txt",
        "/gone/none",
        "/up/secret",
        "/up/secret/x.txt",
    ] {
        let status = if path.contains("%2F") { "400" } else { "403" };
        assert_eq!(place.body_or_status(path), status, "{path}");
        if let Some(by_http2) = by_http2(&place, path) {
            assert_eq!(by_http2, status, "{path} by HTTP/2");
        }
    }
    let told = place.explain("/open/x.txt");
    assert!(
        told.contains("rule                   /secret/**: deny 403"),
        "{told}"
    );
}

#[test]
fn password_rule_of_rewritten_path_applies() {
    let folder = TempFolder::new();
    users(&folder);
    let place = Place::after(
        folder,
        &FILES,
        "[[site.rewrite]]\nfrom = \"/open/**\"\nto = \"/secret/$1\"\n\
         [[site.rule]]\npattern = \"/secret/**\"\nauth = \"users\"\n",
    );
    assert_eq!(place.body_or_status("/open/x.txt"), "401");
    let got = place.get_with("/open/x.txt", &basic("ann", "secret of ann"));
    assert_eq!((got.status, got.text()), (200, "root/secret/x.txt".into()));
    let got = place.get_with("/open/x.txt", &basic("ann", "none"));
    assert_eq!(got.status, 401);
    let got = place.get_with("/open/none", &basic("ann", "secret of ann"));
    assert_eq!(got.status, 404);
}

#[test]
fn rate_limit_counts_a_rewritten_request_once() {
    let place = Place::new(
        &FILES,
        "[[site.rewrite]]\nfrom = \"/old/**\"\nto = \"/new/$1\"\n\
         [[site.rule]]\nrate = \"1/h\"\nburst = 2\n",
    );
    let statuses: Vec<u16> = (0..3).map(|_| place.get("/old/a.txt").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn internal_alias_is_reachable_only_by_rewrite() {
    let place = Place::new(
        &FILES,
        "[[site.alias]]\npath = \"/in\"\nfolder = \"{}/in\"\ninternal = true\n\
         [[site.rewrite]]\nfrom = \"/files/*\"\nto = \"/in/$1\"\n",
    );
    for path in [
        "/in/x.pdf",
        "/in",
        "/in/",
        "//in//x.pdf",
        "/%69n/x.pdf",
        "/in/none",
    ] {
        assert_eq!(place.body_or_status(path), "404", "{path}");
    }
    assert_eq!(place.body_or_status("/files/x.pdf"), "in/x.pdf");
    assert_eq!(
        place.body_or_status("/in/x.pdf"),
        "404",
        "nor when it is stored"
    );
    let told = place.explain("/in/x.pdf");
    assert!(told.contains("/in is an internal alias"), "{told}");
}

#[test]
fn origin_gets_rewritten_target_and_response_is_stored_by_original() {
    let origin = TestOrigin::with_response(|asked| {
        let said = &asked.target;
        let len = said.len();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {len}\r\n\r\n{said}"
        )
    });
    let place = Place::new(
        &[],
        &format!(
            "[[site.rewrite]]\nregex = \"^/v1/(.*)$\"\nto = \"/api/$1?v=1&$query\"\n\
             [[site.route]]\npattern = \"/api/**\"\norigin = \"{}\"\n",
            origin.url()
        ),
    );
    for _ in 0..2 {
        assert_eq!(place.body_or_status("/v1/x?a=b"), "/api/x?v=1&a=b");
        assert_eq!(place.body_or_status("/v1/x?a=c"), "/api/x?v=1&a=c");
    }
    assert_eq!(origin.count(), 2, "they are stored");
}

#[test]
fn redirect_rules_use_captures() {
    let place = Place::new(
        &FILES,
        "[[site.redirect]]\nregex = \"^/([0-9]{4})/([0-9]{2})/(.*)$\"\nto = \"/archive/$3?year=$1&month=$2\"\nstatus = 308\n\
         [[site.redirect]]\nfrom = \"/moved/**\"\nto = \"https://a.example/$1?$query\"\n",
    );
    for (path, status, location) in [
        ("/2024/05/a%20b", 308, "/archive/a%20b?year=2024&month=05"),
        (
            "/2024/05//evil.example",
            308,
            "/archive//evil.example?year=2024&month=05",
        ),
        ("/moved//x?y", 301, "https://a.example//x?y"),
        ("/moved/x?y", 301, "https://a.example/x?y"),
        ("/moved/x", 301, "https://a.example/x"),
    ] {
        let got = place.get(path);
        assert_eq!(
            (got.status, got.field("location")),
            (status, Some(location)),
            "{path}"
        );
    }
}

#[test]
fn invalid_rewrites_are_reported_by_check() {
    let told = check("[[site.rewrite]]\nregex = \"^/(.*\"\nto = \"/x\"\n");
    assert!(
        told.contains(
            "site[0].rewrite[0].regex: \"^/(.*\" is not a regular expression: unclosed group"
        ),
        "{told}"
    );
}

#[test]
fn explanation_names_redirect_index_file_and_lifetime() {
    let place = Place::new(
        &FILES,
        "[[site.redirect]]\nregex = \"^/old/(.*)$\"\nto = \"/new/$1\"\n\
         [[site.cache_control]]\npattern = \"*.html\"\nvalue = \"max-age=60\"\n",
    );
    for (path, lines) in [
        ("/old/x", &["site.redirect ^/old/(.*)$: to /new/x"][..]),
        (
            "/dir/",
            &[
                "index                  index.html\n",
                "cache-control          max-age=60, for *.html\n",
            ],
        ),
    ] {
        let explained = place.explain(path);
        for line in lines {
            assert!(explained.contains(line), "{line} in {explained}");
        }
    }
    assert!(!place.explain("/a.txt").contains("cache-control"));
}
