//! Internal redirects by programs (X-Accel-Redirect, X-Sendfile, CGI local redirects): to paths, files and other
//! programs.

use std::os::unix::fs::symlink;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, SAY, basic, by_http2, program, users};

/// A program that responds with X-Accel-Redirect and further fields.
const ACCEL: &str = "#!/bin/sh
cat > /dev/null
printf 'Content-Type: application/x-own\\nContent-Disposition: attachment\\nSet-Cookie: a=b\\n'
printf 'Cache-Control: max-age=60\\nETag: \"own\"\\nContent-Length: 7\\nX-Accel-Redirect: %s\\n\\nignored' \"$QUERY_STRING\"
";

/// The target of internal redirects to a program.
const STORE: &str = "#!/bin/sh
test \"$QUERY_STRING\" = missing && printf 'Status: 404\\n'
printf 'Content-Type: binary/octet-stream\\nCache-Control: public\\nSet-Cookie: c=d\\nX-Store: 1\\n'
printf 'Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\\nContent-Length: 5\\n\\nbytes'
";

/// A program that responds with X-Sendfile.
const SENDFILE: &str = "#!/bin/sh
printf 'Content-Type: text/x-own\\nX-Sendfile: %s\\n\\n' \"$QUERY_STRING\"
";

/// A program with a local redirect (RFC 3875 §6.2.2).
const LOCAL: &str = "#!/bin/sh
cat > /dev/null
printf 'Location: %s\\n\\n' \"$QUERY_STRING\"
";

const SITE: &str = "[[site.alias]]\npath = \"/in\"\nfolder = \"{}/in\"\ninternal = true\n\
    [[site.alias]]\npath = \"/out\"\nfolder = \"{}/out\"\n\
    [[site.route]]\npattern = \"/store.cgi\"\ncgi = true\ninternal = true\n\
    [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
    [[site.rule]]\npattern = \"/in/denied\"\ndeny = 403\n\
    [[site.header]]\npattern = \"*.cgi\"\nset = { X-Asked = \"1\" }\n\
    [[site.header]]\npattern = \"/in/**\"\nset = { X-In = \"1\" }\n\
    [[site.rewrite]]\nregex = \"^/kept$\"\nto = \"/store.cgi\"\n\
    [[site.rewrite]]\nregex = \"^/pretty/(.*)$\"\nto = \"/say.cgi?q=$1\"\nmissing = true\n";

fn place() -> Place {
    let folder = TempFolder::new();
    for (name, text) in [
        ("root/accel.cgi", ACCEL),
        ("root/sendfile.cgi", SENDFILE),
        ("root/local.cgi", LOCAL),
        ("root/say.cgi", SAY),
        ("root/store.cgi", STORE),
        ("in/run.cgi", SAY),
    ] {
        program(&folder, name, text);
    }
    folder.file("in/page.txt", "0123456789".repeat(100));
    symlink("../secret", folder.path().join("in/link")).expect("a link");
    let files = [
        "root/a.txt",
        "in/x.pdf",
        "in/sub/index.cgi",
        "in/denied",
        "in/.git",
        "out/x.pdf",
        "secret",
    ];
    Place::after(folder, &files, SITE)
}

#[test]
fn x_accel_redirect_to_a_program_keeps_the_first_programs_fields() {
    let place = place();
    let got = place.get("/accel.cgi?/store.cgi");
    assert_eq!((got.status, got.text()), (200, "bytes".into()));
    for (name, values) in [
        ("content-type", &["application/x-own"][..]),
        ("content-disposition", &["attachment"]),
        ("cache-control", &["max-age=60"]),
        ("set-cookie", &["c=d", "a=b"]),
        ("x-store", &["1"]),
        ("last-modified", &["Sun, 06 Nov 1994 08:49:37 GMT"]),
        ("etag", &[]),
        ("x-asked", &["1"]),
        ("x-accel-redirect", &[]),
    ] {
        assert_eq!(
            field_values(&got.head, name),
            values,
            "{name}: {}",
            got.head
        );
    }
    // The fields of the first program do not apply to an error.
    let got = place.get("/accel.cgi?/store.cgi?missing");
    assert_eq!(got.status, 404);
    assert_eq!(
        field_values(&got.head, "content-type"),
        ["binary/octet-stream"]
    );
    assert_eq!(field_values(&got.head, "content-disposition"), [""; 0]);
    assert_eq!(field_values(&got.head, "set-cookie"), ["c=d", "a=b"]);
    // After a redirect by a second program, the fields of the first one still apply.
    let got = place.get("/accel.cgi?/accel.cgi?/store.cgi");
    assert_eq!(got.status, 200);
    assert_eq!(
        field_values(&got.head, "content-disposition"),
        ["attachment"]
    );
}

