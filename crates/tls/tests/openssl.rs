//! Tests against OpenSSL over sockets: `openssl s_client` and `openssl s_server`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificatePaths, CertificateStore, read};
use lowroad_tls::{
    ClientConnector, ClientVerification, KeyLog, MinimumVersion, PeerClose, ServerTrust,
    TicketKeys, TicketService, TlsAcceptor, TlsClient, TlsClock, TlsFault, TlsServer,
    TlsServerSettings,
};

/// The timeout of each step, far above its usual duration.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

struct TestFolder {
    folder: PathBuf,
    authority: LocalAuthority,
    clock: TlsClock,
}

impl TestFolder {
    fn new(name: &str) -> TestFolder {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_s = now.expect("a clock").as_secs();
        let name = format!("lowroad-tls-openssl-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let authority =
            LocalAuthority::open(&folder.join("ca"), "here", now_s).expect("an authority");
        TestFolder {
            folder,
            authority,
            clock: TlsClock::new(now_s),
        }
    }

    /// Writes the files of a certificate for this machine.
    fn files(&self) -> CertificatePaths {
        let (chain, key) = self
            .authority
            .sign_pem(&[], self.clock.unix_s())
            .expect("signed");
        let files = CertificatePaths {
            certificates: self.folder.join("cert.pem"),
            key: self.folder.join("key.pem"),
            staple: None,
        };
        std::fs::write(&files.certificates, chain).expect("written");
        std::fs::write(&files.key, key).expect("written");
        files
    }

    fn settings(&self) -> TlsServerSettings {
        let (pair, _) = read(&self.files(), self.clock.unix_s()).expect("a pair");
        let mut certificates = CertificateMap::new();
        certificates.add(&pair);
        certificates.add_default(&pair);
        let mut settings =
            TlsServerSettings::new(CertificateStore::new(certificates), self.clock.clone());
        let keys = TicketKeys::new(3600, self.clock.unix_s()).expect("keys");
        settings.tickets = Some(TicketService::new(keys, self.clock.clone()).expect("tickets"));
        settings
    }

    fn ca(&self) -> PathBuf {
        self.authority.certificate_file()
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The bytes that the server has received from one client.
#[derive(Debug)]
struct ClientRecord {
    server_name: Option<String>,
    protocol: Option<Vec<u8>>,
    version: Option<MinimumVersion>,
    resumed: bool,
    subject: Option<String>,
    plain: Vec<u8>,
    ended: PeerClose,
    fault: Option<TlsFault>,
}

/// Serves one client: echoes its text in upper case, then calls `heard`.
fn serve(mut server: TlsServer, mut socket: TcpStream, mut heard: impl FnMut()) -> ClientRecord {
    socket
        .set_read_timeout(Some(STEP_TIMEOUT))
        .expect("a timeout");
    let (mut plain, mut buffer, mut fault) = (Vec::new(), vec![0; 4096], None);
    while fault.is_none() {
        let len = match socket.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        let (mut new, mut out) = (Vec::new(), Vec::new());
        let received = server.receive(&mut buffer[..len], &mut new, &mut out);
        if !new.is_empty() {
            server
                .encrypt(&[&new.to_ascii_uppercase()], &mut out, 0)
                .expect("sealed");
        }
        plain.extend_from_slice(&new);
        let is_closed = matches!(received, Ok(progress) if progress.closed);
        if is_closed {
            server.close(&mut out).expect("closed");
        }
        let _ = socket.write_all(&out);
        if !new.is_empty() {
            heard();
        }
        fault = received.err().map(|failure| failure.fault);
        if is_closed {
            break;
        }
    }
    ClientRecord {
        server_name: server.server_name().map(str::to_owned),
        protocol: server.protocol().map(<[u8]>::to_vec),
        version: server.version(),
        resumed: server.is_resumed(),
        subject: server.client_certificate().map(|shown| shown.subject),
        plain,
        ended: server.peer_close(),
        fault,
    }
}

/// Runs `openssl s_client` with these arguments for this number of connections, which `acceptor` accepts.
///
/// Each line is sent after the echo of the previous one, since `s_client` interprets commands at the start of each
/// read.
fn s_client(
    acceptor: &TlsAcceptor,
    connections: usize,
    arguments: &[&str],
    lines: &[&str],
) -> (Vec<ClientRecord>, Output) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut child = Command::new("timeout")
        .args(["30", "openssl", "s_client", "-connect", &address])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    let mut stdin = child.stdin.take().expect("its input");
    let mut lines = lines.iter();
    let mut say = || {
        if let Some(line) = lines.next() {
            stdin.write_all(line.as_bytes()).expect("written");
        }
    };
    say();
    let mut all = Vec::new();
    for _ in 0..connections {
        let (socket, _) = listener.accept().expect("a client");
        let server = acceptor.accept().expect("a server");
        all.push(serve(server, socket, &mut say));
    }
    drop(stdin);
    (all, child.wait_with_output().expect("its end"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn openssl_client_connects_with_tls_1_2_and_1_3() {
    let test_folder = TestFolder::new("versions");
    let acceptor = TlsAcceptor::new(&test_folder.settings()).unwrap();
    let ca = test_folder.ca();
    for (version, expected) in [
        ("-tls1_2", MinimumVersion::Tls12),
        ("-tls1_3", MinimumVersion::Tls13),
    ] {
        let arguments = [
            version,
            "-CAfile",
            ca.to_str().unwrap(),
            "-verify_return_error",
            "-servername",
            "localhost",
            "-verify_hostname",
            "localhost",
            "-alpn",
            "h9,http/1.1",
        ];
        // `s_client` closes cleanly after a line that starts with Q.
        let (heard, output) = s_client(&acceptor, 1, &arguments, &["hello\n", "Q\n"]);
        let [heard] = &heard[..] else { panic!() };
        assert_eq!(
            heard.version,
            Some(expected),
            "{heard:?} {}",
            text(&output.stderr)
        );
        assert_eq!(heard.server_name.as_deref(), Some("localhost"));
        assert_eq!(heard.protocol.as_deref(), Some(&b"http/1.1"[..]));
        assert_eq!(heard.plain, b"hello\n");
        assert_eq!((heard.ended, heard.fault), (PeerClose::Cleanly, None));
        let output = text(&output.stdout);
        assert!(output.contains("Verification: OK"), "{output}");
    }
}

#[test]
fn openssl_client_resumes_sessions_with_tls_1_2_and_1_3() {
    let test_folder = TestFolder::new("resume");
    let acceptor = TlsAcceptor::new(&test_folder.settings()).unwrap();
    // `-reconnect` connects five more times, with the session of the first connection.
    let (heard, _) = s_client(&acceptor, 6, &["-tls1_2", "-reconnect"], &["Q\n"]);
    let resumed: Vec<_> = heard.iter().map(|heard| heard.resumed).collect();
    assert_eq!(resumed, [false, true, true, true, true, true]);

    let session = test_folder.folder.join("session.pem");
    let session = session.to_str().unwrap();
    let (first, _) = s_client(
        &acceptor,
        1,
        &["-tls1_3", "-sess_out", session],
        &["hello\n", "Q\n"],
    );
    let (second, _) = s_client(
        &acceptor,
        1,
        &["-tls1_3", "-sess_in", session],
        &["hello\n", "Q\n"],
    );
    assert_eq!((first[0].resumed, second[0].resumed), (false, true));
}

#[test]
fn renegotiation_is_refused() {
    let test_folder = TestFolder::new("renegotiation");
    let acceptor = TlsAcceptor::new(&test_folder.settings()).unwrap();
    // A line that starts with R requests a renegotiation.
    let (heard, output) = s_client(&acceptor, 1, &["-tls1_2"], &["before\n", "R\n"]);
    let output_text = text(&output.stderr) + &text(&output.stdout);
    assert!(output_text.contains("RENEGOTIATING"), "{output_text}");
    // OpenSSL exits if the renegotiation is refused.
    assert!(
        output_text.contains("no renegotiation"),
        "{output_text} {heard:?}"
    );
    assert_eq!(heard[0].plain, b"before\n");
}

#[test]
fn version_below_minimum_is_refused() {
    let test_folder = TestFolder::new("old");
    let mut settings = test_folder.settings();
    settings.version_min = MinimumVersion::Tls13;
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let (heard, output) = s_client(&acceptor, 1, &["-tls1_2"], &[]);
    assert_eq!(heard[0].fault, Some(TlsFault::NothingInCommon));
    assert!(
        text(&output.stderr).contains("protocol version"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn no_common_parameters_get_handshake_failure() {
    let test_folder = TestFolder::new("parameters");
    let acceptor = TlsAcceptor::new(&test_folder.settings()).unwrap();
    for arguments in [
        &["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"][..],
        &["-tls1_2", "-sigalgs", "RSA+SHA256"],
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        &["-tls1_2", "-cipher", "AES128-SHA"],
        &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
        &["-tls1_3", "-groups", "ffdhe2048"],
    ] {
        let (heard, output) = s_client(&acceptor, 1, arguments, &[]);
        assert_eq!(
            heard[0].fault,
            Some(TlsFault::NothingInCommon),
            "{arguments:?}"
        );
        let output_text = text(&output.stderr);
        assert!(
            output_text.contains("alert handshake failure"),
            "{arguments:?}: {output_text}"
        );
    }
}

/// A self-signed client certificate, and its key. Certificates of `rcgen` are valid from 1975 on; one that is valid
/// from now on would fail after the machine's clock is set back.
fn alice(folder: &Path) -> (PathBuf, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (kind, name) in [
        (DnType::OrganizationName, "Example, Inc."),
        (DnType::CommonName, "Alice"),
    ] {
        params.distinguished_name.push(kind, name);
    }
    let address = SanType::Rfc822Name("alice@example.org".try_into().unwrap());
    params.subject_alt_names.push(address);
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pair = KeyPair::generate().unwrap();
    let cert = params.self_signed(&pair).unwrap();
    let (file, key_file) = (folder.join("alice.pem"), folder.join("alice.key"));
    std::fs::write(&file, cert.pem()).unwrap();
    std::fs::write(&key_file, pair.serialize_pem()).unwrap();
    (file, key_file)
}

#[test]
fn client_certificate_of_openssl_is_verified() {
    let test_folder = TestFolder::new("clients");
    let mut settings = test_folder.settings();
    let (cert, key) = alice(&test_folder.folder);
    settings.clients = ClientVerification::Require(std::fs::read(&cert).unwrap());
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let arguments = [
        "-cert",
        cert.to_str().unwrap(),
        "-key",
        key.to_str().unwrap(),
    ];
    let (heard, _) = s_client(&acceptor, 1, &arguments, &["hello\n", "Q\n"]);
    assert_eq!(
        heard[0].subject.as_deref(),
        Some("CN=Alice,O=Example\\, Inc."),
        "{heard:?}"
    );
    let (heard, _) = s_client(&acceptor, 1, &[], &["hello\n", "Q\n"]);
    assert_eq!(heard[0].fault, Some(TlsFault::CertificateMissing));
}

#[test]
fn key_log_contains_secrets() {
    let test_folder = TestFolder::new("keylog");
    let mut settings = test_folder.settings();
    let path = test_folder.folder.join("keys");
    settings.key_log = Some(KeyLog::append(&path).unwrap().into());
    s_client(
        &TlsAcceptor::new(&settings).unwrap(),
        1,
        &[],
        &["hello\n", "Q\n"],
    );
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(
        log.lines()
            .any(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")),
        "{log}"
    );
    assert!(log.lines().all(|line| line.split(' ').count() == 3));
}

/// `openssl s_server`, killed on drop.
struct SServer(Child, u16);

impl SServer {
    fn start(files: &CertificatePaths, arguments: &[&str]) -> SServer {
        // The port is free: the listener that used it is closed at the end of this statement.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // Started directly and not with timeout(1): if timeout is killed, its child keeps running.
        let mut child = Command::new("openssl")
            .args(["s_server", "-rev", "-accept", &port.to_string()])
            .args(["-cert".as_ref(), files.certificates.as_os_str()])
            .args(["-cert_chain".as_ref(), files.certificates.as_os_str()])
            .args(["-key".as_ref(), files.key.as_os_str()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // `s_server` prints ACCEPT once it listens.
        let (mut output_text, mut byte) = (Vec::new(), [0]);
        let stdout = child.stdout.as_mut().unwrap();
        while !output_text.ends_with(b"ACCEPT") && stdout.read(&mut byte).unwrap() == 1 {
            output_text.push(byte[0]);
        }
        SServer(child, port)
    }
}

impl Drop for SServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends text to a server that returns it reversed.
fn exchange_text(connector: &ClientConnector, port: u16) -> (TlsClient, Vec<u8>) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    let (mut out, mut plain, mut buffer) = (Vec::new(), Vec::new(), vec![0; 4096]);
    let mut client = connector.connect("localhost", &mut out).unwrap();
    while !plain.ends_with(b"\n") {
        socket.write_all(&std::mem::take(&mut out)).unwrap();
        let len = socket.read(&mut buffer).unwrap();
        assert_ne!(len, 0);
        let progress = client
            .receive(&mut buffer[..len], &mut plain, &mut out)
            .unwrap();
        if progress.established {
            client.encrypt(&[b"hel", b"lo\n"], &mut out, 0).unwrap();
        }
    }
    client.close(&mut out).unwrap();
    socket.write_all(&out).unwrap();
    (client, plain)
}

#[test]
fn openssl_server_resumes_sessions_with_tls_1_2_and_1_3() {
    let test_folder = TestFolder::new("client");
    let files = test_folder.files();
    let ca = std::fs::read(test_folder.ca()).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let server = SServer::start(&files, &[version, "-alpn", "http/1.1"]);
        let connector = ClientConnector::new(
            &ServerTrust::from_pem(&ca).expect("an authority"),
            &["http/1.1"],
            None,
            16,
            test_folder.clock.clone(),
        );
        let connector = connector.unwrap();
        for resumed in [false, true] {
            let (client, plain) = exchange_text(&connector, server.1);
            assert_eq!(plain, b"olleh\n");
            assert_eq!(client.protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(client.is_resumed(), resumed, "{version}");
        }
    }
}

/// A session that permits early data, from another server with the same name.
fn session_with_early_data(test_folder: &TestFolder) -> PathBuf {
    // The session must have the hash of our preferred suite: after a HelloRetryRequest, OpenSSL drops a session with
    // another hash, which rustls refuses.
    let arguments = [
        "-max_early_data",
        "16384",
        "-ciphersuites",
        "TLS_AES_128_GCM_SHA256",
    ];
    let server = SServer::start(&test_folder.files(), &arguments);
    let session = test_folder.folder.join("session.pem");
    let mut child = Command::new("timeout")
        .args(["30", "openssl", "s_client", "-connect"])
        .arg(format!("127.0.0.1:{}", server.1))
        .args(["-sess_out".as_ref(), session.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    // The tickets arrive before the response.
    let (mut output_text, mut byte) = (Vec::new(), [0]);
    let stdout = child.stdout.as_mut().unwrap();
    while !output_text.ends_with(b"olleh\n") && stdout.read(&mut byte).unwrap() == 1 {
        output_text.push(byte[0]);
    }
    stdin.write_all(b"Q\n").unwrap();
    assert!(child.wait().unwrap().success());
    session
}

#[test]
fn early_data_from_openssl_is_skipped() {
    let test_folder = TestFolder::new("early");
    let session = session_with_early_data(&test_folder);
    let acceptor = TlsAcceptor::new(&test_folder.settings()).unwrap();
    let file = test_folder.folder.join("early");
    for len in [100, 5_000, 10_000, 16_384] {
        std::fs::write(&file, vec![b'e'; len]).unwrap();
        // With the second value, the server sends HelloRetryRequest.
        for groups in ["P-256", "P-521:P-256"] {
            let arguments = [
                "-tls1_3",
                "-groups",
                groups,
                "-sess_in",
                session.to_str().unwrap(),
                "-early_data",
                file.to_str().unwrap(),
            ];
            let (heard, output) = s_client(&acceptor, 1, &arguments, &["hello\n", "Q\n"]);
            let output_text = text(&output.stdout) + &text(&output.stderr);
            assert_eq!(heard[0].fault, None, "{len} {groups}: {output_text}");
            assert_eq!(heard[0].plain, b"hello\n");
            assert!(
                output_text.contains("Early data was rejected"),
                "{output_text}"
            );
        }
    }
}
