//! Maps: variables, conditions and redirects by tables from files, which change while the server runs.

use std::fmt::Write;
use std::fs;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, check};

/// Puts a map before the lines of the sites.
fn in_site(map: &str, lines: &str) -> String {
    // The tables of the site end where the map begins.
    format!("{lines}\n{map}\n")
}

#[test]
fn redirects_come_from_a_file_with_100000_entries() {
    let folder = TempFolder::new();
    // As many entries as the documentation promises to find by one hash look-up.
    let mut text = String::from("# old and new\n");
    for number in 0..100_000 {
        writeln!(text, "/old/{number} /new/{number}").expect("memory");
    }
    folder.file("moved.map", &text);
    let place = Place::after(
        folder,
        &["root/a.txt"],
        &in_site(
            "[map.moved]\nfrom = \"$path\"\nfile = \"{}/moved.map\"",
            "[[site.redirect]]\nfrom = \"/**\"\nto = \"$map_moved\"",
        ),
    );
    for number in [0, 1, 54_321, 99_999] {
        let got = place.get(&format!("/old/{number}?q=1"));
        let location = format!("/new/{number}?q=1");
        assert_eq!((got.status, got.field("location")), (301, Some(&*location)));
        // The file may change at any time.
        assert_eq!(got.field("cache-control"), Some("no-store"));
    }
    assert_eq!(place.get("/old/100000").status, 404);
    // Responses without a redirect do not depend on the map.
    let file = place.get("/a.txt");
    assert_eq!(file.text(), "root/a.txt");
    assert!(!file.head.contains("private"), "{}", file.head);
    assert!(place.explain("/old/7").contains("/new/7"));
}

/// `Some` if the status as JSON shows one refused map file.
fn rejected(status: &str) -> Option<()> {
    let at = status.find("lowroad_map_files_rejected")?;
    let family = &status[at..(at + 400).min(status.len())];
    let compact: String = family.chars().filter(|it| !it.is_whitespace()).collect();
    compact.contains("\"value\":1").then_some(())
}

#[test]
fn a_changed_map_file_is_in_force_and_a_bad_one_is_not() {
    let folder = TempFolder::new();
    let file = folder.file("m.map", "a.example 403\n");
    let lines = in_site(
        "[map.status]\nfrom = \"$host\"\nfile = \"{}/m.map\"",
        "[[site.rule]]\nvariable = \"$map_status=403\"\ndeny = 403\n[[site.header]]\nset = { X-Status = \"<$map_status>\" }",
    );
    let place = Place::after(folder, &["root/a.txt"], &lines);
    let status = |host: &str| {
        let mut client = place.server.connect();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.response();
        (
            response.status,
            response.field("x-status").map(str::to_owned),
        )
    };
    // Hosts are compared without port and case.
    assert_eq!(status("A.example:80").0, 403);
    assert_eq!(status("b.example"), (200, Some("<>".into())));
    fs::write(&file, "a.example 200\nb.example 403\n").expect("a file");
    wait_until("the new map", || {
        (status("b.example").0 == 403).then_some(())
    });
    assert_eq!(status("a.example"), (200, Some("<200>".into())));
    // A mistake leaves the entries before in force; the metric counts, and the log names the line.
    fs::write(&file, "a.example 403\nb.example\n").expect("a file");
    let admin = place.admin();
    wait_until("the refusal", || {
        let status = place.run(&["status", "--json", "--admin", &admin]);
        status
            .contains("lowroad_map_files_rejected")
            .then_some(())?;
        rejected(&status)
    });
    assert_eq!(status("a.example").0, 200);
    assert_eq!(status("b.example").0, 403);
    let said = place.run(&["reload", "--admin", &admin]);
    assert!(said.contains("line 2, column 1"), "{said}");
    assert_eq!(status("b.example").0, 403);
    // After a refusal the file is still followed.
    fs::write(&file, "c.example 403\n").expect("a file");
    wait_until("the mended map", || {
        (status("c.example").0 == 403).then_some(())
    });
    assert_eq!(status("b.example").0, 200);
}

