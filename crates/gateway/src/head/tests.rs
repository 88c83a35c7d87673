use lowroad_http::status::StatusCode;

use super::{BadHead, CgiHead, HeadLimits, OutputForm, read};

const LIMITS: HeadLimits = HeadLimits {
    len_max: 64 << 10,
    fields_max: 256,
};

fn whole(output: &[u8], form: OutputForm) -> Result<Option<(CgiHead, usize)>, BadHead> {
    read(output, &mut 0, form, LIMITS)
}

fn cgi(output: &str) -> CgiHead {
    let read = whole(output.as_bytes(), OutputForm::Cgi).expect("a good head");
    read.expect("a whole head").0
}

fn refused(output: &str) -> String {
    whole(output.as_bytes(), OutputForm::Cgi)
        .expect_err(output)
        .0
}

#[test]
fn cgi_heads_may_end_lines_with_lf_or_crlf() {
    for output in [
        "Content-Type: text/plain\nX-A:  b \n\nbody",
        "Content-Type: text/plain\r\nX-A: b\r\n\r\nbody",
        "Content-Type: text/plain\r\nX-A: b\n\r\nbody",
    ] {
        let (head, at) = whole(output.as_bytes(), OutputForm::Cgi)
            .expect("a good head")
            .expect("a whole head");
        assert_eq!(&output[at..], "body");
        assert_eq!(head.status, StatusCode::OK);
        let fields: Vec<(&str, &[u8])> = head.fields.iter().collect();
        assert_eq!(
            fields,
            [("Content-Type", &b"text/plain"[..]), ("X-A", b"b")]
        );
        // Splitting the output at any byte does not change the result.
        let mut lines_len = 0;
        for end in 0..at {
            let part = read(
                &output.as_bytes()[..end],
                &mut lines_len,
                OutputForm::Cgi,
                LIMITS,
            );
            assert_eq!(part, Ok(None), "{end}");
        }
        let read = read(output.as_bytes(), &mut lines_len, OutputForm::Cgi, LIMITS);
        assert_eq!(read, Ok(Some((head, at))));
    }
}

#[test]
fn status_defaults_to_302_with_location() {
    for (output, status) in [
        ("Status: 404 Not Found\n\n", StatusCode::NOT_FOUND),
        ("Status: 404\n\n", StatusCode::NOT_FOUND),
        ("Location: http://a/\n\n", StatusCode::FOUND),
        ("Location: /a\n\n", StatusCode::FOUND),
        ("Location: /a\nSet-Cookie: b=c\n\n", StatusCode::FOUND),
        (
            "Status: 301\nLocation: /a\n\n",
            StatusCode::MOVED_PERMANENTLY,
        ),
        (
            "Content-Type: a/b\nLocation: /a\nStatus: 201 x\n\n",
            StatusCode::CREATED,
        ),
    ] {
        assert_eq!(cgi(output).status, status, "{output}");
    }
    let moved = cgi("Location: /a\n\n");
    assert_eq!(moved.fields.iter().next(), Some(("Location", &b"/a"[..])));
}

#[test]
fn hop_by_hop_fields_of_cgi_head_are_dropped() {
    let head = cgi(concat!(
        "Status: 200\nConnection: close\nKeep-Alive: x\nTransfer-Encoding: chunked\n",
        "content-length: 12\nDate: now\nUpgrade: x\nTrailer: y\nX: 1\nX: 2\n\n"
    ));
    assert_eq!(head.len, Some(12));
    let fields: Vec<&str> = head.fields.iter().map(|(name, _)| name).collect();
    assert_eq!(fields, ["X", "X"]);
}

#[test]
fn invalid_cgi_heads_are_refused_with_reason() {
    for (output, words) in [
        ("\n", "without Content-Type"),
        ("X: 1\n\n", "without Content-Type"),
        ("Hello world\n\n", "line 1 has no colon"),
        ("Content-Type: a/b\n folded\n\n", "line 2 has no colon"),
        ("Content-Type: a/b\n folded: x\n\n", "not a token"),
        ("Content Type: a/b\n\n", "not a token"),
        (": a/b\n\n", "not a token"),
        ("Content-Type: a\rb\n\n", "control"),
        ("Content-Type: a\0b\n\n", "control"),
        ("Status: abc\n\n", "status"),
        ("Status: 101\n\n", "status"),
        ("Status: 2000\n\n", "status"),
        ("Status: \n\n", "status"),
        ("Status: 200\nContent-Length: -1\n\n", "Content-Length"),
        (
            "Status: 200\nContent-Length: 1\nContent-Length: 2\n\n",
            "Content-Length",
        ),
        (
            "Status: 200\nContent-Length: 99999999999999999999\n\n",
            "Content-Length",
        ),
    ] {
        let found = refused(output);
        assert!(found.contains(words), "{output:?}: {found}");
    }
}

