//! Conditions of rules, redirects, rewrites and routes; fixed responses, and connections closed without an answer.

use std::fs;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, SAY, by_http2, program};

const FILES: [&str; 5] = [
    "root/a.txt",
    "root/b.txt",
    "root/m/a.txt",
    "root/down.html",
    "root/new/a.txt",
];

#[test]
fn rules_apply_under_their_conditions_only() {
    let place = Place::new(
        &FILES,
        "[[site.rule]]\nheader = \"User-Agent: ~(?i)bot\"\ndeny = 451\n\
         [[site.rule]]\nargument = \"debug\"\nnot = { cookie = \"staff=1\" }\ndeny = 404\n\
         [[site.rule]]\nhost = \"*.hidden.example\"\nscheme = \"http\"\ndeny = 403\n",
    );
    for (path, fields, status) in [
        ("/a.txt", "", 200),
        ("/a.txt", "User-Agent: ExampleBot/1\r\n", 451),
        ("/a.txt?debug=1", "", 404),
        ("/a.txt?debug=1", "Cookie: staff=1\r\n", 200),
        ("/a.txt?bug=1", "", 200),
    ] {
        assert_eq!(
            place.get_with(path, fields).status,
            status,
            "{path} {fields}"
        );
    }
    let mut client = place.server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a.hidden.example\r\n\r\n");
    assert_eq!(client.response().status, 403);
}

