//! Measures the memory of an idle HTTP/2 connection over TLS, in Lowroad and in nginx.
//!
//! `cargo test --release -p lowroad --test tls memory -- --ignored --nocapture` prints it. Kernel memory is not
//! included.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lowroad_testkit::process::{PrivateMemory, raise_descriptor_limit};
use lowroad_testkit::wait_until;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::support::{Place, trusting};

const IDLE: usize = 10_000;
/// Number of connections before the measurement, so that memory that is allocated only once does not count.
const WARM_UP: usize = 200;
const DESCRIPTORS: u64 = (IDLE + WARM_UP) as u64 + 1_000;
/// Maximum number of bytes per connection.
const IDLE_MAX: f64 = 12.0 * 1024.0;

/// A preface, empty SETTINGS, and `GET /file` on stream 1.
const GET: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\0\x04\0\0\0\0\0\
    \0\0\x14\x01\x05\0\0\0\x01\x82\x87\x04\x05/file\x01\x09a.example";
const SETTINGS_ACK: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
const DATA: u8 = 0;
const END_STREAM: u8 = 1;

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Opens a connection with a full handshake, which stays open after one response.
fn idle(to: SocketAddr, config: &Arc<ClientConfig>) -> Connection {
    let name = ServerName::try_from("a.example").expect("a name");
    let tls = ClientConnection::new(config.clone(), name).expect("a client");
    let tcp = TcpStream::connect(to).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    tcp.set_read_timeout(patience).expect("a timeout");
    let mut stream = StreamOwned::new(tls, tcp);
    stream.write_all(GET).expect("sent");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).expect("a whole frame");
        if kind == DATA && flags & END_STREAM != 0 {
            break;
        }
    }
    stream.write_all(SETTINGS_ACK).expect("sent");
    stream
}

/// Bytes per idle connection of a process with many: resident, and anonymous.
fn measure(place: &Place, to: SocketAddr, pid: u32) -> (f64, f64) {
    let mut config = trusting(place, rustls::ALL_VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let connect =
        |count: usize| -> Vec<Connection> { (0..count).map(|_| idle(to, &config)).collect() };
    let warm = connect(WARM_UP);
    let before = PrivateMemory::of_process(pid);
    let all = connect(IDLE);
    let each = PrivateMemory::of_process(pid).since(before, IDLE);
    drop((warm, all));
    each
}

/// nginx with one worker, ended on drop.
struct Nginx {
    master: Child,
    address: SocketAddr,
}

impl Nginx {
    fn start(place: &Place) -> Nginx {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let folder = place.folder.path().display();
        let config = format!(
            "daemon off; user root; worker_processes 1; worker_rlimit_nofile 20000; pid {folder}/nginx.pid;\n\
             error_log {folder}/nginx.log;\n\
             events {{ worker_connections 16384; }}\n\
             http {{ access_log off; keepalive_timeout 600;\n\
             server {{ listen {address} ssl http2; root {folder}/site; ssl_protocols TLSv1.2 TLSv1.3;\n\
             ssl_certificate {folder}/a.pem; ssl_certificate_key {folder}/a.key; }} }}\n"
        );
        let config = place.folder.file("nginx.conf", config);
        let mut command = Command::new("nginx");
        command.arg("-c").arg(config).stdin(Stdio::null());
        let master = command.spawn().expect("nginx");
        wait_until("nginx", || TcpStream::connect(address).ok());
        Nginx { master, address }
    }

    fn worker(&self) -> u32 {
        let master = self.master.id();
        let path = format!("/proc/{master}/task/{master}/children");
        wait_until("a worker", || {
            let children = std::fs::read_to_string(&path).expect("procfs");
            children.split_whitespace().next()?.parse().ok()
        })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.master);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.master.wait();
    }
}

#[test]
#[ignore = "a measurement: prints what an idle connection takes"]
fn memory_per_idle_connection() {
    if !raise_descriptor_limit(DESCRIPTORS) {
        return;
    }
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", [b'x'; 1024]);
    let config = place.site("a", "", "");
    let server = place.run_with("[limits]\nidle_timeout = \"1h\"\n", &config);
    let (ours, anonymous) = measure(&place, server.address(), server.pid());
    println!("lowroad: {ours:.0} bytes each resident, {anonymous:.0} of them anonymous");
    drop(server);
    assert!(ours <= IDLE_MAX, "{ours}");
    if Command::new("nginx").arg("-v").output().is_ok() {
        let nginx = Nginx::start(&place);
        let (theirs, anonymous) = measure(&place, nginx.address, nginx.worker());
        println!("nginx: {theirs:.0} bytes each resident, {anonymous:.0} of them anonymous");
        assert!(ours * 2.0 < theirs, "{ours}, {theirs}");
    }
}
