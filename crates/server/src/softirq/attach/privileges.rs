//! What a process of the level may do once it has entered its namespace and the file system for pins is
//! mounted: still uid 0, whose files the pins are, but with three capabilities. It knows nothing of
//! what they are for.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Maps and programs; reading packets from them; interfaces.
const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN);

/// Gives up all others, for good: threads and programs that this one starts do not get them either. To
/// be called while there is one thread.
///
/// # Errors
/// When the kernel refuses: a text for the user.
pub fn reduce() -> Result<(), String> {
    let reduced = bound()
        .and_then(|()| clear_ambient_capability_set())
        .and_then(|()| capabilities(None))
        .and_then(|now| {
            let kept = now.permitted & KEPT;
            let sets = CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets)
        })
        .and_then(|()| set_no_new_privs(true));
    reduced.map_err(|error| format!("giving up capabilities: {error}"))
}

fn bound() -> rustix::io::Result<()> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !KEPT.contains(one) => match remove_capability_from_bounding_set(one) {
                // Without CAP_SETPCAP: whoever took that away has set the bound. Nothing that is
                // started can have more than this process.
                Err(Errno::PERM) => break,
                removed => removed?,
            },
            Ok(_) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
