//! Tools for tests over real sockets: server processes, an HTTP client that gives access to every received byte, and
//! temporary folders.
//!
//! Tests wait for events, with a generous timeout ([`TEST_TIMEOUT`]), never for a fixed time.

// Allowed in three small files of `net`, for system calls that have no safe wrapper.
#![deny(unsafe_code)]

pub mod hostile;
pub mod instructions;
pub mod net;
pub mod origin;
pub mod process;
pub mod pseudo_terminal;
pub mod status;
pub mod system_call;
pub mod unit;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The timeout of each wait of a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The environment variable with the path of another server for tests to start, for example one built without features.
pub const PROGRAM: &str = "LOWROAD_PROGRAM";

/// A temporary folder, removed on drop.
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// An empty, world-readable folder.
    pub fn new() -> TempFolder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Unique per process and folder, since tests run in parallel.
        let name = format!(
            "lowroad-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        TempFolder(path)
    }

    /// An empty folder in /dev/shm if it exists, for files that are rewritten often and must not wait for a disk.
    pub fn in_memory() -> TempFolder {
        let on_disk = TempFolder::new();
        let name = on_disk.path().file_name().expect("a name");
        let path = Path::new("/dev/shm").join(name);
        // Systems without /dev/shm use the disk.
        match std::fs::create_dir(&path) {
            Ok(()) => TempFolder(path),
            Err(_) => on_disk,
        }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in the folder, and creates missing subfolders. The file's modification time is a minute ago, so
    /// that the server does not treat the file as still being written. Returns its path.
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        self.file_modified_at(name, content, SystemTime::now() - Duration::from_secs(60))
    }

    /// Like `TempFolder::file`, with this modification time.
    pub fn file_modified_at(
        &self,
        name: impl AsRef<Path>,
        content: impl AsRef<[u8]>,
        modified: SystemTime,
    ) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        // The server would treat a file that was just modified as still being written.
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("just written");
        file.set_modified(modified).expect("a date");
        path
    }

    /// A sparse file of `len` zeros, with a modification time a minute ago.
    pub fn zeros(&self, name: impl AsRef<Path>, len: u64) -> PathBuf {
        let path = self.file(name, "");
        let file = std::fs::File::options().write(true).open(&path);
        let file = file.expect("just written");
        file.set_len(len).expect("a length");
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .expect("a date");
        path
    }
}

impl Default for TempFolder {
    fn default() -> TempFolder {
        TempFolder::new()
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server; killed on drop.
pub struct TestServer {
    child: Child,
    /// The server's addresses, in the order in which it printed them.
    pub addresses: Vec<SocketAddr>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl TestServer {
    /// Starts `program`, or the program that [`PROGRAM`] names, with these arguments, and waits until it prints its
    /// addresses. Arguments should request port 0.
    pub fn start(program: &str, arguments: &[&str]) -> TestServer {
        let override_program = std::env::var_os(PROGRAM);
        let mut command = Command::new(override_program.unwrap_or_else(|| program.into()));
        command.args(arguments).stdin(Stdio::null());
        TestServer::spawn(command)
    }

    /// Starts `program` to serve the folder at a free port, with one worker and these options.
    pub fn serve(program: &str, folder: &TempFolder, options: &[&str]) -> TestServer {
        let dir = folder.path().display().to_string();
        let mut arguments = vec!["serve", &dir, "--listen", "127.0.0.1:0", "--workers", "1"];
        arguments.extend(options);
        TestServer::start(program, &arguments)
    }

    /// Writes `config` into the folder as `lowroad.toml` and starts `program` with it.
    pub fn run(program: &str, folder: &TempFolder, config: &str) -> TestServer {
        let file = folder.file("lowroad.toml", config);
        TestServer::start(program, &["run", "-c", &file.display().to_string()])
    }

    /// Starts a command. The caller sets its standard input; its output is read here.
    pub fn spawn(mut command: Command) -> TestServer {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        let mut server = TestServer {
            child,
            addresses: Vec::new(),
            stdout,
            stderr,
        };
        server.read_addresses();
        server
    }

    fn read_addresses(&mut self) {
        // With port 0 the kernel chooses the port, so the addresses are known only from the output.
        loop {
            let Ok(line) = self.stdout.recv_timeout(TEST_TIMEOUT) else {
                let stderr_lines: Vec<String> = self.stderr.try_iter().collect();
                panic!("the server did not start: {stderr_lines:?}");
            };
            let urls = line.split("://").skip(1);
            self.addresses
                .extend(urls.filter_map(|url| url.split('/').next()?.parse::<SocketAddr>().ok()));
            // The last line that the server prints at its start.
            if line.contains("Ctrl-C ends") {
                return;
            }
        }
    }

    /// The server's first address.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects to the server's first address.
    pub fn connect(&self) -> TestClient {
        TestClient::connect(self.address())
    }

    /// Sends a GET on a new connection.
    pub fn get(&self, path: &str) -> ClientResponse {
        let mut client = self.connect();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        ));
        client.response()
    }

    /// Sends a signal by its name, like `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let kill_status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .expect("kill");
        assert!(kill_status.success());
    }

