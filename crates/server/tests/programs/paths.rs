//! Paths that can't name a file, but that programs get; files and scripts are reachable only by their own paths.

use lowroad_testkit::skip;

use crate::host::Host;
use crate::talk::{self, ask};

/// Returns the script's name and path info.
const INFO: &str = "printf 'Content-Type: text/plain\\n\\n%s %s' \"$SCRIPT_NAME\" \"$PATH_INFO\"\n";

#[test]
fn path_info_is_the_path_after_the_script_name() {
    let routes = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";
    let host = Host::with_routes(routes, &[("info", INFO)]);
    let mut client = host.connect();
    for (path, info) in [
        ("/cgi/info/v1/page/AC%2FDC", "/v1/page/AC/DC"),
        ("/cgi/info%2fx", "/x"),
        ("/cgi/info/a%5Cb", "/a\\b"),
        ("/cgi/info/.gitignore", "/.gitignore"),
    ] {
        let (got, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!(got.text(), format!("/cgi/info {info}"), "{path}");
    }
    for (path, status) in [
        // An escaped spelling of the script's name, or of its folder, does not reach the script.
        ("/cgi%2Finfo", 404),
        ("/cgi/%2e%2e%2finfo", 400),
        ("/cgi/info/..%2f..%2fx", 400),
        ("/cgi/info/%00", 400),
        // Nor do escaped spellings reach files.
        ("/%2ffile.txt", 400),
        ("/file.txt%5c", 400),
    ] {
        let (got, _) = ask(host.address(), "GET", path, "");
        assert_eq!(got.status, status, "{path}");
    }
}

#[test]
fn purge_is_not_forwarded_to_an_origin() {
    let routes = "[[site.route]]\npattern = \"/o/**\"\norigin = \"http://127.0.0.1:9\"\n";
    let host = Host::with_routes(routes, &[]);
    let (got, _) = ask(host.address(), "PURGE", "/o/a", "");
    assert_eq!(got.status, 405);
}

#[test]
fn purge_from_setting_restricts_purge_clients() {
    let routes = "purge_from = [\"192.0.2.1\"]\n\
                  [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";
    let host = Host::with_routes(routes, &[]);
    let (got, _) = ask(host.address(), "PURGE", "/cgi/say", "");
    assert_eq!(got.status, 405);
}

/// A script that returns the name of its folder and the request target.
const WHICH: &str = "<?php echo basename(__DIR__), ' ', $_SERVER['REQUEST_URI'];\n";

/// The documentation's configuration of a PHP application.
fn documented() -> String {
    const DOCS: &str = include_str!("../../../../docs/configuration/site-route.md");
    let (_, text) = DOCS
        .split_once("A PHP application with a front controller")
        .expect("there");
    let (_, text) = text
        .split_once("root = \"/srv/app/public\"\n")
        .expect("a root");
    let (routes, _) = text.split_once("```").expect("an end");
    routes.replace("/run/php/php-fpm.sock", "DIR/fpm.sock")
}

#[test]
fn documented_configuration_runs_a_php_application() {
    let host = Host::with_routes(&documented(), &[]);
    if !host.has_php() {
        let test = "documented_configuration_runs_a_php_application";
        return skip(test, "no php-fpm");
    }
    for script in ["root/index.php", "root/wp-admin/index.php"] {
        host.file(script, WHICH);
    }
    host.file("root/.env", "SECRET");
    host.file("root/empty/x.txt", "");
    let mut client = host.connect();
    let mut get = |path: &str| talk::request_on(&mut client, "GET", path, "").0;
    for path in [
        "/",
        "/wiki/.NET",
        "/wiki/AC%2FDC",
        "/a%5Cb",
        "/.env",
        "/empty/",
        "/wp-login",
        "/%2Fx",
    ] {
        assert_eq!(get(path).text(), format!("root {path}"));
    }
    for path in ["/wp-admin/", "/wp-admin/?x", "/wp-admin/index.php/.x%2Fy"] {
        assert_eq!(get(path).text(), format!("wp-admin {path}"));
    }
    let moved = get("/wp-admin");
    let location = moved.field("location");
    assert_eq!((moved.status, location), (301, Some("/wp-admin/")));
    assert_eq!(get("/wp-admin%2Findex.php").status, 404);
}
