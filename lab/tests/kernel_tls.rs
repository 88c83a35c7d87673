//! Kernel TLS in a real kernel: the server runs in a guest that supports it, and clients on the host compare every
//! byte.

mod own;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lowroad_lab::icount::boot::BootSpec;
use lowroad_lab::icount::guest::{GuestNetwork, QemuGuest};
use lowroad_lab::icount::kernel::{CopiedPath, GuestContent, GuestKernel, plugin};
use lowroad_testkit::skip;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, default_provider};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedCipherSuite};

const CONFIG: &str = r#"
[server]
workers = 1
kernel_tls = true
admin = "/run/admin.sock"
[[site]]
names = ["guest.test"]
root = "/srv"
[site.tls]
listen = "0.0.0.0:443"
certificate = "/etc/tls.pem"
key = "/etc/tls.pem"
"#;
const LONG_LEN: usize = 10_000_000;
/// Responses of at most this length are encrypted by the server, not by the kernel.
const SHORT_LEN: usize = 100_000;
/// Generous, since the guest is emulated and other tests run concurrently.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pseudo-random bytes, so that misplaced parts are detected.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| step()).collect()
}

struct Place {
    guest: QemuGuest,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    long: Vec<u8>,
}

impl Place {
    fn boot(lowroad: &Path, kernel: &GuestKernel) -> Place {
        let pair = rcgen::generate_simple_self_signed(vec!["guest.test".to_owned()]);
        let pair = pair.expect("a certificate");
        let pem = pair.signing_key.serialize_pem() + &pair.cert.pem();
        let long = noise(LONG_LEN);
        let content = GuestContent {
            copied: vec![CopiedPath {
                source: lowroad.to_owned(),
                path: "usr/bin/lowroad".into(),
            }],
            generated: vec![
                ("etc/lowroad.toml".into(), CONFIG.into()),
                ("etc/tls.pem".into(), pem.into()),
                ("srv/short".into(), long[..SHORT_LEN].to_vec()),
                ("srv/long".into(), long.clone()),
            ],
            command: "lowroad run -c /etc/lowroad.toml &".into(),
            ..GuestContent::default()
        };
        let network = GuestNetwork::new();
        let system = kernel.system(&network, &content).expect("an archive");
        let boot = BootSpec::with_defaults(kernel.image(), Some(system), 512);
        let plugin = plugin().expect("the plugin");
        let mut guest = QemuGuest::boot(&boot, &plugin, network).expect("a guest");
        let address = guest.wait_for(443).expect("the server");
        Place {
            guest,
            address,
            certificate: pair.cert.der().clone(),
            long,
        }
    }

    fn connect(&self, suite: SupportedCipherSuite) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let mut provider = default_provider();
        provider.cipher_suites = vec![suite];
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("guest.test").expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
        let socket = TcpStream::connect(self.address).expect("a connection");
        // A small buffer, so that the server's socket fills quickly.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 16 * 1024).expect("a size");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client(StreamOwned::new(tls, socket))
    }

    /// The value of a line of the server's status.
    fn status(&mut self, name: &str) -> String {
        // The server listens shortly before its administration socket answers.
        let command = "until lowroad status --admin /run/admin.sock; do usleep 100000; done";
        let status = self.guest.output_of(command).expect("status");
        let lines = status
            .lines()
            .filter_map(|line| line.trim().split_once(' '));
        let text = lines.into_iter().find(|(found, _)| *found == name);
        let text = text.unwrap_or_else(|| panic!("{name} in\n{status}")).1;
        text.trim().to_owned()
    }

    /// Number of connections with data that the kernel has encrypted.
    fn kernel_tls_count(&mut self) -> u64 {
        self.status("kernel_tls").parse().expect("a number")
    }
}

struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    fn ask(&mut self, path: &str, field: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: guest.test\r\n{field}\r\n");
        self.0.write_all(request.as_bytes()).expect("sent");
    }

    /// Reads a response: its head and its body.
    fn answer(&mut self) -> (String, Vec<u8>) {
        let (head, len) = self.head();
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).expect("a body");
        (head, body)
    }

    /// Reads the head of a response; returns it with the length of the body.
    fn head(&mut self) -> (String, usize) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let len = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let len = len.and_then(|len| len.parse().ok()).expect("a length");
        (head, len)
    }

    fn get(&mut self, path: &str, expected: &[u8]) {
        self.ask(path, "");
        let (head, body) = self.answer();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body == expected, "{path}: other bytes");
    }

    fn get_range(&mut self, path: &str, range: Range<usize>, whole: &[u8]) {
        self.ask(
            path,
            &format!("Range: bytes={}-{}\r\n", range.start, range.end - 1),
        );
        let (head, body) = self.answer();
        assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
        assert!(body == whole[range.clone()], "{range:?}: other bytes");
    }

    /// Checks that the server sent close_notify; without it, rustls reports an error.
    fn assert_close_notify(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b""),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => panic!("no close_notify"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Requests a key update from the server, and updates the client's own key.
    fn update_keys(&mut self) {
        self.0.conn.refresh_traffic_keys().expect("TLS 1.3");
        self.0.flush().expect("sent");
    }
}

#[test]
fn large_files_are_encrypted_by_kernel_tls() {
    let test = "kernel TLS: large files are encrypted by the kernel";
    let Some(lowroad) = own::for_guest(test) else {
        return;
    };
    let kernel = match GuestKernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return skip(test, &why),
    };
    let mut place = Place::boot(&lowroad, &kernel);
    assert_eq!(place.status("tls.kernel"), "in use");
    for suite in [
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let before = place.kernel_tls_count();
        many_requests_on_a_connection(&place, suite);
        assert_eq!(place.kernel_tls_count(), before + 1, "{suite:?}");
    }
    the_end_is_said_behind_a_long_response(&place);
    assert_key_update_closes_after_response(&place);
    assert_eq!(place.kernel_tls_count(), 3 + 1 + 2);
    // Short files, HTTP/2 and TLS 1.2 are encrypted by the server, not by the kernel.
    let mut client = place.connect(suite::TLS13_AES_128_GCM_SHA256);
    client.get("/short", &place.long[..SHORT_LEN]);
    let mut client = place.connect(suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    client.get("/long", &place.long);
    assert_eq!(place.kernel_tls_count(), 6);
    assert_eq!(place.status("broken"), "0");
    let counted = place.guest.output_of("grep TlsTxSw /proc/net/tls_stat");
    // One more than the number of connections, since the server tests the kernel's support at its start.
    let counted = counted.expect("the kernel counts");
    assert_eq!(counted.split_whitespace().nth(1), Some("7"), "{counted}");
}

fn many_requests_on_a_connection(place: &Place, suite: SupportedCipherSuite) {
    let mut client = place.connect(suite);
    client.get("/short", &place.long[..SHORT_LEN]);
    client.get("/long", &place.long);
    client.get("/short", &place.long[..SHORT_LEN]);
    for at in 0..24 {
        let start = at * 412_345 % (LONG_LEN - 1);
        let len = [1, 900, 16_384, 16_385, 200_000, 700_001][at % 6];
        client.get_range("/long", start..(start + len).min(LONG_LEN), &place.long);
    }
    client.ask("/long", "Connection: close\r\n");
    assert!(client.answer().1 == place.long, "other bytes");
    client.assert_close_notify();
}

fn the_end_is_said_behind_a_long_response(place: &Place) {
    let mut client = place.connect(suite::TLS13_AES_128_GCM_SHA256);
    client.ask("/long", "Connection: close\r\n");
    assert!(client.answer().1 == place.long, "other bytes");
    client.assert_close_notify();
}

/// After a key update, during a response or after it, the server completes the response and closes the connection.
fn assert_key_update_closes_after_response(place: &Place) {
    for is_early in [true, false] {
        let mut client = place.connect(suite::TLS13_AES_128_GCM_SHA256);
        client.ask("/long", "");
        let mut body = vec![0; client.head().1];
        let (first, last) = body.split_at_mut(if is_early { LONG_LEN / 10 } else { LONG_LEN });
        client.0.read_exact(first).expect("a body");
        client.update_keys();
        client.0.read_exact(last).expect("a body");
        assert!(body == place.long, "other bytes");
        client.assert_close_notify();
    }
}
