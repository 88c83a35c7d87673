//! Applies a systemd unit's restrictions to a process without systemd: user, capabilities, system calls, address
//! families and namespaces; not those of the file system.
//!
//! A thread restricts itself permanently, then starts the process. `systemd-analyze` lists the groups of system calls.
//! See systemd.exec(5).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq, SeccompCmpOp::Ne,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use syscalls::Sysno;

/// Flags of clone(2) that create namespaces.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// The settings of a unit file, in order.
pub struct UnitFile(Vec<(String, String)>);

impl UnitFile {
    /// Reads a unit file. An empty value removes the earlier values of its key, as in drop-ins.
    pub fn read(file: &Path) -> UnitFile {
        let text = fs::read_to_string(file).expect("the unit");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut settings: Vec<(String, String)> = Vec::new();
        for (key, value) in lines.filter_map(|line| line.split_once('=')) {
            match value.is_empty() {
                true => settings.retain(|(earlier, _)| earlier != key),
                false => settings.push((key.into(), value.into())),
            }
        }
        UnitFile(settings)
    }

    /// The values of a key.
    pub fn all<'u>(&'u self, key: &'u str) -> impl Iterator<Item = &'u str> {
        let matching = self.0.iter().filter(move |(it, _)| it == key);
        matching.map(|(_, value)| value.as_str())
    }

    fn words<'u>(&'u self, key: &'u str) -> impl Iterator<Item = &'u str> {
        self.all(key).flat_map(str::split_whitespace)
    }

    /// Whether this system can apply the unit's restrictions.
    pub fn can_be_applied() -> bool {
        rustix::process::getuid().is_root() && !group("@system-service").is_empty()
    }

    /// Runs a function under the unit's restrictions, on a separate thread. The restrictions also apply to processes
    /// that the function starts.
    pub fn confine<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        // The restrictions can't be undone, so a separate thread applies them.
        std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                self.become_user();
                self.filter_calls();
                act()
            });
            confined.join().expect("it is done")
        })
    }

    /// Keeps uid 0 with the capabilities of the bounding set, for commands with the prefix `!`.
    fn stay_root(&self) {
        let capabilities: CapabilitySet = self
            .words("CapabilityBoundingSet")
            .map(capability)
            .collect();
        for dropped in CapabilitySet::all().difference(capabilities).iter() {
            // The removal fails for capabilities that are newer than the kernel.
            let _ = remove_capability_from_bounding_set(dropped);
        }
        let sets = CapabilitySets {
            effective: capabilities,
            permitted: capabilities,
            // The capabilities are not inheritable: programs get them only because they run as root.
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).expect("the capabilities");
    }

    fn become_user(&self) {
        if self
            .all("ExecStart")
            .any(|command| command.starts_with('!'))
        {
            return self.stay_root();
        }
        let capabilities = self.words("CapabilityBoundingSet").count();
        assert_eq!(capabilities, 0, "only root keeps capabilities here");
        let (uid, gid) = self.all("User").last().map(account).expect("a user");
        for dropped in CapabilitySet::all().iter() {
            // The removal fails for capabilities that are newer than the kernel.
            let _ = remove_capability_from_bounding_set(dropped);
        }
        // Groups are changed before the user, which can't change them afterwards. The change of the user drops all
        // capabilities.
        set_thread_groups(&[]).expect("no groups");
        set_thread_res_gid(gid, gid, gid).expect("the group");
        set_thread_res_uid(uid, uid, uid).expect("the user");
    }

    fn filter_calls(&self) {
        let allowed = self.allowed_calls();
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = allowed
            .iter()
            .map(|call| (i64::from(call.id()), Vec::new()))
            .collect();
        let families = self.words("RestrictAddressFamilies").map(family);
        // The conditions of a rule are combined by AND: the family differs from all allowed ones.
        let family_conditions = families.map(|family| condition(0, Ne, family)).collect();
        let family_rule = SeccompRule::new(family_conditions).expect("a rule");
        apply(&filter(
            BTreeMap::from([(libc::SYS_socket, vec![family_rule])]),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EAFNOSUPPORT as u32),
        ));
        if self.all("RestrictNamespaces").any(|value| value == "yes") {
            // clone(2) is allowed only without the flags for new namespaces.
            let namespace_rule = SeccompRule::new(vec![condition(0, MaskedEq(NEW_NAMESPACES), 0)]);
            rules.insert(libc::SYS_clone, vec![namespace_rule.expect("a rule")]);
            rules.remove(&libc::SYS_unshare);
            rules.remove(&libc::SYS_setns);
            // The flags of clone3(2) are in memory, which seccomp filters can't read. After ENOSYS, libraries use
            // clone(2).
            apply(&filter(
                BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
                SeccompAction::Allow,
                SeccompAction::Errno(libc::ENOSYS as u32),
            ));
        }
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        // The allow-list is installed last, as it may forbid seccomp(2).
        apply(&filter(rules, refused, SeccompAction::Allow));
    }

    /// Combines filters like systemd: the first line decides between allow-list and deny-list, and `~` removes calls.
    fn allowed_calls(&self) -> BTreeSet<Sysno> {
        let mut allowed = calls("@default");
        for line in self.all("SystemCallFilter") {
            let (removes, names) = match line.strip_prefix('~') {
                Some(names) => (true, names),
                None => (false, line),
            };
            for call in names.split_whitespace().flat_map(calls) {
                match removes {
                    true => allowed.remove(&call),
                    false => allowed.insert(call),
                };
            }
        }
        allowed
    }
}

