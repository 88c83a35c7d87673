//! From root to somebody less, once all is opened that needs root.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use lowroad_config::{Config, LogTarget, Root};
use nix::unistd::{Gid, Group, Uid, User, chown, getgrouplist, initgroups, setgid, setuid};
use rustix::fs::OFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user that a server started as root becomes when it is told nothing else, and CGI programs of one
/// that stays root.
const DEFAULT_USER: &str = "nobody";
/// What the server keeps of root's capabilities: a reload may add a port below 1024.
const KEPT: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Gives up root, if this process has it. Returns what is to be said about it.
///
/// # Errors
/// When the configured user or group does not exist, or the kernel refuses.
pub fn drop_root(config: &Config) -> Result<Option<String>, String> {
    if !Uid::effective().is_root() {
        // Otherwise programs that the server starts would have its capabilities. Kernels without ambient sets refuse.
        let _ = clear_ambient_capability_set();
    }
    let (user, gid) = match account(config)? {
        ServerAccount::Other(user, gid) => (user, gid),
        ServerAccount::Unchanged => {
            let name = config.server.user.as_ref().filter(|name| !is_me(name));
            return Ok(name
                .filter(|_| !Uid::effective().is_root())
                .map(|name| format!("not root, so the user stays what it is and not {name}")));
        }
        ServerAccount::RootForRoots => {
            let text = "runs as root, because nobody else may read the folder; --user, or user in [server], changes that";
            return Ok(Some(text.into()));
        }
    };
    for path in log_files(config) {
        // Or the log could not be opened anew after it was rotated.
        chown(path, Some(user.uid), Some(gid))
            .map_err(|error| format!("can't give {} to {}: {error}", path.display(), user.name))?;
    }
    if let Some(path) = &config.server.disk_cache {
        give_disk_cache(path, user.uid, gid)
            .map_err(|error| format!("can't give {} to {}: {error}", path.display(), user.name))?;
    }
    let name = CString::new(user.name.clone()).map_err(|error| error.to_string())?;
    become_user(&name, user.uid, gid)
        .map_err(|error| format!("can't become user {}: {error}", user.name))?;
    Ok(Some(format!("runs as user {}", user.name)))
}

/// Changes the user of the whole process. The calling thread, and those that it starts later, keep [`KEPT`].
fn become_user(name: &CStr, user: Uid, group: Gid) -> io::Result<()> {
    set_keep_capabilities(true)?;
    initgroups(name, group)?;
    setgid(group)?;
    setuid(user)?;
    let kept = capabilities(None)?.permitted & KEPT;
    // Not inheritable: a program that the server starts has none of them.
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(set_keep_capabilities(false)?)
}

/// The user that a server becomes.
enum ServerAccount {
    Other(User, Gid),
    /// The one that started it.
    Unchanged,
    /// Root, since no other user may read the roots of sites.
    RootForRoots,
}

/// The user that a server of this configuration becomes if this process starts it.
fn account(config: &Config) -> Result<ServerAccount, String> {
    if !Uid::effective().is_root() {
        return Ok(ServerAccount::Unchanged);
    }
    let user = match &config.server.user {
        Some(name) if name == "root" => return Ok(ServerAccount::Unchanged),
        Some(name) => find(name)?,
        None => match default_user(config) {
            Some(user) => user,
            None => return Ok(ServerAccount::RootForRoots),
        },
    };
    let gid = match &config.server.group {
        None => user.gid,
        Some(name) => match Group::from_name(name) {
            Ok(Some(group)) => group.gid,
            _ => return Err(format!("there is no group {name}")),
        },
    };
    Ok(ServerAccount::Other(user, gid))
}