#[test]
fn internal_route_is_reachable_only_by_rewrite_and_accel_redirect() {
    let place = place();
    for path in ["/store.cgi", "/local.cgi?/store.cgi"] {
        assert_eq!(place.get(path).status, 404, "{path}");
    }
    assert_eq!(place.get("/kept").text(), "bytes");
}

/// The values of all fields of a head with this lower-case name, in order.
fn field_values<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

#[test]
fn x_accel_redirect_sends_a_file_with_the_programs_fields() {
    let place = place();
    let path = "/accel.cgi?/in/page.txt";
    let text = "0123456789".repeat(100);
    for _ in 0..2 {
        let got = place.get(path);
        assert_eq!((got.status, got.text()), (200, text.clone()));
        for (name, value) in [
            ("content-type", Some("application/x-own")),
            ("content-disposition", Some("attachment")),
            ("set-cookie", Some("a=b")),
            ("cache-control", Some("max-age=60")),
            ("content-length", Some("1000")),
            ("accept-ranges", Some("bytes")),
            ("x-asked", Some("1")),
            ("x-in", None),
            ("x-accel-redirect", None),
            ("content-encoding", None),
        ] {
            assert_eq!(got.field(name), value, "{name}: {}", got.head);
        }
    }
    let whole = place.get(path);
    let etag = whole.field("etag").expect("the file's");
    assert!(etag != "\"own\"" && whole.field("last-modified").is_some());
    let part = place.get_with(path, "Range: bytes=5-8\r\n");
    assert_eq!((part.status, part.text()), (206, "5678".into()));
    assert_eq!(part.field("content-range"), Some("bytes 5-8/1000"));
    assert_eq!(part.field("content-type"), Some("application/x-own"));
    let parts = place.get_with(path, "Range: bytes=0-0,5-5\r\n");
    assert_eq!(parts.status, 206);
    assert_eq!(
        parts.head.matches("Content-Type").count(),
        1,
        "{}",
        parts.head
    );
    assert_eq!(
        parts
            .text()
            .matches("Content-Type: application/x-own")
            .count(),
        2
    );
    let same = place.get_with(path, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(same.status, 304);
    assert_eq!(same.field("set-cookie"), Some("a=b"));
    assert_eq!(same.field("content-type"), None);
    let none = place.get_with(path, "Range: bytes=5000-\r\n");
    assert_eq!(none.status, 416);
    let coded = place.get_with(path, "Accept-Encoding: gzip\r\n");
    assert_eq!(coded.field("content-encoding"), Some("gzip"));
    assert_eq!(coded.field("content-type"), Some("application/x-own"));
    if let Some(by_http2) = by_http2(&place, path) {
        assert_eq!(by_http2, text);
    }
}

#[test]
fn x_accel_redirect_applies_to_all_methods_and_logs_the_original_path() {
    let place = place();
    let mut client = place.server.connect();
    client.send("HEAD /accel.cgi?/in/x.pdf HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.response_to_head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("8"))
    );
    client.send("POST /accel.cgi?/in/x.pdf HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "in/x.pdf");
    wait_until("the log", || {
        let log = std::fs::read_to_string(place.folder.path().join("access.log")).ok()?;
        log.contains("\"POST /accel.cgi?/in/x.pdf HTTP/1.1\" 200 8")
            .then_some(())
    });
}

#[test]
fn x_accel_redirect_is_subject_to_access_rules() {
    let place = place();
    for (named, said) in [
        ("/in/x.pdf", "in/x.pdf"),
        ("/in/%78.pdf", "in/x.pdf"),
        ("/a.txt", "root/a.txt"),
        ("/out/x.pdf", "out/x.pdf"),
        // The script is sent as a file, not executed.
        ("/in/run.cgi", SAY),
        ("/in/sub/", "404"),
        ("/in/sub", "404"),
        ("/in/none", "404"),
        ("/in/denied", "403"),
        ("/in/.git", "404"),
        ("/in/link", "403"),
        ("/in/../secret", "502"),
        ("http://a/in/x.pdf", "502"),
        ("", "502"),
        // Programs may redirect repeatedly, but not without limit.
        (
            "/say.cgi/info?b=c",
            "GET uri=/accel.cgi?/say.cgi/info?b=c query=b=c script=/say.cgi info=/info",
        ),
        ("/accel.cgi?/in/x.pdf", "in/x.pdf"),
        (
            "/pretty/x",
            "GET uri=/accel.cgi?/pretty/x query=q=x script=/say.cgi info=",
        ),
    ] {
        assert_eq!(
            place.body_or_status(&format!("/accel.cgi?{named}")),
            said,
            "{named}"
        );
    }
    for path in ["/in/x.pdf", "/in/run.cgi", "/in/sub/index.cgi"] {
        assert_eq!(place.body_or_status(path), "404", "{path}");
    }
}

#[test]
fn x_sendfile_names_an_absolute_path() {
    let place = place();
    let at = place.folder.path().display().to_string();
    for (named, said) in [
        ("/in/x.pdf", "in/x.pdf"),
        ("/in/run.cgi", SAY),
        ("/in/none", "404"),
        ("/in/denied", "403"),
        ("/in/link", "403"),
        ("/out/x.pdf", "502"),
        ("/secret", "502"),
        ("/in/../secret", "502"),
        ("/in", "502"),
        ("/inner/x", "502"),
    ] {
        assert_eq!(
            place.body_or_status(&format!("/sendfile.cgi?{at}{named}")),
            said,
            "{named}"
        );
    }
    assert_eq!(place.body_or_status("/sendfile.cgi?in/x.pdf"), "502");
    let got = place.get(&format!("/sendfile.cgi?{at}/in/x.pdf"));
    assert_eq!(got.field("content-type"), Some("text/x-own"));
    assert_eq!(got.field("x-sendfile"), None);
    place
        .server
        .wait_for_error_line("X-Sendfile names a file outside the folders of all internal aliases");
}

#[test]
fn cgi_local_redirect_is_answered_internally() {
    let place = place();
    for (to, said) in [
        ("/a.txt", "root/a.txt"),
        (
            "/say.cgi/x?y=z",
            "GET uri=/local.cgi?/say.cgi/x?y=z query=y=z script=/say.cgi info=/x",
        ),
        (
            "/pretty/x",
            "GET uri=/local.cgi?/pretty/x query=q=x script=/say.cgi info=",
        ),
        ("/none", "404"),
        // A local redirect reaches only resources that a client could request.
        ("/in/x.pdf", "404"),
        ("/out", "301"),
        ("/../secret", "502"),
    ] {
        let path = format!("/local.cgi?{to}");
        assert_eq!(place.body_or_status(&path), said, "{to}");
        if let Some(by_http2) = by_http2(&place, &path) {
            assert_eq!(by_http2, said, "{to} by HTTP/2");
        }
    }
    let got = place.get("/local.cgi?/a.txt");
    assert_eq!((got.field("location"), got.field("x-asked")), (None, None));
    let mut client = place.server.connect();
    client.send("POST /local.cgi?/say.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let said = client.response().text();
    assert!(
        said.starts_with("GET ") && !said.contains("hello"),
        "{said}"
    );
}

#[test]
fn redirected_programs_get_the_authenticated_user() {
    let folder = TempFolder::new();
    users(&folder);
    let script = "#!/bin/sh\nsaid=\"$AUTH_TYPE,$REMOTE_USER\"\n\
        printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#said} \"$said\"\n";
    program(&folder, "root/app/who.cgi", script);
    program(&folder, "root/open/who.cgi", script);
    let place = Place::after(
        folder,
        &[],
        "[[site.rule]]\npattern = \"/app/who.cgi/open\"\nallow = true\n\
         [[site.rule]]\npattern = \"/app/**\"\nauth = \"users\"\n\
         [[site.rule]]\npattern = \"/standing-in\"\nfallback = \"/app/who.cgi\"\n\
         [[site.rule]]\npattern = \"/app/standing-in\"\nfallback = \"/open/who.cgi\"\n\
         [[site.rewrite]]\nfrom = \"/app/led\"\nto = \"/open/who.cgi\"\n\
         [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n",
    );
    let (right, wrong) = (basic("ann", "secret of ann"), basic("ann", "no"));
    for path in [
        "/app/who.cgi",
        "/app/who.cgi/x",
        "/app/led",
        "/app/standing-in",
    ] {
        let got = place.get_with(path, &right);
        assert_eq!(
            (got.status, got.text()),
            (200, "Basic,ann".into()),
            "{path}"
        );
        assert_eq!(place.get_with(path, &wrong).status, 401, "{path}");
    }
    for path in ["/open/who.cgi", "/app/who.cgi/open", "/standing-in"] {
        for fields in [&right, &wrong] {
            let got = place.get_with(path, fields);
            assert_eq!((got.status, got.text()), (200, ",".into()), "{path}");
        }
    }
}

#[test]
fn internal_redirect_loop_is_ended() {
    let folder = TempFolder::new();
    program(
        &folder,
        "root/a.cgi",
        "#!/bin/sh\necho x >> calls\nprintf 'Location: /a.cgi\\n\\n'\n",
    );
    let place = Place::after(
        folder,
        &[],
        "[[site.route]]\npattern = \"*.cgi\"\ncgi = true\n",
    );
    assert_eq!(place.body_or_status("/a.cgi"), "502");
    place
        .server
        .wait_for_error_line("too many internal redirects");
}

#[test]
fn accel_redirect_of_an_origin_needs_permission_and_is_not_stored() {
    let origin = TestOrigin::with_response(|asked| {
        let path = asked.target.trim_start_matches("/app");
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nX-Accel-Redirect: /in{path}\r\nContent-Length: 0\r\n\r\n"
        )
    });
    let site = |line: &str| {
        let lines = format!(
            "[[site.alias]]\npath = \"/in\"\nfolder = \"{{}}/in\"\ninternal = true\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"{}\"\n{line}",
            origin.url()
        );
        Place::new(&["in/x"], &lines)
    };
    let place = site("internal_redirects = true\n");
    for count in 1..=2 {
        assert_eq!(place.body_or_status("/app/x"), "in/x");
        assert_eq!(origin.count(), count, "it is asked each time");
    }
    let place = site("");
    let got = place.get("/app/x");
    assert_eq!((got.status, got.text()), (200, String::new()));
    assert_eq!(got.field("x-accel-redirect"), Some("/in/x"));
}

#[test]
fn access_log_has_the_authenticated_user() {
    let folder = TempFolder::new();
    users(&folder);
    program(&folder, "root/app/say.cgi", SAY);
    let place = Place::after(
        folder,
        &["root/app/file", "root/open"],
        "[[site.rule]]\npattern = \"/app/**\"\nauth = \"users\"\n\
         [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n",
    );
    let (right, wrong) = (basic("ann", "secret of ann"), basic("ann", "no"));
    let asked = [
        ("/app/file", &*right, "ann"),
        ("/app/file", &right, "ann"),
        ("/app/say.cgi", &right, "ann"),
        ("/app/none", &right, "ann"),
        ("/app/file", &wrong, "-"),
        ("/app/file", "", "-"),
        ("/open", &right, "-"),
    ];
    for (path, fields, _) in asked {
        place.get_with(path, fields);
    }
    let log = wait_until("all lines", || {
        let log = std::fs::read_to_string(place.folder.path().join("access.log")).ok()?;
        (log.lines().count() == asked.len()).then_some(log)
    });
    // Each worker passes its lines to the log at a different time.
    let mut logged: Vec<(&str, &str)> = Vec::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        logged.push((words[6], words[2]));
    }
    let mut want = asked.map(|(path, _, user)| (path, user));
    logged.sort_unstable();
    want.sort_unstable();
    assert_eq!(logged, want);
}
