//! Processes: the output of a command, the memory of a process, and the limit of file descriptors of this process. See
//! setrlimit(2), and proc(5) for `smaps_rollup`.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The private memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct PrivateMemory {
    /// Resident bytes.
    pub resident: u64,
    /// Resident anonymous bytes, which are not from files.
    pub anonymous: u64,
}

impl PrivateMemory {
    /// The memory of a child process.
    pub fn of_process(pid: u32) -> PrivateMemory {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(path).expect("a process of ours");
        let field_bytes = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with(name)).expect("a line");
            let kib = line.split_whitespace().nth(1).expect("a number");
            kib.parse::<u64>().expect("KiB") << 10
        };
        PrivateMemory {
            resident: field_bytes("Rss:"),
            anonymous: field_bytes("Pss_Anon:"),
        }
    }

    /// The bytes added since `before`, per item of `count`: resident and anonymous.
    pub fn since(&self, before: PrivateMemory, count: usize) -> (f64, f64) {
        let per_item = |now: u64, before: u64| now.saturating_sub(before) as f64 / count as f64;
        (
            per_item(self.resident, before.resident),
            per_item(self.anonymous, before.anonymous),
        )
    }
}

/// Raises this process's limit of file descriptors to `count`; prints a message and returns false if that is not
/// possible.
pub fn raise_descriptor_limit(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|max| max < count) {
        println!(
            "skipped: this test needs {count} descriptors and may have only {:?} (ulimit -Hn)",
            limit.maximum
        );
        return false;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
    true
}

/// Runs a command that must succeed; returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
