//! Metrics of the process, with the names that all Prometheus client libraries use. They are read from proc(5).

use std::fs;

use lowroad_metrics::{MetricKind, MetricSnapshot};
use rustix::param::{clock_ticks_per_second, page_size};

/// Adds the metrics of the process, except those that can't be read.
pub fn add(out: &mut MetricSnapshot) {
    if let Some(memory) = memory() {
        out.gauge(
            "process_virtual_memory_bytes",
            "Virtual memory of the process.",
            memory.virtual_bytes,
        );
        out.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            memory.resident_bytes,
        );
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // One of them is the descriptor of `/proc/self/fd` itself.
        let count = entries.count().saturating_sub(1) as u64;
        out.gauge("process_open_fds", "Open file descriptors.", count);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if let Some(limit) = limit.current {
        out.gauge("process_max_fds", "The limit of file descriptors.", limit);
    }
    if let Some((cpu_s, start_s)) = times() {
        let family = out.family(
            MetricKind::Counter,
            "process_cpu_seconds",
            "Processor time of the process.",
        );
        family.real(&[], cpu_s);
        let family = out.family(
            MetricKind::Gauge,
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
        );
        family.real(&[], start_s);
    }
}

struct ProcessMemory {
    virtual_bytes: u64,
    resident_bytes: u64,
}

/// `/proc/self/statm`, in pages.
fn memory() -> Option<ProcessMemory> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    // The first two fields are the total size and the resident set (proc_pid_statm(5)).
    let mut pages = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let page_len = page_size() as u64;
    Some(ProcessMemory {
        virtual_bytes: pages.next()?? * page_len,
        resident_bytes: pages.next()?? * page_len,
    })
}

/// The processor time in seconds, and the start time in seconds since 1970. They are computed from `/proc/self/stat`,
/// in clock ticks, and `btime` of `/proc/stat`.
fn times() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The process name, field 2, may contain spaces and parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // proc_pid_stat(5) numbers the fields from 1, and the first two, with the name, are cut off here.
    let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let (user, system, start) = (ticks(14)?, ticks(15)?, ticks(22)?);
    let per_s = clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot_s = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot_s: f64 = boot_s.trim().parse().ok()?;
    Some(((user + system) / per_s, boot_s + start / per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_and_times() {
        let mut snapshot = MetricSnapshot::default();
        add(&mut snapshot);
        assert_eq!(snapshot.families.len(), 6);
        let (cpu_s, start_s) = times().expect("proc");
        assert!((0.0..1e6).contains(&cpu_s), "{cpu_s}");
        assert!(start_s > 1.7e9, "{start_s}");
    }
}