#[test]
fn fixed_responses_have_their_status_fields_and_content() {
    let place = Place::new(
        &FILES,
        "error_pages = { 503 = \"/down.html\" }\n\
         [[site.rule]]\npattern = \"/health\"\nrespond = { status = 200, text = \"fine\\n\", header = { Cache-Control = \"no-store\" } }\n\
         [[site.rule]]\npattern = \"/page\"\nrespond = { status = 404, text = \"<p>none\", type = \"text/html\" }\n\
         [[site.rule]]\npattern = \"/gone/**\"\nrespond = 410\n\
         [[site.rule]]\npattern = \"/empty\"\nrespond = { status = 204, header = { X-Own = \"1\" } }\n\
         [[site.rule]]\npattern = \"/busy\"\nrespond = { status = 503, header = { Retry-After = \"30\" } }\n\
         [[site.header]]\nset = { X-All = \"1\" }\n",
    );
    let health = place.get("/health");
    assert_eq!((health.status, &health.text()[..]), (200, "fine\n"));
    assert_eq!(
        health.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(health.field("cache-control"), Some("no-store"));
    assert_eq!(health.field("x-all"), Some("1"));
    assert_eq!(
        by_http2(&place, "/health").unwrap_or("fine\n".into()),
        "fine\n"
    );
    // The response applies to the path only, not to those below it.
    assert_eq!(place.get("/health/x").status, 404);
    let page = place.get("/page");
    assert_eq!((page.status, &page.text()[..]), (404, "<p>none"));
    assert_eq!(page.field("content-type"), Some("text/html"));
    assert_eq!(place.get("/gone/a/b").status, 410);
    let empty = place.get("/empty");
    assert_eq!((empty.status, &empty.text()[..]), (204, ""));
    assert_eq!(empty.field("x-own"), Some("1"));
    assert_eq!(
        (empty.field("content-type"), empty.field("content-length")),
        (None, None)
    );
    let busy = place.get("/busy");
    assert_eq!((busy.status, &busy.text()[..]), (503, "root/down.html"));
    assert_eq!(busy.field("retry-after"), Some("30"));
    let mut client = place.server.connect();
    client.send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().field("content-length"), Some("5"));
    // The body of the request is not taken for another request.
    client.send("POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "fine\n");
    assert_eq!(client.response().text(), "root/a.txt");
}

#[test]
fn close_ends_connection_without_response() {
    let place = Place::new(&FILES, "[[site.rule]]\nheader = \"X-Bad\"\nclose = true\n");
    let mut client = place.server.connect();
    assert_eq!(client.get("/a.txt", "").status, 200);
    // Responses to earlier requests of the connection are sent.
    client.send(
        "GET /b.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\nX-Bad: 1\r\n\r\n",
    );
    assert_eq!(client.response().text(), "root/b.txt");
    assert!(client.wait_for_close());
    let mut client = place.server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX-Bad: 1\r\n\r\n");
    assert!(client.whole_response().is_none());
    assert_eq!(place.get("/a.txt").status, 200);
}

#[test]
fn file_switches_maintenance_on_and_off() {
    let folder = TempFolder::new();
    let switch = folder.path().join("switch");
    let lines = format!(
        "error_pages = {{ 503 = \"/down.html\" }}\n\
         [[site.rule]]\nfile_exists = \"{}\"\nnot = {{ header = \"X-Probe\" }}\ndeny = 503\n",
        switch.display()
    );
    let place = Place::after(folder, &FILES, &lines);
    assert_eq!(place.get("/a.txt").status, 200);
    fs::write(&switch, "").expect("a file");
    let refused = wait_until("the maintenance page", || {
        let response = place.get("/a.txt");
        (response.status == 503).then_some(response)
    });
    assert_eq!(refused.text(), "root/down.html");
    assert_eq!(place.get_with("/a.txt", "X-Probe: 1\r\n").status, 200);
    fs::remove_file(&switch).expect("the file");
    wait_until("the end of the maintenance", || {
        (place.get("/a.txt").status == 200).then_some(())
    });
}

#[test]
fn redirects_and_rewrites_have_conditions() {
    let place = Place::new(
        &FILES,
        "[[site.redirect]]\nfrom = \"/a.txt\"\nto = \"/moved\"\nargument = \"go=~^(1|yes)$\"\n\
         [[site.redirect]]\nfrom = \"/b.txt\"\nto = \"/mine\"\ncookie = \"me\"\n\
         [[site.rewrite]]\nfrom = \"/m/**\"\nto = \"/new/$1\"\nheader = \"User-Agent: ~Mobile\"\n",
    );
    let moved = place.get("/a.txt?go=yes");
    assert_eq!(
        (moved.status, moved.field("location")),
        (301, Some("/moved?go=yes"))
    );
    assert_eq!(moved.field("cache-control"), None);
    assert_eq!(place.get("/a.txt?go=no").status, 200);
    let mine = place.get_with("/b.txt", "Cookie: me=1\r\n");
    assert_eq!(
        (mine.status, mine.field("cache-control")),
        (301, Some("no-store"))
    );
    assert_eq!(place.get("/b.txt").status, 200);
    let mobile = place.get_with("/m/a.txt", "User-Agent: Mobile\r\n");
    assert_eq!(mobile.text(), "root/new/a.txt");
    assert_eq!(place.get("/m/a.txt").text(), "root/m/a.txt");
}

#[test]
fn responses_behind_conditional_rewrites_are_not_stored() {
    let folder = TempFolder::new();
    let origin = TestOrigin::with_response(|request| {
        let (target, len) = (&request.target, request.target.len());
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {len}\r\n\r\n{target}"
        )
    });
    let lines = format!(
        "[[site.rewrite]]\nfrom = \"/x\"\nto = \"/mobile\"\nheader = \"X-Mobile\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let place = Place::after(folder, &FILES, &lines);
    for _ in 0..2 {
        assert_eq!(place.get("/x").text(), "/x");
        assert_eq!(place.get_with("/x", "X-Mobile: 1\r\n").text(), "/mobile");
    }
    // Other paths are stored.
    let first = place.get("/y");
    let second = place.get("/y");
    assert_eq!(
        (first.field("age"), second.field("age").is_some()),
        (None, true)
    );
}

/// A share of clients gets another origin. Caches must not give its responses to other clients.
#[test]
fn share_of_clients_has_its_own_route() {
    let origin = |name: &'static str| {
        TestOrigin::with_response(move |_| {
            format!(
                "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nContent-Length: 3\r\n\r\n{name}"
            )
        })
    };
    let (new, old) = (origin("new"), origin("old"));
    let lines = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\nshare = \"50% cookie:id\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        new.url(),
        old.url()
    );
    let place = Place::after(TempFolder::new(), &FILES, &lines);
    let ask = |id: usize| {
        let got = place.get_with("/", &format!("Cookie: id=client{id}\r\n"));
        let control = got.field("cache-control").unwrap_or_default();
        assert!(
            control.contains("private") && !control.contains("public"),
            "{control}"
        );
        got.text()
    };
    let first: Vec<_> = (0..40).map(ask).collect();
    let second: Vec<_> = (0..40).map(ask).collect();
    assert_eq!(first, second, "a client stays in its share");
    let count = first.iter().filter(|it| *it == "new").count();
    assert!((5..35).contains(&count), "{count}");
    // No response is stored, since the key does not contain the share.
    assert_eq!(new.count() + old.count(), 80);
}

#[test]
fn routes_have_all_conditions() {
    let folder = TempFolder::new();
    program(&folder, "root/say.cgi", SAY);
    let place = Place::after(
        folder,
        &FILES,
        "[[site.route]]\npattern = \"*.cgi\"\ncgi = true\nargument = \"run\"\nnot = { header = \"X-No\" }\nmethods = \"GET\"\n",
    );
    assert_eq!(place.get("/say.cgi?run").status, 200);
    assert_eq!(place.get("/say.cgi?walk").status, 404);
    assert_eq!(place.get_with("/say.cgi?run", "X-No: 1\r\n").status, 404);
    let mut client = place.server.connect();
    client.send("HEAD /say.cgi?run HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
}
