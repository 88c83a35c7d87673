//! The admin socket: how the `lowroad` command asks a running server. A Unix socket that only its
//! user (and root) may open; one question a connection, answered as text.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowroad_engine::background;

use crate::cli::Explain;
use crate::dynamic::purge::{Meant, Purged};
use crate::explain;
use crate::running::{Running, lock};
use crate::say;

/// A question longer than this is not read.
const QUESTION_LEN_MAX: u64 = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The first line of an answer from a server that the question is not for.
const NOT_MINE: &str = "not-mine";

/// The open socket; gone with the value.
pub struct Endpoint {
    path: PathBuf,
    listener: UnixListener,
}

impl Endpoint {
    /// Opens the socket at `path`, or at the default place.
    ///
    /// # Errors
    /// When the place can't be written; the server runs without.
    pub fn open(path: Option<&Path>) -> std::io::Result<Endpoint> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => {
                let folder = own_folder();
                std::fs::create_dir_all(&folder)?;
                remove_dead(&folder);
                folder.join(format!("{}.sock", std::process::id()))
            }
        };
        remove_if_dead(&path);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Endpoint { path, listener })
    }

    /// Answers questions on a thread of its own.
    ///
    /// # Errors
    /// When there is no thread or descriptor for it.
    pub fn serve(&self, running: Arc<Mutex<Running>>) -> std::io::Result<()> {
        let listener = self.listener.try_clone()?;
        background::start("admin", move || {
            for stream in listener.incoming() {
                match stream {
                    // A client that goes away in the middle is its own loss.
                    Ok(stream) => drop(answer(stream, &running)),
                    // No descriptors: whoever asks stays in the queue and is tried again.
                    Err(_) => std::thread::sleep(ACCEPT_PAUSE),
                }
            }
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // After root is given up the folder may be another's; the next start tidies up.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, running: &Mutex<Running>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(stream.try_clone()?.take(QUESTION_LEN_MAX)).lines();
    let question = lines.next().transpose()?.unwrap_or_default();
    let text = match question.as_str() {
        "status" => explain::status(&lock(running)),
        "explain" => {
            let url = lines.next().transpose()?.unwrap_or_default();
            let headers: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            // Nothing is locked while the explanation waits for the disk.
            let view = explain::View::of(&lock(running));
            explain::explain(&view, &url, &headers).unwrap_or_else(|| NOT_MINE.into())
        }
        "purge" => {
            let what = lines.next().transpose()?.unwrap_or_default();
            let port = lines.next().transpose()?.unwrap_or_default();
            purge(running, &what, port.parse().ok())
        }
        _ => "this server does not know that question\n".into(),
    };
    stream.write_all(text.as_bytes())
}

/// Takes responses of programs out of the store, unless the server does not listen at the port.
fn purge(running: &Mutex<Running>, what: &str, port: Option<u16>) -> String {
    // Nothing is locked but the store while it is looked through.
    let (store, ports) = {
        let running = lock(running);
        let addresses = running.listeners.addresses.iter();
        let ports: Vec<u16> = addresses.map(|(_, address)| address.port()).collect();
        (running.store.clone(), ports)
    };
    let meant = match what.parse::<Meant>() {
        Ok(meant) => meant,
        Err(error) => return format!("{error}\n"),
    };
    if port.is_some_and(|port| !ports.contains(&port)) {
        return NOT_MINE.into();
    }
    let gone = meant.purge(&store);
    Purged { gone, ports }.to_string()
}

/// Has all servers that may be asked forget what they keep of programs' responses: of those that
/// listen at `port`, if that is given. Says what each did; none if there is no server.
pub fn ask_to_purge(admin: Option<&Path>, what: &str, port: Option<u16>) -> Vec<Purged> {
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    let answers = ask(admin, &format!("purge\n{what}\n{port}\n\n")).unwrap_or_default();
    answers
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// `lowroad explain`, by the server.
///
/// # Errors
/// When no running server answers for the URL.
pub fn ask_to_explain(explain: &Explain) -> Result<(), String> {
    explanation(explain).and_then(say::out)
}

/// What the running server says to `lowroad explain`.
///
/// # Errors
/// When no running server answers for the URL.
pub fn explanation(explain: &Explain) -> Result<String, String> {
    if let Some(bad) = explain.headers.iter().find(|field| !field.contains(':')) {
        return Err(format!("-H {bad}: not a field (allowed: NAME: VALUE)"));
    }
    let url = if explain.url.contains("://") {
        explain.url.clone()
    } else {
        format!("http://{}", explain.url)
    };
    let question = format!("explain\n{url}\n{}\n\n", explain.headers.join("\n"));
    let answers = ask(explain.admin.as_deref(), &question)?;
    let answer = answers.into_iter().find(|answer| answer != NOT_MINE);
    answer.ok_or_else(|| format!("no server that may be asked listens at {url}"))
}

/// `lowroad status`.
///
/// # Errors
/// When no running server answers.
pub fn ask_status(admin: Option<&Path>) -> Result<(), String> {
    say::out(ask(admin, "status\n")?.concat())
}

/// What each running server that may be asked says to `lowroad status`.
pub fn statuses() -> Vec<String> {
    ask(None, "status\n").unwrap_or_default()
}

fn ask(admin: Option<&Path>, question: &str) -> Result<Vec<String>, String> {
    let sockets = match admin {
        Some(path) => vec![path.to_path_buf()],
        None => folders()
            .iter()
            .flat_map(|folder| sockets_in(folder))
            .collect(),
    };
    let answers: Vec<String> = sockets
        .iter()
        .filter_map(|path| ask_one(path, question).ok())
        .collect();
    if answers.is_empty() {
        return Err(
            "no running server that may be asked was found (--admin PATH says where it is)".into(),
        );
    }
    Ok(answers)
}

fn ask_one(path: &Path, question: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(question.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Where this process puts its socket.
fn own_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY") {
        return folder.into();
    }
    let last = folders().pop();
    last.unwrap_or_else(|| "/run/lowroad".into())
}

/// Where servers of this machine, then of this user, put theirs.
fn folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/run/lowroad")];
    let uid = nix::unistd::Uid::effective();
    if !uid.is_root() {
        folders.push(match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(folder) => Path::new(&folder).join("lowroad"),
            None => std::env::temp_dir().join(format!("lowroad-{uid}")),
        });
    }
    folders
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = found.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect()
}

fn remove_dead(folder: &Path) {
    sockets_in(folder)
        .iter()
        .for_each(|path| remove_if_dead(path));
}

/// Removes a socket that no process listens at, and nothing else.
fn remove_if_dead(path: &Path) {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}
