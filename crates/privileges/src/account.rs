//! Changes the process from root to an unprivileged user, once everything that needs root is open.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::thread;

use lowroad_config::{Config, SiteRoot};
use lowroad_log::{LogDestination, LogWriter};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist, initgroups, setgid, setuid};
use rustix::fs::OFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::helper::{self, UntrustedPath};

/// The default users of a server started as root, in order of preference: the package's, if it exists.
const DEFAULT_USERS: [&str; 2] = ["lowroad", "nobody"];
/// The user that runs CGI programs if the server stays root.
const PROGRAM_USER: &str = "nobody";
/// The capabilities that the server keeps, since a reload may add a port below 1024.
const KEPT: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// The numeric ids of a user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// The user that the server becomes.
pub struct ServerAccount {
    user: User,
    group: Gid,
}

/// The user that the server becomes, if it runs as root and is not to stay root; and a note for the log.
///
/// # Errors
/// If the configured user or group does not exist.
pub fn account(config: &Config) -> Result<(Option<ServerAccount>, Option<String>), String> {
    if !Uid::effective().is_root() {
        let configured = config
            .server
            .user
            .as_ref()
            .filter(|name| !is_current_user(name));
        let note = configured.map(|name| {
            format!("not started as root, so the server keeps its user and ignores {name}")
        });
        return Ok((None, note));
    }
    let user = match &config.server.user {
        Some(name) if name == "root" => return Ok((None, None)),
        Some(name) => find(name)?,
        None => match default_user(config) {
            Some(user) => user,
            None => {
                let text = "the server keeps running as root, because only root can read the \
                            folder; set --user, or user in [server], to change that";
                return Ok((None, Some(text.into())));
            }
        },
    };
    let group = match &config.server.group {
        None => user.gid,
        Some(name) => match Group::from_name(name) {
            Ok(Some(group)) => group.gid,
            _ => return Err(format!("group {name} does not exist")),
        },
    };
    let note = format!("running as user {}", user.name);
    Ok((Some(ServerAccount { user, group }), Some(note)))
}

/// Whether a file of this user can hold secrets of the server: it is root, the user of this process, or that of the server.
/// Another owner could read and replace them.
pub fn is_trusted_owner(uid: u32, account: Option<&ServerAccount>) -> bool {
    let own = [0, rustix::process::geteuid().as_raw()];
    own.contains(&uid) || account.is_some_and(|account| account.ids().uid == uid)
}

impl ServerAccount {
    /// The user's and the group's ids.
    pub fn ids(&self) -> UserIds {
        UserIds {
            uid: self.user.uid.as_raw(),
            gid: self.group.as_raw(),
        }
    }

