//! A client, a link and a server with a level in front of it, in network namespaces, and the served files. Independent
//! of the requests.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use lowroad_lab::workload::files;
use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::now_ns;
use lowroad_softirq::programs::folder;
use lowroad_testkit::net::namespace::NamespaceProgram;
use lowroad_testkit::net::{self, DEVICE, LinkMangling, ManglingRule, SERVER, TestPath};
use lowroad_testkit::{TempFolder, wait_until};

const PORT: u16 = 80;

/// The server's address for the client.
pub fn server() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(SERVER.0), PORT)
}

/// The server behind the level, which answers the requests that the level does not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerBehind {
    /// `lowroad run`, which includes the level.
    Own,
    /// nginx, with `lowroad attach` in front of it.
    Nginx,
}

/// The server's program, built by another workspace into the same target folder.
fn program() -> PathBuf {
    FilePath::new(env!("CARGO_BIN_EXE_lowroad-lab")).with_file_name("lowroad")
}

/// Reports whether the test can't run on this machine, and why.
pub fn skipped(test: &str, above: ServerBehind) -> bool {
    let lacks = |lacks: bool, reason: &str| lacks.then(|| reason.to_owned());
    let reason = net::missing_requirement()
        .or_else(|| {
            let reason = "lowroad is not built: cargo build -p lowroad";
            lacks(!program().is_file(), reason)
        })
        .or_else(|| {
            let missing = above == ServerBehind::Nginx && !net::is_installed("nginx");
            lacks(missing, "there is no `nginx`")
        });
    if let Some(reason) = &reason {
        lowroad_testkit::skip(test, reason);
    }
    reason.is_some()
}

/// The files of a workload; deleted after the last test that needs them.
pub struct Site {
    folder: TempFolder,
    /// The settings of the workload.
    pub settings: BTreeMap<String, String>,
}

static SITES: Mutex<BTreeMap<&str, Weak<Site>>> = Mutex::new(BTreeMap::new());

impl Site {
    /// The files of this workload, created if no other test has them. A workload has the same settings in all tests.
    pub fn of(workload: &'static str, settings: &[(&str, &str)]) -> Arc<Site> {
        let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sites.get(workload).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let site = Arc::new(Site::new(workload, settings));
            sites.insert(workload, Arc::downgrade(&site));
            site
        })
    }

    fn new(workload: &str, settings: &[(&str, &str)]) -> Site {
        let folder = TempFolder::in_memory();
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let settings = settings.iter().map(owned).collect();
        let made = files::make(workload, &settings, folder.path(), &mut |_| {});
        made.expect("room for the files");
        Site { folder, settings }
    }

    /// The folder of the files.
    pub fn folder(&self) -> &FilePath {
        self.folder.path()
    }
}

/// Client, link and server; dropping it ends them.
pub struct Line {
    // The first field, so that the programs are dropped before their namespaces.
    programs: Vec<NamespaceProgram>,
    /// The level's maps.
    pub level: SoftirqLevel,
    /// The link and both ends.
    pub path: TestPath,
    /// Configurations and logs.
    logs: TempFolder,
    place: PathBuf,
}

impl Line {
    /// Starts a server for the files with a level in front of it, and waits until both answer.
    pub fn start(site: &Site, above: ServerBehind, loss_percent: f64, seed: u64) -> Line {
        let mangling = ManglingRule {
            loss_percent,
            ..ManglingRule::default()
        };
        let path = TestPath::new(&LinkMangling::both(seed, mangling), 1500).expect("a path");
        let logs = TempFolder::new();
        let root = site.folder().join("site");
        let commands = match above {
            ServerBehind::Own => vec![own(&logs, &root)],
            ServerBehind::Nginx => vec![nginx(&logs, &root), attach(&logs, &path)],
        };
        let place = path.server.enter(|| folder::port_folder(PORT));
        let mut line = Started {
            programs: Vec::new(),
            place: place.expect("a folder"),
        };
        let begin_ns = now_ns();
        for command in commands {
            line.programs
                .push(path.server.spawn(command).expect("it starts"));
            wait_until("the server", || {
                line.assert_alive();
                path.server
                    .enter(|| std::net::TcpStream::connect(("127.0.0.1", PORT)))
                    .ok()
            });
        }
        let level = wait_until("the level", || {
            line.assert_alive();
            let level = SoftirqLevel::open(&line.place).ok()?;
            let control = level.control();
            let serves = control.mode == layout::MODE_SERVE && control.heartbeat_ns > begin_ns;
            serves.then_some(level)
        });
        let Started { programs, place } = line;
        Line {
            programs,
            level,
            path,
            logs,
            place,
        }
    }

    /// All counters that are not 0.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.level.counters().expect("counters");
        let named = REASONS.iter().map(|(name, _)| *name).zip(counts);
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// The state of the connections: the level's, and those of both kernels.
    pub fn state(&self) -> String {
        let sockets = |namespace: &net::NetNamespace| {
            let said = namespace.run("ss", &["-tniaoe"]);
            said.unwrap_or_else(|error| error.to_string())
        };
        format!(
            "{:?}\n{:?}\n{:?}\nclient: {}\nserver: {}",
            self.counts(),
            self.level.connections(),
            self.path.mangler.counts(),
            sockets(&self.path.client),
            sockets(&self.path.server),
        )
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if thread::panicking() {
            for name in ["error", "attach"] {
                let text = std::fs::read_to_string(self.logs.path().join(name));
                eprintln!("{name}: {}", text.unwrap_or_default());
            }
        }
        self.programs.clear();
        // The kernel does not remove pinned maps together with the namespace.
        let _ = folder::remove(&self.place);
    }
}

struct Started {
    programs: Vec<NamespaceProgram>,
    place: PathBuf,
}

impl Started {
    fn assert_alive(&mut self) {
        for program in &mut self.programs {
            let ended = program.child().try_wait().expect("a child of ours");
            assert_eq!(ended, None, "it ended");
        }
    }
}

fn own(logs: &TempFolder, root: &FilePath) -> Command {
    let (folder, root) = (logs.path().display(), root.display());
    let config = format!(
        "[server]\nworkers = 1\nsoftirq = \"{DEVICE}\"\nadmin = \"{folder}/admin\"\n\
         [log]\nerror = \"{folder}/error\"\n[[site]]\nlisten = \"*:{PORT}\"\nroot = \"{root}\"\n"
    );
    let config = logs.file("lowroad.toml", config);
    let mut command = Command::new(program());
    command.args(["run", "-c"]).arg(config);
    command.stdout(Stdio::null());
    command
}

/// A single process, so that a kill leaves no worker.
fn nginx(logs: &TempFolder, root: &FilePath) -> Command {
    let (folder, root) = (logs.path().display(), root.display());
    let config = format!(
        "daemon off;
master_process off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  log_not_found off;
  default_type application/octet-stream;
  sendfile on;
  tcp_nopush on;
  server {{ listen {PORT} backlog=4096; root {root}; }}
}}
"
    );
    let config = logs.file("nginx.conf", config);
    let mut command = Command::new("nginx");
    command.arg("-c").arg(config).arg("-p").arg(logs.path());
    command.stdin(Stdio::null());
    command
}

fn attach(logs: &TempFolder, path: &TestPath) -> Command {
    let said = std::fs::File::create(logs.path().join("attach")).expect("a file");
    let mut command = Command::new(program());
    command.args(["attach", &PORT.to_string(), "--netns", &path.server.path()]);
    command.args(["--interface", DEVICE, "--tier", "tc"]);
    command
        .stdout(said.try_clone().expect("a file"))
        .stderr(said);
    command
}
