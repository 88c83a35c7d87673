//! A new configuration for a running server: all of it, or nothing if it is wrong.
//!
//! Connections stay; the next request on each is answered by the new rules. What is set up once at
//! the start (workers, cache, user, logs) needs a restart, and the log says so.

use std::path::Path;
use std::sync::{Arc, Mutex};

use lowroad_config::Config;
use lowroad_engine::worker::Message;

use crate::answer::Command;
use crate::features;
use crate::limits;
use crate::running::{Running, lock};
use crate::sites::Sites;

/// Reads the configuration again and puts it in force.
pub fn reload(running: &mut Running, source: Option<&Path>) {
    let Some(source) = source else {
        return running
            .logger
            .info(format_args!("there is no configuration file to read again"));
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
    // Counted, so that no two messages are the same: the log would keep the second one back.
    running.reloads += 1;
    match lowroad_config::load(source, features::LACKING) {
        Ok(config) => match apply(running, config) {
            Ok(()) => running.logger.info(format_args!(
                "reload {}: {} is in force",
                running.reloads,
                source.display()
            )),
            Err(text) => keep_old(running, &text),
        },
        Err(problems) => problems
            .iter()
            .for_each(|problem| keep_old(running, &problem.to_string())),
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// Looks whether the folders of sites are other ones by now, and serves those. The disk is waited
/// for without a lock.
pub fn follow_moved(running: &Mutex<Running>) {
    let (sites, config, listeners) = {
        let running = lock(running);
        (
            running.sites.clone(),
            running.config.clone(),
            running.listeners.clone(),
        )
    };
    let Some(renewed) = sites.renewed(&config, &listeners) else {
        return;
    };
    let running = &mut lock(running);
    // Whatever was reloaded meanwhile has looked at the folders itself.
    if Arc::ptr_eq(&running.sites, &sites) {
        serve(running, Arc::new(renewed));
        running
            .logger
            .info(format_args!("the folder of a site is another one now"));
    }
}

/// Has requests answered from these sites from now on.
fn serve(running: &mut Running, sites: Arc<Sites>) {
    for worker in &running.workers {
        worker.post(Message::Command(Command::Sites(sites.clone())));
    }
    // What other sites stored is of no use any more. Workers that have not heard of it yet, and helpers,
    // may add to that: nobody asks for it, and it is evicted.
    running.store.retain(|key| sites.have_key(key));
    running.sites = sites;
    running.changes.tell();
}

fn keep_old(running: &Running, text: &str) {
    running.logger.error(format_args!(
        "reload {}: the configuration stays as it was: {text}",
        running.reloads
    ));
}

fn apply(running: &mut Running, config: Config) -> Result<(), String> {
    // Sockets first: all that can fail comes before all that takes effect.
    let opened = running.listeners.open(&config, running.workers.len())?;
    let sites = running.programs.open(&config).and_then(|programs| {
        let sites = Sites::new(&config, &running.listeners, &programs, Some(&running.sites));
        let sites = sites.map_err(|error| error.to_string())?;
        Ok((sites, programs.modules()))
    });
    let (sites, modules) = sites.inspect_err(|_| {
        running.listeners.close_unused(&running.config);
    })?;
    let settings = Arc::new(limits::settings(
        &config,
        &running.listeners,
        running.fd_limit,
    ));
    let unused = running.listeners.close_unused(&config);
    // Before the new listeners, which only the new sites know.
    serve(running, Arc::new(sites));
    running.modules = modules;
    for (worker, sockets) in running.workers.iter().zip(opened) {
        worker.post(Message::Settings(settings.clone()));
        for (id, listener) in sockets {
            worker.post(Message::Listen(id, listener));
        }
        for id in &unused {
            worker.post(Message::StopListening(*id));
        }
    }
    if config.server != running.config.server || config.log != running.config.log {
        running
            .logger
            .warn(format_args!("changes in [server] and [log] need a restart"));
    }
    running.config = config;
    running.keep_applications()
}
