//! The requirements on this machine: programs, with their Debian packages, and root.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::geteuid;

use crate::peers::programs::find as program;

/// Programs that a measurement starts, and their packages.
const PROGRAMS: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
    ("gcc", "gcc libc6-dev"),
    ("ldd", "libc-bin"),
    ("dpkg", "dpkg"),
    ("apt-get", "apt"),
];

/// The packages of missing programs.
pub fn missing() -> BTreeSet<&'static str> {
    let missing_programs = PROGRAMS.iter().filter(|(name, _)| program(name).is_none());
    let packages = missing_programs.flat_map(|(_, packages)| packages.split(' '));
    packages.collect()
}

/// Checks whether a guest can be started on this machine.
///
/// # Errors
/// A requirement is missing; the text names it and a remedy.
pub fn check() -> Result<(), String> {
    let missing = missing();
    if !missing.is_empty() {
        return Err(format!(
            "these Debian packages are missing; install them with\n    apt-get install \
             --no-install-recommends {}\nor let this command do it: --install",
            missing.into_iter().collect::<Vec<_>>().join(" ")
        ));
    }
    if !geteuid().is_root() {
        return Err("a guest's network device needs root: run this command with sudo".into());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(
            "no /dev/net/tun, which a guest's network device needs: `modprobe tun`, or pass that \
             device to the container"
                .into(),
        );
    }
    Ok(())
}
