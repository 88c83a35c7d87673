//! Admin client: sends the `lowroad` command's requests to running servers over their admin sockets (`admin_socket`).

use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lowroad_response_cache::purge::PurgeReport;

use crate::cli::ExplainArgs;
use crate::cli::servers::{ControlArgs, PurgeArgs};
use crate::terminal_output;

/// Timeout of a read or a write.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// First line of a response: the server does not serve this URL or port.
pub const NOT_MINE: &str = "not-mine";
/// First line of a response: the command has been carried out.
pub const DONE: &str = "done";
const NOBODY: &str = "no running server with an accessible admin socket was found (name the socket with --admin PATH)";
/// A request's line for a soft purge, which only makes responses stale.
pub const SOFT: &str = "soft";

/// Selects the server processes to query when no socket is named.
pub type ServerFilter<'a> = &'a dyn Fn(u32) -> bool;

/// Selects all servers.
pub const EVERY_SERVER: ServerFilter<'static> = &|_| true;

/// Purges stored responses in all selected servers, or only in those that listen at the given port. Returns each
/// server's result; empty if there is no server.
pub fn ask_to_purge(purge: &PurgeArgs, is_asked: ServerFilter<'_>) -> Vec<PurgeReport> {
    let port = purge.port.map(|port| port.to_string()).unwrap_or_default();
    let soft = if purge.soft { SOFT } else { "" };
    let question = format!("purge\n{}\n{port}\n{soft}\n", purge.what);
    let answers = ask(purge.admin.as_deref(), is_asked, &question).unwrap_or_default();
    let purged: Vec<PurgeReport> = answers
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    if purged.iter().any(|purged| !purged.is_kept) {
        terminal_output::note(
            "a server could not record the purge: after a restart its disk cache may contain the responses again",
        );
    }
    purged
}

/// `lowroad explain` through the server.
///
/// # Errors
/// When no running server serves the URL.
pub fn ask_to_explain(explain: &ExplainArgs, is_asked: ServerFilter<'_>) -> Result<(), String> {
    explanation(explain, is_asked).and_then(terminal_output::out)
}

/// Returns the running server's response to `lowroad explain`.
///
/// # Errors
/// When no running server serves the URL.
pub fn explanation(explain: &ExplainArgs, is_asked: ServerFilter<'_>) -> Result<String, String> {
    if let Some(bad) = explain.headers.iter().find(|field| !field.contains(':')) {
        return Err(format!("-H {bad}: not a field (allowed: NAME: VALUE)"));
    }
    let url = if explain.url.contains("://") {
        explain.url.clone()
    } else {
        format!("http://{}", explain.url)
    };
    let question = format!("explain\n{url}\n{}\n\n", explain.headers.join("\n"));
    let answers = ask(explain.admin.as_deref(), is_asked, &question)?;
    let answer = answers.into_iter().find(|answer| answer != NOT_MINE);
    answer.ok_or_else(|| format!("no server with an accessible admin socket listens at {url}"))
}

/// `lowroad status`.
///
/// # Errors
/// When no running server answers.
pub fn ask_status(admin: Option<&Path>) -> Result<(), String> {
    terminal_output::out(ask(admin, EVERY_SERVER, "status\n")?.concat())
}

/// `lowroad reload`: waits until the configuration is in force.
///
/// # Errors
/// When the new configuration is wrong and the previous one stays; when there is not exactly one server.
pub fn reload(told: &ControlArgs) -> Result<(), String> {
    let answer = tell(told, "reload\n")?;
    match answer.strip_prefix(DONE) {
        Some(text) => terminal_output::out(text.trim_start()),
        None => Err(answer.trim_end().into()),
    }
}

/// `lowroad stop`: waits until the server process has ended.
///
/// # Errors
/// When there is not exactly one server.
pub fn stop(told: &ControlArgs) -> Result<(), String> {
    let answer = tell(told, "stop\n")?;
    match answer.strip_prefix(DONE) {
        Some(process) => {
            terminal_output::out(format_args!("process {} has ended\n", process.trim()))
        }
        None => Err(answer.trim_end().into()),
    }
}

/// Sends a command to the only running server, and waits for its response without a timeout.
fn tell(told: &ControlArgs, command: &str) -> Result<String, String> {
    // Commands that change a server are never sent to several by accident.
    let sockets: Vec<PathBuf> = match &told.admin {
        Some(path) => vec![path.clone()],
        None => every_socket().filter(|path| answers(path)).collect(),
    };
    match sockets.as_slice() {
        [] => Err(NOBODY.into()),
        [path] => {
            // No timeout: applications of a new configuration, or a drain, may take long.
            ask_one(path, command, None).map_err(|error| format!("{}: {error}", path.display()))
        }
        several => {
            let paths: Vec<String> = several
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Err(format!(
                "several servers are running; select one with --admin PATH: {}",
                paths.join(", ")
            ))
        }
    }
}

/// Whether a server listens at a socket. Removes the socket if no process listens, for instance after a kill.
fn answers(path: &Path) -> bool {
    remove_if_dead(path);
    path.exists() && UnixStream::connect(path).is_ok()
}

/// Returns the response of each running server to `lowroad status`.
pub fn statuses() -> Vec<String> {
    ask(None, EVERY_SERVER, "status\n").unwrap_or_default()
}

fn ask(
    admin: Option<&Path>,
    is_asked: ServerFilter<'_>,
    question: &str,
) -> Result<Vec<String>, String> {
    let sockets = match admin {
        Some(path) => vec![path.to_path_buf()],
        None => every_socket()
            .filter(|path| process_of(path).is_none_or(is_asked))
            .collect(),
    };
    let answers: Vec<String> = sockets
        .iter()
        // A server that is ending, or belongs to another user, does not keep the others from answering.
        .filter_map(|path| ask_one(path, question, Some(TIMEOUT)).ok())
        .collect();
    if answers.is_empty() {
        return Err(NOBODY.into());
    }
    Ok(answers)
}

/// The process that listens on a socket (`SO_PEERCRED`, unix(7)).
fn process_of(path: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

/// The sockets in all default folders.
fn every_socket() -> impl Iterator<Item = PathBuf> {
    folders().into_iter().flat_map(|folder| sockets_in(&folder))
}

fn ask_one(path: &Path, question: &str, timeout: Option<Duration>) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(timeout)?;
    stream.write_all(question.as_bytes())?;
    // The server reads lines until the end of the request.
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The folder for this process's socket.
pub fn own_folder() -> PathBuf {
    // systemd sets it for `RuntimeDirectory=` (systemd.exec(5)).
    if let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY") {
        return folder.into();
    }
    let last = folders().pop();
    last.unwrap_or_else(|| "/run/lowroad".into())
}

/// The default folders: the machine's, then this user's.
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

/// Removes sockets in a folder that no process listens at.
pub fn remove_dead(folder: &Path) {
    sockets_in(folder)
        .iter()
        .for_each(|path| remove_if_dead(path));
}

/// Removes a socket that no process listens at. Other files stay.
pub fn remove_if_dead(path: &Path) {
    // `symlink_metadata`, so that a link to a socket is not followed.
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    // connect(2) refuses only if no process listens; other errors may be a missing permission.
    let is_refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(is_refused) {
        let _ = std::fs::remove_file(path);
    }
}
