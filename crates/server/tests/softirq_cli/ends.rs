//! Detaching: only the named ports are removed, and no state remains. Ports without a level are an error.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use lowroad_testkit::net::{NetNamespace, SERVER};
use lowroad_testkit::{TestClient, wait_until};

use crate::place::{HOST, PORT, Place, attach, can_run};

const SECOND_PORT: u16 = 8081;

/// Closes each connection after its first response.
fn second_server(namespace: &NetNamespace) {
    let bind = || TcpListener::bind(("0.0.0.0", SECOND_PORT));
    let listener = namespace.enter(bind).expect("a port");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || -> std::io::Result<()> {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer)?;
                let fields = "Content-Length: 6\r\nCache-Control: max-age=60\r\nConnection: close";
                write!(stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\nsecond")
            });
        }
    });
}

fn connect(place: &Place, port: u16) -> TestClient {
    let address = SocketAddr::from((SERVER.0, port));
    let stream = place.client.enter(|| TcpStream::connect(address));
    TestClient::new(stream.expect("a connection"))
}

fn ports(place: &Place) -> Vec<u64> {
    let json = place.command_output(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let ports = json["levels"][0]["ports"].as_array().expect("ports");
    ports.iter().filter_map(serde_json::Value::as_u64).collect()
}

#[test]
fn detach_removes_only_the_named_ports() {
    if !can_run("detach_removes_only_the_named_ports") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60"]);
    let (first, second) = (PORT.to_string(), SECOND_PORT.to_string());
    let get = format!("GET /small HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    second_server(&place.server);
    for (going, staying) in [(&second, &first), (&first, &second)] {
        place.command_output(&["detach", &first]);
        place.attached = attach(&place.server, &["--ttl", "60", &second]);
        place.warm("/small");
        // The handshake is complete; the request arrives during the removal of the port, or after it.
        let mut live = [SECOND_PORT, PORT].map(|port| connect(&place, port));
        let said = place.command_output(&["detach", going, "--drain", "1"]);
        let wanted = format!("detached from port {going}; port {staying} stays attached\n");
        assert_eq!(said, wanted);
        assert_eq!(ports(&place), [staying.parse::<u64>().expect("a port")]);
        let stays = live.iter_mut().zip([&second, &first]);
        for (client, _) in stays.filter(|(_, port)| *port == staying) {
            client.send(&get);
            assert_eq!(client.response().status, 200);
        }
        for port in [SECOND_PORT, PORT] {
            let mut client = connect(&place, port);
            client.send(&get);
            assert_eq!(client.response().status, 200, "{port}");
        }
        let again = place.output(&["detach", going]);
        let again = String::from_utf8_lossy(&again.stderr).into_owned();
        let wanted = format!("nothing is attached to port {going}");
        assert!(again.contains(&wanted), "{again}");
        if *staying == first {
            place.warm("/small");
            assert!(place.get("/small", "").field("age").is_some());
            continue;
        }
        assert_eq!(place.get("/small", "").field("age"), None);
        assert_eq!(place.command_output(&["detach", staying]), "detached\n");
    }
}

#[test]
fn request_in_progress_is_answered_after_detach() {
    if !can_run("request_in_progress_is_answered_after_detach") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60"]);
    let (first, second) = (PORT.to_string(), SECOND_PORT.to_string());
    second_server(&place.server);
    place.command_output(&["detach", &first]);
    place.attached = attach(&place.server, &["--ttl", "60", &second]);
    place.warm("/small");
    let mut client = connect(&place, SECOND_PORT);
    let mut detach = place.command(&["detach", &second, "--drain", "20"]);
    let mut detach = detach.stdout(Stdio::null()).spawn().expect("it starts");
    wait_until("the port to go", || {
        let pinned = place
            .server
            .enter(|| lowroad_softirq::programs::folder::port_folder(PORT));
        let level = lowroad_softirq::SoftirqLevel::open(&pinned.expect("a folder"));
        let leaving = level.expect("a level").control().leaving;
        let bit = leaving[usize::from(SECOND_PORT >> 6)] >> (SECOND_PORT & 63) & 1;
        (bit == 1).then_some(())
    });
    let before = place.counter("up_drain");
    client.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    assert_eq!(client.response().text(), "second");
    assert_eq!(place.counter("up_drain"), before + 1);
    assert!(detach.wait().expect("a child of ours").success());
}

#[test]
fn invalid_deny_prefix_is_refused_before_attaching() {
    if !can_run("invalid_deny_prefix_is_refused_before_attaching") {
        return;
    }
    let namespace = NetNamespace::new("empty").expect("a namespace");
    let arguments = ["attach", "80", "--deny", "1.2.3.4/99"];
    let said = namespace.run(crate::place::PROGRAM, &arguments);
    let said = said.expect_err("no prefix").to_string();
    assert!(
        said.contains("--deny 1.2.3.4/99: an address has 32 bits, not 99"),
        "{said}"
    );
}

#[test]
fn explain_refuses_https_urls() {
    if !can_run("explain_refuses_https_urls") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    for url in [format!("https://{HOST}/small"), "HTTPS://a.example/".into()] {
        let output = place.output(&["explain", &url]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("this server does not listen at"), "{said}");
    }
    let output = place.output(&["explain", &format!("ftp://{HOST}/small")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not a URL of HTTP"), "{said}");
}
