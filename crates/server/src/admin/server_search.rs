//! Finds the admin sockets of running servers, and explains why a socket can't be used.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The sockets in the default folders, and why a folder could not be read.
#[derive(Debug, Default)]
pub struct FoundSockets {
    /// The sockets, some of which may belong to other users.
    pub sockets: Vec<PathBuf>,
    /// The folders that this user may not read.
    pub failures: Vec<String>,
}

/// Looks for sockets in all default folders.
pub fn find_sockets() -> FoundSockets {
    let mut found = FoundSockets::default();
    for folder in folders() {
        match sockets_in(&folder) {
            Ok(sockets) => found.sockets.extend(sockets),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => found
                .failures
                .push(format!("{}: {error}", folder.display())),
        }
    }
    found
}

/// The named socket, otherwise that of the only running server.
///
/// # Errors
/// There is no server, or several.
pub fn only_socket(admin: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = admin {
        return Ok(path.to_path_buf());
    }
    let mut found = find_sockets();
    let mut listening = Vec::new();
    for path in found.sockets {
        remove_if_dead(&path);
        match UnixStream::connect(&path) {
            Ok(_) => listening.push(path),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => found.failures.push(connect_failure(&path, &error)),
        }
    }
    match listening.as_slice() {
        [] => Err(no_server(&found.failures)),
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

/// The message if no server answered. `failures` are the reasons of sockets and folders that exist.
pub fn no_server(failures: &[String]) -> String {
    if !failures.is_empty() {
        return failures.join("\n");
    }
    let folders: Vec<String> = folders()
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    format!(
        "no running server was found: there is no admin socket in {}; name the socket of a server \
         with another one by --admin PATH",
        folders.join(" or ")
    )
}

/// Why a request at a socket failed, with a remedy.
pub fn connect_failure(path: &Path, error: &io::Error) -> String {
    let text = path.display().to_string();
    let remedy = match error.kind() {
        _ if is_tcp_address(&text) => {
            return format!(
                "--admin {text}: this is an address, and commands use the Unix socket; over TCP, send \
                 requests with a token: curl -H 'Authorization: Bearer TOKEN' http://{}/v1/status",
                address_of(&text)
            );
        }
        ErrorKind::NotFound => {
            return format!(
                "{text}: no running server has this admin socket; `admin` in [server] sets its path, and \
                 without --admin the command looks in the default folders"
            );
        }
        ErrorKind::ConnectionRefused => "no running server has this admin socket any more",
        ErrorKind::PermissionDenied => {
            "the socket belongs to another user: only that user and root may use it"
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            return format!("{text}: the server did not answer in time");
        }
        ErrorKind::UnexpectedEof => "the server ended before it answered",
        ErrorKind::InvalidData => "this is not the admin socket of a server",
        // Such as a path that is too long for a socket, or a regular file.
        _ => return format!("{text}: {error}"),
    };
    format!("{text}: {error}: {remedy}")
}

/// Whether an argument of `--admin` is the address of `[admin] listen`, not a path.
fn is_tcp_address(text: &str) -> bool {
    text.contains("://") || text.parse::<SocketAddr>().is_ok()
}

/// The address in a URL.
fn address_of(text: &str) -> &str {
    let address = text.split_once("://").map_or(text, |(_, rest)| rest);
    address.split('/').next().unwrap_or(address)
}

/// The process that listens on a socket (`SO_PEERCRED`, unix(7)).
pub fn listener_process(path: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
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

fn sockets_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect())
}

/// Removes sockets without a listening process from a folder.
pub fn remove_dead(folder: &Path) {
    sockets_in(folder)
        .unwrap_or_default()
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
    let is_refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(is_refused) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_failure_has_reason_and_remedy() {
        let text =
            |path: &str, kind: ErrorKind| connect_failure(Path::new(path), &io::Error::from(kind));
        for (path, kind, expected) in [
            ("/run/x", ErrorKind::NotFound, "no running server"),
            ("/run/x", ErrorKind::ConnectionRefused, "any more"),
            ("/run/x", ErrorKind::PermissionDenied, "another user"),
            ("/run/x", ErrorKind::WouldBlock, "did not answer in time"),
            ("/run/x", ErrorKind::UnexpectedEof, "ended before"),
            ("127.0.0.1:9000", ErrorKind::NotFound, "with a token"),
            (
                "http://[::1]:9000/",
                ErrorKind::NotFound,
                "use the Unix socket",
            ),
        ] {
            let message = text(path, kind);
            assert!(
                message.contains(path) && message.contains(expected),
                "{message}"
            );
        }
    }

    #[test]
    fn no_server_names_failures_or_folders() {
        assert_eq!(
            no_server(&["/x: no".into(), "/y: no".into()]),
            "/x: no\n/y: no"
        );
        assert!(no_server(&[]).contains("/run/lowroad"));
    }
}
