//! Enters the network namespace that a command names.

use std::fs::{self, Metadata};
use std::os::linux::fs::MetadataExt;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Moves this thread, and all threads that it starts later, to a network namespace.
///
/// # Errors
/// A message for the user.
pub fn enter_namespace(name: &str) -> Result<(), String> {
    let path = match name {
        _ if name.contains('/') => name.to_owned(),
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => format!("/proc/{name}/ns/net"),
        _ => format!("/run/netns/{name}"),
    };
    let file = fs::File::open(&path).map_err(|error| format!("--netns {name}: {path}: {error}"))?;
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(rustix::fd::AsFd::as_fd(&file), network)
        .map_err(|error| format!("--netns {name}: {error}"))
}

/// Whether a process is in this thread's network namespace.
#[must_use]
pub fn is_in_namespace(process: u32) -> bool {
    let same = |a: &Metadata, b: &Metadata| a.st_dev() == b.st_dev() && a.st_ino() == b.st_ino();
    let other_namespace = fs::metadata(format!("/proc/{process}/ns/net"));
    let this_namespace = fs::metadata("/proc/thread-self/ns/net");
    other_namespace.is_ok_and(|other_namespace| {
        this_namespace.is_ok_and(|this_namespace| same(&other_namespace, &this_namespace))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_in_own_namespace() {
        assert!(is_in_namespace(std::process::id()));
        assert!(!is_in_namespace(0));
    }
}
