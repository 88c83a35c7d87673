//! Responses that the level stores, and those that it must never send: private, changed and purged ones.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lowroad_softirq::level::publisher;
use lowroad_testkit::net::{LinkMangling, TestPath, TestSite, WebServer};
use lowroad_testkit::wait_until;

use crate::attached::{Attached, get, send_request, server_v4};
use crate::skipped;

#[test]
fn private_responses_are_left_to_the_server() {
    if skipped("private_responses_are_left_to_the_server", &["nginx"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(601, &[100]);
    let cases = [
        (
            "cookie",
            "Set-Cookie a=b; add_header Cache-Control max-age=60",
        ),
        ("private", "Cache-Control 'private, max-age=60'"),
        ("nostore", "Cache-Control 'no-store, max-age=60'"),
        ("nocache", "Cache-Control 'no-cache, max-age=60'"),
        ("vary", "Vary '*'; add_header Cache-Control max-age=60"),
        (
            "vary-ua",
            "Vary User-Agent; add_header Cache-Control max-age=60",
        ),
        ("old", "Cache-Control max-age=0"),
        ("hot", "Cache-Control max-age=60"),
    ];
    let location = |(name, field): &(&str, &str)| {
        format!("location = /{name} {{ add_header {field}; return 200 'this is {name}'; }}\n")
    };
    let directives: String = cases.iter().map(location).collect();
    let _nginx = WebServer::nginx(&path.server, &site, 80, &directives).expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let ask = |name: &str| {
        path.client
            .enter(|| send_request(server_v4(80), &get(&format!("/{name}"))))
    };
    for _ in 0..20 {
        for (name, _) in &cases[..7] {
            assert_eq!(ask(name).text(), format!("this is {name}"));
        }
    }
    // By then all storable responses were stored, because the daemon fetches sequentially.
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let hits = attached.count("answer_hit");
    for (name, _) in &cases[..7] {
        assert_eq!(ask(name).text(), format!("this is {name}"));
    }
    assert_eq!(
        attached.count("answer_hit"),
        hits,
        "{:?}",
        attached.counts()
    );
    let names: Vec<_> = publisher::published(&attached.level);
    assert_eq!(names.len(), 1, "{names:?}");
}

/// A server with responses that contain the time of their creation, in ms since `start`, and a number.
fn clockwork(listener: TcpListener, start: Instant, asked: Arc<AtomicU64>, lifetime: &'static str) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let asked = asked.clone();
            thread::spawn(move || -> std::io::Result<()> {
                let mut byte = [0];
                loop {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        stream.read_exact(&mut byte)?;
                        head.push(byte[0]);
                    }
                    asked.fetch_add(1, SeqCst);
                    let body = format!("{:020}", start.elapsed().as_millis());
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Length: 20\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes())?;
                }
            });
        }
    });
}

#[test]
fn responses_are_not_older_than_their_lifetime() {
    if skipped("responses_are_not_older_than_their_lifetime", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = path
        .server
        .enter(|| TcpListener::bind("0.0.0.0:80"))
        .expect("port 80");
    let start = Instant::now();
    let asked = Arc::new(AtomicU64::new(0));
    clockwork(listener, start, asked.clone(), "max-age=1");
    let attached = Attached::start(&path.server, 80, &[]);
    let mut oldest_ms = 0;
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let before_ms = start.elapsed().as_millis();
        let response = path.client.enter(|| send_request(server_v4(80), &get("/")));
        let made_ms: u128 = response.text().parse().expect("a number");
        // The resolution of the level's clock is a few milliseconds, at most ten.
        let age_ms = before_ms.saturating_sub(made_ms);
        assert!(age_ms <= 1010, "{age_ms} ms old");
        oldest_ms = oldest_ms.max(age_ms);
        if let Some(age) = response.field("age") {
            assert!(age.parse::<u64>().expect("a number") <= 1, "{age}");
        }
    }
    let hits = attached.count("answer_hit");
    eprintln!(
        "oldest {oldest_ms} ms, {hits} hits, asked {asked:?}, {:?}",
        attached.counts()
    );
    assert!(hits > 50, "{:?}", attached.counts());
}

#[test]
fn changed_file_is_sent_after_its_lifetime() {
    if skipped("changed_file_is_sent_after_its_lifetime", &["nginx"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(602, &[100]);
    let directives = "add_header Cache-Control max-age=1;";
    let _nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    for round in 0..3 {
        let text = format!("round {round}, and some more");
        let now = SystemTime::now() - Duration::from_secs(60 - round);
        site.folder().file_modified_at("root/page", &text, now);
        let changed = Instant::now();
        wait_until("the new content", || {
            let asked = Instant::now();
            let response = path
                .client
                .enter(|| send_request(server_v4(80), &get("/page")));
            let is_new = response.text() == text;
            assert!(
                is_new || asked - changed < Duration::from_millis(1010),
                "stale"
            );
            is_new.then_some(())
        });
        let response = attached.warm(&path.client, server_v4(80), &get("/page"));
        assert_eq!(response.text(), text);
    }
}

#[test]
fn purge_takes_effect_immediately() {
    if skipped("purge_takes_effect_immediately", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = path
        .server
        .enter(|| TcpListener::bind("0.0.0.0:80"))
        .expect("port 80");
    let start = Instant::now();
    let asked = Arc::new(AtomicU64::new(0));
    clockwork(listener, start, asked.clone(), "max-age=60");
    let attached = Attached::start(&path.server, 80, &[]);
    for _ in 0..3 {
        attached.warm(&path.client, server_v4(80), &get("/"));
        publisher::purge(&attached.level, &publisher::published(&attached.level)).expect("a purge");
        let purged_ms = start.elapsed().as_millis();
        let response = path.client.enter(|| send_request(server_v4(80), &get("/")));
        let made_ms: u128 = response.text().parse().expect("a number");
        assert!(made_ms >= purged_ms, "{made_ms} before {purged_ms}");
    }
    assert!(asked.load(SeqCst) >= 6);
}