    /// Opens a log while this process is root, and gives it to the user. The user can then open it again after
    /// rotation. If the user, or another user, can make the path refer to another file, the file is opened with the
    /// user's rights; otherwise root could be made to write to any file.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open_log(&self, path: &Path) -> io::Result<File> {
        let plain = || LogWriter::open_target(&LogDestination::File(path.to_owned()));
        let file = match helper::open_log(path) {
            Ok(file) => file,
            Err(UntrustedPath::By(_)) => return self.do_as_user(plain),
            // The path may name something other than a file, such as /dev/stdout. Root owns the existing part of the
            // path.
            Err(UntrustedPath::Kind | UntrustedPath::Io(_)) => plain()?,
        };
        fchown(
            &file,
            Some(self.user.uid.as_raw()),
            Some(self.group.as_raw()),
        )?;
        Ok(file)
    }

    /// Opens a file of secrets, for reading and writing, while this process is root. If the user, or another user, can
    /// make the path refer to another file, `open` opens the file with the user's rights; otherwise root could be made
    /// to read or write any file.
    ///
    /// # Errors
    /// The reason for which the file can't be opened.
    pub fn open_secret(
        &self,
        path: &Path,
        open: impl FnOnce(&Path) -> io::Result<File> + Send,
    ) -> Result<File, String> {
        match helper::open_secret(path) {
            Ok(file) => Ok(file),
            Err(UntrustedPath::By(_)) => self.do_as_user(|| open(path)).map_err(|error| {
                let user = &self.user.name;
                format!(
                    "{error} as user {user}, which opens it because root is not the only one \
                         who can change its folder"
                )
            }),
            Err(UntrustedPath::Kind) => Err("not a regular file".into()),
            Err(UntrustedPath::Io(error)) => Err(error.to_string()),
        }
    }

    /// Runs a function with the user's rights, on a separate thread that becomes the user.
    fn do_as_user<T: Send>(&self, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let name = CString::new(self.user.name.clone())?;
        let groups = getgrouplist(&name, self.group)?;
        let groups: Vec<_> = groups
            .iter()
            .map(|group| rustix::process::Gid::from_raw(group.as_raw()))
            .collect();
        let UserIds { uid, gid } = self.ids();
        let (uid, gid) = (
            rustix::process::Uid::from_raw(uid),
            rustix::process::Gid::from_raw(gid),
        );
        thread::scope(|scope| {
            let done = scope.spawn(|| {
                // The system calls change only the calling thread; the functions of the C library would change all
                // threads.
                set_thread_groups(&groups)?;
                // The user is changed last, since the thread can't change its groups without root's uid.
                set_thread_res_gid(gid, gid, gid)?;
                set_thread_res_uid(uid, uid, uid)?;
                action()
            });
            done.join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    }

    /// Becomes the user permanently, except for the capabilities in [`KEPT`]. Gives the disk cache to the user, and
    /// starts a helper with root's rights for the files that the configuration in `source` names. Returns a note for
    /// the log.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn drop_root(
        &self,
        config: &Config,
        source: Option<&Path>,
    ) -> Result<Option<String>, String> {
        let name = &self.user.name;
        if let Some(path) = &config.server.disk_cache {
            // The owner is changed while this process is still root, since only root may change the owner of files.
            chown_disk_cache(path, self.user.uid, self.group)
                .map_err(|error| format!("can't give {} to {name}: {error}", path.display()))?;
        }
        self.leave_root(source)
    }

    /// As [`ServerAccount::drop_root`], but gives no files to the user.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn leave_root(&self, source: Option<&Path>) -> Result<Option<String>, String> {
        let name = &self.user.name;
        // The helper is started before this process gives up its rights, so that the helper keeps them.
        let started = source.map(|source| helper::start(source, self.ids()));
        let note = started.and_then(Result::err).map(|error| {
            format!("files that only root can open will be inaccessible after the start: {error}")
        });
        let c_name = CString::new(name.clone()).map_err(|error| error.to_string())?;
        become_user(&c_name, self.user.uid, self.group)
            .map_err(|error| format!("can't switch to user {name}: {error}"))?;
        Ok(note)
    }
}

/// Runs a test with the rights of the user that a server with this configuration becomes. The test may only examine
/// files, since the rest of the process stays unchanged.
///
/// # Errors
/// If the user does not exist, or the kernel refuses.
pub fn test_as_server<T: Send>(
    config: &Config,
    test: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let (account, _) = account(config)?;
    let Some(account) = account else {
        return Ok(test());
    };
    let tested = account.do_as_user(|| Ok(test()));
    tested.map_err(|error| format!("can't check access as {}: {error}", account.user.name))
}

/// Clears the ambient capability set of a server that was never root; otherwise the programs that it starts would
/// inherit these capabilities.
pub fn forget_ambient_capabilities() {
    // Kernels without ambient sets return an error.
    let _ = clear_ambient_capability_set();
}

