//! Files and programs at the same paths: which of them answers, and that the source of a program is never sent.

use lowroad_testkit::skip;

use crate::host::Host;
use crate::talk::{self, ask, post};

/// The configuration of a PHP application as in the documentation.
const APPLICATION: &str = r#"
[[site.route]]
pattern = "*.php"
fastcgi = "unix:DIR/fpm.sock"
[[site.route]]
pattern = "/**"
missing = true
fastcgi = "unix:DIR/fpm.sock"
script = "/index.php"
"#;

const FRONT: &str = "<?php // SOURCE\necho 'front ', $_SERVER['REQUEST_METHOD'], ' ',\n\
    $_SERVER['REQUEST_URI'], '|', file_get_contents('php://input');\n";

fn application(test: &str) -> Option<Host> {
    let host = Host::with_routes(APPLICATION, &[]);
    if !host.has_php() {
        skip(test, "no php-fpm");
        return None;
    }
    host.file("root/index.php", FRONT);
    host.file("root/folder/index.php", FRONT);
    host.file("root/style.css", "a {}\n");
    Some(host)
}

#[test]
fn missing_files_are_answered_by_the_front_controller() {
    let Some(host) = application("missing_files_are_answered_by_the_front_controller") else {
        return;
    };
    let mut client = host.connect();
    for round in 0..2 {
        let (got, _) = talk::request_on(&mut client, "GET", "/blog/7?a=b", "");
        assert_eq!(got.text(), "front GET /blog/7?a=b|", "round {round}");
        let (got, _) = post(&mut client, "/blog/new", "a text");
        assert_eq!(got.text(), "front POST /blog/new|a text", "round {round}");
        let (got, _) = talk::request_on(&mut client, "GET", "/style.css", "");
        assert_eq!(got.text(), "a {}\n");
        let (got, _) = post(&mut client, "/style.css", "a text");
        assert_eq!(got.status, 405);
        let (got, _) = talk::request_on(&mut client, "HEAD", "/blog/8", "");
        assert_eq!(got.status, 200);
        let (got, _) = talk::request_on(&mut client, "OPTIONS", "/blog/9", "");
        assert_eq!(got.text(), "front OPTIONS /blog/9|");
    }
    // A long body, too: the server must look up the path before it reads the body.
    let long = "x".repeat(300_000);
    let (got, _) = post(&mut client, "/blog/long", &long);
    assert_eq!(got.text(), format!("front POST /blog/long|{long}"));
}

#[test]
fn created_and_removed_files_switch_the_front_controller() {
    let Some(host) = application("created_and_removed_files_switch_the_front_controller") else {
        return;
    };
    let mut client = host.connect();
    let mut text = |path: &str| talk::request_on(&mut client, "GET", path, "").0.text();
    assert_eq!(text("/new"), "front GET /new|");
    host.file("root/new", "a new file\n");
    lowroad_testkit::wait_until("the file", || {
        (text("/new") == "a new file\n").then_some(())
    });
    std::fs::remove_file(host.path("root/new")).expect("a file");
    lowroad_testkit::wait_until("the front", || {
        (text("/new") == "front GET /new|").then_some(())
    });
}

/// Spellings of the path of a script.
const PATHS: [&str; 20] = [
    "/say.php",
    "/say.php?a",
    "/say.php/",
    "/say.php//",
    "/say.php/more/path",
    "//say.php",
    "/./say.php",
    "/x/../say.php",
    "/say%2Ephp",
    "/%73ay.php",
    "/say.ph%70",
    "/say.php%00",
    "/say.php%00.txt",
    "/say.php%20",
    "/say.php%2f",
    "/say.php.",
    "/say.php;a",
    "/say.PHP",
    "/index.php/",
    "/index.php",
];

fn never_the_source(host: &Host, paths: &[&str]) {
    let fields = [
        "",
        "Range: bytes=0-20\r\n",
        "Accept-Encoding: gzip, br, zstd\r\n",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    ];
    for path in paths {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PROPFIND"] {
            for fields in fields {
                let (got, _) = ask(host.address(), method, path, fields);
                let text = got.text();
                assert!(!text.contains("<?php"), "{method} {path}: {text}");
                assert_ne!(got.status, 206, "{method} {path}");
                assert_eq!(got.field("content-encoding"), None, "{method} {path}");
            }
        }
    }
}

#[test]
fn script_source_is_never_sent() {
    let routes = "[[site.route]]\npattern = \"*.php\"\nfastcgi = \"unix:DIR/fpm.sock\"\n";
    let host = Host::with_routes(routes, &[]);
    host.file("root/index.php", FRONT);
    never_the_source(&host, &PATHS);
    if let Some(host) = application("script_source_is_never_sent") {
        never_the_source(&host, &PATHS);
        let paths = [
            "/",
            "/folder/",
            "/folder",
            "/folder//index.php",
            "/folder/?x",
        ];
        never_the_source(&host, &paths);
    }
}

#[test]
fn route_hides_its_file_in_every_spelling() {
    let routes = "[[site.route]]\npattern = \"/say.php\"\nmodule = \"linked\"\n\
                  [[site.route]]\npattern = \"/in/**\"\nmodule = \"linked\"\n";
    let host = Host::with_routes(routes, &[]);
    host.file("root/in/here.php", FRONT);
    let hidden = |path: &&&str| !path.starts_with("/say.php.") && !path.contains("PHP");
    let mut paths: Vec<&str> = PATHS.iter().filter(hidden).copied().collect();
    paths.retain(|path| !path.starts_with("/index"));
    paths.extend([
        "/in/here.php",
        "//in//here.php",
        "/in/here.php/",
        "/%69n/here.php",
    ]);
    never_the_source(&host, &paths);
}

#[test]
fn index_file_may_be_a_script() {
    let routes = "index = [\"index.php\"]\n[[site.route]]\npattern = \"*.php\"\n\
                  fastcgi = \"unix:DIR/fpm.sock\"\n";
    let host = Host::with_routes(routes, &[]);
    if !host.has_php() {
        return skip("index_file_may_be_a_script", "no php-fpm");
    }
    host.file("root/index.php", FRONT);
    host.file("root/folder/index.php", FRONT);
    let mut client = host.connect();
    for path in ["/", "/folder/", "/?a=b", "/folder/?a=b"] {
        for _ in 0..2 {
            let (got, _) = talk::request_on(&mut client, "GET", path, "");
            assert_eq!(got.text(), format!("front GET {path}|"));
            let (got, _) = post(&mut client, path, "a text");
            assert_eq!(got.text(), format!("front POST {path}|a text"));
        }
    }
    let (got, _) = talk::request_on(&mut client, "GET", "/folder", "");
    assert_eq!((got.status, got.field("location")), (301, Some("/folder/")));
    never_the_source(&host, &["/", "/folder/", "/folder", "//", "/folder//"]);
}

#[test]
fn page_template_without_route_is_not_sent() {
    let host = Host::with_routes("index = [\"page.lrp\", \"index.html\"]\n", &[]);
    for path in ["/page.lrp", "/", "/page%2Elrp", "//page.lrp"] {
        let (got, _) = ask(host.address(), "GET", path, "");
        assert_eq!(got.status, 404, "{path}: {}", got.text());
    }
}
