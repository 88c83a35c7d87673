//! Finds out why a path is not served from a site's folder, for `lowroad explain`. The path is examined again component
//! by component, so that serving need not record the reason. Routes are ignored. Blocks on the disk.

use std::path::{Path, PathBuf};

use lowroad_config::SymlinkPolicy;
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};
use rustix::io::Errno;

use crate::sites::Site;

/// The reason for a decoded path below the folder of a site (of `host`, if each host has its own folder); `None` if the
/// file can be served now.
pub fn find_cause(site: &Site, host: &[u8], path: &[u8]) -> Option<String> {
    let location = site.rules.locate(host, path);
    // Hidden names are checked before the file, as when serving: the file may exist.
    if location.is_hidden(&site.rules) {
        return Some(
            "names that begin with a dot are not served; set hidden = true to serve them".into(),
        );
    }
    let mut current = match location.folder.as_os_str().is_empty() {
        true => location.base.to_path_buf(),
        false => location.base.join(&location.folder),
    };
    if let Some(reason) = unusable(&current, false) {
        return Some(format!("{}: {reason}", current.display()));
    }
    let relative = location.relative();
    let mut parts = relative.components().peekable();
    while let Some(part) = parts.next() {
        current.push(part);
        let is_last = parts.peek().is_none();
        if let Some(reason) = check_component(
            site,
            location.base,
            &current,
            is_last && !path.ends_with(b"/"),
        ) {
            return Some(format!("{}: {reason}", current.display()));
        }
    }
    match path.ends_with(b"/") {
        true => index(site, location.base, &current),
        false => None,
    }
}

/// Lines about the file of a path: its name, if it is the index file of a folder, and the rule for its Cache-Control.
pub fn file_lines(site: &Site, host: &[u8], path: &[u8]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let mut path = path.to_vec();
    if path.ends_with(b"/") {
        let location = site.rules.locate(host, &path);
        let folder = location.base.join(&location.folder);
        let folder = folder.join(location.relative());
        // The first that exists is the one that is sent.
        let mut names = site.rules.config.index.iter();
        if let Some(name) = names.find(|name| folder.join(name).is_file()) {
            lines.push(("index", name.clone()));
            path.extend_from_slice(name.as_bytes());
        }
    }
    let mut rules = site.rules.config.cache_control.iter();
    if let Some(rule) = rules.find(|rule| rule.pattern.matches(&path)) {
        lines.push((
            "cache-control",
            format!("{}, for {}", rule.value, rule.pattern),
        ));
    }
    lines
}

/// The reason why no index file of a folder can be served.
fn index(site: &Site, base: &Path, folder: &Path) -> Option<String> {
    for name in &site.rules.config.index {
        let file = folder.join(name);
        if statat(CWD, &file, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            // The first existing index file decides; `None` if it can be read.
            let reason = check_component(site, base, &file, true)?;
            return Some(format!("{}: {reason}", file.display()));
        }
    }
    let names = site.rules.config.index.join(" or ");
    let names = if names.is_empty() {
        "index file"
    } else {
        &names
    };
    Some(format!(
        "there is no {names} in {}, and listing is off; set listing = true in the site, or use --listing",
        folder.display()
    ))
}

/// The reason why a component of the path cannot be passed.
fn check_component(site: &Site, base: &Path, path: &Path, is_file: bool) -> Option<String> {
    let is_link = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
    // The link is checked before its target, which may be outside the site's folder.
    if is_link {
        let leads_out = || leads_outside(base, path);
        match site.rules.config.symlinks {
            SymlinkPolicy::None => {
                return Some(
                    "a symbolic link; set symlinks = \"beneath\" to follow it if it stays in the folder"
                        .into(),
                );
            }
            SymlinkPolicy::Beneath if leads_out() => {
                return Some(
                    "a symbolic link that leads out of the site's folder; set symlinks = \
                             \"follow\" to follow it"
                        .into(),
                );
            }
            SymlinkPolicy::Beneath | SymlinkPolicy::Follow => {}
        }
    }
    unusable(path, is_file)
}

/// Whether a symbolic link leads out of a folder or has an absolute target; neither is followed.
fn leads_outside(base: &Path, link: &Path) -> bool {
    // openat2(2) with RESOLVE_BENEATH refuses absolute targets, even those below the folder.
    let target = std::fs::read_link(link).unwrap_or_default();
    let resolve = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    target.is_absolute() || !resolve(link).starts_with(resolve(base))
}

/// The reason why this process cannot read a file or search a folder.
fn unusable(path: &Path, is_file: bool) -> Option<String> {
    let stat = match statat(CWD, path, AtFlags::empty()) {
        Ok(stat) => stat,
        Err(error) => return Some(describe(error)),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let access = match (kind, is_file) {
        (FileType::Directory, _) => Access::EXEC_OK,
        (FileType::RegularFile, true) => Access::READ_OK,
        (FileType::RegularFile, false) => {
            return Some("a file, but the path continues after its name".into());
        }
        _ => return Some("neither a file nor a folder".into()),
    };
    // The access is checked for the effective user, as by open(2).
    let result = accessat(CWD, path, access, AtFlags::EACCESS);
    result.err().map(describe)
}

fn describe(error: Errno) -> String {
    match error {
        Errno::NOENT | Errno::NOTDIR => "no file or folder has this name".into(),
        Errno::ACCESS | Errno::PERM => format!("{} can't read it", server_account()),
        Errno::LOOP => "a loop of symbolic links".into(),
        other => other.to_string(),
    }
}

/// The user that the server runs as, as text.
fn server_account() -> String {
    let uid = nix::unistd::Uid::effective();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => format!("the server's user {}", user.name),
        _ => format!("the server's user {uid}"),
    }
}
