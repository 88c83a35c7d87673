//! Installs peers from Debian's packages, without starting the distribution's own services.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::table::{self, PeerDescription};

/// Debian's package scripts ask this program whether they may start a service; exit status 101 means no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs these peers; all if the list is empty.
///
/// # Errors
/// With a text for the user.
pub fn install(names: &[String]) -> anyhow::Result<()> {
    let packages = packages(names)?;
    if packages.is_empty() {
        println!("nothing to install: these need no packages");
        return Ok(());
    }
    install_with_apt(&packages)?;
    for name in select(names)?.iter().map(|peer| peer.name) {
        println!("{name} is installed");
    }
    Ok(())
}

/// Installs Debian packages, as root.
///
/// # Errors
/// A text for the user; without root, the command line to run.
pub(crate) fn install_with_apt(packages: &BTreeSet<&str>) -> anyhow::Result<()> {
    let line = format!("apt-get install --no-install-recommends {}", join(packages));
    if !rustix::process::geteuid().is_root() {
        bail!("installing needs root. Type:\n  sudo {line}");
    }
    if super::programs::find("apt-get").is_none() {
        bail!(
            "apt-get is missing here: install the equivalents of {}",
            join(packages)
        );
    }
    println!("$ {line}");
    println!(
        "(services that are not running now are not started: {POLICY} prevents that meanwhile)"
    );
    // Dropping `_policy` removes the policy, also after a failure.
    let _policy = ServicePolicy::set()?;
    apt(&["update", "-qq"])?;
    let mut words = vec!["install", "-y", "--no-install-recommends"];
    words.extend(packages.iter().copied());
    apt(&words)
}

fn select(names: &[String]) -> anyhow::Result<Vec<&'static PeerDescription>> {
    if names.is_empty() {
        return Ok(table::all()
            .iter()
            .filter(|peer| !peer.packages.is_empty())
            .collect());
    }
    Ok(names
        .iter()
        .map(|name| table::named(name))
        .collect::<Result<_, _>>()?)
}

fn packages(names: &[String]) -> anyhow::Result<BTreeSet<&'static str>> {
    Ok(select(names)?
        .iter()
        .flat_map(|peer| peer.packages.iter().copied())
        .collect())
}

fn join(packages: &BTreeSet<&str>) -> String {
    packages.iter().copied().collect::<Vec<_>>().join(" ")
}

/// Runs apt-get with its progress on the terminal.
fn apt(words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        // If another package manager runs, such as unattended upgrades, apt-get waits for it instead of failing.
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(words)
        // Otherwise a package might ask a question and wait for an answer without end.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("can't run apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed: see above", words[0]);
    }
    Ok(())
}

/// The policy that no service is started; an existing policy is left unchanged.
struct ServicePolicy {
    is_ours: bool,
}

impl ServicePolicy {
    fn set() -> anyhow::Result<ServicePolicy> {
        if Path::new(POLICY).exists() {
            return Ok(ServicePolicy { is_ours: false });
        }
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")
            .and_then(|()| std::fs::set_permissions(POLICY, PermissionsExt::from_mode(0o755)))
            .with_context(|| format!("cannot write {POLICY}"))?;
        Ok(ServicePolicy { is_ours: true })
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_to_install_are_deduplicated() {
        let names = ["nginx", "varnish"].map(String::from);
        assert_eq!(
            join(&packages(&names).expect("known")),
            "nginx-light varnish"
        );
        assert!(packages(&["howl".into()]).expect("known").is_empty());
        assert!(packages(&["ngnix".into()]).is_err());
    }
}
