//! A server with a route to a program of each handler, and these programs.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::fpm::Fpm;

/// The server.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Spools request bodies to a folder that tests can inspect.
const BUFFERING: &str = "[buffering]\ntemp_path = \"DIR/temp\"\n";

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/modules");

/// The programs behind the routes; `DIR` is the test's folder.
const PROGRAMS: &str = r#"
[[module]]
name = "linked"
linked = "hello"
[[module]]
name = "library"
library = "DIR/hello.so"
[[module]]
name = "features"
library = "DIR/features.so"
[[module]]
name = "separate"
library = "DIR/hello.so"
separate = true
[[module]]
name = "wasm"
wasm = "DIR/hello.wasm"
[[database]]
name = "db"
url = "sqlite:DIR/state/db"
[[site]]
listen = "127.0.0.1:0"
root = "DIR/root"
"#;

const ROUTES: &str = r#"
[[site.route]]
pattern = "/linked"
module = "linked"
[[site.route]]
pattern = "/library"
module = "library"
[[site.route]]
pattern = "/separate"
module = "separate"
[[site.route]]
pattern = "/wasm"
module = "wasm"
[[site.route]]
pattern = "/cgi/**"
cgi = "DIR/cgi"
[[site.route]]
pattern = "*.lrp"
pages = "db"
[[site.route]]
pattern = "*.php"
fastcgi = "unix:DIR/fpm.sock"
"#;

/// Returns the request, with the body last.
const SAY: &str = "printf 'Content-Type: text/plain\\n\\n'\n\
                   printf '%s %s|' \"$REQUEST_METHOD\" \"$CONTENT_LENGTH\"\ncat\n";

/// The same in PHP. Clients must never see the first line.
const SAY_PHP: &str = "<?php // SOURCE\nheader('Content-Type: text/plain');\n\
    echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['CONTENT_LENGTH'] ?? '', '|',\n\
    file_get_contents('php://input');\n";

/// A folder with programs, and a server in front of them.
pub struct Host {
    /// The server.
    pub server: TestServer,
    // Dropped after the server, which has connections to it.
    fpm: Option<Fpm>,
    folder: TempFolder,
}

impl Host {
    /// Starts a server with routes to programs of each kind, and these additional scripts.
    pub fn start(scripts: &[(&str, &str)]) -> Host {
        Host::with_routes(ROUTES, scripts)
    }

    /// Starts a server with these routes only. Routes to php-fpm require that it is installed.
    pub fn with_routes(routes: &str, scripts: &[(&str, &str)]) -> Host {
        Host::with_settings(BUFFERING, routes, scripts)
    }

    /// As `with_routes`, with additional limits.
    pub fn with_limits(limits: &str, routes: &str, scripts: &[(&str, &str)]) -> Host {
        Host::with_settings(&format!("{BUFFERING}[limits]\n{limits}"), routes, scripts)
    }

    /// As `with_routes`, with additional tables before those of modules and sites.
    pub fn with_settings(settings: &str, routes: &str, scripts: &[(&str, &str)]) -> Host {
        let folder = TempFolder::new();
        // The server's user may write to these folders.
        for name in ["", "state", "cgi", "root", "temp"] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).expect("a folder");
            fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("a mode");
        }
        let fpm = match routes.contains("fpm.sock") {
            true => Fpm::start(&folder),
            false => None,
        };
        fs::copy(library(), folder.path().join("hello.so")).expect("a copy");
        fs::copy(features(), folder.path().join("features.so")).expect("a copy");
        let wasm = Path::new(EXAMPLES).join("hello-wasm-c.wasm");
        fs::copy(wasm, folder.path().join("hello.wasm")).expect("a copy");
        // An empty file is a valid, empty database.
        let database = folder.file("state/db", "");
        fs::set_permissions(database, Permissions::from_mode(0o666)).expect("a mode");
        folder.file("root/page.lrp", "{{ row('SELECT 6 * 7 AS n').n }}\n");
        folder.file("root/say.php", SAY_PHP);
        folder.file("root/file.txt", "a file\n");
        let config = filled(&folder, settings, routes);
        write_script(&folder, "say", SAY);
        for (name, text) in scripts {
            write_script(&folder, name, text);
        }
        let server = TestServer::run(PROGRAM, &folder, &config);
        Host {
            server,
            fpm,
            folder,
        }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Opens a connection.
    pub fn connect(&self) -> TestClient {
        self.server.connect()
    }

    /// Whether PHP is available.
    pub fn has_php(&self) -> bool {
        self.fpm.is_some()
    }

    /// A path below the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file in the test's folder.
    pub fn file(&self, name: &str, content: &str) {
        self.folder.file(name, content);
    }

    /// The contents of a file in `state`; empty if there is none.
    pub fn state(&self, name: &str) -> String {
        fs::read_to_string(self.path("state").join(name)).unwrap_or_default()
    }

    /// Reloads the configuration with these routes; the log reports the result.
    pub fn reload(&self, routes: &str) {
        self.file("lowroad.toml", &filled(&self.folder, BUFFERING, routes));
        self.server.signal("HUP");
    }

    /// Its counters.
    pub fn status(&self) -> StatusClient {
        StatusClient::new(PROGRAM, self.path("admin.sock"))
    }

    /// The output of a `lowroad` command for this server.
    pub fn command(&self, arguments: &[&str]) -> Output {
        self.status().run(arguments)
    }

    /// The output of a `lowroad` command that must succeed.
    pub fn command_output(&self, arguments: &[&str]) -> String {
        self.status().command(arguments)
    }

    /// The server's maximum memory so far, in KiB.
    pub fn memory_max_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.server.pid());
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.expect("a number").parse().expect("a number")
    }
}

fn filled(folder: &TempFolder, settings: &str, routes: &str) -> String {
    let limits = match settings.contains("[limits]") {
        true => "",
        false => "[limits]\nbody_len_max = \"64M\"\n",
    };
    let text = format!(
        "[server]\nworkers = 2\nadmin = \"DIR/admin.sock\"\n{limits}\
         [log]\naccess = \"DIR/access\"\nformat = \"json\"\n{settings}{PROGRAMS}{routes}"
    );
    text.replace("DIR", &folder.path().display().to_string())
}

/// Writes a CGI program for the shell; `DIR` in it is the test's folder.
fn write_script(folder: &TempFolder, name: &str, text: &str) {
    let text = text.replace("DIR", &folder.path().display().to_string());
    let path = folder.file(format!("cgi/{name}"), format!("#!/bin/sh\n{text}"));
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a mode");
}

/// The example module as a library; built once.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("hello", &Path::new(EXAMPLES).join("hello-c/hello.c")))
}

/// The module that uses all features, as a library; built once.
fn features() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../module_host/tests");
        built("features", &tests.join("module/features.c"))
    })
}

fn built(name: &str, source: &Path) -> PathBuf {
    let name = format!("{name}-{}.so", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-I"]);
    cc.arg(Path::new(EXAMPLES).join("../../crates/module/include"));
    let built = cc.arg("-o").arg(&path).arg(source).status();
    assert!(built.expect("cc runs").success());
    path
}
