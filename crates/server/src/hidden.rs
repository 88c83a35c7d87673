//! Keeps a process from the eyes of others that the same user runs, CGI programs first of all: they
//! are not to read the server's memory, its environment or its descriptors.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on only root may look into this process (`PR_SET_DUMPABLE`, see prctl(2) and ptrace(2));
/// nor does it leave a core dump. To be called again after each change of its user. What it starts is not
/// hidden by that: exec(2) takes it back.
///
/// # Errors
/// When the kernel refuses: a text for the operator.
pub fn hide() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("can't hide this process from others of its user: {error}"))
}
