//! The `lowroad` program: a web server that answers each request at the lowest level of the machine that can.
//!
//! This file runs the commands. `process` runs the server; `lowroad_site` decides how requests are answered.
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
mod announcement;
mod changes_lock;
mod cli;
mod compare;
mod config_check;
mod config_command;
mod config_docs;
mod config_files;
mod config_import;
mod deny_list;
mod events;
mod features;
#[cfg_attr(not(feature = "image"), path = "stubs/image.rs")]
mod image;
mod init;
mod level;
mod level_sites;
mod limits;
mod log_reader;
mod log_writers;
mod main_loop;
mod man_pages;
mod map_files;
mod memory;
mod metrics;
mod module_template;
mod process;
mod reload;
mod running_server;
mod saved_changes;
mod scaffold;
mod secret_file;
#[cfg(any(feature = "image", feature = "softirq"))]
mod signals;
#[cfg(all(test, feature = "programs"))]
mod simulation;
mod site_files;
#[cfg_attr(not(feature = "softirq"), path = "stubs/softirq.rs")]
mod softirq;
mod start_settings;
mod status;
#[cfg(not(all(feature = "image", feature = "softirq")))]
mod stubs;
mod terminal_output;
mod top;
mod traces;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lowroad_config::Config;
use lowroad_engine::{panic_policy, tasks};
use lowroad_handler::allocator::MimallocAllocator;
use lowroad_handler::memory::CountingAllocator;
use lowroad_privileges::starter::{self, ProgramStart};

use admin::origin_commands::OriginOutcome;
use admin::upgrade_command::UpgradeOutcome;
use cli::{CliCommand, CommandLine};
use process::ServerStart;
use upgrade::predecessor::Predecessor;

/// Counts allocations, because SQL pages have a memory limit. Uses mimalloc: a request to a handler makes about a dozen
/// allocations, which are slow with the C library's allocator (docs/decisions/0011-mimalloc.md).
#[global_allocator]
static MEMORY: CountingAllocator<MimallocAllocator> = CountingAllocator(MimallocAllocator);

/// Aborts the process after a panic of the main thread, so that the supervisor restarts it. A worker loses its
/// connections and is replaced (`process::worker_threads`), a panic in handler code ends only that call, and other
/// threads continue with their next piece of work (`lowroad_engine::panic_policy`). In processes that are not servers,
/// every panic aborts.
fn end_on_panic(is_server: bool) {
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        previous_hook(panic);
        let is_contained = is_server && (!panic_policy::is_vital() || tasks::is_polling());
        if !is_contained {
            std::process::abort();
        }
        panic_policy::record(panic);
    }));
}

/// Sets the process name to `lowroad`, for which operators search: the kernel names a process `exe` if it was started
/// from `/proc/self/exe`.
fn name_process() {
    if rustix::thread::name().is_ok_and(|name| name.as_c_str() == c"exe") {
        let _ = rustix::thread::set_name(c"lowroad");
    }
}

fn main() -> ExitCode {
    name_process();
    // `install` must run once, before the first TLS client or server is created.
    lowroad_tls_listener::install();
    let command = CommandLine::parse().command;
    let is_server = matches!(
        command,
        CliCommand::Serve(_) | CliCommand::Accelerate(_) | CliCommand::Run(_)
    );
    // `init::run` starts the server as a child process, so it must run before any thread starts.
    if is_server && let Some(code) = init::run() {
        return code;
    }
    end_on_panic(is_server);
    panic_policy::vital(|| run(command))
}

/// Runs a server with the configuration of `load`. In an upgrade, reports a failure to the predecessor.
fn run_server(
    source: Option<PathBuf>,
    load: impl FnOnce() -> Result<Config, String>,
) -> Result<(), String> {
    // Before the environment changes.
    let program = ProgramStart::of_this_process();
    let program = program.map_err(|error| format!("the program's file is unknown: {error}"));
    let mut predecessor = Predecessor::connect()?;
    let start = ServerStart {
        source,
        front: None,
        program,
        predecessor: &mut predecessor,
    };
    let result = load().and_then(|config| process::run(config, start));
    if let (Err(reason), Some(predecessor)) = (&result, &predecessor) {
        predecessor.report_failure(reason);
    }
    result
}

