//! Targets that are not paths, and paths that would leave the document root: the responses to them. No file outside of
//! the root is sent.
//!
//! docs/bad-input.md has the table for operators; `bad_files` tests file system objects. See RFC 9112 §3.2, RFC 3986
//! §2.1 and §3.3.

use lowroad_testkit::hostile::{GOOD, HostileSite};
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestServer};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
const NOT_FOUND: &str = "No page was found at this address.";

#[test]
fn request_target_forms() {
    let site = HostileSite::new(LOWROAD);
    site.accepts_targets(
        200,
        GOOD.1,
        &[
            "http://test/good.txt",
            "HTTP://TEST/good.txt",
            "https://test/good.txt",
            "http://other:8080/good.txt?x",
            "/good.txt?",
            "/good.txt?/../%zz%00\\?",
            "//good.txt",
            "///good.txt",
        ],
    );
    site.accepts_targets(403, "no index page", &["http://test", "http://test?x"]);
    site.refuses_targets(
        "the request target is invalid",
        &[
            "*",
            "good.txt",
            "test:80",
            "ftp://test/good.txt",
            "http:/good.txt",
            "file:///etc/passwd",
            // A fragment must not be sent (RFC 9112 §3.2).
            "/good.txt#top",
            "/good\u{e4}.txt",
        ],
    );
    site.refuses_targets(
        "the host name is invalid",
        &[
            "http:///good.txt",
            // User information is not allowed in http URLs (RFC 9110 §4.2.4).
            "http://user@test/good.txt",
            "http://te%73t/",
            "http://a:b/",
        ],
    );
    let line = |line| format!("{line} HTTP/1.1\r\nHost: test\r\n\r\n");
    let named = |lines: &[&'static str]| -> Vec<(&str, String)> {
        lines.iter().map(|text| (*text, line(*text))).collect()
    };
    let invalid = [
        "CONNECT /good.txt",
        "CONNECT test",
        "CONNECT http://test:80/",
        "OPTIONS **",
        "POST *",
    ];
    site.refuses(400, "the request target is invalid", &named(&invalid));
    site.accepts(405, "can only be read", &named(&["CONNECT test:80"]));
    let options = ["OPTIONS *", "OPTIONS http://test", "OPTIONS /nothing/here"];
    site.accepts(204, "", &named(&options));
}

