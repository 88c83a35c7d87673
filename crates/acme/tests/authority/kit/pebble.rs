//! Runs Pebble, the ACME test server of Let's Encrypt, and its DNS server. The programs are searched for in the folder
//! `LOWROAD_PEBBLE` and in `PATH`; otherwise they are built once with Go, in a cache.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lowroad_acme::{AcmeSettings, AuthoritySettings, ExternalAccount};
use lowroad_testkit::{skip, wait_until};
use lowroad_tls::authority::LocalAuthority;

use super::Folder;

const VERSION: &str = "v2.10.1";
const PROGRAMS: [&str; 2] = ["pebble", "pebble-challtestsrv"];

/// The folder that contains both programs.
pub fn programs() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> Result<PathBuf, String> {
    let has_both = |folder: &PathBuf| PROGRAMS.iter().all(|name| folder.join(name).is_file());
    let given = std::env::var_os("LOWROAD_PEBBLE").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or(home).ok_or("there is no folder for a cache")?;
    let cache = cache.join(format!("lowroad/pebble-{VERSION}"));
    let mut folders = given.into_iter().chain(std::env::split_paths(&path));
    match folders.find(has_both) {
        Some(folder) => Ok(folder),
        None if has_both(&cache) => Ok(cache),
        None => build(&cache).map(|()| cache),
    }
}

fn build(cache: &Path) -> Result<(), String> {
    fs::create_dir_all(cache).map_err(|error| error.to_string())?;
    let lock = File::create(cache.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let built = Command::new("timeout")
        .args(["300", "go", "install"])
        .args(PROGRAMS.map(|name| format!("github.com/letsencrypt/pebble/v2/cmd/{name}@{VERSION}")))
        .env("GOBIN", cache)
        .env("GOFLAGS", "-p=1")
        .stdin(Stdio::null())
        .output();
    match built {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().last().unwrap_or("").to_owned();
            Err(format!("pebble cannot be built: {last}"))
        }
        Err(error) => Err(format!("pebble cannot be built with Go: {error}")),
    }
}

/// The options of Pebble.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The percentage of nonces that Pebble rejects.
    pub bad_nonces: u32,
    /// The external account to which accounts must be bound.
    pub external: Option<ExternalAccount>,
}

