//! What a program may use: set between fork and exec, the only place where that holds for all that
//! it starts. One of the two files of this part with
//! unsafe code.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// What a program and each of its children may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space; 0 = no limit.
    pub memory_len_max: u64,
    /// Seconds of processor time; 0 = no limit.
    pub cpu_s_max: u64,
    /// Processes and threads that its user may have, all together, before one of its is refused; 0 = no limit. Nothing is
    /// refused to root.
    pub processes_max: u64,
    /// User and group that it runs as, with no other groups; `None` = those of this process.
    pub user: Option<(u32, u32)>,
    /// Descriptors; `None` = as many as this process.
    pub descriptors: Option<Rlimit>,
    /// It is killed when the thread ends that starts it.
    pub ends_with_parent: bool,
}

/// Makes `command` set these limits, and dump no core.
#[allow(unsafe_code)]
pub fn limit(command: &mut Command, limits: Limits) {
    if let Some((user, group)) = limits.user {
        // Where this process is root, the standard library gives up all other groups too.
        command.uid(user).gid(group);
    }
    let set = move || {
        let core = Some(0);
        setrlimit(Resource::Core, rlimit(core))?;
        setrlimit(Resource::As, rlimit(some(limits.memory_len_max)))?;
        setrlimit(Resource::Cpu, rlimit(some(limits.cpu_s_max)))?;
        if limits.processes_max > 0 {
            setrlimit(Resource::Nproc, rlimit(Some(limits.processes_max)))?;
        }
        if let Some(descriptors) = limits.descriptors {
            setrlimit(Resource::Nofile, descriptors)?;
        }
        if limits.ends_with_parent {
            set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child of a process with several threads, where only what is
    // async-signal-safe is allowed. It makes six system calls at most, owns only numbers, takes no
    // lock and allocates nothing (an `Errno` becomes an `io::Error` by its number alone).
    unsafe {
        command.pre_exec(set);
    }
}

fn some(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

fn rlimit(limit: Option<u64>) -> Rlimit {
    Rlimit {
        current: limit,
        maximum: limit,
    }
}
