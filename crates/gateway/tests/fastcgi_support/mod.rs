//! FastCGI servers for tests: php-fpm with a generated configuration, and an in-process server with scripted behavior.

#![allow(dead_code, reason = "each test program uses its part")]

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use lowroad_config::UpstreamAddress;
use lowroad_engine::WorkerHandle;
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_testkit::TempFolder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The handle of a worker with an epoll loop that runs as long as the tests.
pub fn local() -> WorkerHandle {
    static LOCAL: OnceLock<WorkerHandle> = OnceLock::new();
    LOCAL.get_or_init(start_local).clone()
}

/// Starts another such worker.
pub fn start_local() -> WorkerHandle {
    let helpers = HelperPool::start(1).expect("a thread");
    let mut driver = EpollDriver::new(helpers).expect("an epoll");
    let local = driver.worker_handle().clone();
    let own = local.clone();
    std::thread::spawn(move || {
        let mut events = Vec::new();
        loop {
            driver.wait(None, &mut events);
            for event in events.drain(..) {
                if let DriverEvent::UpstreamReady(news) = event {
                    own.sources.handle_event(news);
                }
            }
            own.run();
        }
    });
    local
}

/// A php-fpm process, which is ended when this is dropped.
pub struct Fpm {
    child: Child,
    /// The address of the server.
    pub address: UpstreamAddress,
}

/// The path of php-fpm, of any version.
fn program() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/sbin")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().starts_with("/usr/sbin/php-fpm"))
        .collect();
    found.sort();
    found.pop()
}

impl Fpm {
    /// Starts php-fpm with this number of processes; if it is not installed, records that `test` is skipped.
    pub fn start(test: &str, folder: &TempFolder, tcp: bool, processes: usize) -> Option<Fpm> {
        let Some(program) = program() else {
            lowroad_testkit::skip(test, "no php-fpm");
            return None;
        };
        let dir = std::fs::canonicalize(folder.path()).expect("it is there");
        let socket = dir.join("fpm.sock");
        let (listen, address) = if tcp {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = free.local_addr().expect("its address");
            (address.to_string(), UpstreamAddress::Tcp(address))
        } else {
            (socket.display().to_string(), UpstreamAddress::Unix(socket))
        };
        let config = format!(
            "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\nlisten = {listen}\n\
             pm = static\npm.max_children = {processes}\nuser = root\ngroup = root\n\
             php_admin_value[post_max_size] = 4G\nphp_admin_value[upload_max_filesize] = 4G\n\
             php_admin_value[upload_tmp_dir] = {0}\nphp_admin_flag[log_errors] = on\n",
            dir.display()
        );
        let config = folder.file("fpm.conf", config);
        let mut command = Command::new(program);
        command.arg("-F").arg("-R").arg("-y").arg(config);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php-fpm starts");
        let fpm = Fpm { child, address };
        fpm.wait_until_it_listens();
        Some(fpm)
    }

    fn wait_until_it_listens(&self) {
        let end = std::time::Instant::now() + lowroad_testkit::TEST_TIMEOUT;
        loop {
            let there = match &self.address {
                UpstreamAddress::Unix(path) => {
                    std::os::unix::net::UnixStream::connect(path).is_ok()
                }
                UpstreamAddress::Tcp(address) => std::net::TcpStream::connect(address).is_ok(),
                UpstreamAddress::Name { .. } => unreachable!("it has an address"),
            };
            if there {
                return;
            }
            assert!(std::time::Instant::now() < end, "php-fpm does not listen");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // On SIGTERM, php-fpm also ends its worker processes.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// A record that the server has received.
pub struct Record {
    /// The record type.
    pub kind: u8,
    /// The request ID.
    pub id: u16,
    /// The content.
    pub content: Vec<u8>,
}

/// The server's end of a connection.
pub struct Peer {
    socket: tokio::net::TcpStream,
    /// The number of the connection, from 0.
    pub number: usize,
}

impl Peer {
    /// Reads the next record; `None` at the end of the connection.
    pub async fn record(&mut self) -> Option<Record> {
        let mut header = [0; 8];
        self.socket.read_exact(&mut header).await.ok()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; len + usize::from(header[6])];
        self.socket.read_exact(&mut content).await.ok()?;
        content.truncate(len);
        Some(Record {
            kind: header[1],
            id: u16::from_be_bytes([header[2], header[3]]),
            content,
        })
    }

    /// Reads records up to the end of a request body; returns the request ID and the body.
    pub async fn request(&mut self) -> Option<(u16, Vec<u8>)> {
        let mut body = Vec::new();
        loop {
            let record = self.record().await?;
            match (record.kind, record.content.is_empty()) {
                (STDIN, true) => return Some((record.id, body)),
                (STDIN, false) => body.extend(record.content),
                _ => {}
            }
        }
    }

    /// Sends raw bytes; returns whether the connection is still open.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).await.is_ok()
    }

    /// Sends a complete response.
    pub async fn respond(&mut self, id: u16, body: &str) -> bool {
        let text = format!("Content-Type: text/plain\r\n\r\n{body}");
        let all = [record(STDOUT, id, text.as_bytes()), end(id, 0)].concat();
        self.send(&all).await
    }
}

/// A server that runs a function for each connection.
pub struct Responder {
    /// The address of the server.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Responder {
    /// Starts a server on the current runtime.
    pub async fn start<F, A>(act: F) -> Responder
    where
        F: Fn(Peer) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = count.fetch_add(1, SeqCst);
                tokio::spawn(act(Peer { socket, number }));
            }
        });
        Responder {
            address,
            connections,
        }
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// FCGI_BEGIN_REQUEST
pub const BEGIN: u8 = 1;
/// FCGI_ABORT_REQUEST
pub const ABORT: u8 = 2;
/// FCGI_STDIN
pub const STDIN: u8 = 5;
/// FCGI_STDOUT
pub const STDOUT: u8 = 6;
/// FCGI_GET_VALUES
pub const GET_VALUES: u8 = 9;
/// FCGI_GET_VALUES_RESULT
pub const VALUES: u8 = 10;

/// Encodes a record.
pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let mut out = vec![1, kind];
    let len = u16::try_from(content.len()).expect("short");
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(content);
    out
}

/// Encodes FCGI_END_REQUEST.
pub fn end(id: u16, protocol_status: u8) -> Vec<u8> {
    record(3, id, &[0, 0, 0, 0, protocol_status, 0, 0, 0])
}
