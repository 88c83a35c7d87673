//! Number of runs and run time of the attached programs, as counted by the kernel. The kernel counts only on request,
//! since reading the clock costs each run some nanoseconds.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_wire::width;

use crate::programs::calls::{checked, owned};
use crate::programs::links::PREFIXES;

/// Statistics of an attached program since it was loaded; periods in which counting was disabled are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStats {
    /// The name of its link, such as `tc-eth0`.
    pub link: String,
    /// Id of the program, which is the same on all interfaces of a tier.
    pub program_id: u32,
    /// Total run time.
    pub time_ns: u64,
    /// Number of runs.
    pub count: u64,
}

/// While this value exists, the kernel counts the runs of all eBPF programs on the machine.
#[derive(Debug)]
pub struct BpfStatsGuard {
    _fd: OwnedFd,
}

impl BpfStatsGuard {
    /// Enables counting.
    ///
    /// # Errors
    /// If the process lacks CAP_SYS_ADMIN, or the kernel is older than 5.8.
    pub fn start() -> io::Result<BpfStatsGuard> {
        // SAFETY: creates a descriptor, and accesses no memory of this process.
        let fd = owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })?;
        Ok(BpfStatsGuard { _fd: fd })
    }
}

/// Whether counting is enabled permanently by `kernel.bpf_stats_enabled`.
#[must_use]
pub fn is_counting_enabled() -> bool {
    let setting = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
    setting.is_ok_and(|value| value.trim() == "1")
}

/// The statistics of each program with a link pinned in the level's folder; links that can't be read are left out.
#[must_use]
pub fn read_runs(folder: &Path) -> Vec<RunStats> {
    let mut found: Vec<RunStats> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let link = entry.file_name().to_string_lossy().into_owned();
            let is_link = PREFIXES.iter().any(|prefix| link.starts_with(prefix));
            let program_id = is_link.then(|| program_of(&entry.path()).ok()).flatten()?;
            let (time_ns, count) = counts_of(program_id).ok()?;
            Some(RunStats {
                link,
                program_id,
                time_ns,
                count,
            })
        })
        .collect();
    // The order of directory entries is arbitrary.
    found.sort_by(|a, b| a.link.cmp(&b.link));
    found
}

/// Total run time and number of runs. Each program counts once, however many links it has.
#[must_use]
pub fn sum(runs: &[RunStats]) -> (u64, u64) {
    let mut seen = Vec::new();
    let mut sums = (0, 0);
    for run in runs {
        if !seen.contains(&run.program_id) {
            seen.push(run.program_id);
            sums = (sums.0 + run.time_ns, sums.1 + run.count);
        }
    }
    sums
}

fn program_of(link: &Path) -> io::Result<u32> {
    let path = CString::new(link.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that outlives the call.
    let link = owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = len_of(&info);
    // SAFETY: the descriptor is open; the struct has the size that is passed, and any bytes are a valid value.
    checked(unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok(info.prog_id)
}

fn counts_of(program_id: u32) -> io::Result<(u64, u64)> {
    // SAFETY: creates a descriptor, and accesses no memory of this process.
    let program = owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(program_id) })?;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = len_of(&info);
    // SAFETY: as in `program_of`; the struct's pointers are null, so nothing is written through them.
    checked(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok((info.run_time_ns, info.run_cnt))
}

fn len_of<T>(_value: &T) -> u32 {
    width::len_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_on_several_interfaces_is_counted_once() {
        let runs = |link: &str, program_id, time_ns, count| RunStats {
            link: link.into(),
            program_id,
            time_ns,
            count,
        };
        let all = [
            runs("tc-a", 7, 100, 2),
            runs("tc-b", 7, 100, 2),
            runs("xdp-c", 8, 50, 1),
        ];
        assert_eq!(sum(&all), (150, 3));
        assert_eq!(sum(&[]), (0, 0));
    }
}
