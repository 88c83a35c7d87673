//! A server with a certificate of a test authority, and clients that trust it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_testkit::{TempFolder, TestServer};
use lowroad_tls::authority::LocalAuthority;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// curl's options for the HTTP versions.
pub const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// A folder with an authority, certificates and a site.
pub struct Place {
    pub folder: TempFolder,
    authority: LocalAuthority,
}

/// A program's output.
pub struct ProgramOutput {
    pub out: Vec<u8>,
    pub errors: String,
    pub code: Option<i32>,
}

impl Place {
    pub fn new() -> Place {
        let folder = TempFolder::new();
        let authority = LocalAuthority::open(&folder.path().join("ca"), "test", unix_s());
        let authority = authority.expect("an authority");
        Place { folder, authority }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The authority's certificate.
    pub fn ca(&self) -> String {
        self.authority.certificate_file().display().to_string()
    }

    /// Writes a certificate for these names as `NAME.pem` and `NAME.key`.
    pub fn certify(&self, name: &str, hosts: &[&str]) {
        let pem = self.authority.sign_pem(hosts, unix_s());
        let (chain, key) = pem.expect("a certificate");
        self.folder.file(format!("{name}.pem"), chain);
        self.private(&format!("{name}.key"), key);
    }

    /// Writes a file that only its owner may read, over an existing one.
    pub fn private(&self, name: &str, content: impl AsRef<[u8]>) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.file(name, content);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("a file of ours");
    }

    /// The configuration of a site in the folder `site` with further keys, and a TLS listener at any port with this
    /// certificate.
    pub fn site(&self, certificate: &str, keys: &str, tls: &str) -> String {
        std::fs::create_dir_all(self.path("site")).expect("a folder");
        format!(
            "[[site]]\nroot = \"site\"\n{keys}\n[site.tls]\nlisten = \"127.0.0.1:0\"\n\
             certificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n{tls}\n"
        )
    }

    /// Starts a server with this configuration, and one worker.
    pub fn run(&self, config: &str) -> TestServer {
        self.run_with("", config)
    }

    /// As `run`, with further keys of `[server]` and further tables.
    pub fn run_with(&self, tables: &str, config: &str) -> TestServer {
        let admin = self.path("admin").display().to_string();
        let server = format!("[server]\nuser = \"root\"\nworkers = 1\nadmin = \"{admin}\"\n");
        TestServer::run(
            PROGRAM,
            &self.folder,
            &format!("{server}{tables}\n{config}"),
        )
    }

    /// Starts a server for files with a certificate for `a.example`.
    pub fn run_with_certificate(&self) -> TestServer {
        self.certify("a", &["a.example"]);
        self.run(&self.site("a", "", ""))
    }

    /// Runs curl, which resolves all host names to this address and trusts the authority.
    pub fn curl(&self, to: SocketAddr, arguments: &[&str]) -> ProgramOutput {
        let mut command = Command::new("timeout");
        command.args(["30", "curl", "-sS", "--cacert", &self.ca()]);
        command.args(["--connect-to", &format!("::{}:{}", to.ip(), to.port())]);
        run(command.args(arguments), b"")
    }

    /// The standard output of curl.
    pub fn fetch(&self, to: SocketAddr, arguments: &[&str]) -> String {
        let said = self.curl(to, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.errors);
        said.text()
    }

    /// Runs `openssl s_client` with this input.
    pub fn s_client(&self, to: SocketAddr, arguments: &[&str], input: &str) -> ProgramOutput {
        let mut command = Command::new("timeout");
        command.args(["30", "openssl", "s_client", "-CAfile", &self.ca()]);
        command.args(["-connect", &to.to_string()]);
        run(command.args(arguments), input.as_bytes())
    }

    /// Runs `openssl` in the folder.
    pub fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command
            .args(arguments.split(' '))
            .current_dir(self.folder.path());
        let said = run(&mut command, b"");
        assert_eq!(said.code, Some(0), "{arguments}: {}", said.errors);
    }

    /// The values of a key in `lowroad status`.
    pub fn status(&self, name: &str) -> Vec<String> {
        let admin = self.path("admin").display().to_string();
        let said = run(
            Command::new(PROGRAM).args(["status", "--admin", &admin]),
            b"",
        );
        let text = said.text();
        let lines = text.lines().map(str::trim_start);
        let lines = lines.filter_map(|line| line.split_once(char::is_whitespace));
        let own = lines.filter(|(known, _)| *known == name);
        own.map(|(_, value)| value.trim().to_string()).collect()
    }

    /// A counter of `lowroad status`.
    pub fn count(&self, name: &str) -> u64 {
        let values = self.status(name);
        let value = values.first().and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("{name}: {values:?}"))
    }
}

impl ProgramOutput {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output and standard error together.
    pub fn all(&self) -> String {
        format!("{}{}", self.text(), self.errors)
    }
}

/// A client of these versions that trusts the authority.
pub fn trusting(
    place: &Place,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ClientConfig {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(place.ca()).expect("a certificate");
    roots.add(ca).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).expect("known");
    builder.with_root_certificates(roots).with_no_client_auth()
}

pub fn run(command: &mut Command, input: &[u8]) -> ProgramOutput {
    use std::io::Write;
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let mut stdin = child.stdin.take().expect("piped");
    // If a program ignores its input, the write may fail; the output shows the result.
    let _ = stdin.write_all(input);
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("its end");
    ProgramOutput {
        out: stdout,
        errors: String::from_utf8_lossy(&stderr).into_owned(),
        code: status.code(),
    }
}

pub fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a time").as_secs()
}

/// Bytes that do not repeat.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}
