//! Follows changes of a level's interfaces: replaced interfaces and new MTUs. A thread polls once a second. Interfaces
//! that did not exist when the level was attached are ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::interfaces::{self, InterfaceDetails};

use super::placement::{self, AttachedInterface};
use crate::cli::softirq::AttachArgs;
use crate::terminal_output;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay until the end is noticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the interfaces until `stop`.
pub fn follow(
    args: &AttachArgs,
    level: &SoftirqLevel,
    mut attached: Vec<AttachedInterface>,
    stop: &AtomicBool,
) {
    let mut last_problem = String::new();
    while wait(stop) {
        // An interface may disappear during the query; the next one follows soon.
        let Ok(all) = interfaces::all() else { continue };
        for (index, details) in find_replaced(&attached, &all) {
            match placement::reattach(args, level.folder(), details) {
                Ok(reattached) => {
                    terminal_output::note(format_args!("a new interface appeared: {reattached}"));
                    attached[index] = reattached;
                }
                Err(problem) if problem != last_problem => {
                    terminal_output::note(&problem);
                    last_problem = problem;
                }
                // The same problem is reported once; the next poll tries again.
                Err(_) => {}
            }
        }
        if let Some(mtu) = least_mtu(&attached, &all)
            && mtu != level.control().mtu
        {
            level.set_mtu(mtu);
        }
    }
}

/// Waits for the next poll. Returns false at the end.
fn wait(stop: &AtomicBool) -> bool {
    let mut remaining = POLL_INTERVAL;
    while !remaining.is_zero() && !stop.load(Ordering::Relaxed) {
        thread::sleep(STOP_POLL_INTERVAL);
        remaining = remaining.saturating_sub(STOP_POLL_INTERVAL);
    }
    !stop.load(Ordering::Relaxed)
}

/// Finds interfaces that were replaced by others of the same name.
fn find_replaced<'d>(
    attached: &[AttachedInterface],
    all: &'d [InterfaceDetails],
) -> Vec<(usize, &'d InterfaceDetails)> {
    let indexed = attached
        .iter()
        .map(AttachedInterface::interface)
        .enumerate();
    indexed
        .filter_map(|(index, interface)| {
            let current = all
                .iter()
                .find(|details| details.interface.name == interface.name)?;
            // Another index: the interface was deleted and created again under its name.
            (current.interface.index != interface.index).then_some((index, current))
        })
        .collect()
}

/// The smallest MTU of the attached interfaces that exist.
fn least_mtu(attached: &[AttachedInterface], all: &[InterfaceDetails]) -> Option<u32> {
    let existing = all
        .iter()
        .filter(|details| attached.iter().any(|p| *p.interface() == details.interface));
    existing.map(|details| details.mtu).min()
}
