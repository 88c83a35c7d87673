//! The thread that follows the files to which sites refer, and reports repeated faults.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lowroad_engine::panic_policy;
use lowroad_store::clock;

use crate::map_files::MapFollower;
use crate::running_server::{RunningServer, lock};
use crate::site_files::SiteFollower;

/// Interval between checks for changed files.
const SITES_INTERVAL: Duration = Duration::from_millis(500);

/// Starts a thread that follows error pages, certificates, document roots and map files.
pub fn start(running: Arc<Mutex<RunningServer>>) -> std::io::Result<()> {
    panic_policy::start("sites", move || {
        let mut follower = SiteFollower::default();
        let mut map_follower = MapFollower::default();
        loop {
            follower.follow(&running);
            map_follower.follow(&running);
            log_repeated_faults(&running);
            thread::sleep(SITES_INTERVAL);
        }
    })
}

/// Logs how often logged program failures were repeated.
fn log_repeated_faults(running: &Mutex<RunningServer>) {
    // The lock is released here, so that the reports below do not delay a reload.
    let (sites, logger) = {
        let running = lock(running);
        (running.sites.clone(), running.logger.clone())
    };
    for route in sites.all.iter().flat_map(|site| site.routes.iter()) {
        for kind in route.faults.take_expired(clock::now_ms()) {
            if kind.unlogged > 0 {
                let (number, status, unlogged) = (&kind.number, kind.status, kind.unlogged);
                let label = &route.label;
                let line = format_args!(
                    "fault {number}: {status} of {label}, and {unlogged} more of the same kind"
                );
                match status {
                    500.. => logger.error(line),
                    _ => logger.info(line),
                }
            }
        }
    }
}
