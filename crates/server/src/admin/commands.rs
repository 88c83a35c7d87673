//! The commands that query or control running servers through their admin sockets: `status`, `explain`, `purge`,
//! `reload` and `stop`.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::purge::PurgeReport;

use super::http_client::{self, AdminResponse};
use super::operations::encoded;
use crate::cli::ExplainArgs;
use crate::cli::servers::{ControlArgs, PurgeArgs};
use crate::terminal_output;

/// Timeout of a read.
const TIMEOUT: Duration = Duration::from_secs(5);
const NO_SERVER: &str = "no running server with an accessible admin socket was found (name the socket with --admin PATH)";

/// Selects the server processes to query when no socket is named.
pub type ServerFilter<'a> = &'a dyn Fn(u32) -> bool;

/// Selects all servers.
pub const EVERY_SERVER: ServerFilter<'static> = &|_| true;

/// Purges stored responses in all selected servers, or only in those that listen on the given port. Returns each
/// server's result; empty if there is no server.
pub fn request_purge(purge: &PurgeArgs, is_selected: ServerFilter<'_>) -> Vec<PurgeReport> {
    let mut target = format!("/v1/purge?target={}", encoded(&purge.what));
    if let Some(port) = purge.port {
        target.push_str(&format!("&port={port}"));
    }
    if purge.soft {
        target.push_str("&soft=1");
    }
    let admin = purge.admin.as_deref();
    let responses = query_servers(admin, is_selected, Method::Post, &target).unwrap_or_default();
    let purged: Vec<PurgeReport> = responses
        .into_iter()
        .filter_map(|response| response.into_text().ok()?.parse().ok())
        .collect();
    if purged.iter().any(|purged| !purged.is_durable) {
        terminal_output::note(
            "a server could not record the purge: after a restart its disk cache may contain the responses again",
        );
    }
    purged
}

/// `lowroad explain`: prints the explanation of the running server.
///
/// # Errors
/// When no running server serves the URL.
pub fn print_explanation(
    explain: &ExplainArgs,
    is_selected: ServerFilter<'_>,
) -> Result<(), String> {
    explanation(explain, is_selected).and_then(terminal_output::out)
}

/// Returns the running server's response to `lowroad explain`.
///
/// # Errors
/// When no running server serves the URL.
pub fn explanation(explain: &ExplainArgs, is_selected: ServerFilter<'_>) -> Result<String, String> {
    if let Some(bad) = explain.headers.iter().find(|field| !field.contains(':')) {
        return Err(format!("-H {bad}: not a field (allowed: NAME: VALUE)"));
    }
    // The server needs an absolute URL; people leave out the scheme.
    let url = if explain.url.contains("://") {
        explain.url.clone()
    } else {
        format!("http://{}", explain.url)
    };
    let mut target = format!("/v1/explain?url={}", encoded(&url));
    for header in &explain.headers {
        target.push_str(&format!("&header={}", encoded(header)));
    }
    let responses = query_servers(explain.admin.as_deref(), is_selected, Method::Get, &target)?;
    let mut refusals = Vec::new();
    for response in responses {
        // Another server may listen at the URL.
        let is_elsewhere = response.status == StatusCode::NOT_FOUND;
        match response.into_text() {
            Ok(text) => return Ok(text),
            Err(refusal) => refusals.push((!is_elsewhere, refusal)),
        }
    }
    // The reason of a server that listens there, if there is one.
    refusals.sort_by_key(|(listens_there, _)| *listens_there);
    let refusal = refusals.pop().map(|(_, refusal)| refusal);
    Err(refusal.unwrap_or_else(|| NO_SERVER.into()))
}

/// `lowroad status`: prints the counters of the running servers.
///
/// # Errors
/// When no running server answers.
pub fn print_status(admin: Option<&Path>) -> Result<(), String> {
    let responses = query_servers(admin, EVERY_SERVER, Method::Get, "/v1/status")?;
    let texts: Result<Vec<String>, String> = responses
        .into_iter()
        .map(AdminResponse::into_text)
        .collect();
    terminal_output::out(texts?.concat())
}

