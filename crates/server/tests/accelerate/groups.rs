//! Groups of servers behind one site: load balancing, and failures of members.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::front::{PROGRAM, response};

/// A server in front of an `[[origin]]` with these lines.
fn front(lines: &str) -> (TestServer, TempFolder) {
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
         origin = \"app\"\nrequest_buffering = false\n[[origin]]\nname = \"app\"\n{lines}\n"
    );
    (TestServer::run(PROGRAM, &folder, &config), folder)
}

/// An origin that returns its name.
fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: no-store\r\n", name))
}

/// A URL that refuses connections.
fn refusing_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn requests_are_distributed_by_weight() {
    let (a, b) = (named("a"), named("b"));
    let (server, _folder) = front(&format!(
        "servers = [\"{}\", {{ url = \"{}\", weight = 2 }}]",
        a.url(),
        b.url()
    ));
    let mut client = server.connect();
    let said: Vec<String> = (0..9).map(|_| client.get("/", "").text()).collect();
    assert_eq!(
        said.iter().filter(|name| *name == "b").count(),
        6,
        "{said:?}"
    );
    assert_eq!((a.count(), b.count()), (3, 6));
}

#[test]
fn hash_policy_selects_the_same_server_for_a_key() {
    let origins = [named("a"), named("b"), named("c")];
    let urls: Vec<String> = origins.iter().map(TestOrigin::url).collect();
    let lines = format!("servers = {urls:?}\nbalance = \"hash\"\nhash = \"cookie:id\"");
    let (server, _folder) = front(&lines);
    let mut client = server.connect();
    let mut seen = std::collections::HashSet::new();
    for id in 0..16 {
        let cookie = format!("Cookie: x=1; id={id}\r\n");
        let first = client.get("/", &cookie).text();
        assert!((0..3).all(|_| client.get("/other", &cookie).text() == first));
        seen.insert(first);
    }
    assert!(seen.len() > 1, "all went to one");
}

#[test]
fn refused_connection_is_retried_on_another_server_for_any_method() {
    let a = named("a");
    let (server, _folder) = front(&format!(
        "servers = [\"{}\", \"{}\"]",
        refusing_url(),
        a.url()
    ));
    let mut client = server.connect();
    for _ in 0..8 {
        assert_eq!(client.get("/", "").text(), "a");
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.response().text(), "a", "nothing was sent before");
    }
    assert_eq!(
        a.requests()
            .iter()
            .filter(|request| request.body == b"abc")
            .count(),
        8
    );
    server.wait_for_error_line("trying another server");
}

#[test]
fn post_that_may_have_been_executed_is_not_retried() {
    let lost = TestOrigin::start(|_, _| false);
    let a = named("a");
    let lines = format!(
        "servers = [\"{}\", {{ url = \"{}\", backup = true }}]",
        lost.url(),
        a.url()
    );
    let (server, _folder) = front(&lines);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.response().status, 502);
    assert_eq!((lost.count(), a.count()), (1, 0));
    assert_eq!(client.get("/", "").text(), "a", "a GET may be");
    assert_eq!((lost.count(), a.count()), (2, 1));
}

#[test]
fn request_is_not_retried_after_response_has_begun() {
    let begun = TestOrigin::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le");
        let _ = stream.write_all(b"ngth: 100000\r\n\r\nabc");
        false
    });
    let a = named("a");
    let lines = format!(
        "servers = [\"{}\", {{ url = \"{}\", backup = true }}]",
        begun.url(),
        a.url()
    );
    let (server, _folder) = front(&lines);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(
        client
            .whole_response()
            .is_none_or(|response| response.status == 502)
    );
    assert_eq!(a.count(), 0);
}

#[test]
fn unhealthy_server_gets_no_requests_until_check_succeeds() {
    let status = Arc::new(AtomicU16::new(200));
    let told = status.clone();
    let a = TestOrigin::with_response(move |request| match request.target.as_str() {
        "/up" => response(&format!("{} Whatever", told.load(SeqCst)), "", ""),
        _ => response("200 OK", "Cache-Control: no-store\r\n", "a"),
    });
    let b = named("b");
    let (server, _folder) = front(&format!(
        "servers = [\"{}\", {{ url = \"{}\", backup = true }}]\n\
         check = {{ path = \"/up\", interval = \"100ms\", rise = 1, fall = 1, status = \"200,404\" }}",
        a.url(),
        b.url()
    ));
    assert_eq!(server.get("/").text(), "a");
    let requests = a.requests();
    let check = requests.iter().find(|request| request.target == "/up");
    let host = check
        .and_then(|request| request.field("host"))
        .map(|host| format!("http://{host}"));
    assert!(host.is_none_or(|host| host == a.url()));
    status.store(503, SeqCst);
    server.wait_for_error_line("is unhealthy: the health check got status 503");
    assert_eq!(server.get("/").text(), "b");
    status.store(404, SeqCst);
    server.wait_for_error_line("is healthy again");
    assert_eq!(server.get("/").text(), "a");
}

