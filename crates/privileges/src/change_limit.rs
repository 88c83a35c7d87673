//! A limit by Landlock for the helper with root's rights: it opens files and creates logs, and nothing else.
//!
//! Landlock belongs to a thread and its later threads and programs, for good. Rules can't be widened, so the limit has no paths,
//! which a reload may add. It applies to root, too, unlike permissions of files. See docs/decisions/0080-filters-by-thread.md.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetError, RulesetStatus,
    Scope,
};

/// The rights that stay. `Truncate` is among them, since it belongs to a descriptor, and the server gets those of its logs.
fn kept() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::Truncate
}

/// Forbids this thread to start programs, to remove, rename or link files, to make folders, devices and sockets, to use TCP,
/// and to send signals to other processes, as far as the kernel can. Returns whether it can forbid all of it (Linux 6.12).
///
/// # Errors
/// The kernel has no Landlock, or refuses.
pub fn apply() -> Result<bool, RulesetError> {
    let denied = AccessFs::from_all(ABI::V5) & !kept();
    let status = Ruleset::default()
        .handle_access(denied)?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .restrict_self()?;
    Ok(status.ruleset == RulesetStatus::FullyEnforced)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::{ErrorKind, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::thread;

    use lowroad_testkit::{TempFolder, skip};

    use super::apply;

    /// The test has root's rights in CI, as the helper has.
    #[test]
    fn limited_thread_opens_files_and_changes_nothing_else() {
        let folder = TempFolder::new();
        let at = |name: &str| folder.path().join(name);
        folder.file("key", "secret");
        let test = "limited_thread_opens_files_and_changes_nothing_else";
        // The limit ends with the thread.
        thread::scope(|scope| {
            scope.spawn(|| {
                if !apply().is_ok_and(|is_full| is_full) {
                    return skip(test, "the kernel has no Landlock of Linux 6.12");
                }
                let denied = |result: std::io::Result<()>, action: &str| {
                    let kind = result.err().map(|error| error.kind());
                    let is_denied = matches!(
                        kind,
                        Some(ErrorKind::PermissionDenied | ErrorKind::CrossesDevices)
                    );
                    assert!(is_denied, "{action}: {kind:?}");
                };
                denied(fs::remove_file(at("key")), "remove");
                denied(fs::rename(at("key"), at("other")), "rename");
                denied(fs::create_dir(at("folder")), "folder");
                denied(symlink("key", at("link")), "link");
                denied(Command::new("/bin/true").status().map(drop), "program");
                denied(TcpListener::bind("127.0.0.1:0").map(drop), "listener");
                assert_eq!(fs::read(at("key")).expect("readable"), b"secret");
                let log = OpenOptions::new().append(true).create(true).open(at("log"));
                let mut log: File = log.expect("a new log");
                log.write_all(b"line").expect("writable");
                log.set_len(0).expect("the server may shorten its log");
            });
        });
        fs::remove_file(at("key")).expect("other threads are not limited");
    }
}