#[test]
fn responses_follow_the_variables_and_the_file_of_a_map() {
    let origin = TestOrigin::with_response(|request| {
        let value = request.field("x-map").unwrap_or("none");
        let len = value.len();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {len}\r\n\r\n{value}"
        )
    });
    let folder = TempFolder::new();
    let file = folder.file("f.map", "/f/1 one\n");
    let url = origin.url();
    let route = |pattern: &str, map: &str| {
        format!(
            "[[site.route]]\npattern = \"{pattern}\"\norigin = \"{url}\"\n[site.route.request]\nset = {{ X-Map = \"$map_{map}\" }}\n"
        )
    };
    let lines = [
        route("/c/**", "cookie"),
        route("/f/**", "file"),
        route("/u/**", "url"),
    ]
    .concat();
    let maps = "[map.cookie]\nfrom = \"$cookie_kind\"\nentries = { a = \"A\", b = \"B\" }\n\
        [map.file]\nfrom = \"$path\"\nfile = \"{}/f.map\"\n\
        [map.url]\nfrom = \"$arg_k\"\nentries = { a = \"A\", b = \"B\" }\n";
    let place = Place::after(folder, &[], &in_site(maps, &lines));
    // The third request would get the stored response of the second if the key did not distinguish them.
    for kind in ["a", "b", "a"] {
        let got = place.get_with("/c/1", &format!("Cookie: kind={kind}\r\n"));
        assert_eq!(got.text(), kind.to_uppercase());
        assert_eq!(got.field("vary"), Some("Cookie"));
        assert_eq!(
            place.get(&format!("/u/1?k={kind}")).text(),
            kind.to_uppercase()
        );
    }
    // A stored response would hide the change.
    assert_eq!(place.get("/f/1").text(), "one");
    fs::write(&file, "/f/1 two\n").expect("a file");
    wait_until("the new value", || {
        (place.get("/f/1").text() == "two").then_some(())
    });
}

#[test]
fn values_and_texts_of_a_client_break_out_of_nothing() {
    let place = Place::new(
        &["root/a.txt"],
        &in_site(
            "[map.m]\nfrom = \"$arg_a\"\ndefault = \"d\"\nentries = { \"x\\r\\nY: 1\" = \"crlf\", ok = \"v\" }",
            "[[site.header]]\nset = { X-Map = \"$map_m\", X-Both = \"$arg_a $map_m\" }",
        ),
    );
    for (query, value) in [
        ("a=ok", "v"),
        ("a=x%0D%0AY:%201", "crlf"),
        ("a=%00", "d"),
        ("", "d"),
    ] {
        let got = place.get(&format!("/a.txt?{query}"));
        assert_eq!(got.field("x-map"), Some(value), "{query}");
        assert_eq!(got.field("y"), None);
    }
}

#[test]
fn mistakes_in_maps_are_named_with_their_place() {
    for (map, lines, message) in [
        (
            "[map.\"a b\"]\nfrom = \"$host\"\nentries = { a = \"b\" }",
            "",
            "is not the name of a map",
        ),
        (
            "[map.m]\nfrom = \"host\"\nentries = { a = \"b\" }",
            "",
            "has one value",
        ),
        ("[map.m]\nfrom = \"$host\"", "", "the map has no entries"),
        (
            "[map.m]\nfrom = \"$map_m\"\nentries = { a = \"b\" }",
            "",
            "there is no [map.m]",
        ),
        (
            "[map.m]\nfrom = \"$host\"\nentries = { \"~(\" = \"b\" }",
            "",
            "is not a regular expression",
        ),
        (
            "[map.m]\nfrom = \"$host\"\nentries = { a = \"b\\nc\" }",
            "",
            "is not a value of a map",
        ),
        (
            "[map.m]\nfrom = \"$host\"\nentries = { a = \"b\", A = \"c\" }",
            "",
            "is listed twice",
        ),
        (
            "[map.m]\nfrom = \"$host\"\nfile = \"{}/none.map\"",
            "",
            "cannot be read",
        ),
        (
            "",
            "[[site.header]]\nset = { A = \"$map_m\" }",
            "there is no [map.m]",
        ),
        (
            "[map.m]\nfrom = \"$client\"\nentries = { a = \"b\" }",
            "[[site.redirect]]\nfrom = \"/a\"\nto = \"/$map_m\"",
            "$map_m is not allowed here",
        ),
        (
            "",
            "[[site.rule]]\nvariable = \"host\"\ndeny = 403",
            "is not a condition of a variable",
        ),
        (
            "",
            "[[site.rule]]\nvariable = \"$request_id\"\ndeny = 403",
            "$request_id is not allowed here",
        ),
        (
            "",
            "[[site.rule]]\nvariable = \"$host=~(\"\ndeny = 403",
            "is not a regular expression",
        ),
    ] {
        let said = check(&in_site(map, lines));
        assert!(said.contains(message), "{map} {lines}\n{said}");
        assert!(said.contains("lowroad.toml:"), "{said}");
    }
}
