//! Seccomp filters: system calls that code which serves requests never needs fail with EPERM.
//!
//! A filter belongs to a thread and to the threads and programs that it starts, for good. It is a deny list: a call that
//! is missing in an allow list would be an outage. A denied call is an error, not the end of the process, and `strace` shows
//! it. See docs/decisions/0080-filters-by-thread.md.

use std::any::Any;
use std::collections::BTreeMap;
use std::thread;

use libc::c_long;
use rustix::thread::set_no_new_privs;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Denied to code that serves requests: starting programs, inspecting processes, changing user, root folder or namespace,
/// kernel interfaces with a history of vulnerabilities, and administration.
const DENIED: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_vhangup,
];

/// Calls that exist only on x86-64. The numbers above 512 are those of the x32 interface for calls that differ in it.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_mknod,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    520, // execve
    521, // ptrace
    528, // kexec_load
    539, // process_vm_readv
    540, // process_vm_writev
    545, // execveat
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// The bit of system call numbers of the x32 interface, by which a process of x86-64 can make most calls, too.
const X32_BIT: c_long = 0x4000_0000;

/// The address families of sockets that are allowed. Resolvers read the local addresses over netlink.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// The obsolete type of sockets that receive whole packets (packet(7)).
const SOCK_PACKET: i32 = 10;
/// The part of a socket's type that is not flags.
const TYPE_MASK: u64 = 0xf;

/// Flags of clone(2) that make namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The filters of a thread that serves requests.
pub struct ThreadFilter(Vec<BpfProgram>);

impl ThreadFilter {
    /// The filter for threads that serve requests, and for the native modules that they call.
    ///
    /// # Errors
    /// The processor is not supported: a text for the operator.
    pub fn for_requests() -> Result<ThreadFilter, String> {
        ThreadFilter::new(Vec::new())
    }

    /// The filter for a helper process: no sockets at all, in addition.
    ///
    /// # Errors
    /// As [`ThreadFilter::for_requests`].
    pub fn for_helpers() -> Result<ThreadFilter, String> {
        ThreadFilter::new(vec![libc::SYS_socket, libc::SYS_connect, libc::SYS_bind])
    }

    fn new(denied_too: Vec<c_long>) -> Result<ThreadFilter, String> {
        let failed = |error: seccompiler::BackendError| format!("no seccomp filter: {error}");
        let mut rules = denied_arguments().map_err(failed)?;
        let always = [DENIED, DENIED_HERE, &denied_too].concat();
        rules.extend(always.into_iter().map(|number| (number, Vec::new())));
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        // The arguments of clone3(2) are in memory, which a filter can't read. C libraries then use clone(2).
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let programs = [(rules, refused), (clone3, missing)].map(|(rules, action)| {
            let arch = TargetArch::try_from(std::env::consts::ARCH)?;
            SeccompFilter::new(with_x32(rules), SeccompAction::Allow, action, arch)?.try_into()
        });
        let programs: Result<Vec<BpfProgram>, _> = programs.into_iter().collect();
        programs.map(ThreadFilter).map_err(failed)
    }

    /// Restricts the calling thread, and those that it starts later. It also gives up the rights of set-user-ID programs
    /// (`PR_SET_NO_NEW_PRIVS`), without which only root may install filters.
    ///
    /// # Errors
    /// The kernel has no seccomp filters: a text for the operator.
    pub fn apply(&self) -> Result<(), String> {
        set_no_new_privs(true).map_err(|error| format!("no seccomp filter: {error}"))?;
        let mut programs = self.0.iter();
        programs
            .try_for_each(|program| apply_filter(program))
            .map_err(|error| format!("no seccomp filter: {error}"))
    }
}

/// Runs `start` on a thread with this filter, which the threads that `start` starts inherit.
///
/// # Errors
/// The filter can't be applied: nothing was started.
pub fn start_filtered<T: Send>(
    filter: &ThreadFilter,
    start: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let run = || filter.apply().map(|()| start());
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|payload| Err(panic_text(&*payload)))
}

type DeniedCalls = BTreeMap<c_long, Vec<SeccompRule>>;

/// Calls that are denied with some arguments: sockets of other families, raw sockets, and new namespaces.
fn denied_arguments() -> Result<DeniedCalls, seccompiler::BackendError> {
    let condition = |index, op, value: i32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value as u64)
    };
    let other_family = FAMILIES.map(|family| condition(0, SeccompCmpOp::Ne, family));
    let other_family = other_family.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut sockets = vec![SeccompRule::new(other_family)?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_RAW, SOCK_PACKET] {
            sockets.push(SeccompRule::new(vec![
                condition(0, SeccompCmpOp::Eq, family)?,
                condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?,
            ])?);
        }
    }
    let namespaces = NAMESPACES.map(|flag| {
        let is_set = condition(0, SeccompCmpOp::MaskedEq(flag as u32 as u64), flag)?;
        SeccompRule::new(vec![is_set])
    });
    let namespaces = namespaces.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(BTreeMap::from([
        (libc::SYS_socket, sockets),
        (libc::SYS_clone, namespaces),
    ]))
}

/// Adds the same calls by the x32 interface.
fn with_x32(calls: DeniedCalls) -> DeniedCalls {
    let mut all = calls.clone();
    if cfg!(target_arch = "x86_64") {
        let x32 = calls.into_iter();
        all.extend(x32.map(|(number, rules)| (number | X32_BIT, rules)));
    }
    all
}

/// The reason of a panic, such as a lack of descriptors.
fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("a thread panicked: {}", text.unwrap_or("no reason"))
}

#[cfg(test)]
mod tests;
