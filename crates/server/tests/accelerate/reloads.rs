//! What is stored of an origin, when the configuration is another one.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use lowroad_testkit::origin::Origin;
use lowroad_testkit::{Client, Folder, Server, wait_until};

use crate::front::{Front, PROGRAM, response};

/// An origin whose responses may be stored, and say whose they are.
fn named(name: &'static str) -> Origin {
    Origin::saying(move |_| response("200 OK", "Cache-Control: max-age=600\r\n", name))
}

/// A site in front of the origin "app", at this server, with more lines.
fn config(origin: &Origin, more: &str) -> String {
    format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         {more}[[origin]]\nname = \"app\"\nservers = \"{}\"\n",
        origin.url()
    )
}

#[test]
fn what_is_stored_is_of_the_origin_that_there_is() {
    let (one, other) = (named("one"), named("other"));
    let folder = Folder::new();
    let server = Server::run(PROGRAM, &folder, &config(&one, ""));
    assert_eq!(server.get("/").text(), "one");
    let reload = |config: String| {
        folder.file("lowroad.toml", config);
        server.signal("HUP");
        server.wait_for_error_line("is in force");
    };
    reload(config(&one, "") + "[log]\nlevel = \"info\"\n");
    assert_eq!(
        (server.get("/").text(), one.count()),
        ("one".into(), 1),
        "it stays"
    );
    // A worker may answer once more before it hears of it.
    let becomes = |name: &str| wait_until(name, || (server.get("/").text() == name).then_some(()));
    reload(config(&other, ""));
    becomes("other");
    reload(config(&one, ""));
    becomes("one");
    assert_eq!((one.count(), other.count()), (2, 1), "it was asked anew");
    // By its URL, and as one of several.
    let url = config(&one, "").replace("\"app\"\n[[", &format!("\"{}\"\n[[", other.url()));
    reload(url);
    becomes("other");
}

#[test]
fn who_waited_in_vain_is_bounded_as_any_other() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (now.clone(), most.clone());
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let origin = Origin::start(move |asked, stream| {
        let count = counted.fetch_add(1, SeqCst) + 1;
        highest.fetch_max(count, SeqCst);
        if asked.number == 0 {
            let _ = waits.lock().expect("a lock").recv();
        } else {
            // Long enough for the others to come, if they were let in.
            thread::yield_now();
        }
        counted.fetch_sub(1, SeqCst);
        let text = response("200 OK", "Cache-Control: no-store\r\n", "mine");
        stream.write_all(text.as_bytes()).is_ok()
    });
    let front = Front::routing(origin, "concurrency = 2\nclient_share = 100");
    let mut clients: Vec<Client> = (0..12).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    wait_until("all to wait", || {
        front
            .say(&["status"])
            .contains("11 by another's call")
            .then_some(())
    });
    go.send(()).expect("the origin waits");
    let statuses: Vec<u16> = clients
        .iter_mut()
        .map(|client| client.response().status)
        .collect();
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 503)),
        "{statuses:?}"
    );
    assert!(most.load(SeqCst) <= 2, "{}", most.load(SeqCst));
    assert_eq!(now.load(SeqCst), 0);
}
