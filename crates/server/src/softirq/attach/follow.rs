//! Follows changes of a level's interfaces: replaced interfaces and new MTUs. A thread polls once a second. Interfaces
//! that did not exist when the level was attached are ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lowroad_softirq::level::Level;
use lowroad_softirq::machine::interfaces::{self, Details};

use super::place::{self, Placed};
use crate::cli::softirq::Attach;
use crate::say;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay until the end is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Follows the interfaces until `stop`.
pub fn follow(args: &Attach, level: &Level, mut placed: Vec<Placed>, stop: &AtomicBool) {
    let mut last_problem = String::new();
    while wait(stop) {
        // An interface may disappear during the query; the next one follows soon.
        let Ok(all) = interfaces::all() else { continue };
        for (at, details) in new_ones(&placed, &all) {
            match place::again(args, level.folder(), details) {
                Ok(again) => {
                    say::note(format_args!("a new interface: {again}"));
                    placed[at] = again;
                }
                Err(problem) if problem != last_problem => {
                    say::note(&problem);
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
fn new_ones<'d>(placed: &[Placed], all: &'d [Details]) -> Vec<(usize, &'d Details)> {
    let known = placed.iter().map(Placed::interface).enumerate();
    known
        .filter_map(|(at, known)| {
            let now = all.iter().find(|one| one.interface.name == known.name)?;
            // Another index: the interface was deleted and created again under its name.
            (now.interface.index != known.index).then_some((at, now))
        })
        .collect()
}

/// The smallest MTU of the attached interfaces that exist.
fn least_mtu(placed: &[Placed], all: &[Details]) -> Option<u32> {
    let there = all
        .iter()
        .filter(|one| placed.iter().any(|p| *p.interface() == one.interface));
    there.map(|one| one.mtu).min()
}
