//! MariaDB and PostgreSQL servers that the tests start, each in a separate folder and reached through a Unix socket.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TempFolder, skip};

/// A database server.
pub struct Server {
    kind: Kind,
    /// The address of the server's empty database.
    pub url: String,
    process: Option<Child>,
    folder: TempFolder,
    /// A TCP port in addition to the socket (MariaDB), on all addresses.
    port: Option<u16>,
    /// Additional arguments.
    args: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    Postgres,
}

impl Server {
    /// Starts a server; `None` if it is not installed, so that the test is skipped.
    pub fn start(kind: Kind, test: &str) -> Option<Server> {
        Server::start_at(kind, test, None)
    }

    /// Like [`Server::start`]; a MariaDB server also listens on this port.
    pub fn start_at(kind: Kind, test: &str, port: Option<u16>) -> Option<Server> {
        let (program, package) = match kind {
            Kind::MariaDb => ("mariadbd", "mariadb-server"),
            Kind::Postgres => ("initdb", "postgresql"),
        };
        if find(program).is_none() {
            skip(test, &format!("{program} is missing (Debian: {package})"));
            return None;
        }
        let folder = TempFolder::new();
        let at = folder.path().display();
        let url = match kind {
            Kind::MariaDb => format!("mysql://root@localhost/test?socket={at}/sock"),
            Kind::Postgres => format!("postgres://postgres@localhost/postgres?host={at}"),
        };
        let mut server = Server {
            kind,
            url,
            process: None,
            folder,
            port,
            args: Vec::new(),
        };
        server.install();
        server.launch();
        Some(server)
    }

    /// Kills the server, like a power failure (PostgreSQL: as close to that as is safe).
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let signal = if self.kind == Kind::MariaDb {
            "-KILL"
        } else {
            "-QUIT"
        };
        let id = process.id().to_string();
        let _ = Command::new("kill").args([signal, &id]).status();
        let _ = process.wait();
    }

    /// Restarts the server with additional arguments.
    pub fn restart_with(&mut self, args: Vec<String>) {
        self.kill();
        self.args = args;
        self.launch();
    }

    /// Starts the server, and waits until it accepts connections.
    pub fn launch(&mut self) {
        let at = self.folder.path();
        let data = at.join("data").display().to_string();
        let (mut command, ready) = match self.kind {
            Kind::MariaDb => {
                let mut command = self.command("mariadbd");
                command
                    .args([
                        "--no-defaults",
                        "--skip-name-resolve",
                        "--innodb-fast-shutdown=2",
                        "--character-set-server=utf8mb4",
                    ])
                    .arg(format!("--tmpdir={}", at.display()))
                    .args(user())
                    .arg(match self.port {
                        Some(port) => format!("--port={port}"),
                        None => "--skip-networking".to_owned(),
                    })
                    .arg(format!("--datadir={data}"))
                    .arg(format!("--pid-file={}", at.join("pid").display()))
                    .arg(format!("--socket={}", at.join("sock").display()))
                    .args(&self.args);
                (command, "ready for connections")
            }
            Kind::Postgres => {
                let mut command = self.command("postgres");
                command
                    .args(["-D", &data, "-c", "listen_addresses=", "-k"])
                    .arg(at)
                    .args(&self.args);
                (command, "ready to accept connections")
            }
        };
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a server");
        let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let mut lines_so_far = Vec::new();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            let is_ready = line.contains(ready);
            lines_so_far.push(line);
            is_ready
        });
        assert!(is_ready, "it did not start: {lines_so_far:#?}");
        std::thread::spawn(move || lines.for_each(drop));
        self.process = Some(process);
    }

    /// Restarts a PostgreSQL server to listen on a loopback address, with a certificate and its key (PEM).
    pub fn serve_tls_at(&mut self, address: &str, certificate: &str, key: &str) {
        let at = self.folder.path();
        let rules = at.join("data/pg_hba.conf");
        let known = std::fs::read_to_string(&rules).expect("its rules");
        let rules_text = format!("{known}\nhost all all 127.0.0.0/8 trust\n");
        std::fs::write(&rules, rules_text).expect("rules");
        let mut args = vec!["-c".into(), format!("listen_addresses={address}")];
        args.extend(["-c".into(), "ssl=on".into()]);
        for (setting, name, text) in [
            ("ssl_cert_file", "tls.pem", certificate),
            ("ssl_key_file", "tls.key", key),
        ] {
            let path = at.join(name);
            std::fs::write(&path, text).expect("a file");
            // PostgreSQL refuses a key file that other users may read.
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
            if let Some((uid, gid)) = postgres_user() {
                chown(&path, Some(uid), Some(gid)).expect("another owner");
            }
            args.extend(["-c".into(), format!("{setting}={}", path.display())]);
        }
        self.restart_with(args);
    }

    fn install(&self) {
        let data = self.folder.path().join("data");
        match self.kind {
            Kind::MariaDb => {
                done(
                    Command::new("mariadb-install-db")
                        .args([
                            "--no-defaults",
                            "--auth-root-authentication-method=normal",
                            "--skip-test-db",
                        ])
                        .args(user())
                        .arg(format!("--tmpdir={}", self.folder.path().display()))
                        .arg(format!("--datadir={}", data.display())),
                );
                // A MariaDB database is a folder.
                std::fs::create_dir_all(data.join("test")).expect("a folder");
            }
            Kind::Postgres => {
                if let Some((uid, gid)) = postgres_user() {
                    chown(self.folder.path(), Some(uid), Some(gid)).expect("another owner");
                }
                let mut initdb = self.command("initdb");
                done(
                    initdb
                        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "-D"])
                        .arg(data),
                );
            }
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program).expect("it was there"));
        command
            .current_dir(self.folder.path())
            .stdout(Stdio::null());
        if let (Kind::Postgres, Some((uid, gid))) = (self.kind, postgres_user()) {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn done(command: &mut Command) {
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn is_root() -> bool {
    id(&["-u"]) == Some(0)
}

/// MariaDB runs as root only with this option.
fn user() -> Option<&'static str> {
    is_root().then_some("--user=root")
}

/// PostgreSQL refuses to run as root.
fn postgres_user() -> Option<(u32, u32)> {
    is_root()
        .then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
        .map(|(uid, gid)| (uid.expect("its user"), gid.expect("its group")))
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Finds a program in PATH, in /usr/sbin, or in Debian's PostgreSQL folders.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let debian = debian.flatten().map(|version| version.path().join("bin"));
    std::env::split_paths(&path)
        .chain([Path::new("/usr/sbin").to_path_buf()])
        .chain(debian)
        .map(|folder| folder.join(program))
        .find(|file| file.exists())
}
