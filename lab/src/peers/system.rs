//! System interfaces of the keeper: signals as descriptors, CPUs, limits, and the process tree.

use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Resource, Rlimit, WaitStatus};

/// Descriptor limit of each program, if the system permits it.
const DESCRIPTORS: u64 = 65_536;

/// Describes how a program ended.
pub fn describe_exit(program: &str, status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("{program} ended with status {code}"),
        (_, Some(signal)) => format!("{program} was ended by signal {signal}"),
        _ => format!("{program} ended"),
    }
}

/// A descriptor that becomes readable when one of these signals arrives.
pub fn signals(numbers: &[i32]) -> std::io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    // A full socket must not block the signal handler, and an empty one must not block the keeper.
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    for &signal in numbers {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}

/// Pins this process to CPUs; children inherit the affinity.
pub fn pin(cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(format!("there is no CPU {cpu} on this machine"));
        }
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot run on CPUs {cpus:?}: {error}; are they on this machine?"))
}

/// The maximum descriptor limit of a program.
pub fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    limit.unwrap_or(DESCRIPTORS).min(DESCRIPTORS)
}

/// Raises the descriptor limit to the maximum. If it is still too low, servers report that themselves.
pub fn raise_descriptors() {
    let raised = Rlimit {
        current: Some(descriptors()),
        maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
    };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// All descendants of `top`, found by the parent of each process in /proc.
pub fn descendants(top: Pid) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        // A process may end between the listing and this read; its empty line is then ignored.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        parents.extend(pid_and_parent(&stat));
    }
    let mut pids = vec![top.as_raw_nonzero().get()];
    let mut index = 0;
    // Breadth first: the list grows while it is read, until no process has further children.
    while index < pids.len() {
        let parent = pids[index];
        pids.extend(
            parents
                .iter()
                .filter(|process| process.1 == parent)
                .map(|process| process.0),
        );
        index += 1;
    }
    pids[1..]
        .iter()
        .filter_map(|&pid| Pid::from_raw(pid))
        .collect()
}

/// CPU time of these processes and of their reaped children, in seconds.
pub fn cpu_s(processes: &[Pid]) -> f64 {
    /// Unit of the kernel's times, equal on every architecture (USER_HZ).
    const TICKS_PER_S: f64 = 100.0;
    let ticks = processes.iter().map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        cpu_ticks(&stat.unwrap_or_default()).unwrap_or(0)
    });
    ticks.sum::<u64>() as f64 / TICKS_PER_S
}

/// User and system time in a `/proc/PID/stat`, including those of reaped children.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The fields after the name begin with the state; utime is the twelfth of them (proc_pid_stat(5)).
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut number = || words.next()?.parse::<u64>().ok();
    Some(number()? + number()? + number()? + number()?)
}

/// Parses a `/proc/PID/stat`. The name may contain any character, but ends at the last parenthesis of the file.
fn pid_and_parent(stat: &str) -> Option<(i32, i32)> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let parent = after_name.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((pid, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_are_parsed_despite_parentheses_in_the_name() {
        assert_eq!(pid_and_parent("12 (a) b) S 7 12 12 0"), Some((12, 7)));
        assert_eq!(
            cpu_ticks("12 (a) b) S 7 12 12 0 -1 0 1 2 3 4 100 20 3 4 20 0"),
            Some(127)
        );
        assert_eq!(pid_and_parent(""), None);
        assert_eq!(pid_and_parent("x (y) S 1"), None);
    }
}
