//! Sticky sessions: a signed cookie names the server of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{ClientResponse, TempFolder, TestServer, wait_until};

use crate::front::{PROGRAM, response};

/// An origin that returns its name, with these fields.
fn named(name: &'static str, fields: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", fields, name))
}

fn config(folder: &TempFolder, origins: &[TestOrigin], sticky: &str) -> String {
    let urls: Vec<String> = origins.iter().map(TestOrigin::url).collect();
    format!(
        "[server]\nworkers = 1\nadmin = \"{}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         [[origin]]\nname = \"app\"\nservers = {urls:?}\nsticky = {sticky}\n",
        folder.path().display()
    )
}

/// The `name=value` of the cookie that a response sets.
fn cookie(response: &ClientResponse) -> Option<String> {
    let line = response.field("set-cookie")?;
    line.split(';').next().map(str::to_owned)
}

#[test]
fn cookie_keeps_a_client_at_its_server_also_after_a_reload() {
    let origins = [
        named("a", "Cache-Control: no-store\r\n"),
        named("b", "Cache-Control: no-store\r\n"),
        named("c", "Cache-Control: no-store\r\n"),
    ];
    let folder = TempFolder::new();
    let server = TestServer::run(PROGRAM, &folder, &config(&folder, &origins, "true"));
    let sessions: Vec<_> = (0..3)
        .map(|_| {
            let first = server.connect().get("/", "");
            let set = first.field("set-cookie").expect("a cookie").to_owned();
            assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{set}");
            assert!(set.starts_with("sticky_app="), "{set}");
            (first.text(), cookie(&first).expect("a cookie"))
        })
        .collect();
    let check = || {
        for (name, cookie) in &sessions {
            for _ in 0..3 {
                let next = server
                    .connect()
                    .get("/x", &format!("Cookie: x=y; {cookie}\r\n"));
                assert_eq!(&next.text(), name);
                assert_eq!(next.field("set-cookie"), None);
            }
        }
    };
    check();
    // The origin is created anew.
    folder.file(
        "lowroad.toml",
        config(&folder, &origins, "true") + "tries = 2\n",
    );
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    check();
}

#[test]
fn forged_cookie_is_ignored_counted_and_replaced() {
    let origins = [named("a", ""), named("b", "")];
    let folder = TempFolder::new();
    let sticky = "{ cookie = \"s\", lifetime = \"1h\", same_site = \"strict\", secure = true, secret = \"0123456789abcdef\" }";
    let server = TestServer::run(PROGRAM, &folder, &config(&folder, &origins, sticky));
    let forged = format!("Cookie: s={}\r\n", "0".repeat(64));
    for _ in 0..2 {
        let answer = server.connect().get("/", &forged);
        let set = answer.field("set-cookie").expect("a cookie");
        let attributes = "; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict; Secure";
        assert!(set.ends_with(attributes), "{set}");
    }
    assert_eq!((origins[0].count(), origins[1].count()), (1, 1));
    let status = StatusClient::new(PROGRAM, folder.path().join("admin"));
    assert_eq!(status.value("sticky.forged"), 2);
}

#[test]
fn client_of_a_lost_server_moves_to_another_one() {
    let is_down = Arc::new(AtomicBool::new(false));
    let flag = is_down.clone();
    let lost = TestOrigin::start(move |_, stream| {
        use std::io::Write;
        let text = response("200 OK", "Cache-Control: no-store\r\n", "a");
        !flag.load(SeqCst) && stream.write_all(text.as_bytes()).is_ok()
    });
    let origins = [lost, named("b", "Cache-Control: no-store\r\n")];
    let folder = TempFolder::new();
    let server = TestServer::run(PROGRAM, &folder, &config(&folder, &origins, "\"s\""));
    let mut at_a = String::new();
    wait_until("a session at a", || {
        let first = server.connect().get("/", "");
        at_a = cookie(&first).expect("a cookie");
        (first.text() == "a").then_some(())
    });
    is_down.store(true, SeqCst);
    let moved = server.connect().get("/", &format!("Cookie: {at_a}\r\n"));
    assert_eq!(moved.text(), "b");
    // The new cookie keeps the client there.
    let at_b = cookie(&moved).expect("a new cookie");
    assert_ne!(at_a, at_b);
    let next = server.connect().get("/", &format!("Cookie: {at_b}\r\n"));
    assert_eq!(
        (next.text().as_str(), next.field("set-cookie")),
        ("b", None)
    );
}

#[test]
fn response_is_stored_without_the_cookie() {
    let origins = [
        named("a", "Cache-Control: max-age=600\r\n"),
        named("b", "Cache-Control: max-age=600\r\n"),
    ];
    let folder = TempFolder::new();
    let server = TestServer::run(PROGRAM, &folder, &config(&folder, &origins, "true"));
    let first = server.connect().get("/", "");
    assert!(cookie(&first).is_some());
    // A client without a cookie gets the stored response of another one.
    let second = server.connect().get("/", "");
    assert_eq!(second.text(), first.text());
    assert_eq!(second.field("set-cookie"), None);
    assert_eq!(origins[0].count() + origins[1].count(), 1);
}
