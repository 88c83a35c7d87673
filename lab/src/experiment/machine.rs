//! The machine of a measurement, without which a result has no meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The machine that measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Kernel and its release.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
    /// Usable cores.
    pub cores: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl MachineInfo {
    /// Describes this machine. Unknown values are empty.
    #[must_use]
    pub fn current() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // /proc/meminfo writes kB and means KiB (proc_meminfo(5)).
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
        }
    }
}

impl fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineInfo {
            kernel,
            cpu,
            cores,
            memory_mib,
        } = self;
        write!(
            f,
            "{kernel}, {cores} cores of {cpu}, {memory_mib} MiB memory"
        )
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colon_separated_fields_are_parsed() {
        assert_eq!(field("a: 1\nb\t: 2 kB\n", "b"), Some("2 kB".into()));
        assert_eq!(field("a: 1\n", "c"), None);
        assert!(MachineInfo::current().cores > 0);
    }
}