/// Heads that have only one meaning are accepted, as in responses of origins.
#[test]
fn unambiguous_irregular_lines_are_accepted() {
    let head = cgi("Content-Type \t: a/b\nX-A : b\nContent-Length: 2, 2\n\nok");
    let fields: Vec<(&str, &[u8])> = head.fields.iter().collect();
    assert_eq!(fields, [("Content-Type", &b"a/b"[..]), ("X-A", b"b")]);
    assert_eq!(head.len, Some(2));
    assert!(refused("Status: 200\nContent-Length: 2, 3\n\n").contains("Content-Length"));
    assert!(refused("Status: 200\nContent-Length: 2,\n\n").contains("Content-Length"));
    let read = whole(
        b"HTTP/1.2 404 Not Found\r\nX-A : b\r\n\r\n",
        OutputForm::Http,
    );
    let (head, _) = read.expect("a good head").expect("a whole head");
    assert_eq!(head.status, StatusCode::NOT_FOUND);
}

/// The type is that of the named file.
#[test]
fn content_type_is_optional_with_x_accel_redirect_and_x_sendfile() {
    for name in ["X-Accel-Redirect", "X-Sendfile"] {
        let head = cgi(&format!("{name}: /files/a\nContent-Length: 2\n\nok"));
        assert_eq!((head.status, head.len), (StatusCode::OK, None), "{name}");
    }
}

#[test]
fn content_type_is_optional_for_fastcgi() {
    for (output, fields) in [("\n", 0), ("X: 1\n\n", 1), ("Set-Cookie: a=b\r\n\r\n", 1)] {
        let read = whole(output.as_bytes(), OutputForm::FastCgi).expect(output);
        let (head, at) = read.expect("a whole head");
        assert_eq!((head.status, head.fields.len()), (StatusCode::OK, fields));
        assert_eq!(at, output.len());
    }
}

#[test]
fn too_long_heads_are_refused_even_if_incomplete() {
    let long = format!("Status: 200\nX: {}", "a".repeat(LIMITS.len_max));
    assert!(refused(&long).contains("65536"));
    assert!(refused(&format!("{long}\n\n")).contains("65536"));
    let many = "X: 1\n".repeat(257) + "\n";
    assert!(refused(&many).contains("256 fields"));
}

#[test]
fn nph_heads_require_http_status_line() {
    let read = |output: &str| whole(output.as_bytes(), OutputForm::Http);
    let (head, _) = read("HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n")
        .expect("a good head")
        .expect("a whole head");
    assert_eq!(head.status, StatusCode::NOT_FOUND);
    assert_eq!(head.fields.iter().next(), Some(("Server", &b"x"[..])));
    for output in [
        "Status: 200\n\n",
        "HTTP/2 200 OK\n\n",
        "HTTP/1.1 99 x\n\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n",
    ] {
        assert!(read(output).is_err(), "{output}");
    }
}

#[test]
fn location_with_only_a_path_is_local_redirect() {
    for (output, target) in [
        ("Location: /a/b?c=d\n\n", Some("/a/b?c=d")),
        ("Content-Type: text/html\nlocation: /a\n\nbody", Some("/a")),
        ("Location: /a\nContent-Length: 4\n\nbody", Some("/a")),
        ("Status: 302\nLocation: /a\n\n", None),
        ("Location: /a\nSet-Cookie: b=c\n\n", None),
        ("Location: //a\n\n", None),
        ("Location: /a#b\n\n", None),
        ("Location: /a b\n\n", None),
        ("Location: a\n\n", None),
        ("Location: /a\nLocation: /b\n\n", None),
        ("Location: http://a/\n\n", None),
    ] {
        let local = cgi(output).redirect_target;
        assert_eq!(local.as_deref(), target.map(str::as_bytes), "{output}");
    }
    let http = whole(b"HTTP/1.1 200 OK\nLocation: /a\n\n", OutputForm::Http);
    let (head, _) = http.expect("a good head").expect("a whole head");
    assert_eq!(head.redirect_target, None);
}

#[test]
fn head_limits_of_route_are_enforced() {
    let output = "Status: 200\nContent-Type: a/b\nX-A: 1\nX-B: 2\n\n";
    let read_within = |len_max, fields_max| {
        let limits = HeadLimits {
            len_max,
            fields_max,
        };
        read(output.as_bytes(), &mut 0, OutputForm::Cgi, limits)
    };
    assert!(matches!(read_within(output.len(), 3), Ok(Some(_))));
    for (len_max, fields_max, key) in [
        (output.len() - 1, 3, "head_len_max"),
        (output.len(), 2, "fields_max"),
    ] {
        let BadHead(why) = read_within(len_max, fields_max).expect_err(key);
        assert!(why.contains(key), "{why}");
    }
}
