//! The lifetime of a peer, seen from the lab: starts a keeper, sends it the job, and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::job::{KeeperJob, KeeperMessage, KeeperPaths};
use super::plan::{PeerPlan, PeerRun};
use super::system::{cpu_s, descendants};
use super::table::{CheckedSettings, PeerDescription, is_plain};
use super::{
    PeerFailure, PeerOptions, PeerPlace, RunningPeer, keeper, namespace, programs, servers,
};

/// Maximum time for a keeper to execute all steps; its own limits are shorter.
const STEPS_MAX: Duration = Duration::from_secs(200);

/// Maximum time for a started server to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Interval of requests to a server that does not answer yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum time for a keeper to clean up; its own limits are shorter.
const CLEANUP_MAX: Duration = Duration::from_secs(20);

/// The peer's port in a network namespace, where every port is free.
const NAMESPACE_PORT: u16 = 8080;

/// The port of the server behind a peer, if every port is free.
pub const ORIGIN_PORT: u16 = 8081;

/// Maximum length of the folder's path: the path of a Unix socket is limited to 107 bytes, and the longest name in the
/// folder has 20.
const FOLDER_LEN_MAX: usize = 85;

/// Starts a peer and waits until it answers.
pub fn start(
    peer: &PeerDescription,
    options: &PeerOptions,
    settings: &CheckedSettings,
) -> Result<RunningPeer, PeerFailure> {
    // The path is absolute, since the programs run in other working directories.
    let root = absolute_root(&options.root).map_err(PeerFailure::Broken)?;
    let (mut handle, number) = KeeperHandle::begin(options).map_err(PeerFailure::Broken)?;
    let (address, origin) = match (number, options.place) {
        (Some(number), _) => {
            let guest_address = |port| SocketAddr::from((namespace::inner(number), port));
            (guest_address(NAMESPACE_PORT), guest_address(ORIGIN_PORT))
        }
        (None, place) => {
            let [free_address, origin] = free_ports().map_err(PeerFailure::Broken)?;
            match place {
                PeerPlace::At(address) => (address, origin),
                _ => (free_address, origin),
            }
        }
    };
    let folder = handle.folder.clone();
    let run = PeerRun {
        root: &root,
        workers: options.workers.max(1),
        address,
        origin,
        folder: &folder,
        settings,
        as_root: rustix::process::geteuid().is_root(),
    };
    let plan = servers::plan(peer, &run).map_err(PeerFailure::Broken)?;
    let not_running =
        |text: String| PeerFailure::Broken(format!("{} does not run: {text}", peer.name));
    handle.work(&plan).map_err(not_running)?;
    // The steps wait for processes and sockets, but only a response proves that the server works.
    if !plan.silent {
        handle.wait_for_answer(address).map_err(not_running)?;
    }
    let lowroad = programs::lowroad(settings.text("binary")).ok();
    Ok(RunningPeer {
        address,
        socket: plan.socket.clone(),
        version: programs::version(peer, lowroad.as_deref()),
        configuration: plan.text(),
        handle,
    })
}

/// Returns the plan as text, without starting anything.
///
/// # Errors
/// With a text for the user.
pub fn preview(
    peer: &PeerDescription,
    options: &PeerOptions,
    settings: &CheckedSettings,
) -> Result<String, String> {
    let run = PeerRun {
        root: &options.root,
        workers: options.workers.max(1),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, NAMESPACE_PORT)),
        origin: SocketAddr::from((Ipv4Addr::LOCALHOST, ORIGIN_PORT)),
        folder: &std::env::temp_dir().join("lowroad-peer"),
        settings,
        as_root: rustix::process::geteuid().is_root(),
    };
    servers::plan(peer, &run).map(|plan| plan.text())
}

/// The absolute path of the served folder.
fn absolute_root(root: &Path) -> Result<PathBuf, String> {
    let path = std::fs::canonicalize(root)
        .map_err(|error| format!("cannot serve the folder {}: {error}", root.display()))?;
    if !path.is_dir() {
        return Err(format!("{} is not a folder", path.display()));
    }
    match path.to_str() {
        Some(text) if is_plain(text) => Ok(path),
        _ => Err(format!(
            "the name of the folder {} contains characters with a meaning in configurations",
            path.display()
        )),
    }
}

/// Finds two free ports; the second is for a server behind the peer.
fn free_ports() -> Result<[SocketAddr; 2], String> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Both listeners are open at the same time, so that the ports differ.
    let two_ports = || {
        let (first, second) = (listen()?, listen()?);
        Ok([first.local_addr()?, second.local_addr()?])
    };
    two_ports().map_err(|error: std::io::Error| format!("no port is free on 127.0.0.1: {error}"))
}

/// A keeper and its programs. Dropping it ends them.
pub struct KeeperHandle {
    folder: PathBuf,
    keeper: Child,
    /// Closing this pipe signals the keeper to end.
    input: Option<ChildStdin>,
    messages: Receiver<KeeperMessage>,
    ended: Option<String>,
}

