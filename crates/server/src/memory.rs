//! How much memory there is for this process: the machine's, or its control group's limit. Knows nothing of what it is for.

use std::fs;
use std::path::{Path, PathBuf};

use lowroad_config::Server;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Makes a cache that nobody chose no larger than a quarter of the memory. The kernel can't take it back as it can the files that it
/// keeps itself.
pub fn fit_cache(server: &mut Server) {
    if server.is_cache_chosen {
        return;
    }
    if let Some(len) = here_len() {
        server.cache_len_max = server.cache_len_max.min(len / 4);
        server.cache_object_len_max = server.cache_object_len_max.min(server.cache_len_max / 4);
    }
}

/// Bytes of memory that there are in all; `None` where the system does not say.
fn here_len() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let machine = meminfo.and_then(|text| total(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.and_then(|text| group_limit(Path::new(CGROUPS), &text));
    machine.into_iter().chain(group).min()
}

/// `MemTotal` of proc_meminfo(5), which has kibibytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least `memory.max` of a process's group and those above it (cgroups(7), version 2).
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own: PathBuf = root.join(path);
    let above = own
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    let limit = |folder: &Path| {
        fs::read_to_string(folder.join("memory.max"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    above.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_of_meminfo() {
        let text = "MemTotal:         497152 kB\nMemFree:          300000 kB\n";
        assert_eq!(total(text), Some(497_152 << 10));
        assert_eq!(total("MemTotal: much\n"), None);
    }

    #[test]
    fn the_least_limit_of_the_groups_counts() {
        let folder = lowroad_testkit::Folder::new();
        let inner = folder.path().join("system.slice/lowroad.service");
        fs::create_dir_all(&inner).expect("folders");
        let groups = "0::/system.slice/lowroad.service\n";
        assert_eq!(group_limit(folder.path(), groups), None);
        fs::write(inner.join("memory.max"), "max\n").expect("a file");
        assert_eq!(group_limit(folder.path(), groups), None);
        fs::write(folder.path().join("system.slice/memory.max"), "134217728\n").expect("a file");
        assert_eq!(group_limit(folder.path(), groups), Some(128 << 20));
        assert_eq!(group_limit(folder.path(), "1:cpu:/\n"), None);
    }

    #[test]
    fn what_was_chosen_stays() {
        let fitted = |is_cache_chosen| {
            let mut server = Server {
                cache_len_max: 1 << 50,
                is_cache_chosen,
                ..Server::default()
            };
            fit_cache(&mut server);
            server
        };
        assert_eq!(fitted(true).cache_len_max, 1 << 50);
        let unchosen = fitted(false);
        assert!(unchosen.cache_len_max < 1 << 50);
        assert!(unchosen.cache_object_len_max <= unchosen.cache_len_max / 4);
    }
}
