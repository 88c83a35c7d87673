//! Assigns kernel functions to parts of a request's work, by name. Contains only a list; functions that are not listed
//! belong to `kernel, other`.

/// Parts, each with prefixes of function names without leading underscores. The first match counts.
const PARTS: &[(&str, &[&str])] = &[
    (
        "copies",
        &[
            "copy_",
            "rep_movs",
            "rep_stos",
            "memcpy",
            "memset",
            "memmove",
            "clear_page",
            "csum_and_copy",
            "simple_copy",
        ],
    ),
    (
        "soft interrupt's programs",
        &["bpf_", "cls_bpf", "tcf_", "tcx_", "sch_handle"],
    ),
    (
        "driver",
        &[
            "virtqueue",
            "virtnet",
            "vring",
            "vp_",
            "vm_",
            "virtio",
            "start_xmit",
            "xmit_skb",
            "receive_buf",
            "receive_mergeable",
            "page_to_skb",
            "free_old_xmit",
            "detach_buf",
            "skb_xmit_done",
            "iowrite",
            "ioread",
        ],
    ),
    (
        "soft interrupt",
        &[
            "napi",
            "net_rx",
            "net_tx",
            "netif",
            "dev_",
            "eth_",
            "sch_",
            "qdisc",
            "pfifo",
            "fq_",
            "handle_softirqs",
            "do_softirq",
            "softirq",
            "irq",
            "common_interrupt",
            "asm_",
            "handle_edge",
            "apic",
            "gro_",
            "skb_gro",
            "inet_gro",
            "tcp_gro",
            "tcp4_gro",
            "validate_xmit",
            "process_backlog",
            "local_bh",
        ],
    ),
    (
        "TCP and IP",
        &[
            "tcp",
            "inet",
            "ip_",
            "ip4",
            "ipv4",
            "sock",
            "sk_",
            "skb",
            "kfree_skb",
            "consume_skb",
            "alloc_skb",
            "build_skb",
            "napi_build_skb",
            "nf_",
            "fib_",
            "rt_",
            "dst_",
            "csum",
            "neigh",
            "net_",
            "cookie",
            "siphash",
            "secure_",
            "raw_",
            "lock_sock",
            "release_sock",
            "bictcp",
            "cubictcp",
            "icmp",
            "reqsk",
            "security_sock",
        ],
    ),
    (
        "system calls",
        &[
            "do_syscall",
            "entry_",
            "syscall",
            "x64_sys",
            "sys_",
            "se_sys",
            "do_sys",
            "fdget",
            "fput",
            "fget",
            "ep_",
            "epoll",
            "do_epoll",
            "eventfd",
            "import_",
            "alloc_fd",
            "close_fd",
            "exit_to_user",
            "fpregs",
            "get_user",
            "put_user",
        ],
    ),
    (
        "file system",
        &[
            "filemap",
            "vfs",
            "path_",
            "link_path",
            "walk_",
            "lookup",
            "dput",
            "d_",
            "generic_",
            "shmem",
            "simple_",
            "folio",
            "splice",
            "do_filp",
            "open",
            "statx",
            "getname",
            "iov_iter",
            "step_into",
            "inode",
            "iput",
            "terminate_walk",
            "strncpy_from",
            "alloc_file",
            "xas_",
            "xa_",
            "mnt",
            "dentry",
            "ramfs",
            "pipe",
            "page_cache",
            "file_",
        ],
    ),
    (
        "memory",
        &[
            "kmem",
            "slab",
            "kmalloc",
            "kfree",
            "alloc_pages",
            "get_page",
            "free_",
            "page_frag",
            "put_page",
            "rmqueue",
            "memcg",
            "mod_",
            "handle_mm",
            "do_anonymous",
            "exc_page_fault",
            "unmap",
            "vma",
            "mas_",
            "zap_",
            "refill",
            "obj_cgroup",
        ],
    ),
    (
        "scheduler and timers",
        &[
            "schedule",
            "pick_",
            "enqueue",
            "dequeue",
            "update_",
            "wake",
            "try_to_wake",
            "ttwu",
            "select_task",
            "switch",
            "hrtimer",
            "tick",
            "timer",
            "clockevents",
            "ktime",
            "mod_timer",
            "set_next",
            "prepare_task",
            "finish_task",
            "rcu",
            "sched",
            "read_tsc",
            "native_sched",
            "calc_",
            "cpu",
            "nohz",
            "menu",
            "default_idle",
        ],
    ),
];

/// The part of a function; `binary` is `kernel`, or `kernel` and the name of a module.
pub fn part_of(binary: &str, name: &str) -> &'static str {
    // Functions of a module may have generic names, so the module is checked first.
    if binary.contains("virtio_net") {
        return "driver";
    }
    if binary.contains("bpf") {
        return "soft interrupt's programs";
    }
    // Variants of a kernel function differ in leading underscores.
    let name = name.trim_start_matches('_');
    let fits = |(_, starts): &&(&str, &[&str])| starts.iter().any(|start| name.starts_with(start));
    PARTS
        .iter()
        .find(fits)
        .map_or("kernel, other", |(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_functions_map_to_subsystems() {
        for (name, part) in [
            ("tcp_v4_rcv", "TCP and IP"),
            ("__napi_poll", "soft interrupt"),
            ("virtqueue_add_split", "driver"),
            ("rep_movs_alternative", "copies"),
            ("entry_SYSCALL_64", "system calls"),
            ("do_sys_openat2", "system calls"),
            ("filemap_read", "file system"),
            ("kmem_cache_free", "memory"),
            ("__schedule", "scheduler and timers"),
            ("something", "kernel, other"),
        ] {
            assert_eq!(part_of("kernel", name), part, "{name}");
        }
        assert_eq!(part_of("kernel virtio_net", "receive"), "driver");
    }
}
