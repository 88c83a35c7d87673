//! TLS to origins: authentication of the origin.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use lowroad_testkit::{TempFolder, TestServer};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::front::{PROGRAM, response};

/// An origin named app.test with a self-signed certificate.
struct Encrypted {
    port: u16,
    folder: TempFolder,
    /// The SNI names of its connections.
    names: Arc<Mutex<Vec<Option<String>>>>,
}

impl Encrypted {
    fn start() -> Encrypted {
        let folder = TempFolder::new();
        let made = rcgen::generate_simple_self_signed(["app.test".to_string()]);
        let made = made.expect("a certificate");
        folder.file("ca.pem", made.cert.pem());
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key);
        let config = Arc::new(config.expect("a configuration"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let names: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let noted = names.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, noted) = (config.clone(), noted.clone());
                std::thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("a connection");
                    let stream = StreamOwned::new(connection, stream.expect("a stream"));
                    serve(stream, &noted)
                });
            }
        });
        Encrypted {
            port,
            folder,
            names,
        }
    }

    /// Starts Lowroad in front of the origin, with these lines of `[origin.tls]`.
    fn front(&self, tls: &str) -> TestServer {
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
             origin = \"app\"\n[[origin]]\nname = \"app\"\nservers = \"https://127.0.0.1:{}\"\n[origin.tls]\n{tls}\n",
            self.port
        );
        TestServer::run(PROGRAM, &self.folder, &config)
    }
}

/// Answers requests one after another with the length of their body.
fn serve(
    mut stream: StreamOwned<ServerConnection, std::net::TcpStream>,
    names: &Mutex<Vec<Option<String>>>,
) -> Option<()> {
    let mut input = Vec::new();
    loop {
        let mut piece = [0; 16 << 10];
        let head = loop {
            if let Some(at) = input.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut piece) {
                Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
                _ => return None,
            }
        };
        let text = String::from_utf8_lossy(&input[..head]).into_owned();
        let len = text.split("Content-Length: ").nth(1);
        let len: usize = len.map_or(0, |rest| {
            rest.lines().next().map_or(0, |it| it.parse().unwrap_or(0))
        });
        while input.len() < head + len {
            match stream.read(&mut piece) {
                Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
                _ => return None,
            }
        }
        input.drain(..head + len);
        let name = stream.conn.server_name().map(str::to_string);
        names.lock().expect("no panic").push(name);
        let body = format!("{len}{}", "x".repeat(len));
        stream
            .write_all(response("200 OK", "", &body).as_bytes())
            .ok()?;
    }
}

#[test]
fn origin_with_valid_certificate_and_name_is_accepted() {
    let origin = Encrypted::start();
    let front = origin.front("ca = \"ca.pem\"\nname = \"app.test\"");
    let mut client = front.connect();
    assert_eq!(client.get("/", "").text(), "0");
    let body = "y".repeat(300_000);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.response().body.len(), 300_006);
    let names = origin.names.lock().expect("no panic").clone();
    assert_eq!(names, vec![Some("app.test".to_string()); 2]);
}

#[test]
fn request_is_not_sent_to_unauthenticated_origin() {
    let origin = Encrypted::start();
    // The system does not trust the certificate's authority, and the certificate is not valid for an address.
    for (tls, why) in [
        ("name = \"app.test\"", "the authority"),
        ("ca = \"ca.pem\"", "the name"),
    ] {
        let front = origin.front(tls);
        assert_eq!(front.get("/").status, 502, "{why}");
        let line = front.wait_for_error_line("can't connect to origin app");
        assert!(line.contains("certificate"), "{line}");
    }
    assert!(origin.names.lock().expect("no panic").is_empty());
    let front = origin.front("verify = false");
    assert_eq!(front.get("/").text(), "0");
}

#[test]
fn missing_tls_files_are_reported_at_start() {
    let origin = Encrypted::start();
    let file = origin.folder.file("bad.toml", format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         [[origin]]\nname = \"app\"\nservers = \"https://127.0.0.1:{}\"\ntls = {{ ca = \"nothing.pem\" }}\n",
        origin.port
    ));
    let output = std::process::Command::new(PROGRAM)
        .args(["run", "-c", &file.display().to_string()])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing.pem"), "{said}");
}
