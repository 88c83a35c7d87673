//! Process resources: the memory of a process, and the descriptor limit of this one. See setrlimit(2), and proc(5) for
//! `smaps_rollup`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of private memory.
#[derive(Clone, Copy, Debug)]
pub struct PrivateMemory {
    /// All resident bytes.
    pub resident: u64,
    /// Resident bytes that are not from files.
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

    /// The bytes added since `before` for each of `count`.
    pub fn since(&self, before: PrivateMemory, count: usize) -> (f64, f64) {
        let per_item = |now: u64, before: u64| now.saturating_sub(before) as f64 / count as f64;
        (
            per_item(self.resident, before.resident),
            per_item(self.anonymous, before.anonymous),
        )
    }
}

/// Raises this process's descriptor limit to `count`; prints a message and returns false if that is impossible.
pub fn enough_descriptors(count: u64) -> bool {
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
