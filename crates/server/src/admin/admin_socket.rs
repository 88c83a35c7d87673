//! The Unix socket of the admin service, with access for the server's user and root only.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, accessat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::commands::{remove_dead, remove_if_dead, runtime_folder};

/// The listen backlog.
const QUEUE_LEN: i32 = 128;

/// The open admin socket. Dropping it removes the socket file.
pub struct AdminSocket {
    path: PathBuf,
    /// Until the service takes it.
    listener: Option<UnixListener>,
}

impl AdminSocket {
    /// Opens the socket at `path`, or at the default path.
    ///
    /// # Errors
    /// When the socket can't be created: a warning for the operator. The server runs without it.
    pub fn open(path: Option<&Path>) -> Result<AdminSocket, String> {
        let path = path.map_or_else(
            || runtime_folder().join(format!("{}.sock", std::process::id())),
            Path::to_path_buf,
        );
        AdminSocket::open_at(&path).map_err(|error| no_socket(&path, &error))
    }

    /// Checks whether the socket at `path` could be created. Creates nothing; an existing socket may be a running
    /// server's.
    ///
    /// # Errors
    /// The warning with which a server would run without an admin socket.
    pub fn check(path: &Path) -> Result<(), String> {
        check_place(path).map_err(|error| no_socket(path, &error))
    }

    fn open_at(path: &Path) -> io::Result<AdminSocket> {
        let path = path.to_path_buf();
        let own = runtime_folder();
        if path.parent() == Some(&own) {
            // Only the server's own folder is created and cleaned; a configured path belongs to the operator.
            std::fs::create_dir_all(&own)?;
            remove_dead(&own);
        }
        // A killed server leaves its socket file, and bind(2) fails on an existing one.
        remove_if_dead(&path);
        let listener = bind_for_owner(&path)?;
        Ok(AdminSocket {
            path,
            listener: Some(listener),
        })
    }

    /// Takes the listening socket, for the service.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take().map(OwnedFd::from)
    }
}

fn no_socket(path: &Path, error: &io::Error) -> String {
    format!(
        "no admin socket, so status, explain, purge, reload and stop can't reach this server: {}: \
         {error}; set server.admin to a path in a writable folder (in a container, a tmpfs or a \
         volume)",
        path.display()
    )
}

fn check_place(path: &Path) -> io::Result<()> {
    // Fails for paths longer than `sun_path` (unix(7)).
    SocketAddrUnix::new(path)?;
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => return Err(Errno::ADDRINUSE.into()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let folder = path.parent().unwrap_or(path);
    if folder == runtime_folder() && !folder.exists() {
        return Ok(()); // a server makes it
    }
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    // Creating a file in a folder needs both permissions.
    let how = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder, how, AtFlags::EACCESS)?)
}

/// Binds a socket to which only its owner can connect. The file has its mode from the start: a chmod after bind would
/// leave a moment for other users, and could be redirected to another file by a symbolic link.
fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // bind gives the file the socket's mode (net/unix/af_unix.c, unix_bind_bsd).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, QUEUE_LEN)?;
    Ok(UnixListener::from(socket))
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // Fails if the folder belongs to another user after root was given up; the next start removes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;
    use lowroad_testkit::TempFolder;

    #[test]
    fn only_the_owner_may_connect() {
        let folder = TempFolder::new();
        let path = folder.path().join("admin");
        let listener = bind_for_owner(&path).expect("a socket");
        let mode = path.metadata().expect("a name").mode();
        assert_eq!(mode & 0o777, 0o600);
        let _client = UnixStream::connect(&path).expect("a client");
        listener.accept().expect("a connection");
    }
}
