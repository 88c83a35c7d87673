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

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay until the end is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Follows the interfaces until `stop`.
pub fn follow(
    args: &AttachArgs,
    level: &SoftirqLevel,
    mut placed: Vec<AttachedInterface>,
    stop: &AtomicBool,
) {
    let mut last_problem = String::new();
    while wait(stop) {
        // An interface may disappear during the query; the next one follows soon.
        let Ok(all) = interfaces::all() else { continue };
        for (at, details) in new_ones(&placed, &all) {
            match placement::again(args, level.folder(), details) {
                Ok(again) => {
                    terminal_output::note(format_args!("a new interface appeared: {again}"));
                    placed[at] = again;
                }
                Err(problem) if problem != last_problem => {
                    terminal_output::note(&problem);
                    last_problem = problem;
                }
                // The same problem is reported once; the next poll tries again.
                Err(_) => {}
            }
        }
        if let Some(mtu) = least_mtu(&placed, &all)
            && mtu != level.control().mtu
        {
            level.set_mtu(mtu);
        }
    }
}

/// Waits for the next poll. Returns false at the end.
fn wait(stop: &AtomicBool) -> bool {
    let mut left = LOOK_INTERVAL;
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        thread::sleep(PATIENCE);
        left = left.saturating_sub(PATIENCE);
    }
    !stop.load(Ordering::Relaxed)
}

/// Finds interfaces that were replaced by others of the same name.
fn new_ones<'d>(
    placed: &[AttachedInterface],
    all: &'d [InterfaceDetails],
) -> Vec<(usize, &'d InterfaceDetails)> {
    let known = placed.iter().map(AttachedInterface::interface).enumerate();
    known
        .filter_map(|(at, known)| {
            let now = all.iter().find(|one| one.interface.name == known.name)?;
            // Another index: the interface was deleted and created again under its name.
            (now.interface.index != known.index).then_some((at, now))
        })
        .collect()
}

/// The smallest MTU of the attached interfaces that exist.
fn least_mtu(placed: &[AttachedInterface], all: &[InterfaceDetails]) -> Option<u32> {
    let there = all
        .iter()
        .filter(|one| placed.iter().any(|p| *p.interface() == one.interface));
    there.map(|one| one.mtu).min()
}