#[test]
fn host_of_absolute_target_precedes_host_field() {
    let folder = TempFolder::new();
    folder.file("a/x.txt", "site a\n");
    folder.file("b/x.txt", "site b\n");
    let config = "[[site]]\nlisten = \"127.0.0.1:0\"\nnames = \"a.test\"\nroot = \"a\"\n\n\
                  [[site]]\nlisten = \"127.0.0.1:0\"\nnames = \"b.test\"\nroot = \"b\"\n";
    let server = TestServer::run(LOWROAD, &folder, config);
    let mut client = server.connect();
    client.send("GET http://b.test/x.txt HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().text(), "site b\n");
    for (host, status) in [("A.TEST.", 200), ("c.test", 421), ("127.0.0.1", 421)] {
        client.send(format!("GET /x.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host:?}");
    }
    client.send("GET /x.txt HTTP/1.1\r\nHost: \r\n\r\n");
    assert_eq!(client.response().status, 400, "no name at all");
    assert!(client.wait_for_close());
}

#[test]
fn malformed_and_encoded_special_escapes_are_refused() {
    let site = HostileSite::new(LOWROAD);
    site.refuses_targets(
        "a percent escape in the path is malformed",
        &[
            "/%",
            "/good.txt%",
            "/%2",
            "/%zz",
            "/%u002e",
            "/%2x/good.txt",
        ],
    );
    site.refuses_targets(
        "the path contains a NUL",
        &["/good.txt%00", "/good.txt%00.html", "/%00", "/good%00/../x"],
    );
    site.refuses_targets(
        "the path contains a backslash or an encoded slash",
        &[
            "/sub%2finner.txt",
            "/sub%2Finner.txt",
            "/%2f",
            "/sub%5cinner.txt",
            "/%5C",
            "/..%2f..%2fsecret.txt",
        ],
    );
    site.accepts_targets(
        404,
        NOT_FOUND,
        &[
            "/%25",
            "/%2525",
            "/good.txt%20",
            "/good.txt%0a",
            "/good.txt.",
            "/good.txt::$DATA",
            "/GOOD.TXT",
            "/good\"txt",
            "/<good>|{txt}^`",
            "/good.txt;x",
            "/%c0%afgood.txt",
        ],
    );
    site.accepts_targets(
        200,
        GOOD.1,
        &["/%67ood.txt", "/good%2etxt", "/%67%6F%6f%64.txt"],
    );
}

#[test]
fn dot_segments_in_all_encodings_do_not_leave_the_root() {
    let site = HostileSite::with(LOWROAD, "", |folder| {
        folder.file("secret.txt", "secret\n");
        folder.file("site/sub/inner.txt", "inner\n");
    });
    site.refuses_targets(
        "the path contains a dot segment",
        &[
            "/..",
            "/../secret.txt",
            "/../../../../../../../../etc/passwd",
            "/sub/../good.txt",
            "/sub/..",
            "/sub/../../secret.txt",
            "/.",
            "/./good.txt",
            "/sub/./inner.txt",
            "/sub/.",
            "/%2e%2e/secret.txt",
            "/%2E%2E/secret.txt",
            "/.%2e/secret.txt",
            "/%2e./secret.txt",
            "/%2e/good.txt",
            "//../secret.txt",
            "/..//secret.txt",
            "/sub//../../secret.txt",
            "http://test/../secret.txt",
            "/../secret.txt?x",
            "/../site/good.txt",
        ],
    );
    site.accepts_targets(
        404,
        NOT_FOUND,
        &[
            // Escapes are decoded only once, and overlong UTF-8 forms of a dot are not decoded.
            "/%252e%252e/secret.txt",
            "/%25%32%65%25%32%65/secret.txt",
            "/%c0%ae%c0%ae/secret.txt",
            "/%e0%80%ae%e0%80%ae/secret.txt",
            "/%ef%bc%8e%ef%bc%8e/secret.txt",
            "/..;/secret.txt",
            "/.../secret.txt",
            "/..../secret.txt",
            "/..%20/secret.txt",
            "/..%0d/secret.txt",
            "/%20../secret.txt",
            "/~/secret.txt",
            "/etc/passwd",
            "//etc/passwd",
        ],
    );
    let backslashes = [
        "/..\\secret.txt",
        "/sub\\..\\..\\secret.txt",
        "/..%5csecret.txt",
    ];
    for target in backslashes {
        let mut client = site.server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.status, 400, "{target}");
        assert!(client.wait_for_close(), "{target}");
    }
    let path = site.folder.path().display().to_string();
    site.accepts_targets(404, NOT_FOUND, &[&format!("{path}/secret.txt")]);
}

#[test]
fn malformed_requests_are_counted() {
    let folder = TempFolder::new();
    folder.file("root/x.txt", "x");
    let admin = folder.path().join("admin");
    let config = format!(
        "[server]\nadmin = \"{}\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n",
        admin.display()
    );
    let server = TestServer::run(LOWROAD, &folder, &config);
    for target in [
        "/../x.txt",
        "/a%2fb",
        "/%",
        "x.txt",
        "/x.txt HTTP/1.1\r\nHost: a b\r\nX:",
    ] {
        assert_eq!(server.get(target).status, 400, "{target}");
    }
    assert_eq!(server.get("/x.txt").status, 200);
    assert_eq!(server.get("/none").status, 404);
    assert_eq!(StatusClient::new(LOWROAD, &admin).value("refused"), 5);
}
