//! A server with a site and an origin, and its dashboard.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TempFolder, TestServer};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A server, its folder, and an origin behind it with two servers, one of which is down.
pub struct Subject {
    pub server: TestServer,
    pub folder: TempFolder,
    _origin: TestServer,
}

impl Subject {
    pub fn start() -> Subject {
        let folder = TempFolder::new();
        folder.file("site/index.html", "<!doctype html><title>t</title>");
        folder.file("behind/old/a.txt", "behind");
        let origin = folder.path().join("behind").display().to_string();
        let arguments = ["serve", &origin, "--listen", "127.0.0.1:0"];
        let origin = TestServer::start(PROGRAM, &arguments);
        // A port that was free just now: connections to it are refused.
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let closed = closed.expect("a port");
        let config = format!(
            "[server]\nuser = \"root\"\nworkers = 2\nadmin = \"{admin}\"\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n\
             [[site.route]]\npattern = \"/old/**\"\norigin = \"legacy\"\n\
             [[origin]]\nname = \"legacy\"\nservers = [\"http://{up}\", \"http://{closed}\"]\n\
             check = {{ path = \"/old/a.txt\", interval = \"100ms\", fall = 1, rise = 1 }}\n",
            admin = folder.path().join("admin.sock").display(),
            up = origin.address(),
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        Subject {
            server,
            folder,
            _origin: origin,
        }
    }

    /// Starts `lowroad dashboard` with these further options.
    pub fn dashboard(&self, options: &[&str]) -> Dashboard {
        let mut process = Command::new(PROGRAM)
            .arg("dashboard")
            .arg("--admin")
            .arg(self.folder.path().join("admin.sock"))
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the dashboard");
        let mut link = String::new();
        let stdout = process.stdout.take().expect("piped");
        let read = BufReader::new(stdout).read_line(&mut link);
        assert!(read.is_ok() && link.starts_with("http://"), "{link:?}");
        Dashboard {
            process,
            link: link.trim().to_owned(),
        }
    }
}

/// A running `lowroad dashboard`.
pub struct Dashboard {
    process: Child,
    /// The link that it printed.
    pub link: String,
}

impl Dashboard {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        let rest = self.link.strip_prefix("http://").expect("a link");
        let (address, _) = rest.split_once('/').expect("a path");
        address.parse().expect("an address")
    }

    /// The path and query of its link.
    pub fn link_target(&self) -> &str {
        let at = self.link.find("/?").expect("a query");
        &self.link[at..]
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