    /// Waits for a line on standard error that contains `text`.
    pub fn wait_for_error_line(&self, text: &str) -> String {
        wait_for_line_in(&self.stderr, text)
    }

    /// Waits for a line on standard output that contains `text`.
    pub fn wait_for_line(&self, text: &str) -> String {
        wait_for_line_in(&self.stdout, text)
    }

    /// The remaining lines on standard output of a server that has ended.
    pub fn rest_of_output(&self) -> Vec<String> {
        self.stdout.iter().collect()
    }

    /// Waits until the server process ends.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_until("the server's end", || {
            child.try_wait().expect("a child of ours")
        })
    }

    /// Whether the server is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The process may have ended already; waiting avoids a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(reader: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    // Read continuously, since a full pipe would block the server.
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Records that the calling test can't run on this system, so that `tools/test.sh` counts it as skipped. The caller has
/// to return afterwards.
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = std::env::var_os("LOWROAD_SKIPPED") {
        let mut file = std::fs::File::options()
            .append(true)
            .open(path)
            .expect("the list");
        writeln!(file, "{test}: {reason}").expect("a line");
    }
}

fn wait_for_line_in(lines: &Receiver<String>, text: &str) -> String {
    let end = Instant::now() + TEST_TIMEOUT;
    let mut other_lines = Vec::new();
    loop {
        let remaining = end.saturating_duration_since(Instant::now());
        match lines.recv_timeout(remaining) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => other_lines.push(line),
            Err(_) => panic!("no line with {text:?}, but {other_lines:?}"),
        }
    }
}

