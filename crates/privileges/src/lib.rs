//! Privileges of the server's processes: the account that it becomes ([`account`]), the capabilities that it keeps
//! ([`capabilities`]), and the helper process that opens files for root only ([`helper`]).

#![forbid(unsafe_code)]

pub mod account;
pub mod capabilities;
pub mod helper;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Protects a process from others of the same user, in particular CGI programs: they must not read its memory,
/// environment or descriptors. From now on only root may inspect it (`PR_SET_DUMPABLE`, see prctl(2) and ptrace(2)),
/// and it leaves no core dump. Must be called again after each change of its user. Child programs are not protected:
/// exec(2) resets the flag.
///
/// # Errors
/// When the kernel refuses: a text for the operator.
pub fn hide_process() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        format!("can't hide this process from other processes of its user: {error}")
    })
}
