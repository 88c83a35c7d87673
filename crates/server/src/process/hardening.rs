//! Restricts the threads that serve requests: workers, helpers and the threads of handlers.
//!
//! The other threads keep all system calls: the main thread opens the files and ports of a reload, the launcher starts
//! programs, and programs inherit the filter of the thread that starts them.

use lowroad_config::Config;
use lowroad_log::ErrorLogger;
use lowroad_privileges::thread_filter::{self, ThreadFilter};

/// The filter of threads that serve requests; `None` if the configuration has none, or the kernel can't filter.
pub fn thread_filter(config: &Config, logger: &ErrorLogger) -> Option<ThreadFilter> {
    if !config.server.hardening {
        return None;
    }
    // A trial on a temporary thread, so that a failure has one message and no consequences.
    let filter = ThreadFilter::for_requests()
        .and_then(|filter| thread_filter::start_filtered(&filter, || ()).map(|()| filter));
    filter
        .inspect_err(|error| {
            logger.warn(format_args!(
                "continues without hardening, threads that serve requests keep all system calls: {error}"
            ));
        })
        .ok()
}

/// Runs `start`; the threads that it starts have the filter.
///
/// # Errors
/// The filter can't be applied.
pub fn start_filtered<T: Send>(
    filter: Option<&ThreadFilter>,
    start: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    match filter {
        Some(filter) => thread_filter::start_filtered(filter, start),
        None => Ok(start()),
    }
}