fn run(command: CliCommand) -> ExitCode {
    let result = match command {
        CliCommand::Serve(serve) => run_server(None, || serve.config()),
        CliCommand::Accelerate(accelerate) => run_server(None, || accelerate.config()),
        CliCommand::Run(args) => {
            let config = args.into_path();
            run_server(Some(config.clone()), || cli::load(&config))
        }
        CliCommand::Check(args) => match config_check::check(&args.into_path()) {
            Ok(config_check::CheckOutcome::Warnings) => {
                return ExitCode::from(config_check::WARNINGS_CODE);
            }
            checked => checked.map(|_| ()),
        },
        CliCommand::Config { command } => match config_command::run(&command) {
            Ok(code) => return code,
            Err(message) => Err(message),
        },
        CliCommand::Import { command } => match config_import::run(&command) {
            Ok(config_import::ImportOutcome::ByHand) => {
                return ExitCode::from(config_check::WARNINGS_CODE);
            }
            imported => imported.map(|_| ()),
        },
        CliCommand::Compare(args) => match compare::run(&args) {
            Ok(compare::CompareOutcome::Different) => return ExitCode::FAILURE,
            compared => compared.map(|_| ()),
        },
        CliCommand::Completions { shell } => man_pages::completions(shell),
        CliCommand::ManPages { folder } => man_pages::pages(&folder),
        CliCommand::Reload(args) => admin::reload(&args),
        CliCommand::Maintenance(args) => admin::maintenance(&args),
        CliCommand::Origin(args) => match admin::origin_commands::run(&args) {
            Ok(OriginOutcome::StillBusy) => return ExitCode::from(config_check::WARNINGS_CODE),
            changed => changed.map(|_| ()),
        },
        CliCommand::Deny(args) => admin::deny_commands::run(&args),
        CliCommand::Upgrade(args) => match admin::upgrade_command::run(&args) {
            Ok(UpgradeOutcome::StillDraining) => {
                return ExitCode::from(config_check::WARNINGS_CODE);
            }
            upgraded => upgraded.map(|_| ()),
        },
        CliCommand::Stop(args) => admin::stop(&args),
        CliCommand::Image { image } => image::run(&image),
        #[cfg(feature = "modules")]
        CliCommand::ModuleHost => lowroad_routes::modules::host(),
        #[cfg(not(feature = "modules"))]
        CliCommand::ModuleHost => {
            features::need(lowroad_config::BuildFeature::Modules, "lowroad module-host")
        }
        #[cfg(feature = "programs")]
        CliCommand::Spawner => lowroad_routes::gateway_handlers::spawner(),
        #[cfg(not(feature = "programs"))]
        CliCommand::Spawner => {
            features::need(lowroad_config::BuildFeature::Programs, "lowroad spawner")
        }
        CliCommand::RightsHelper {
            config,
            user,
            group,
        } => lowroad_privileges::helper::serve(
            config,
            lowroad_privileges::account::UserIds {
                uid: user,
                gid: group,
            },
        ),
        CliCommand::Starter => starter::serve(),
        CliCommand::New { template } => scaffold::write(&template),
        CliCommand::Explain(explain) => softirq::explain(&explain),
        CliCommand::Attach(attach) => softirq::attach(&attach),
        CliCommand::Detach(detach) => softirq::detach(&detach),
        CliCommand::Status(status) => softirq::status(&status),
        CliCommand::Dashboard(args) => admin::dashboard_relay::run(&args, softirq::level_values),
        CliCommand::Top(args) => top::run(&args),
        CliCommand::Log { operation } => match log_reader::run(&operation) {
            Ok(Some(code)) => {
                lowroad_privileges::helper::end();
                return ExitCode::from(code);
            }
            read => read.map(|_| ()),
        },
        CliCommand::Purge(purge) => softirq::purge(&purge),
        CliCommand::Trust => lowroad_tls_listener::trust().and_then(terminal_output::out),
        CliCommand::Doctor(doctor) => softirq::doctor(&doctor),
    };
    // The processes with root's rights must not outlive the command.
    lowroad_privileges::helper::end();
    starter::end();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            terminal_output::note(message);
            ExitCode::FAILURE
        }
    }
}
