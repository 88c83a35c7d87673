//! What this machine must have: programs, by the Debian packages that bring them, and root. Knows
//! nothing of what they are for.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

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

/// A program's path; also where only root's PATH leads.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = env::split_paths(&path).chain(more);
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
}

/// Packages whose programs are missing.
pub fn missing() -> Vec<&'static str> {
    let absent = PROGRAMS.iter().filter(|(name, _)| program(name).is_none());
    let packages = absent.flat_map(|(_, packages)| packages.split(' '));
    packages.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Checks that a guest can be started here.
///
/// # Errors
/// With what is missing and what to do.
pub fn check() -> Result<(), String> {
    let missing = missing();
    if !missing.is_empty() {
        return Err(format!(
            "these Debian packages are missing; install them with\n    apt-get install \
             --no-install-recommends {}\nor let this command do it: --install",
            missing.join(" ")
        ));
    }
    if !geteuid().is_root() {
        return Err("a guest's network device needs root: run this command with sudo".into());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(
            "no /dev/net/tun, which a guest's network device needs: `modprobe tun`, or in a \
                    container let it have that device"
                .into(),
        );
    }
    Ok(())
}

/// Installs packages.
///
/// # Errors
/// With what apt-get said.
pub fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(" "));
    super::kernel::run(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-qq", "--no-install-recommends"]);
    command
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive");
    super::kernel::run(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_not() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program-of-ours").is_none());
    }
}