#[test]
fn all_addresses_of_a_host_name_are_members() {
    // The name may also resolve to ::1, where the origin does not listen.
    let a = named("a");
    let url = a.url().replace("127.0.0.1", "localhost");
    let (server, _folder) = front(&format!("servers = \"{url}\"\nhost = \"origin\""));
    let mut client = server.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/", "").text(), "a");
    }
    let host = url.strip_prefix("http://");
    assert_eq!(a.requests()[0].field("host"), host);
    assert_eq!(a.requests()[0].field("x-forwarded-host"), Some("test"));
}

#[test]
fn proxy_header_with_client_address_is_sent_to_servers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (server, _folder) = front(&format!(
        "servers = \"{url}\"\nproxy_protocol = \"v1\"\nhost = \"app.example\""
    ));
    let at = server.address();
    let origin = std::thread::spawn(move || {
        let heads: Vec<String> = (0..2)
            .map(|_| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    std::io::Read::read_exact(&mut stream, &mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let _ = stream.write_all(response("200 OK", "", "ok").as_bytes());
                String::from_utf8(head).expect("text")
            })
            .collect();
        heads
    });
    let mut client = server.connect();
    assert_eq!(client.get("/1", "").text(), "ok");
    assert_eq!(client.get("/2", "").text(), "ok");
    let own = client.stream().local_addr().expect("it is connected");
    for head in origin.join().expect("no panic") {
        let ports = format!("{} {}", own.port(), at.port());
        let start = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {ports}\r\nGET /");
        assert!(head.starts_with(&start), "{head}");
        assert!(head.contains("\r\nHost: app.example\r\n"), "{head}");
    }
}

#[test]
fn reload_keeps_state_of_unchanged_origin() {
    let (a, b) = (named("a"), named("b"));
    let (server, folder) = front(&format!("servers = [\"{}\", \"{}\"]", a.url(), b.url()));
    let mut client = server.connect();
    let first = client.get("/", "").text();
    let file = folder.path().join("lowroad.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, format!("{text}\n[log]\nlevel = \"info\"\n")).expect("written");
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    // The rotation continues: the next request goes to the other member.
    let second = wait_until("an answer", || Some(client.get("/", "").text()));
    assert_ne!(first, second);
}

#[test]
fn status_shows_state_and_last_error_of_each_server() {
    let (a, refused) = (named("a"), refusing_url());
    let folder = TempFolder::new();
    let admin = folder.path().join("admin.sock");
    let config = format!(
        "[server]\nworkers = 1\nuser = \"root\"\nadmin = {admin:?}\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
         origin = \"app\"\n[[origin]]\nname = \"app\"\nservers = [\"{refused}\", \"{}\"]\n",
        a.url()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut client = server.connect();
    for _ in 0..4 {
        assert_eq!(client.get("/", "").text(), "a");
    }
    let output = std::process::Command::new(PROGRAM)
        .args(["status", "--admin"])
        .arg(&admin)
        .output()
        .expect("the status command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let output = std::process::Command::new(PROGRAM)
        .args([
            "explain",
            &format!("http://{}/", server.address()),
            "--admin",
        ])
        .arg(&admin)
        .output()
        .expect("the explain command");
    let explained = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_why = |line: &str| {
        line.contains("origin app at") && line.contains("next in turn; 2 members available")
    };
    assert!(explained.lines().any(is_why), "{explained}");
    let line = |url: &str| {
        let mut lines = text
            .lines()
            .filter(|line| line.trim_start().starts_with("origin "));
        let found = lines.find(|line| line.contains(&format!("origin app at {url}: ")));
        found
            .unwrap_or_else(|| panic!("no {url} in {text}"))
            .to_string()
    };
    let good = line(&a.url());
    assert!(
        good.contains(": up, weight 1, 0 requests now, 4 answered, 0 failed"),
        "{good}"
    );
    let bad = line(&refused);
    assert!(bad.contains("latest failure: can't connect"), "{bad}");
}
