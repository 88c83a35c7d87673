//! Reduces the capabilities of a process of root.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Gives up all capabilities except `retained`, permanently: threads and programs that this process starts do not get
/// them either. The uid stays 0. To be called while the process has one thread.
///
/// # Errors
/// If the kernel refuses: a text for the user.
pub fn reduce(retained: CapabilitySet) -> Result<(), String> {
    // The bounding set comes first, since changing it needs CAP_SETPCAP, which the next steps give up.
    let reduced = limit_bounding_set(retained)
        .and_then(|()| clear_ambient_capability_set())
        .and_then(|()| capabilities(None))
        .and_then(|now| {
            let retained = now.permitted & retained;
            let sets = CapabilitySets {
                effective: retained,
                permitted: retained,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets)
        })
        // Otherwise a set-user-ID program could regain capabilities (PR_SET_NO_NEW_PRIVS).
        .and_then(|()| set_no_new_privs(true));
    reduced.map_err(|error| format!("can't drop capabilities: {error}"))
}

fn limit_bounding_set(retained: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !retained.contains(capability) => {
                match remove_capability_from_bounding_set(capability) {
                    // The bounding set can't be changed without CAP_SETPCAP. The process that removed that capability
                    // has set the bound, and child programs can't have more than this process.
                    Err(Errno::PERM) => break,
                    removed => removed?,
                }
            }
            Ok(_) => {}
            // The kernel knows no further capabilities.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
