//! Determines the memory that is available to this process: the system's, or the limit of its control group. The
//! default cache size depends on it.

use std::fs;
use std::path::{Path, PathBuf};

use lowroad_config::ProcessConfig;

/// Limits a cache of default size to a quarter of the memory: unlike the page cache, the kernel can't reclaim it.
pub fn fit_cache(server: &mut ProcessConfig) {
    // A configured size is kept, even if it exceeds the memory.
    if server.is_cache_chosen {
        return;
    }
    if let Some(len) = available_len() {
        server.cache_len_max = server.cache_len_max.min(len / 4);
        // A single response must not displace most of the others.
        server.cache_object_len_max = server.cache_object_len_max.min(server.cache_len_max / 4);
    }
}

/// The available memory in bytes; `None` if the system does not report it.
fn available_len() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let machine = meminfo.and_then(|text| total(&text));
    let read = |name: &str| fs::read_to_string(Path::new("/proc/self").join(name));
    let group = group_limit(
        &read("mountinfo").unwrap_or_default(),
        &read("cgroup").unwrap_or_default(),
    );
    // /proc/meminfo shows the machine's memory even in a container, so the smaller value counts.
    machine.into_iter().chain(group).min()
}

/// `MemTotal` of proc_meminfo(5), converted from kibibytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest memory limit of the process's control groups and their ancestors. Hierarchies of both versions are
/// searched, since both may be mounted (cgroups(7)).
fn group_limit(mounts: &str, groups: &str) -> Option<u64> {
    let hierarchies = mounts.lines().filter_map(CgroupHierarchy::read);
    hierarchies
        .filter_map(|hierarchy| hierarchy.limit(groups))
        .min()
}

/// A mounted control group hierarchy that may limit memory.
struct CgroupHierarchy<'m> {
    /// The mount point.
    mount: &'m Path,
    /// The control group that appears at the mount point: in a container often the container's own group.
    root: &'m Path,
    is_v1: bool,
}

impl<'m> CgroupHierarchy<'m> {
    /// Parses a line of proc_pid_mountinfo(5).
    fn read(line: &'m str) -> Option<CgroupHierarchy<'m>> {
        let (mount, kind) = line.split_once(" - ")?;
        // Fields 4 and 5 are the root and the mount point.
        let mut mount = mount.split(' ').skip(3);
        // Optional fields end at " - "; type, source and super options follow (proc_pid_mountinfo(5)).
        let (root, mount_point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let is_v1 = match kind.next()? {
            "cgroup2" => false,
            "cgroup" => true,
            _ => return None,
        };
        let options = kind.nth(1).unwrap_or_default();
        // Version 1 has one hierarchy for each controller.
        (!is_v1 || has_memory(options)).then_some(CgroupHierarchy {
            mount: Path::new(mount_point),
            root: Path::new(root),
            is_v1,
        })
    }

    /// The smallest limit of this hierarchy that applies to a process with these groups (`/proc/self/cgroup`).
    fn limit(&self, groups: &str) -> Option<u64> {
        let mut lines = groups.lines().map(|line| line.splitn(3, ':'));
        let group = lines.find_map(|mut parts| {
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            // Version 2 has hierarchy number 0 and an empty list of controllers (cgroups(7)).
            let applies = match self.is_v1 {
                true => has_memory(controllers),
                false => number == "0" && controllers.is_empty(),
            };
            applies.then_some(Path::new(path))
        })?;
        // In a container, the path may be the host's and lie outside the mount; then only the mounted group is known.
        let relative = group.strip_prefix(self.root).unwrap_or(Path::new(""));
        let group_folder: PathBuf = self.mount.join(relative);
        let name = if self.is_v1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        let limit = |folder: &Path| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            // Version 2 writes "max" for no limit, which is not a number.
            text.trim().parse().ok()
        };
        // A parent's limit applies to all its descendants.
        group_folder
            .ancestors()
            .take_while(|folder| folder.starts_with(self.mount))
            .filter_map(limit)
            .min()
    }
}

fn has_memory(controllers: &str) -> bool {
    controllers.split(',').any(|name| name == "memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_parsed_from_meminfo() {
        let text = "MemTotal:         497152 kB\nMemFree:          300000 kB\n";
        assert_eq!(total(text), Some(497_152 << 10));
        assert_eq!(total("MemTotal: much\n"), None);
    }

    #[test]
    fn smallest_limit_of_a_group_and_its_ancestors_applies() {
        let folder = lowroad_testkit::TempFolder::new();
        let inner = folder.path().join("system.slice/lowroad.service");
        fs::create_dir_all(&inner).expect("folders");
        let groups = "0::/system.slice/lowroad.service\n";
        let mounts = format!(
            "30 23 0:26 / {} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            folder.path().display()
        );
        assert_eq!(group_limit(&mounts, groups), None);
        fs::write(inner.join("memory.max"), "max\n").expect("a file");
        assert_eq!(group_limit(&mounts, groups), None);
        fs::write(folder.path().join("system.slice/memory.max"), "134217728\n").expect("a file");
        assert_eq!(group_limit(&mounts, groups), Some(128 << 20));
        assert_eq!(group_limit(&mounts, "1:cpu:/\n"), None);
    }

    #[test]
    fn limits_of_cgroup_version_1_apply() {
        const UNLIMITED: &str = "9223372036854771712\n";
        let folder = lowroad_testkit::TempFolder::new();
        let file = |name: &str, text: &str| drop(folder.file(name, text));
        let mounts = |root: &str| {
            let at = folder.path().display();
            format!(
                "30 23 0:26 {root} {at}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 31 23 0:27 {root} {at}/memory rw - cgroup cgroup rw,memory\n\
                 32 23 0:28 / {at}/unified rw - cgroup2 cgroup2 rw\n"
            )
        };
        let groups = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n";
        file("memory/memory.limit_in_bytes", UNLIMITED);
        file("memory/docker/abc/memory.limit_in_bytes", "67108864\n");
        file("cpu/memory.limit_in_bytes", "1\n");
        assert_eq!(group_limit(&mounts("/"), groups), Some(64 << 20));
        // A container's mount shows the container's own group as the root.
        file("memory/memory.limit_in_bytes", "33554432\n");
        assert_eq!(group_limit(&mounts("/docker/abc"), groups), Some(32 << 20));
        assert_eq!(group_limit(&mounts("/elsewhere"), groups), Some(32 << 20));
    }

    #[test]
    fn configured_cache_size_is_kept() {
        let fitted = |is_cache_chosen| {
            let mut server = ProcessConfig {
                cache_len_max: 1 << 50,
                is_cache_chosen,
                ..ProcessConfig::default()
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
