//! Resource limits of a program. They are set between fork and exec, the only place where they apply to all of its
//! descendants. This is the only file of this crate with unsafe code.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};

/// The limits of a program and of each of its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "messages", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessLimits {
    /// Bytes of address space; 0 = no limit.
    pub memory_len_max: u64,
    /// Seconds of processor time; 0 = no limit.
    pub cpu_s_max: u64,
    /// Total number of processes and threads of its user, above which no more can be created; 0 = no limit. Does not
    /// apply to root.
    pub processes_max: u64,
    /// User and group to run as, without supplementary groups; `None`: those of this process.
    pub user: Option<(u32, u32)>,
    /// The soft and the hard limit of descriptors; `None`: those of this process.
    pub descriptors: Option<(Option<u64>, Option<u64>)>,
    /// Kill the program when the thread that started it ends.
    pub ends_with_parent: bool,
}

/// Makes `command` set these limits and disable core dumps.
#[allow(unsafe_code)]
pub fn limit(command: &mut Command, limits: ProcessLimits) {
    if let Some((user, group)) = limits.user {
        // If this process is root, the standard library also drops the supplementary groups.
        command.uid(user).gid(group);
    }
    let set = move || {
        lower(Resource::Core, soft_and_hard(Some(0)))?;
        lower(Resource::As, soft_and_hard(limit_of(limits.memory_len_max)))?;
        lower(Resource::Cpu, soft_and_hard(limit_of(limits.cpu_s_max)))?;
        if limits.processes_max > 0 {
            lower(Resource::Nproc, soft_and_hard(Some(limits.processes_max)))?;
        }
        if let Some((current, maximum)) = limits.descriptors {
            lower(Resource::Nofile, Rlimit { current, maximum })?;
        }
        if limits.ends_with_parent {
            set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child of a multi-threaded process, where only async-signal-safe functions
    // are allowed. It makes at most eleven system calls, owns only numbers, takes no lock and does not allocate (an
    // `Errno` becomes an `io::Error` that contains only its number).
    unsafe {
        command.pre_exec(set);
    }
}

/// Sets a limit, capped by the hard limit of this process, which only root could raise. On a machine with little
/// memory, the kernel's default limit of processes is lower than the default here.
fn lower(resource: Resource, requested: Rlimit) -> rustix::io::Result<()> {
    let Some(hard) = getrlimit(resource).maximum else {
        return setrlimit(resource, requested);
    };
    let capped = |limit: Option<u64>| Some(limit.map_or(hard, |limit| limit.min(hard)));
    setrlimit(
        resource,
        Rlimit {
            current: capped(requested.current),
            maximum: capped(requested.maximum),
        },
    )
}

/// Converts a configured limit; 0 = no limit.
fn limit_of(configured: u64) -> Option<u64> {
    (configured > 0).then_some(configured)
}

fn soft_and_hard(limit: Option<u64>) -> Rlimit {
    Rlimit {
        current: limit,
        maximum: limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a machine with 512 MiB, where the kernel permits about 1,900 processes.
    #[test]
    #[allow(unsafe_code)]
    fn limits_are_capped_by_the_hard_limit() {
        // setrlimit(2) fails above the hard limit, so the program would not start.
        const NOBODY: u32 = 65_534;
        let mut command = Command::new("grep");
        command.args(["-E", "processes|open files", "/proc/self/limits"]);
        // SAFETY: only system calls with numbers, in a forked child that is about to exec.
        unsafe {
            command.pre_exec(|| {
                lower(Resource::Nproc, soft_and_hard(Some(500)))?;
                lower(Resource::Nofile, soft_and_hard(Some(100)))?;
                Ok(())
            });
        }
        let is_root = rustix::process::geteuid().is_root();
        limit(
            &mut command,
            ProcessLimits {
                memory_len_max: 0,
                cpu_s_max: 0,
                processes_max: 4096,
                user: is_root.then_some((NOBODY, NOBODY)),
                descriptors: Some((Some(1000), Some(1000))),
                ends_with_parent: false,
            },
        );
        let output = command.output().expect("grep runs");
        let output = String::from_utf8_lossy(&output.stdout);
        let hard: Vec<&str> = output
            .lines()
            .filter_map(|line| line.split_whitespace().rev().nth(1))
            .collect();
        assert_eq!(hard, ["500", "100"], "{output}");
    }
}
