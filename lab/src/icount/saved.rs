//! Saved states of booted guests: booting an emulated machine takes ten seconds, resuming takes a fifth of a second. A
//! guest is saved while it waits for its content; all guests with the same boot parameters resume from that state.
//! Independent of servers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::boot::{BootMedia, BootSpec, GuestFiles, arguments};
use super::guest::{GuestNetwork, QemuGuest};
use super::kernel::{build_once, cache, run};
use super::monitor::QemuMonitor;

/// The path of the saved state for these boot parameters, created if necessary; `None` if the parameters are too
/// unusual to be shared.
///
/// # Errors
/// The state can't be created.
pub fn state(
    boot: &BootSpec,
    plugin: &Path,
    network: &GuestNetwork,
) -> Result<Option<PathBuf>, String> {
    let Some(system) = boot.system.as_ref().filter(|_| boot.is_default()) else {
        return Ok(None);
    };
    // The guest is saved before it gets its content, so the content is not part of the state.
    let system = GuestFiles {
        base: system.base.clone(),
        content: Vec::new(),
    };
    // The content decides the memory, so the memory is computed with the content.
    let empty = BootSpec::with_defaults(boot.kernel.clone(), Some(system), boot.memory_mib());
    let mtu = network.mtu;
    let path = cache()?.join(format!("{}{:08x}", prefix(&empty, mtu), key(&empty, mtu)?));
    build_once(&path, |file| save(&empty, mtu, plugin, file)).map(Some)
}

/// Extends the error message of a guest that does not resume. Removes the saved state, which may be truncated, as by a
/// full disk.
pub fn failure(error: String, state: Option<&Path>) -> String {
    let Some(file) = state else {
        return error;
    };
    let _ = fs::remove_file(file);
    let file = file.display();
    format!("{error}\nthe saved guest {file} is removed: the next run creates it again")
}

fn prefix(boot: &BootSpec, mtu: Option<u32>) -> String {
    let mtu = mtu.map(|mtu| format!("mtu-{mtu}-")).unwrap_or_default();
    format!("booted-{mtu}{}-", boot.memory_mib())
}

/// A hash of everything that a state depends on: QEMU's version, its arguments, and the files.
fn key(boot: &BootSpec, mtu: Option<u32>) -> Result<u32, String> {
    let version = qemu_version()?;
    // Guests that share a state differ in name and addresses, so these must not be part of the key.
    let network = GuestNetwork {
        name: String::new(),
        mtu,
        ..GuestNetwork::new()
    };
    let called = arguments(boot, Path::new(""), &network, Some(&BootMedia::default()));
    let mut sum = crc32fast::Hasher::new();
    sum.update(version.as_bytes());
    sum.update(called.join(" ").as_bytes());
    let base = boot.system.as_ref().map(|system| &*system.base);
    sum.update(base.unwrap_or_default());
    Ok(sum.finalize())
}

fn qemu_version() -> Result<String, String> {
    static KNOWN: Mutex<Option<String>> = Mutex::new(None);
    let mut cached_version = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if cached_version.is_none() {
        *cached_version = Some(run(Command::new("qemu-system-x86_64").arg("--version"))?);
    }
    Ok(cached_version.clone().unwrap_or_default())
}

fn save(boot: &BootSpec, mtu: Option<u32>, plugin: &Path, file: &Path) -> Result<(), String> {
    remove_old_states(&prefix(boot, mtu), file);
    let network = GuestNetwork {
        mtu,
        ..GuestNetwork::new()
    };
    let mut guest = QemuGuest::start(boot, plugin, network.clone(), None)?;
    guest.wait_until_booted()?;
    // The boot must be complete; otherwise each resumed guest would repeat its last part.
    guest.instructions_when_idle();
    let saved = QemuMonitor::connect(&network.name).and_then(|mut monitor| monitor.save(file));
    saved.map_err(|error| guest.failure(&format!("{}: {error}", file.display())))
}

/// Removes states of other kernels and versions, and incomplete files of processes that have ended.
fn remove_old_states(prefix: &str, file: &Path) {
    let entries = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().filter_map(Result::ok) {
        let name = entry.path();
        // A file with an extension is temporary: another process may be creating it.
        let is_old = match name.extension() {
            None => name.file_stem() != file.file_stem(),
            Some(maker) => has_ended(maker),
        };
        if is_old && entry.file_name().to_string_lossy().starts_with(prefix) {
            // Processes that resume from the state have opened it already; those that start later create it again.
            let _ = fs::remove_file(name);
        }
    }
}

/// Whether the process that created a temporary file with this extension (see `build_once`) has ended.
fn has_ended(maker: &OsStr) -> bool {
    let process = maker.to_str().and_then(|name| name.strip_prefix("new-"));
    process.is_some_and(|id| !Path::new("/proc").join(id).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_snapshots_are_removed() {
        let folder = std::env::temp_dir().join(format!("lowroad-saved-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let living = format!("booted-512-00000003.new-{}", std::process::id());
        let names = [
            "booted-512-00000001",
            "booted-512-00000002",
            living.as_str(),
            "booted-512-00000003.new-99999999",
            "booted-1024-00000004",
            "booted-mtu-9000-512-00000005",
            "booted-mtu-9000-512-00000006",
        ];
        for name in names {
            fs::write(folder.join(name), "").expect("a file");
        }
        let boot = BootSpec::with_defaults("vmlinuz".into(), None, 512);
        remove_old_states(
            &prefix(&boot, None),
            &folder.join("booted-512-00000002.new-9"),
        );
        let left = || names.map(|name| folder.join(name).exists());
        assert_eq!(left(), [false, true, true, false, true, true, true]);
        remove_old_states(
            &prefix(&boot, Some(9000)),
            &folder.join("booted-mtu-9000-512-00000006.new-9"),
        );
        assert_eq!(left(), [false, true, true, false, true, false, true]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