/// Calls `poll` until it returns a result.
pub fn wait_until<T>(awaited: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {awaited}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The client's end of a connection.
pub struct TestClient {
    stream: TcpStream,
    /// Received bytes that are not part of a response yet.
    pub received: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientResponse {
    /// The status code.
    pub status: u16,
    /// Status line and fields, with line ends.
    pub head: String,
    /// The content, with its content coding.
    pub body: Vec<u8>,
}

impl ClientResponse {
    /// Takes a complete response from the start of `received`, if there is one. `body`: false for a response to HEAD,
    /// which has no body.
    pub fn take(received: &mut Vec<u8>, body: bool) -> Option<ClientResponse> {
        let end = received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(received[..end].to_vec()).expect("a text head");
        let status = head[9..12].parse().expect("a status");
        let mut response = ClientResponse {
            status,
            head,
            body: Vec::new(),
        };
        // These responses have no body, even with a Content-Length (RFC 9112 §6.3).
        let bodiless = !body || status == 204 || status == 304 || status < 200;
        let len = match response.field("content-length") {
            Some(text) if !bodiless => text.parse().expect("a length"),
            _ => 0,
        };
        if received.len() < end + len {
            return None;
        }
        response.body = received[end..end + len].to_vec();
        received.drain(..end + len);
        Some(response)
    }

    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field_name, value) = line.split_once(':')?;
            field_name.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The head without its Date line, which changes every second.
    pub fn dateless_head(&self) -> String {
        let (before, date) = self.head.split_once("\r\nDate: ").expect("a date");
        let after = date.get("Sun, 06 Nov 1994 08:49:37 GMT".len()..);
        format!("{before}{}", after.expect("a date of 29 bytes"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl TestClient {
    /// Connects.
    pub fn connect(address: SocketAddr) -> TestClient {
        TestClient::new(TcpStream::connect(address).expect("a connection"))
    }

    /// Connects from an address of this host.
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> TestClient {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddr::new(source, 0)).expect("an address of this machine");
        connect(&socket, &address).expect("a connection");
        TestClient::new(socket.into())
    }

    /// A client on an existing connection.
    pub fn new(stream: TcpStream) -> TestClient {
        stream
            .set_read_timeout(Some(TEST_TIMEOUT))
            .expect("a timeout");
        stream
            .set_write_timeout(Some(TEST_TIMEOUT))
            .expect("a timeout");
        // Each `send` becomes a segment, so that tests decide how a request is split.
        stream.set_nodelay(true).expect("no delay");
        TestClient {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends bytes. It is not an error if the server has already closed the connection; receiving detects that.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The error is ignored: the response, or its absence, is checked later.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Half-closes the connection.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Resets the connection, which shows the server that the client has disconnected. A FIN only means that no more
    /// requests follow (RFC 9112 §9.6).
    pub fn reset(self) {
        // SO_LINGER with 0 makes close(2) send a reset.
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.stream, linger).expect("an option");
    }

    /// Sends a GET with these additional field lines (each with its CRLF), and receives the response.
    pub fn get(&mut self, path: &str, fields: &str) -> ClientResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        self.response()
    }

    /// Receives a response to any request except HEAD.
    pub fn response(&mut self) -> ClientResponse {
        let response = self.response_with_body(true);
        response.unwrap_or_else(|| panic!("the connection ended within {:?}", self.text()))
    }

    /// Receives a response to HEAD, which has no body despite its fields.
    pub fn response_to_head(&mut self) -> ClientResponse {
        let response = self.response_with_body(false);
        response.unwrap_or_else(|| panic!("the connection ended within {:?}", self.text()))
    }

    /// Receives a response to a GET. `None` if the connection ends first; then `received` has the incomplete response.
    pub fn whole_response(&mut self) -> Option<ClientResponse> {
        self.response_with_body(true)
    }

    fn response_with_body(&mut self, body: bool) -> Option<ClientResponse> {
        loop {
            if let Some(response) = ClientResponse::take(&mut self.received, body) {
                return Some(response);
            }
            if !self.receive_once() {
                return None;
            }
        }
    }

    /// Receives until the connection ends; true if the server closed it, false if it was reset.
    pub fn wait_for_close(&mut self) -> bool {
        loop {
            let mut buffer = [0; 65536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("the server does not close: {error}"),
            }
        }
    }

    /// Receives once; false if the connection was closed or reset.
    pub fn receive_once(&mut self) -> bool {
        let mut buffer = [0; 65536];
        let len = match self.stream.read(&mut buffer) {
            Ok(len) => len,
            // A signal interrupted the read; more bytes may follow.
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing comes from the server: {error}"),
        };
        self.received.extend_from_slice(&buffer[..len]);
        len > 0
    }

    /// The client's socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The start of the received bytes, for messages.
    fn text(&self) -> String {
        let start = &self.received[..self.received.len().min(1000)];
        String::from_utf8_lossy(start).into_owned()
    }
}
