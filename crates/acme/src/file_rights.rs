//! Checks, for `lowroad check`, whether the thread's user may access the files and folders of ACME. Writes nothing.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::account;
use crate::folder::AcmeFolder;
use crate::settings::{AcmeSettings, ChallengeMethod};

impl AcmeSettings {
    /// Files and folders without the required permissions, one line each. May block.
    pub fn file_problems(&self) -> Vec<String> {
        let folder = AcmeFolder::new(&self.folder);
        let mut problems = Vec::new();
        problems.extend(unwritable(&self.folder));
        // If the folder itself is unusable, everything below it is too.
        if problems.is_empty() {
            for folder_in_use in self.own_folders(&folder) {
                // Missing folders are created later, in a folder that is checked.
                problems.extend(
                    folder_in_use
                        .exists()
                        .then(|| unwritable(&folder_in_use))
                        .flatten(),
                );
            }
            for file in self.own_files(&folder) {
                problems.extend(unusable(&file, Access::READ_OK, "read", true));
            }
        }
        for roots in self.authorities.iter().filter_map(|it| it.roots.as_ref()) {
            problems.extend(unusable(roots, Access::READ_OK, "read", false));
        }
        // A command without a slash is looked up in `PATH`.
        if let ChallengeMethod::Dns01(hook) = &self.challenge
            && let Some(program) = hook.command.first().filter(|it| it.contains('/'))
        {
            problems.extend(unusable(Path::new(program), Access::EXEC_OK, "run", false));
        }
        problems
    }

    /// The existing or future folders in which files are replaced.
    fn own_folders(&self, folder: &AcmeFolder) -> Vec<PathBuf> {
        let names = self.keys().map(|key| folder.certificate_file(&key));
        let files = names.chain(self.account_files(folder));
        let mut folders: Vec<PathBuf> = Vec::new();
        for file in files {
            let parents = file.ancestors().skip(1);
            let missing_parents = parents.take_while(|parent| *parent != self.folder);
            folders.extend(missing_parents.map(Path::to_path_buf));
        }
        folders.sort();
        folders.dedup();
        folders
    }

    /// Files that are read if they exist.
    fn own_files(&self, folder: &AcmeFolder) -> Vec<PathBuf> {
        let names = self.keys().map(|key| folder.certificate_file(&key));
        names.chain(self.account_files(folder)).collect()
    }

    /// The keys of all configured certificates.
    fn keys(&self) -> impl Iterator<Item = String> {
        let sites = self.checked_sites(&self.sites).unwrap_or_default();
        sites.into_iter().map(|(key, _)| key)
    }

    fn account_files(&self, folder: &AcmeFolder) -> impl Iterator<Item = PathBuf> {
        let authorities = self.authorities.iter();
        authorities.map(|authority| folder.account_file(&account::file_name(authority)))
    }
}

/// The reason that a folder is not writable, if so. For a missing folder, the nearest existing ancestor is checked.
fn unwritable(folder: &Path) -> Option<String> {
    let path = folder.display();
    let nearest = folder.ancestors().find_map(|ancestor| {
        // The last ancestor of a relative path is empty.
        let checked = match ancestor.as_os_str().is_empty() {
            true => Path::new("."),
            false => ancestor,
        };
        let access = allows(checked, Access::WRITE_OK | Access::EXEC_OK);
        (access != Err(Errno::NOENT)).then_some((checked, access))
    });
    match nearest {
        Some((checked, Ok(()))) if !checked.is_dir() => Some(format!(
            "{path} cannot be written: {} is not a folder",
            checked.display()
        )),
        Some((_, Ok(()))) | None => None,
        Some((checked, Err(error))) if checked == folder => {
            Some(format!("{path} cannot be written: {error}"))
        }
        Some((checked, Err(error))) => Some(format!(
            "{path} does not exist and cannot be created in {}: {error}",
            checked.display()
        )),
    }
}

fn unusable(file: &Path, access: Access, operation: &str, is_optional: bool) -> Option<String> {
    match allows(file, access) {
        Err(Errno::NOENT) if is_optional => None,
        Err(error) => Some(format!("{} cannot be {operation}: {error}", file.display())),
        Ok(()) => None,
    }
}

fn allows(path: &Path, access: Access) -> Result<(), Errno> {
    // The effective ids count: the check runs as the user that the server switches to.
    accessat(CWD, path, access, AtFlags::EACCESS)
}
