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

use super::commands::{own_folder, remove_dead, remove_if_dead};

/// The listen backlog.
const QUEUE_LEN: i32 = 128;

/// The open admin socket. Dropping it removes the socket file.
pub struct AdminSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl AdminSocket {
    /// Opens the socket at `path`, or at the default path.
    ///
    /// # Errors
    /// When the socket can't be created: a warning for the operator. The server runs without it.
    pub fn open(path: Option<&Path>) -> Result<AdminSocket, String> {
        let path = path.map_or_else(
            || own_folder().join(format!("{}.sock", std::process::id())),
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
        let own = own_folder();
        if path.parent() == Some(&own) {
            // Only the server's own folder is created and cleaned; a configured path belongs to the operator.
            std::fs::create_dir_all(&own)?;
            remove_dead(&own);
        }
        // A killed server leaves its socket file, and bind(2) fails on an existing one.
        remove_if_dead(&path);
        let listener = bind_for_owner(&path)?;
        Ok(AdminSocket { path, listener })
    }

    /// A duplicate of the listening socket.
    ///
    /// # Errors
    /// Descriptors ran out.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
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
    if folder == own_folder() && !folder.exists() {
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
    // Bounded, although only the server's user and root can connect.
    let mut lines = BufReader::new(stream.try_clone()?.take(QUESTION_LEN_MAX)).lines();
    let question = lines.next().transpose()?.unwrap_or_default();
    let text = match question.as_str() {
        "status" => status::status(&lock(running)),
        "explain" => {
            let url = lines.next().transpose()?.unwrap_or_default();
            let headers: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            // The lock ends with the snapshot: the explanation waits for the disk.
            let view = view(&lock(running));
            explain::explain(&view, &url, &headers).unwrap_or_else(|| NOT_MINE.into())
        }
        "purge" => {
            let what = lines.next().transpose()?.unwrap_or_default();
            let port = lines.next().transpose()?.unwrap_or_default();
            let is_soft = lines.next().transpose()?.is_some_and(|line| line == SOFT);
            purge(running, &what, is_soft, port.parse().ok())
        }
        "reload" => {
            let news = news.clone();
            // A separate thread: applications may start slowly, and other admin requests must not wait for them.
            return panic_policy::start("reload", move || {
                // A client that has closed its connection loses only its own response.
                let _ = (&stream).write_all(reload(&news).as_bytes());
            });
        }
        "stop" => return stop(stream),
        // A newer command may send requests that this server does not know.
        _ => "this server does not support this command\n".into(),
    };
    stream.write_all(text.as_bytes())
}

/// Requests a reload from the main thread and returns its result.
fn reload(news: &Sender<MainEvent>) -> String {
    let (asked, done) = channel();
    let _ = news.send(MainEvent::Reload(asked));
    match done.recv() {
        Ok(Ok(text)) => format!("{DONE}\n{text}\n"),
        Ok(Err(text)) => format!("{text}\n"),
        Err(_) => "the server is shutting down\n".into(),
    }
}

/// Sends SIGTERM to this process. The connection closes when the process has ended.
fn stop(mut stream: UnixStream) -> io::Result<()> {
    let text = format!("{DONE}\n{}\n", std::process::id());
    stream.write_all(text.as_bytes())?;
    // Leaked, so that the connection stays open until the process ends: the client waits for the close.
    std::mem::forget(stream);
    kill_process(getpid(), Signal::TERM).map_err(Into::into)
}

/// Purges stored responses, unless a port is given at which the server does not listen.
fn purge(running: &Mutex<RunningServer>, what: &str, is_soft: bool, port: Option<u16>) -> String {
    let (store, ports) = {
        let running = lock(running);
        let addresses = running.listeners.addresses.iter();
        let ports: Vec<u16> = addresses.map(|(_, address)| address.port()).collect();
        (running.store.clone(), ports)
    };
    let meant = match what.parse::<PurgeTarget>() {
        Ok(meant) => meant,
        Err(error) => return format!("{error}\n"),
    };
    if port.is_some_and(|port| !ports.contains(&port)) {
        return NOT_MINE.into();
    }
    meant.purge(&store, purge::kind(is_soft));
    // Written to the disk before the response: a confirmed purge survives a kill of the server.
    let is_kept = store.tier().is_none_or(|tier| tier.keep_purges());
    let is_unmatched = store.has_purged() == Some(false);
    PurgeReport {
        ports,
        is_kept,
        is_unmatched,
    }
    .to_string()
}

/// Copies the state that an explanation needs, so that it runs without the lock.
fn view(running: &RunningServer) -> ExplainView {
    let limits = limits::settings(&running.config, &running.listeners, running.fd_limit);
    ExplainView {
        sites: running.sites.clone(),
        addresses: running.listeners.addresses.clone(),
        store: running.store.clone(),
        fetcher: running.fetcher.clone(),
        limits: limits.http,
        object_len_max: running.config.server.cache_object_len_max,
        logger: running.logger.clone(),
    }
}

#[cfg(test)]
mod tests {
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
