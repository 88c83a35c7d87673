//! Follows changes of a level's interfaces with a thread that polls once a second. Programs are attached again to an
//! interface that was replaced, and MTU changes are applied. Interfaces that did not exist when the level was attached
//! are ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::interfaces::{self, InterfaceDetails};

use super::placement::{self, AttachedInterface};
use crate::cli::softirq::AttachArgs;
use crate::terminal_output;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay until the daemon's end is noticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the interfaces until `stop` is set.
pub fn follow(
    args: &AttachArgs,
    level: &SoftirqLevel,
    mut attached: Vec<AttachedInterface>,
    stop: &AtomicBool,
) {
    let mut last_problem = String::new();
    while wait(stop) {
        // An interface may disappear during the query; the next query follows soon.
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
                // The problem was already reported; the next poll tries again.
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

/// Waits for the next poll. Returns false when the daemon ends.
fn wait(stop: &AtomicBool) -> bool {
    let mut remaining = POLL_INTERVAL;
    while !remaining.is_zero() && !stop.load(Ordering::Relaxed) {
        thread::sleep(STOP_POLL_INTERVAL);
        remaining = remaining.saturating_sub(STOP_POLL_INTERVAL);
    }
    !stop.load(Ordering::Relaxed)
}

/// Finds interfaces that were replaced by others with the same name.
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
            // A new index means that the interface was deleted, and another one was created with its name.
            (current.interface.index != interface.index).then_some((index, current))
        })
        .collect()
}

/// The smallest MTU of those attached interfaces that still exist.
fn least_mtu(attached: &[AttachedInterface], all: &[InterfaceDetails]) -> Option<u32> {
    let existing = all
        .iter()
        .filter(|details| attached.iter().any(|p| *p.interface() == details.interface));
    existing.map(|details| details.mtu).min()
}
