//! `lowroad check`: problems of logs that depend on this machine or on other tables.

use std::io;
use std::path::{Path, PathBuf};

use lowroad_config::{Config, LogTarget, SiteRoot};
use lowroad_site_rules::{BaseFolders, site_label};
use rustix::fs::Access;

use super::access;

/// The paths of log files.
pub fn log_files(config: &Config) -> impl Iterator<Item = &Path> {
    let access = config.log.access.iter().map(|access| &access.path);
    let all = std::iter::once(&config.log.error).chain(access);
    all.filter_map(|target| match target {
        LogTarget::File(path) => Some(path.as_path()),
        LogTarget::Stdout | LogTarget::Stderr | LogTarget::Messages(_) => None,
    })
}

/// Checks that these logs can be written.
pub fn writable(paths: &[&Path], problems: &mut Vec<String>) {
    for path in paths {
        if let Err(error) = can_write(path) {
            problems.push(format!("log: can't write {}: {error}", path.display()));
        }
    }
}

/// Whether a file can be written, or created if it does not exist.
pub fn can_write(path: &Path) -> io::Result<()> {
    // An error of `try_exists` means that the folder can't be searched.
    match path.try_exists()? {
        // access(2) would permit writing to a folder.
        true if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        true => access(path, Access::WRITE_OK),
        false => access(folder_of(path), Access::WRITE_OK | Access::EXEC_OK),
    }
}

/// Finds logs within folders that are served: clients could read them.
pub fn served_logs(config: &Config) -> Vec<String> {
    let sites = config.sites.iter();
    let folders = sites.flat_map(|site| {
        let root = match &site.root {
            SiteRoot::Folder(folder) => Some(folder),
            SiteRoot::PerHost { prefix, .. } => Some(prefix),
            SiteRoot::None => None,
        };
        root.into_iter()
            .chain(site.aliases.iter().map(|alias| &alias.folder))
    });
    let folders: Vec<PathBuf> = folders.filter_map(|it| it.canonicalize().ok()).collect();
    let is_served = |path: &&Path| {
        // The log may not exist yet, its folder does.
        let folder = folder_of(path).canonicalize();
        folder.is_ok_and(|folder| folders.iter().any(|served| folder.starts_with(served)))
    };
    let served = log_files(config).filter(is_served);
    served
        .map(|path| {
            format!(
                "log: {} is in a folder of a site, so clients may be able to read it",
                path.display()
            )
        })
        .collect()
}

/// Finds conditions of access logs that no site fulfils. The warnings begin with file and line.
pub fn unknown_sites(config: &Config) -> Vec<String> {
    let logs = config.log.access.iter();
    let conditions: Vec<_> = logs.flat_map(|log| &log.conditions.sites).collect();
    if conditions.is_empty() {
        return Vec::new();
    }
    let labels = config.sites.iter().map(|site| {
        // A site without names is named by its root, with symbolic links resolved.
        BaseFolders::from_site(site).map(|bases| site_label(site, &bases))
    });
    // A root that can't be opened is another problem.
    let Ok(labels) = labels.collect::<io::Result<Vec<String>>>() else {
        return Vec::new();
    };
    let unknown = conditions
        .into_iter()
        .filter(|condition| !labels.contains(&condition.name));
    unknown
        .map(|condition| {
            format!(
                "{}:{}: log: no site has {:?} as the first of its names",
                condition.place.file.display(),
                condition.place.line,
                condition.name
            )
        })
        .collect()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
