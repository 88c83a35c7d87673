//! Privileges of the server's processes: the account that it becomes ([`account`]), the capabilities that it keeps
//! ([`capabilities`]), and the helper process that opens files for root only ([`helper`]).

#![forbid(unsafe_code)]

pub mod account;
pub mod capabilities;
pub mod helper;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Keeps a process from others of the same user, CGI programs first of all: they are not to read the server's memory, its
/// environment or its descriptors. From now on only root may look into this process (`PR_SET_DUMPABLE`, see prctl(2) and ptrace(2));
/// nor does it leave a core dump. To be called again after each change of its user. What it starts is not
/// hidden by that: exec(2) takes it back.
///
/// # Errors
/// When the kernel refuses: a text for the operator.
pub fn hide_process() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("can't hide this process from others of its user: {error}"))
}