/// A running Pebble. After a restart it has the same ports, but has lost its state.
pub struct Pebble {
    folder: Folder,
    options: Options,
    directory: SocketAddr,
    pub management: SocketAddr,
    /// The listener for `http-01` validations.
    pub http: Option<TcpListener>,
    /// The listener for `tls-alpn-01` validations.
    pub tls: Option<TcpListener>,
    dns: SocketAddr,
    pub dns_management: SocketAddr,
    authority: Option<Process>,
    _resolver: Process,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pebble {
    /// `None`: Pebble is unavailable, and the test is skipped.
    pub fn start(test: &str, options: Options) -> Option<Pebble> {
        match programs() {
            Ok(programs) => Some(Pebble::run(&programs, options)),
            Err(reason) => {
                skip(test, &reason);
                None
            }
        }
    }

    fn run(programs: &Path, options: Options) -> Pebble {
        let [directory, management, dns, dns_management] = free();
        let (http, tls) = (super::web::listen(), super::web::listen());
        let resolver = Command::new(programs.join("pebble-challtestsrv"))
            .args([
                "-dnsserver",
                &dns.to_string(),
                "-management",
                &dns_management.to_string(),
            ])
            .args(["-doh", "", "-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-defaultIPv6", ""])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a resolver");
        let mut pebble = Pebble {
            folder: Folder::new(),
            options,
            directory,
            management,
            http: Some(http),
            tls: Some(tls),
            dns,
            dns_management,
            authority: None,
            _resolver: Process(resolver),
        };
        pebble.write_files();
        wait_for(dns_management);
        pebble.up();
        pebble
    }

    fn write_files(&self) {
        let now_s = std::time::UNIX_EPOCH
            .elapsed()
            .expect("after 1970")
            .as_secs();
        let folder = self.folder.path();
        let local = LocalAuthority::open(&folder.join("ca"), "test", now_s).expect("an authority");
        let (chain, key) = local.sign_pem(&[], now_s).expect("a certificate");
        fs::write(folder.join("cert.pem"), chain).expect("a file");
        fs::write(folder.join("key.pem"), key).expect("a file");
        fs::write(self.roots(), local.pem()).expect("a file");
        fs::write(folder.join("config.json"), self.config()).expect("a file");
    }

    fn config(&self) -> String {
        let port = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref().expect("not taken yet");
            listener.local_addr().expect("an address").port()
        };
        let (required, keys) = match &self.options.external {
            Some(external) => (true, format!(r#""{}":"{}""#, external.key_id, external.key)),
            None => (false, String::new()),
        };
        let folder = self.folder.path().display();
        format!(
            r#"{{"pebble": {{
                "listenAddress": "{}", "managementListenAddress": "{}",
                "certificate": "{folder}/cert.pem", "privateKey": "{folder}/key.pem",
                "httpPort": {}, "tlsPort": {}, "ocspResponderURL": "",
                "externalAccountBindingRequired": {required}, "externalAccountMACKeys": {{{keys}}},
                "domainBlocklist": ["blocked.example"],
                "retryAfter": {{"authz": 1, "order": 1}}, "keyAlgorithm": "ecdsa",
                "profiles": {{
                    "default": {{"description": "usual", "validityPeriod": 7776000}},
                    "short": {{"description": "short-lived", "validityPeriod": 518400}}
                }}
            }}}}"#,
            self.directory,
            self.management,
            port(&self.http),
            port(&self.tls),
        )
    }

    /// Starts or restarts Pebble.
    pub fn up(&mut self) {
        let programs = programs().expect("found before");
        let process = Command::new(programs.join("pebble"))
            .arg("-config")
            .arg(self.folder.path().join("config.json"))
            .args(["-dnsserver", &self.dns.to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env(
                "PEBBLE_WFE_NONCEREJECT",
                self.options.bad_nonces.to_string(),
            )
            .stdin(Stdio::null())
            .stdout(File::create(self.folder.path().join("log")).expect("a log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("an authority");
        self.authority = Some(Process(process));
        wait_for(self.directory);
        wait_for(self.management);
    }

    pub fn down(&mut self) {
        self.authority = None;
    }

    /// How often Pebble's log contains this text.
    pub fn count(&self, text: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).expect("a log");
        log.matches(text).count()
    }

    pub fn url(&self) -> String {
        format!("https://{}/dir", self.directory)
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    pub fn authority(&self) -> AuthoritySettings {
        AuthoritySettings {
            directory: self.url(),
            external_account: self.options.external.clone(),
            // Otherwise Pebble picks any profile.
            profile: Some("default".into()),
            roots: Some(self.roots()),
        }
    }

    /// Settings with this authority, and certificates for these sites.
    pub fn settings(&self, folder: &Folder, sites: &[&[&str]]) -> AcmeSettings {
        let mut settings = AcmeSettings::new(folder.path().join("acme"));
        settings.authorities = vec![self.authority()];
        settings.terms_agreed = true;
        settings.contact = vec!["mailto:admin@example.org".into()];
        settings.sites = sites.iter().map(|site| super::names(site)).collect();
        settings
    }
}

fn wait_for(addr: SocketAddr) {
    wait_until("a listener", || TcpStream::connect(addr).ok());
}

/// Free ports below the kernel's ephemeral range, so that the kernel does not assign them to other processes.
fn free() -> [SocketAddr; 4] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let is_free =
        |addr: &SocketAddr| TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok();
    let next = || {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + (std::process::id() * 64 + count) % 20_000;
        SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("below 32,000")))
    };
    [(); 4].map(|()| std::iter::repeat_with(next).find(is_free).expect("a port"))
}
