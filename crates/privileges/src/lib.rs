//! Privileges of the server's processes: the account under which the server runs ([`account`]), the capabilities that
//! it keeps ([`capabilities`]), the helper process that opens files that only root may open ([`helper`]), the process that
//! starts a new version of the program with root's rights ([`starter`]), the filters of system calls for threads that
//! serve requests ([`thread_filter`]), and the limit of the helper's changes ([`change_limit`]).

#![forbid(unsafe_code)]

pub mod account;
pub mod capabilities;
pub mod change_limit;
pub mod helper;
pub mod starter;
pub mod thread_filter;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Protects this process from other processes of the same user, in particular CGI programs, which must not read its
/// memory, environment or descriptors. From now on only root may inspect it (`PR_SET_DUMPABLE`, see prctl(2) and
/// ptrace(2)), and it leaves no core dump. Must be called again after each change of the process's user. Child programs
/// are not protected, since exec(2) resets the flag.
///
/// # Errors
/// If the kernel refuses: a text for the operator.
pub fn hide_process() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        format!("can't hide this process from other processes of its user: {error}")
    })
}