impl KeeperHandle {
    /// Starts a keeper, which creates the folder and, if requested, a namespace; returns the namespace's number.
    fn begin(options: &PeerOptions) -> Result<(KeeperHandle, Option<u8>), String> {
        let folder = new_folder()?;
        let program = programs::lab()?;
        let mut keeper = Command::new(&program)
            .args(["peers", "--keeper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        let received = messages(keeper.stdout.take().expect("piped"));
        let input = keeper.stdin.take();
        let paths = KeeperPaths {
            folder: folder.clone(),
            cpus: options.cpus.clone(),
            namespace: options.place == PeerPlace::Namespace,
        };
        // The handle is created before the first message, so that dropping it after an error ends the keeper.
        let mut handle = KeeperHandle {
            folder,
            keeper,
            input,
            messages: received,
            ended: None,
        };
        handle.send(&paths)?;
        match handle.receive(CLEANUP_MAX)? {
            KeeperMessage::Placed(number) => Ok((handle, number)),
            KeeperMessage::Ready => {
                Err("the keeper process reported readiness without a request".into())
            }
            KeeperMessage::Failed(text) => Err(text),
        }
    }

    fn send(&mut self, message: &impl serde::Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).expect("plain data");
        line.push(b'\n');
        let input = self.input.as_mut().expect("open until the end");
        input
            .write_all(&line)
            .map_err(|error| format!("can't write to the keeper process: {error}"))
    }

    fn receive(&mut self, limit: Duration) -> Result<KeeperMessage, String> {
        self.messages
            .recv_timeout(limit)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    "the keeper process does not respond in time".to_owned()
                }
                RecvTimeoutError::Disconnected => "the keeper process has ended".to_owned(),
            })
    }

    /// Sends the plan and waits until its steps are done.
    fn work(&mut self, plan: &PeerPlan) -> Result<(), String> {
        let job = KeeperJob {
            files: plan.files.clone(),
            steps: plan.steps.clone(),
        };
        self.send(&job)?;
        match self.receive(STEPS_MAX)? {
            KeeperMessage::Failed(text) => Err(text),
            KeeperMessage::Ready | KeeperMessage::Placed(_) => Ok(()),
        }
    }

    /// Sends requests until the server answers with any status below 500.
    fn wait_for_answer(&mut self, address: SocketAddr) -> Result<(), String> {
        let deadline = Instant::now() + ANSWER_MAX;
        while !answers(address) {
            // The pause between two requests also notices that the peer has ended.
            match self.messages.recv_timeout(RETRY_INTERVAL) {
                Ok(KeeperMessage::Failed(text)) => return Err(text),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the keeper process has ended".into());
                }
                _ => {}
            }
            if Instant::now() > deadline {
                let limit = ANSWER_MAX.as_secs();
                let tail = keeper::tail(&self.folder);
                return Err(format!("no answer from {address} within {limit} s{tail}"));
            }
        }
        // If another process has taken the port, that process may have answered.
        self.ended().map_or(Ok(()), Err)
    }

    /// CPU time of all processes of the keeper, in seconds.
    pub fn cpu_s(&self) -> f64 {
        let keeper = i32::try_from(self.keeper.id()).ok().and_then(Pid::from_raw);
        keeper.map_or(0.0, |keeper| cpu_s(&descendants(keeper)))
    }

    /// The last output, if the peer has ended unexpectedly.
    pub fn ended(&mut self) -> Option<String> {
        if let Ok(KeeperMessage::Failed(text)) = self.messages.try_recv() {
            self.ended = Some(text);
        }
        self.ended.clone()
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        // Closing the pipe makes the keeper clean up.
        drop(self.input.take());
        let deadline = Instant::now() + CLEANUP_MAX;
        // When the keeper has cleaned up, it closes its end of the other pipe.
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if self.messages.recv_timeout(remaining).is_err() {
                break;
            }
        }
        // If the keeper has not finished by now, it hangs.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Chooses a unique folder name. The keeper creates the folder, so that it exists only as long as the keeper.
fn new_folder() -> Result<PathBuf, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "lowroad-peer-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    match path.to_str() {
        Some(text)
            if is_plain(text)
                && !text.contains(char::is_whitespace)
                && text.len() <= FOLDER_LEN_MAX =>
        {
            Ok(path)
        }
        _ => Err(format!(
            "the path of the temporary folder {} is too long or unusual for sockets: set TMPDIR to another",
            path.display()
        )),
    }
}

fn messages(from: impl Read + Send + 'static) -> Receiver<KeeperMessage> {
    let (sender, receiver) = channel();
    // A pipe can't be read with a timeout, but the channel from a reading thread can.
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str(&line) else {
                return;
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Whether an HTTP server answers with a status other than 5xx.
fn answers(address: SocketAddr) -> bool {
    // A server without a page at / answers 404, which also shows that it works.
    status(address).is_ok_and(|status| (200..500).contains(&status))
}

fn status(address: SocketAddr) -> std::io::Result<u16> {
    let timeout = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    // The status code follows the nine bytes of the version and a space.
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    // The rest is read too, since closing a socket with unread data would send a reset.
    std::io::copy(&mut stream, &mut std::io::sink())?;
    let digits = std::str::from_utf8(&start[9..]).unwrap_or_default();
    Ok(digits.parse().unwrap_or(0))
}
