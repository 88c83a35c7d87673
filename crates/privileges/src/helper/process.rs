//! The helper process with root's rights: opens files for a server that has given up these rights.

use std::fs::File;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use lowroad_child_processes::message::PacketChannel;
use lowroad_config::{ConfigFiles, TEXT_LEN_MAX};
use rustix::thread::CapabilitySet;

use super::messages::{self, OpenPurpose};
use super::named_files::NamedFiles;
use super::path_walk::{self, UntrustedPath};
use super::trusted_sources::TrustedSources;
use crate::account::UserIds;
use crate::thread_filter::ThreadFilter;
use crate::{capabilities, change_limit, hide_process};

/// The capabilities to open the files of other users, and to give a new log to the server's user.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHOWN);

/// The helper's state.
struct HelperState {
    /// The path of the configuration file.
    config: PathBuf,
    /// The server's user and group.
    owner: UserIds,
    /// The files that the last valid configuration names.
    named_files: NamedFiles,
    /// The files and folders of the configuration, as they were when it was last read.
    sources: TrustedSources,
}

/// Handles requests that arrive over standard input, until the server has ended.
///
/// # Errors
/// If this process can't give up its other rights.
pub fn serve(config: PathBuf, owner: UserIds) -> Result<(), String> {
    // Rights are given up before the first request, since the requesting server may be compromised.
    capabilities::reduce(KEPT)?;
    hide_process()?;
    // In a kernel without filters or Landlock, the capabilities are the limit.
    let _ = ThreadFilter::for_helpers().and_then(|filter| filter.apply());
    let _ = change_limit::apply();
    let channel =
        PacketChannel::to_parent().map_err(|error| format!("the server's socket: {error}"))?;
    let mut helper = HelperState {
        config,
        owner,
        named_files: NamedFiles::default(),
        sources: TrustedSources::default(),
    };
    while let Some((purpose, path)) = messages::receive_request(&channel) {
        let opened = helper.open(purpose, &path);
        let sent = messages::answer(&channel, opened.as_ref().map_err(String::as_str));
        if sent.is_none() {
            break;
        }
    }
    Ok(())
}

impl HelperState {
    fn open(&mut self, purpose: OpenPurpose, path: &Path) -> Result<File, String> {
        self.reload_if_changed()
            .map_err(|refusal| refusal.to_string())?;
        let allowed = match purpose {
            OpenPurpose::Read => &self.named_files.read,
            OpenPurpose::Append => &self.named_files.append,
        };
        if !allowed.contains(path) {
            return Err("root does not open it, because the configuration does not name it".into());
        }
        let opened = match purpose {
            OpenPurpose::Read => path_walk::open_read(path),
            OpenPurpose::Append => path_walk::open_log(path),
        };
        let file = opened.map_err(|refusal| refusal.to_string())?;
        if purpose == OpenPurpose::Append {
            // The server can then open the log itself, if it may enter the folder.
            fchown(&file, Some(self.owner.uid), Some(self.owner.gid))
                .map_err(|error| format!("root can't pass it on: {error}"))?;
        }
        Ok(file)
    }