/// `lowroad reload`: waits until the configuration is in force.
///
/// # Errors
/// When the new configuration is invalid and the previous one stays in force, or if there is not exactly one server.
pub fn reload(args: &ControlArgs) -> Result<(), String> {
    let text = send_command(args, "/v1/reload")?.into_text()?;
    terminal_output::out(text)
}

/// `lowroad stop`: waits until the server process has ended.
///
/// # Errors
/// When there is not exactly one server.
pub fn stop(args: &ControlArgs) -> Result<(), String> {
    let response = send_command(args, "/v1/stop")?;
    // The server's end cuts its response off.
    let process = response.into_text()?;
    terminal_output::out(format_args!("process {} has ended\n", process.trim()))
}

/// Sends a command to the only running server, and waits for its response without a timeout.
fn send_command(args: &ControlArgs, target: &str) -> Result<AdminResponse, String> {
    // Commands that change a server are never sent to several by accident.
    let path = only_socket(args.admin.as_deref())?;
    // No timeout: applications of a new configuration, or a drain, may take long.
    http_client::call(&path, Method::Post, target, None)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The named socket, otherwise that of the only running server.
///
/// # Errors
/// There is no server, or several.
pub fn only_socket(admin: Option<&Path>) -> Result<PathBuf, String> {
    let sockets: Vec<PathBuf> = match admin {
        Some(path) => vec![path.to_path_buf()],
        None => every_socket().filter(|path| has_listener(path)).collect(),
    };
    match sockets.as_slice() {
        [] => Err(NO_SERVER.into()),
        [path] => Ok(path.clone()),
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
fn has_listener(path: &Path) -> bool {
    remove_if_dead(path);
    path.exists() && UnixStream::connect(path).is_ok()
}

/// Returns each running server's response to `lowroad status`.
pub fn statuses() -> Vec<String> {
    let responses =
        query_servers(None, EVERY_SERVER, Method::Get, "/v1/status").unwrap_or_default();
    let texts = responses.into_iter().map(AdminResponse::into_text);
    texts.filter_map(Result::ok).collect()
}

fn query_servers(
    admin: Option<&Path>,
    is_selected: ServerFilter<'_>,
    method: Method,
    target: &str,
) -> Result<Vec<AdminResponse>, String> {
    let sockets = match admin {
        Some(path) => vec![path.to_path_buf()],
        None => every_socket()
            .filter(|path| listener_process(path).is_none_or(is_selected))
            .collect(),
    };
    let responses: Vec<AdminResponse> = sockets
        .iter()
        // A server that is shutting down, or belongs to another user, must not keep the others from answering.
        .filter_map(|path| http_client::call(path, method, target, Some(TIMEOUT)).ok())
        .filter(|response| response.is_complete)
        .collect();
    if responses.is_empty() {
        return Err(NO_SERVER.into());
    }
    Ok(responses)
}

/// The process that listens on a socket (`SO_PEERCRED`, unix(7)).
fn listener_process(path: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

/// The sockets in all default folders.
fn every_socket() -> impl Iterator<Item = PathBuf> {
    folders().into_iter().flat_map(|folder| sockets_in(&folder))
}

/// The folder for the socket of a server that this process would run.
pub fn runtime_folder() -> PathBuf {
    // systemd sets this variable for `RuntimeDirectory=` (systemd.exec(5)).
    if let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY") {
        return folder.into();
    }
    let last = folders().pop();
    last.unwrap_or_else(|| "/run/lowroad".into())
}

/// The default folders: the system's, then this user's.
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

/// Removes sockets without a listening process from a folder.
pub fn remove_dead(folder: &Path) {
    sockets_in(folder)
        .iter()
        .for_each(|path| remove_if_dead(path));
}

/// Removes a socket without a listening process. Keeps any other file.
pub fn remove_if_dead(path: &Path) {
    // `symlink_metadata`, so that a link to a socket is not followed.
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    // connect(2) fails with ECONNREFUSED only if no process listens; other errors may be a missing permission.
    let is_refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(is_refused) {
        let _ = std::fs::remove_file(path);
    }
}
