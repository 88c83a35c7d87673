//! The Unix socket of the admin service. Only the server's user and root can connect.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, accessat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::server_search::{remove_dead, remove_if_dead, runtime_folder};

/// The listen backlog.
const QUEUE_LEN: i32 = 128;

/// The open admin socket. Dropping it removes the socket file.
pub struct AdminSocket {
    path: PathBuf,
    /// The socket's file; `None` while it belongs to a predecessor, and once it was removed or belongs to a successor.
    file: Option<FileIdentity>,
    listener: UnixListener,
}

impl AdminSocket {
    /// Opens the socket at `path`, or at the default path.
    ///
    /// # Errors
    /// The socket can't be created: a warning for the operator. The server runs without the socket.
    pub fn open(path: Option<&Path>) -> Result<AdminSocket, String> {
        let path = path.map_or_else(
            || runtime_folder().join(format!("{}.sock", std::process::id())),
            Path::to_path_buf,
        );
        AdminSocket::open_at(&path).map_err(|error| no_socket(&path, &error))
    }

    /// Checks whether the socket at `path` could be created, without creating it. An existing socket is accepted: it
    /// may belong to a running server.
    ///
    /// # Errors
    /// The warning that a server would print: it runs without an admin socket.
    pub fn check(path: &Path) -> Result<(), String> {
        check_place(path).map_err(|error| no_socket(path, &error))
    }

    fn open_at(path: &Path) -> io::Result<AdminSocket> {
        let path = path.to_path_buf();
        let own = runtime_folder();
        if path.parent() == Some(&own) {
            // Only the server's own folder is created and cleaned up; a configured path belongs to the operator.
            std::fs::create_dir_all(&own)?;
            remove_dead(&own);
        }
        // A killed server leaves its socket file behind, and bind(2) fails if the file exists.
        remove_if_dead(&path);
        let listener = bind_for_owner(&path)?;
        Ok(AdminSocket {
            file: Some(identity(&path)?),
            path,
            listener,
        })
    }

    /// The socket of a predecessor at the same path, which keeps its file until [`AdminSocket::serve`]: a process that fails to
    /// take over must not remove it.
    pub fn take_over((path, socket): (PathBuf, OwnedFd)) -> AdminSocket {
        AdminSocket {
            file: None,
            path,
            listener: socket.into(),
        }
    }

    /// A duplicate of the listening socket, for the service. From then on, the kernel reports this process to
    /// clients as the server, and the socket's file belongs to it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn serve(&mut self) -> io::Result<OwnedFd> {
        self.file = identity(&self.path).ok();
        // A repeated listen(2) only changes the process that SO_PEERCRED names (unix(7)).
        listen(&self.listener, QUEUE_LEN)?;
        Ok(self.listener.try_clone()?.into())
    }

    /// The path and a duplicate of the socket, for a successor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let socket = self.listener.try_clone()?;
        Ok((self.path.clone(), socket.into()))
    }

    /// Leaves the socket's file to a successor.
    pub fn leave_file(&mut self) {
        self.file = None;
    }
}

/// The device and inode of a file.
type FileIdentity = (u64, u64);

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
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
    // The parent of a name without a folder is empty, and access(2) needs a path.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    // Creating a file in a folder needs both permissions.
    let how = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder, how, AtFlags::EACCESS)?)
}

/// Binds a socket to which only its owner can connect. The file has this mode from the start: before a chmod, other
/// users could connect for a moment, and a symbolic link could redirect the chmod to another file.
fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // bind(2) copies the socket's mode to the file (net/unix/af_unix.c, unix_bind_bsd).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, QUEUE_LEN)?;
    Ok(UnixListener::from(socket))
}

impl AdminSocket {
    /// Removes the socket's file, unless it was left to a successor, or another file has replaced it.
    pub fn remove_file(&mut self) {
        let file = self.file.take();
        if file.is_none() || identity(&self.path).ok() != file {
            return;
        }
        // Fails if the folder belongs to another user and root was given up; then the next start removes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.remove_file();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use lowroad_testkit::TempFolder;

    #[test]
    fn socket_of_a_successor_outlives_its_predecessor() {
        let folder = TempFolder::new();
        let path = folder.path().join("admin");
        let mut first = AdminSocket::open(Some(&path)).expect("a socket");
        assert!(AdminSocket::open(Some(&path)).is_err());
        drop(AdminSocket::take_over(first.share().expect("a descriptor")));
        UnixStream::connect(&path).expect("the first one");
        let mut second = AdminSocket::take_over(first.share().expect("a descriptor"));
        first.leave_file();
        drop(first);
        second.serve().expect("a descriptor");
        UnixStream::connect(&path).expect("the second one");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn socket_mode_permits_only_the_owner() {
        let folder = TempFolder::new();
        let path = folder.path().join("admin");
        let listener = bind_for_owner(&path).expect("a socket");
        let mode = path.metadata().expect("a name").mode();
        assert_eq!(mode & 0o777, 0o600);
        let _client = UnixStream::connect(&path).expect("a client");
        listener.accept().expect("a connection");
    }
}
