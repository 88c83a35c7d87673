//! Selects QEMU's accelerator. An accessible `/dev/kvm` does not suffice: another hypervisor may implement it, and it
//! may fail at some instruction. So a trial boots the images' kernel without a site, which then powers off.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lowroad_child_processes::process::{ChildProcess, readable, ready};
use lowroad_embedded_kernel::KERNEL;
use rustix::fs::{MemfdFlags, memfd_create};

use super::qemu::PROGRAM;

/// Timeout of the trial; a machine that works powers off in a tenth of this time.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns `kvm` if it works, else `tcg`.
pub fn best() -> &'static str {
    let can_open = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok();
    match can_open && is_working("kvm").unwrap_or(false) {
        true => "kvm",
        false => "tcg",
    }
}

/// Whether a machine boots and powers off with this accelerator.
fn is_working(accel: &str) -> io::Result<bool> {
    let Some(kernel) = KERNEL else {
        return Ok(false);
    };
    // QEMU opens the kernel by its path; the anonymous file has one in /proc.
    let mut file = File::from(memfd_create("kernel", MemfdFlags::CLOEXEC)?);
    file.write_all(kernel)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new(PROGRAM);
    command
        .args(
            "-M q35 -cpu max -m 64 -nodefaults -no-user-config -no-reboot -display none".split(' '),
        )
        .args(["-accel", accel, "-kernel", &path])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut machine = ChildProcess::spawn(command)?;
    // A guest that fails under KVM hangs instead of exiting, so the wait has a timeout.
    let [has_ended] = ready(
        [Some(readable(&machine))],
        Some(Instant::now() + TRIAL_TIMEOUT),
    )?;
    match has_ended {
        true => Ok(machine.reap()?.success()),
        // The timeout has passed: the guest hangs.
        false => machine.kill().map(|_| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_machine_boots_and_powers_off() {
        if Command::new(PROGRAM).arg("--version").output().is_err() {
            lowroad_testkit::skip("trial_machine_boots_and_powers_off", "no QEMU");
            return;
        }
        assert!(is_working("tcg").expect("a machine"));
        assert!(!is_working("no such thing").expect("a process"));
    }
}