/// Changes the user of the whole process. The calling thread, and threads that it starts later, keep the capabilities
/// in [`KEPT`].
fn become_user(name: &CStr, user: Uid, group: Gid) -> io::Result<()> {
    // PR_SET_KEEPCAPS: otherwise setuid(2) clears the permitted set.
    set_keep_capabilities(true)?;
    // The user is changed last, since the groups can't be changed without CAP_SETGID.
    initgroups(name, group)?;
    setgid(group)?;
    setuid(user)?;
    let retained = capabilities(None)?.permitted & KEPT;
    // The capabilities are not inheritable, so that programs that the server starts have none.
    let sets = CapabilitySets {
        effective: retained,
        permitted: retained,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(set_keep_capabilities(false)?)
}

/// The user and group of CGI programs, whether or not the server has given up root. CGI programs run as root only if
/// the configuration names root. `None`: the server's own.
///
/// # Errors
/// If CGI programs can't run as that user.
pub fn program_account(configured: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    match configured {
        Some(name) if !Uid::effective().is_root() => match is_current_user(name) {
            true => Ok(None),
            false => Err(format!(
                "programs can run as {name} only if the server stays root: set user = \"root\" in [server]"
            )),
        },
        None if !Uid::effective().is_root() => Ok(None),
        Some("root") => Ok(None),
        name => {
            let user = find(name.unwrap_or(PROGRAM_USER))?;
            Ok(Some((user.uid.as_raw(), user.gid.as_raw())))
        }
    }
}

/// Gives the folder of the disk cache and its files to the user. The user may already own the folder and have placed
/// links in it, so a file with several names (hard links) keeps its owner.
fn chown_disk_cache(path: &Path, user: Uid, group: Gid) -> io::Result<()> {
    // An unreadable folder was already reported when it was opened.
    let (Ok(folder), Ok(entries)) = (File::open(path), path.read_dir()) else {
        return Ok(());
    };
    let chown = |file: File| fchown(file, Some(user.as_raw()), Some(group.as_raw()));
    chown(folder)?;
    let mut files = entries
        .flatten()
        .filter_map(|entry| file_of_one_name(&entry.path()));
    files.try_for_each(chown)
}

/// Opens a file, unless the path is a symbolic link, or the file has further hard links.
fn file_of_one_name(path: &Path) -> Option<File> {
    // Without NONBLOCK, opening a FIFO would wait for a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = file.ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && metadata.nlink() == 1).then_some(file)
}

fn find(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("user {name} does not exist")),
        Err(error) => Err(format!("can't look up user {name}: {error}")),
    }
}

fn is_current_user(name: &str) -> bool {
    matches!(User::from_name(name), Ok(Some(user)) if user.uid == Uid::effective())
}

fn default_user(config: &Config) -> Option<User> {
    let readable = config.sites.iter().all(|site| match &site.root {
        SiteRoot::Folder(folder) => world_readable(folder),
        SiteRoot::PerHost { prefix, .. } => world_readable(prefix),
        SiteRoot::None => true,
    });
    let mut users = DEFAULT_USERS.iter();
    let user = users.find_map(|name| User::from_name(name).ok().flatten());
    user.filter(|_| readable)
}

/// Whether all users may read and reach a folder.
fn world_readable(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let mode = |path: &Path| path.metadata().map_or(0, |meta| meta.permissions().mode());
    // All users may read and enter the folder, and enter all folders above it.
    mode(&folder) & 0o005 == 0o005 && folder.ancestors().all(|path| mode(path) & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_of_one_name_skips_links_and_hard_linked_files() {
        let folder = std::env::temp_dir().join(format!("lowroad-given-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("make");
        let at = |name: &str| folder.join(name);
        for name in ["own", "other"] {
            fs::write(at(name), "").expect("write");
        }
        fs::hard_link(at("other"), at("same")).expect("link");
        std::os::unix::fs::symlink(at("own"), at("link")).expect("link");
        assert!(file_of_one_name(&at("own")).is_some());
        for name in ["other", "same", "link", "none", "."] {
            assert!(file_of_one_name(&at(name)).is_none(), "{name}");
        }
        fs::remove_dir_all(folder).expect("remove");
    }
}
