//! The server of these tests, with files, programs and an origin.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestServer};

use crate::peer::Peer;

/// The path of the `lowroad` program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Bytes of the largest file.
pub const LARGE_LEN: usize = 100 << 20;

/// A CGI program that responds with the protocol and the length of the request body.
const LENGTH_CGI: &str =
    "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s ' \"$SERVER_PROTOCOL\"\nwc -c\n";
/// A CGI program that sends two events, the second one after a file appears.
const EVENTS_CGI: &str = "#!/bin/sh\nprintf 'Content-Type: text/event-stream\\n\\ndata: 1\\n\\n'\n\
     while ! [ -e DIR/go ]; do sleep 0.01; done\nprintf 'data: 2\\n\\n'\n";

/// A running server and its files.
pub struct Http2Server {
    pub folder: TempFolder,
    pub server: TestServer,
    pub status: StatusClient,
    pub origin: TestOrigin,
}

impl Http2Server {
    /// Starts the server with these lines of `[limits]`.
    pub fn start(limits: &str) -> Http2Server {
        let folder = TempFolder::new();
        let dir = folder.path().display().to_string();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        folder.file("site/good.txt", "good");
        folder.file("site/1k", vec![b'k'; 1024]);
        let script = |name: &str, text: &str| {
            let path = folder.file(name, text.replace("DIR", &dir));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
        };
        script("cgi/length", LENGTH_CGI);
        script("cgi/events", EVENTS_CGI);
        let origin = TestOrigin::with_response(|request| {
            let body = format!("{} {}", request.body.len(), request.trailers.trim());
            match request.target.as_str() {
                "/origin/trailers" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\nX-Rem: 8\r\n\r\n"
                    .to_owned(),
                _ => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
            }
        });
        let config = format!(
            "[server]\nworkers = 1\nadmin = \"admin.sock\"\n[log]\naccess = \"access\"\nformat = \"combined\"\n\
             [limits]\n{limits}\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n\
             [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"{dir}/cgi\"\n\
             [[site.route]]\npattern = \"/origin/**\"\norigin = \"{}\"\n\
             [[site.header]]\npattern = \"/origin/trailers\"\nremove = \"x-rem\"\n",
            origin.url()
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        let status = StatusClient::new(PROGRAM, folder.path().join("admin.sock"));
        Http2Server {
            folder,
            server,
            status,
            origin,
        }
    }

    /// Connects an HTTP/2 client.
    pub fn peer(&self) -> Peer {
        Peer::connect(self.server.address())
    }

    /// A URL of the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    /// Writes a file of pseudorandom bytes to the site; returns its path and content.
    pub fn large(&self, name: &str, len: usize) -> (PathBuf, Vec<u8>) {
        let mut state = 1_u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33).to_le_bytes()
        })
        .flatten()
        .take(len)
        .collect();
        let path = self.folder.file(format!("site/{name}"), &bytes);
        (path, bytes)
    }
}
