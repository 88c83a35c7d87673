//! The `lowroad` program: a web server that answers each request at the lowest level of the machine that can.
//!
//! This file dispatches the commands. `process` runs the server, `lowroad_site` decides about requests.
//! ARCHITECTURE.md follows a request through all levels.

#![forbid(unsafe_code)]
// Dead code is checked in a build with all features; a smaller build leaves helpers of the absent features unused.
#![cfg_attr(
    not(all(
        feature = "image",
        feature = "programs",
        feature = "softirq",
        feature = "tls",
        feature = "wasm"
    )),
    allow(dead_code)
)]

mod admin;
mod check;
mod cli;
mod endpoint;
mod features;
#[cfg_attr(not(feature = "image"), path = "without/image.rs")]
mod image;
mod init;
mod level;
mod limits;
mod manual;
mod memory;
mod new;
mod news;
mod process;
mod reload;
mod running;
mod say;
mod scaffold;
#[cfg(any(feature = "image", feature = "softirq"))]
mod signals;
#[cfg(all(test, feature = "programs"))]
mod simulated;
mod site_files;
#[cfg_attr(not(feature = "softirq"), path = "without/softirq.rs")]
mod softirq;
mod status;
#[cfg(not(all(feature = "image", feature = "softirq")))]
mod without;

use std::process::ExitCode;

use clap::Parser;
use lowroad_engine::{background, tasks};
use lowroad_handler::allocator::Mimalloc;
use lowroad_handler::memory::Counting;

use cli::{Cli, Command};

/// Counts allocations, since pages have a memory limit. mimalloc, because a request to a handler makes about a dozen
/// allocations, which are slow with the C library's allocator (docs/performance.md).
#[global_allocator]
static MEMORY: Counting<Mimalloc> = Counting(Mimalloc);

/// Aborts the process after a panic on a vital thread: a worker, or the main thread. The supervisor restarts the
/// process, so a crashed worker never leaves half a server. A panic in a program's call, on a worker or beside it,
/// ends that call only, and the server's other threads continue with their next piece of work
/// (`lowroad_engine::background`). In processes that are no servers every panic aborts.
fn end_on_panic(is_server: bool) {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        let is_contained = is_server && (!background::is_vital() || tasks::polls());
        if !is_contained {
            std::process::abort();
        }
    }));
}

/// Renames a process that the kernel calls `exe`, because the server started it from `/proc/self/exe`. Operators look
/// for `lowroad`.
fn name_process() {
    if rustix::thread::name().is_ok_and(|name| name.as_c_str() == c"exe") {
        let _ = rustix::thread::set_name(c"lowroad");
    }
}

fn main() -> ExitCode {
    name_process();
    // Once for the process, before any TLS client or server exists.
    lowroad_tls_listener::install();
    let command = Cli::parse().command;
    let is_server = matches!(
        command,
        Command::Serve(_) | Command::Accelerate(_) | Command::Run { .. }
    );
    if is_server && let Some(code) = init::run() {
        return code;
        // Before any thread starts: the init process starts the server as its child.
    }
    end_on_panic(is_server);
    background::vital(|| run(command))
}

fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Serve(serve) => serve
            .config()
            .and_then(|config| process::run(config, None, None)),
        Command::Accelerate(accelerate) => accelerate
            .config()
            .and_then(|config| process::run(config, None, None)),
        Command::Run { config } => {
            cli::load(&config).and_then(|loaded| process::run(loaded, Some(config), None))
        }
        Command::Check { config } => match check::check(&config) {
            Ok(check::Outcome::Warnings) => return ExitCode::from(check::WARNINGS_CODE),
            checked => checked.map(|_| ()),
        },
        Command::Completions { shell } => manual::completions(shell),
        Command::ManPages { folder } => manual::pages(&folder),
        Command::Reload(told) => admin::reload(&told),
        Command::Stop(told) => admin::stop(&told),
        Command::Image { image } => image::run(&image),
        #[cfg(feature = "modules")]
        Command::ModuleHost => lowroad_routes::modules::host(),
        #[cfg(not(feature = "modules"))]
        Command::ModuleHost => {
            features::need(lowroad_config::Feature::Modules, "lowroad module-host")
        }
        #[cfg(feature = "programs")]
        Command::Spawner => lowroad_routes::scripts::spawner(),
        #[cfg(not(feature = "programs"))]
        Command::Spawner => features::need(lowroad_config::Feature::Programs, "lowroad spawner"),
        Command::RightsHelper {
            config,
            user,
            group,
        } => lowroad_privileges::helper::serve(config, (user, group)),
        Command::New { what } => scaffold::write(&what),
        Command::Explain(explain) => softirq::explain(&explain),
        Command::Attach(attach) => softirq::attach(&attach),
        Command::Detach(detach) => softirq::detach(&detach),
        Command::Status(status) => softirq::status(&status),
        Command::Top(top) => softirq::top(&top),
        Command::Purge(purge) => softirq::purge(&purge),
        Command::Trust => lowroad_tls_listener::trust().and_then(say::out),
        Command::Doctor(doctor) => softirq::doctor(&doctor),
    };
    // The helper that opens root's files must not outlive the command.
    lowroad_privileges::helper::end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say::note(message);
            ExitCode::FAILURE
        }
    }
}
