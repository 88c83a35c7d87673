//! Three levels on one interface of a guest: one in native XDP (a device supports only one) and two at TC ingress. Each
//! answers the clients of its port, and continues when another one is detached.

mod own;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use lowroad_lab::icount::boot::BootSpec;
use lowroad_lab::icount::guest::{GuestNetwork, QemuGuest};
use lowroad_lab::icount::kernel::{CopiedPath, GuestContent, GuestKernel, plugin};
use lowroad_testkit::skip;
use serde_json::Value;

const CONFIG: &str = r#"
[server]
workers = 1
admin = "/run/admin.sock"
[[site]]
listen = ["*:80", "*:81", "*:82"]
root = "/srv"
"#;
const PORTS: [u16; 3] = [80, 81, 82];
const BODY: &str = "the same at each port\n";
/// Generous, since the guest is emulated and other tests run concurrently.
const PATIENCE: Duration = Duration::from_secs(120);

fn boot(lowroad: &Path, kernel: &GuestKernel) -> QemuGuest {
    let content = GuestContent {
        copied: vec![CopiedPath {
            source: lowroad.to_owned(),
            path: "usr/bin/lowroad".into(),
        }],
        generated: vec![
            ("etc/lowroad.toml".into(), CONFIG.into()),
            ("srv/page.txt".into(), BODY.into()),
        ],
        command: "lowroad run -c /etc/lowroad.toml &".into(),
        ..GuestContent::default()
    };
    let network = GuestNetwork::new();
    let system = kernel.system(&network, &content).expect("an archive");
    let boot = BootSpec::with_defaults(kernel.image(), Some(system), 1024);
    QemuGuest::boot(&boot, &plugin().expect("the plugin"), network).expect("a guest")
}

/// Attaches a level; returns its output.
fn attach(guest: &mut QemuGuest, port: u16) -> String {
    let log = format!("/run/attach-{port}");
    let command = format!(
        "lowroad attach {port} --ttl 600 >{log} 2>&1 & \
         until grep -q '^attached' {log}; do usleep 100000; done; cat {log}"
    );
    guest.output_of(&command).expect("a level")
}

/// The number of requests that each level has answered so far.
fn hits(guest: &mut QemuGuest) -> Vec<u64> {
    let status = guest.output_of("lowroad status --softirq --json");
    let status = serde_json::from_str::<Value>(&status.expect("status")).expect("JSON");
    let levels = status["levels"].as_array().expect("levels");
    let hits = levels.iter().map(|level| &level["counters"]["answer_hit"]);
    hits.map(|count| count.as_u64().expect("a count")).collect()
}

/// Requests the page on a new connection.
fn get(address: SocketAddr) {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = "GET /page.txt HTTP/1.1\r\nHost: guest.test\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n", "{address}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("a head");
    }
    let mut body = vec![0; BODY.len()];
    reader.read_exact(&mut body).expect("a body");
    assert_eq!(body, BODY.as_bytes(), "{address}");
}

/// Requests the page at all ports until this many levels have answered additional requests.
fn request_until_answered_by(guest: &mut QemuGuest, addresses: &[SocketAddr], levels: usize) {
    let before = hits(guest);
    assert_eq!(before.len(), levels, "{before:?}");
    let end = Instant::now() + PATIENCE;
    loop {
        addresses.iter().for_each(|address| get(*address));
        let after = hits(guest);
        if after
            .iter()
            .zip(&before)
            .all(|(after, before)| after > before)
        {
            return;
        }
        assert!(Instant::now() < end, "{before:?}, then {after:?}");
    }
}

#[test]
fn native_xdp_and_tc_share_an_interface() {
    let test = "levels: native XDP and TC share an interface";
    let Some(lowroad) = own::for_guest(test) else {
        return;
    };
    let kernel = match GuestKernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return skip(test, &why),
    };
    let mut guest = boot(&lowroad, &kernel);
    let addresses = PORTS.map(|port| guest.wait_for(port).expect("the server"));
    let tiers = PORTS.map(|port| attach(&mut guest, port));
    assert!(tiers[0].contains("native XDP\n"), "{tiers:?}");
    assert!(tiers[1].contains("TC ingress"), "{tiers:?}");
    assert!(tiers[2].contains("TC ingress"), "{tiers:?}");
    request_until_answered_by(&mut guest, &addresses, 3);
    for (port, left) in PORTS.into_iter().zip([2, 1]) {
        let detached = guest.output_of(&format!("lowroad detach {port}"));
        assert!(detached.expect("detach").contains("detached"));
        request_until_answered_by(&mut guest, &addresses, left);
    }
}