    /// Reads the configuration if it has changed. If it is invalid, the files of the previous one stay permitted, as in
    /// the server.
    fn reload_if_changed(&mut self) -> Result<(), UntrustedPath> {
        // The main file is checked at each request: with changed rights it permits nothing.
        path_walk::open_unchangeable(&self.config)?;
        if self.sources.are_unchanged() {
            return Ok(());
        }
        let sources = TrustedSources::default();
        let text = sources.read(&self.config, TEXT_LEN_MAX);
        let text = String::from_utf8(text.map_err(UntrustedPath::Io)?).unwrap_or_default();
        match lowroad_config::parse_with(&text, &self.config, &sources) {
            Ok(config) => self.named_files = NamedFiles::from_config(&config),
            // The server reads these files to report the problems.
            Err(_) => self.named_files.read.extend(sources.paths()),
        }
        self.sources = sources;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use lowroad_testkit::{TempFolder, skip};

    const NOBODY: u32 = 65534;

    fn helper(folder: &TempFolder, key: &Path) -> HelperState {
        let text = format!(
            "[log]\nerror = \"error.log\"\n[[site]]\nroot = \"/srv\"\n[site.tls]\ncertificate = \"cert.pem\"\nkey = \"{}\"\n",
            key.display()
        );
        HelperState {
            config: folder.file("lowroad.toml", text),
            owner: UserIds {
                uid: NOBODY,
                gid: NOBODY,
            },
            named_files: NamedFiles::default(),
            sources: TrustedSources::default(),
        }
    }

    /// The files that a compromised server may obtain.
    #[test]
    fn only_configured_files_are_opened() {
        if !rustix::process::geteuid().is_root() {
            return skip("only_configured_files_are_opened", "not root");
        }
        let folder = TempFolder::new();
        let at = |name: &str| folder.path().join(name);
        folder.file("cert.pem", "certificate");
        folder.file("key.pem", "key");
        let mut helper = helper(&folder, &at("key.pem"));
        for name in ["cert.pem", "key.pem", "lowroad.toml"] {
            let file = helper.open(OpenPurpose::Read, &at(name)).expect(name);
            // The descriptor does not permit writing.
            assert!(std::io::Write::write(&mut &file, b"x").is_err());
        }
        for path in [
            "/etc/shadow".into(),
            at("other"),
            at("error.log"),
            at("./../x/key.pem"),
        ] {
            let refused = helper.open(OpenPurpose::Read, &path).expect_err("refused");
            assert!(refused.contains("does not name it"), "{refused}");
        }
        for name in ["key.pem", "lowroad.toml", "other.log"] {
            assert!(
                helper.open(OpenPurpose::Append, &at(name)).is_err(),
                "{name}"
            );
        }
        let log = helper
            .open(OpenPurpose::Append, &at("error.log"))
            .expect("a log");
        assert_eq!(log.metadata().expect("it is open").uid(), NOBODY);
    }

    #[test]
    fn configuration_writable_by_others_permits_no_files() {
        if !rustix::process::geteuid().is_root() {
            return skip(
                "configuration_writable_by_others_permits_no_files",
                "not root",
            );
        }
        let folder = TempFolder::new();
        let config = folder.path().join("lowroad.toml");
        let mut helper = helper(&folder, Path::new("/etc/shadow"));
        let mut is_opened = || {
            helper
                .open(OpenPurpose::Read, Path::new("/etc/shadow"))
                .is_ok()
        };
        assert!(is_opened(), "root has named it");
        let modes = |file, of_folder| {
            fs::set_permissions(&config, Permissions::from_mode(file)).expect("a mode");
            fs::set_permissions(folder.path(), Permissions::from_mode(of_folder)).expect("a mode");
        };
        for (file, of_folder) in [
            (0o666, 0o755),
            (0o664, 0o755),
            (0o644, 0o777),
            (0o644, 0o775),
        ] {
            modes(file, of_folder);
            assert!(!is_opened(), "{file:o} in {of_folder:o}");
        }
        modes(0o644, 0o755);
        assert!(is_opened());
        for owned in [&config, &folder.path().to_owned()] {
            chown(owned, Some(NOBODY), None).expect("an owner");
            assert!(!is_opened(), "{}", owned.display());
            chown(owned, Some(0), None).expect("an owner");
        }
    }

    #[test]
    fn configured_path_through_a_folder_of_the_server_is_rejected() {
        if !rustix::process::geteuid().is_root() {
            return skip(
                "configured_path_through_a_folder_of_the_server_is_rejected",
                "not root",
            );
        }
        let folder = TempFolder::new();
        let own = folder.path().join("own");
        fs::create_dir(&own).expect("a folder");
        chown(&own, Some(NOBODY), None).expect("an owner");
        symlink("/etc/shadow", own.join("key.pem")).expect("a link");
        let mut helper = helper(&folder, &own.join("key.pem"));
        let refused = helper.open(OpenPurpose::Read, &own.join("key.pem"));
        assert!(
            refused
                .expect_err("refused")
                .contains("other users can change")
        );
    }

    #[test]
    fn included_files_and_secrets_are_opened_while_only_root_can_change_them() {
        let name = "included_files_and_secrets_are_opened_while_only_root_can_change_them";
        if !rustix::process::geteuid().is_root() {
            return skip(name, "not root");
        }
        let folder = TempFolder::new();
        let at = |name: &str| folder.path().join(name);
        let secret = folder.file("secret", "s");
        let mut helper = helper(&folder, &at("key.pem"));
        let is_opened =
            |helper: &mut HelperState, path: &Path| helper.open(OpenPurpose::Read, path).is_ok();
        folder.file(
            "lowroad.toml",
            "include = \"sites/*.toml\"\n[[site]]\nroot = \"/srv\"\n",
        );
        assert!(!is_opened(&mut helper, &secret));
        // A new file changes the folder, not the main file.
        let site = folder.file(
            "sites/a.toml",
            "[[database]]\nname = \"d\"\nurl = { file = \"../secret\" }\n",
        );
        let named = at("sites/../secret");
        assert!(is_opened(&mut helper, &named) && is_opened(&mut helper, &site));
        // Another user could name any file there.
        chown(&site, Some(NOBODY), None).expect("an owner");
        folder.file(
            "sites/a.toml",
            "[[database]]\nname = \"d\"\nurl = { file = \"/etc/shadow\" }\n",
        );
        assert!(!is_opened(&mut helper, Path::new("/etc/shadow")));
    }

    #[test]
    fn invalid_configuration_keeps_the_previous_files() {
        if !rustix::process::geteuid().is_root() {
            return skip("invalid_configuration_keeps_the_previous_files", "not root");
        }
        let folder = TempFolder::new();
        let key = folder.file("key.pem", "key");
        let mut helper = helper(&folder, &key);
        assert!(helper.open(OpenPurpose::Read, &key).is_ok());
        folder.file("lowroad.toml", "[[");
        assert!(helper.open(OpenPurpose::Read, &key).is_ok());
        folder.file("lowroad.toml", "[[site]]\nroot = \"/srv\"\n");
        assert!(helper.open(OpenPurpose::Read, &key).is_err());
    }
}