/// Runs a test with the rights of the user that a server of this configuration becomes. Only files may be looked at: the
/// rest of the process stays what it is.
///
/// # Errors
/// When there is no such user, or the kernel refuses.
pub fn test_as_server<T: Send>(
    config: &Config,
    test: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let ServerAccount::Other(user, gid) = account(config)? else {
        return Ok(test());
    };
    let failed = |error: &dyn std::fmt::Display| format!("can't test as {}: {error}", user.name);
    let name = CString::new(user.name.clone()).map_err(|error| failed(&error))?;
    let groups = getgrouplist(&name, gid).map_err(|error| failed(&error))?;
    let groups: Vec<rustix::fs::Gid> = groups
        .iter()
        .map(|gid| rustix::fs::Gid::from_raw(gid.as_raw()))
        .collect();
    let uid = rustix::fs::Uid::from_raw(user.uid.as_raw());
    let gid = rustix::fs::Gid::from_raw(gid.as_raw());
    // Linux has users and groups for each thread: this one ends with the test.
    let as_user = move || {
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok::<T, rustix::io::Errno>(test())
    };
    let ended = std::thread::scope(|scope| scope.spawn(as_user).join());
    let tested = ended.map_err(|_| failed(&"a fault of the program"))?;
    tested.map_err(|error| failed(&error))
}

/// As whom CGI programs run, user and group, once root is given up or not: where the server is still
/// root they never are, unless they are told to be. `None` = as the server.
///
/// # Errors
/// When they can't be that user.
pub fn of_programs(named: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    match named {
        Some(name) if !Uid::effective().is_root() => match is_me(name) {
            true => Ok(None),
            false => Err(format!(
                "programs can run as {name} only where the server stays root: user = \"root\" in [server]"
            )),
        },
        None if !Uid::effective().is_root() => Ok(None),
        Some("root") => Ok(None),
        name => {
            let user = find(name.unwrap_or(DEFAULT_USER))?;
            Ok(Some((user.uid.as_raw(), user.gid.as_raw())))
        }
    }
}

/// Gives the folder of the disk cache and what is in it. That was the user's before, so whatever lies there may be its doing:
/// what has a name elsewhere, too, stays whose it is.
fn give_disk_cache(path: &Path, user: Uid, group: Gid) -> io::Result<()> {
    // One that can't be read was told of when it was taken.
    let (Ok(folder), Ok(entries)) = (File::open(path), path.read_dir()) else {
        return Ok(());
    };
    let give = |file: File| fchown(file, Some(user.as_raw()), Some(group.as_raw()));
    give(folder)?;
    let mut files = entries
        .flatten()
        .filter_map(|entry| file_of_one_name(&entry.path()));
    files.try_for_each(give)
}

/// Opens a file, unless the name is a link, or the file has another one.
fn file_of_one_name(path: &Path) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut how = OpenOptions::new();
    let file = how.read(true).custom_flags(flags.bits() as i32).open(path);
    let file = file.ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && found.nlink() == 1).then_some(file)
}

fn log_files(config: &Config) -> impl Iterator<Item = &Path> {
    let access = config.log.access.as_ref().map(|access| &access.path);
    [Some(&config.log.error), access]
        .into_iter()
        .flatten()
        .filter_map(|target| match target {
            LogTarget::File(path) => Some(path.as_path()),
            _ => None,
        })
}

fn find(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("there is no user {name}")),
        Err(error) => Err(format!("can't look up user {name}: {error}")),
    }
}

fn is_me(name: &str) -> bool {
    matches!(User::from_name(name), Ok(Some(user)) if user.uid == Uid::effective())
}

fn default_user(config: &Config) -> Option<User> {
    let readable = config.sites.iter().all(|site| match &site.root {
        Root::Folder(folder) => world_readable(folder),
        Root::PerHost { prefix, .. } => world_readable(prefix),
        Root::None => true,
    });
    User::from_name(DEFAULT_USER).ok()?.filter(|_| readable)
}

/// Whether anybody may read a folder and get to it.
fn world_readable(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let mode = |path: &Path| path.metadata().map_or(0, |meta| meta.permissions().mode());
    mode(&folder) & 0o005 == 0o005 && folder.ancestors().all(|path| mode(path) & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_has_another_name_is_not_given_away() {
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