fn condition(argument: u8, operator: seccompiler::SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, Dword, operator, value).expect("a condition")
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    mismatch_action: SeccompAction,
    match_action: SeccompAction,
) -> BpfProgram {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known architecture");
    let filter = SeccompFilter::new(rules, mismatch_action, match_action, arch).expect("a filter");
    filter.try_into().expect("a program")
}

fn apply(program: &BpfProgram) {
    apply_filter(program).expect("the kernel takes the filter");
}

/// The system calls of a group (`@…`), or the call with this name. Calls of other architectures are omitted.
fn calls(name: &str) -> BTreeSet<Sysno> {
    match name.starts_with('@') {
        true => group(name)
            .iter()
            .flat_map(|member| calls(member))
            .collect(),
        false => Sysno::from_str(name).into_iter().collect(),
    }
}

/// The members of a group: names of calls, and other groups. Empty without `systemd-analyze`.
fn group(name: &str) -> Vec<String> {
    let result = Command::new("systemd-analyze")
        .args(["--no-pager", "syscall-filter", name])
        .output();
    let Ok(output) = result else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The first line is the group's name; lines with `#` describe it.
    let members = text.lines().skip(1).map(str::trim);
    members
        .filter(|member| !member.is_empty() && !member.starts_with('#'))
        .map(String::from)
        .collect()
}

fn capability(name: &str) -> CapabilitySet {
    match name {
        "CAP_NET_BIND_SERVICE" => CapabilitySet::NET_BIND_SERVICE,
        "CAP_SETUID" => CapabilitySet::SETUID,
        "CAP_SETGID" => CapabilitySet::SETGID,
        "CAP_CHOWN" => CapabilitySet::CHOWN,
        "CAP_DAC_OVERRIDE" => CapabilitySet::DAC_OVERRIDE,
        "CAP_DAC_READ_SEARCH" => CapabilitySet::DAC_READ_SEARCH,
        other => panic!("{other} is not known here"),
    }
}

fn family(name: &str) -> u64 {
    let number = match name {
        "AF_UNIX" => libc::AF_UNIX,
        "AF_INET" => libc::AF_INET,
        "AF_INET6" => libc::AF_INET6,
        other => panic!("{other} is not known here"),
    };
    number as u64
}

fn account(name: &str) -> (Uid, Gid) {
    let accounts = fs::read_to_string("/etc/passwd").expect("accounts");
    let line = accounts
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")));
    let mut numbers = line.expect("the user").split(':').skip(2);
    let mut number = || {
        numbers
            .next()
            .and_then(|text| text.parse().ok())
            .expect("a number")
    };
    (Uid::from_raw(number()), Gid::from_raw(number()))
}
