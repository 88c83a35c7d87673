//! The network namespace that a command is about.

use std::fs;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Enters a network namespace, with this thread and those that it starts.
///
/// # Errors
/// A text for the user.
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
