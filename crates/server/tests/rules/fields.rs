//! Rules for header fields apply alike to files, programs, origins, stored responses, redirects and refusals.

use std::io::Write;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{ClientResponse, TempFolder};

use crate::place::{Place, program};

/// The header fields of programs and origins.
const OWN: &str = "X-Frame-Options: DENY\\r\\nStrict-Transport-Security: max-age=0\\r\\nX-Powered-By: me\\r\\n\
    Link: </own>\\r\\nX-Robots-Tag: own\\r\\n";

const RULES: &str = "[[site.header]]\n\
    set = { X-Frame-Options = \"SAMEORIGIN\", Strict-Transport-Security = \"max-age=9\" }\n\
    append = { Link = \"</site>\" }\n\
    default = { X-Robots-Tag = \"none\", Referrer-Policy = \"no-referrer\" }\n\
    remove = \"X-Powered-By\"\n\
    [[site.header]]\npattern = \"/lifetime\"\nset = { Cache-Control = \"max-age=9999\" }\n";

fn place(origin: &TestOrigin) -> Place {
    let folder = TempFolder::new();
    let own = OWN.replace("\\r", "");
    let says =
        |fields: &str| format!("#!/bin/sh\ncat > /dev/null\nprintf '{own}{fields}\\n\\nok'\n");
    program(&folder, "root/ok.cgi", &says("Content-Type: text/plain\\n"));
    program(
        &folder,
        "root/error.cgi",
        &says("Status: 404\\nContent-Type: text/plain\\n"),
    );
    program(
        &folder,
        "root/file.cgi",
        &says("Content-Type: text/plain\\nX-Accel-Redirect: /f.txt\\n"),
    );
    let url = origin.url();
    let lines = format!(
        "[[site.redirect]]\nfrom = \"/old\"\nto = \"/new\"\n\
         [[site.rule]]\npattern = \"/denied\"\ndeny = 403\n\
         [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
         [[site.route]]\npattern = \"/o/**\"\norigin = \"{url}\"\n\
         [[site.route]]\npattern = \"/lifetime\"\norigin = \"{url}\"\n{RULES}"
    );
    Place::after(folder, &["root/f.txt"], &lines)
}

/// The values of all fields with this name in a response.
fn values<'r>(response: &'r ClientResponse, name: &str) -> Vec<&'r str> {
    let lines = response
        .head
        .lines()
        .filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

#[test]
fn header_rules_apply_to_responses_of_every_source() {
    let own = OWN.replace("\\r\\n", "\r\n");
    let origin = TestOrigin::with_response(move |asked| {
        let lifetime = match asked.target.as_str() {
            "/o/stored" => "max-age=60",
            _ => "no-store",
        };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: {lifetime}\r\n{own}\r\nok")
    });
    let place = place(&origin);
    for (path, fields, status, has_own) in [
        ("/f.txt", "", 200, false),
        ("/f.txt", "Range: bytes=0-0\r\n", 206, false),
        ("/f.txt", "If-None-Match: *\r\n", 304, false),
        ("/ok.cgi", "", 200, true),
        ("/error.cgi", "", 404, true),
        ("/file.cgi", "", 200, true),
        ("/o/passed", "", 200, true),
        ("/o/stored", "", 200, true),
        ("/o/stored", "", 200, true),
        ("/old", "", 301, false),
        ("/denied", "", 403, false),
        ("/missing", "", 404, false),
    ] {
        let got = place.get_with(path, fields);
        let name = format!("{path} {fields}: {}", got.head);
        assert_eq!(got.status, status, "{name}");
        assert_eq!(values(&got, "x-frame-options"), ["SAMEORIGIN"], "{name}");
        assert_eq!(
            values(&got, "strict-transport-security"),
            ["max-age=9"],
            "{name}"
        );
        assert_eq!(values(&got, "x-powered-by"), [""; 0], "{name}");
        assert_eq!(values(&got, "referrer-policy"), ["no-referrer"], "{name}");
        let (link, robots) = match has_own {
            true => (&["</own>", "</site>"][..], "own"),
            false => (&["</site>"][..], "none"),
        };
        assert_eq!(values(&got, "link"), link, "{name}");
        assert_eq!(values(&got, "x-robots-tag"), [robots], "{name}");
    }
    let stored = origin
        .requests()
        .iter()
        .filter(|asked| asked.target == "/o/stored")
        .count();
    assert_eq!(stored, 1);
}

/// A lifetime that a rule sets for clients does not apply to the cache, even if the origin only validated the stored
/// response.
#[test]
fn cache_control_rule_does_not_affect_the_cache() {
    let origin = TestOrigin::with_response(|asked| {
        match asked.field("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".into(),
        None => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-cache\r\nETag: \"a\"\r\n\r\nok".into(),
    }
    });
    let place = place(&origin);
    for count in 1..=4 {
        let got = place.get("/lifetime");
        assert_eq!(
            values(&got, "cache-control"),
            ["max-age=9999"],
            "{}",
            got.head
        );
        assert_eq!((got.text().as_str(), origin.count()), ("ok", count));
    }
}

/// 101 has the fields of a final response. In other interim responses, which have the origin's fields, rules replace
/// and remove fields but add none.
#[test]
fn header_rules_apply_to_interim_responses_and_upgrades() {
    let own = OWN.replace("\\r\\n", "\r\n");
    let origin = TestOrigin::start(move |asked, stream| {
        let head = match asked.field("upgrade") {
            Some(_) => "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo",
            None => "103 Early Hints",
        };
        let _ = stream.write_all(format!("HTTP/1.1 {head}\r\n{own}\r\n").as_bytes());
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        asked.field("upgrade").is_none()
    });
    let place = place(&origin);
    for (fields, status) in [("", 103), ("Connection: upgrade\r\nUpgrade: echo\r\n", 101)] {
        let mut client = place.server.connect();
        client.send(format!("GET /o/x HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        let got = client.response();
        assert_eq!(got.status, status);
        let name = got.head.clone();
        assert_eq!(values(&got, "x-frame-options"), ["SAMEORIGIN"], "{name}");
        assert_eq!(values(&got, "x-powered-by"), [""; 0], "{name}");
        assert_eq!(values(&got, "link"), ["</own>", "</site>"], "{name}");
        assert_eq!(values(&got, "x-robots-tag"), ["own"], "{name}");
        let added = values(&got, "referrer-policy");
        assert_eq!(added.len(), usize::from(status == 101), "{name}");
    }
}
