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
use crate::listeners::Opened;
use crate::programs::modules::Catalog;
use crate::running::{Running, keep_applications, lock};
use crate::sites::Sites;
use crate::tls::Tls;

/// Reads the configuration again and puts it in force, once its applications are ready or `is_over`.
pub fn reload(running: &Mutex<Running>, source: Option<&Path>, is_over: &dyn Fn() -> bool) {
    let logger = lock(running).logger.clone();
    let Some(source) = source else {
        return logger.info(format_args!("there is no configuration file to read again"));
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
    // Counted, so that no two messages are the same: the log would keep the second one back.
    let number = {
        let mut running = lock(running);
        running.reloads += 1;
        running.reloads
    };
    let keep_old = |text: &str| {
        logger.error(format_args!(
            "reload {number}: the configuration stays as it was: {text}"
        ));
    };
    match lowroad_config::load(source, features::LACKING) {
        Ok(config) => match apply(running, config, is_over) {
            Ok(()) => logger.info(format_args!(
                "reload {number}: {} is in force",
                source.display()
            )),
            Err(text) => keep_old(&text),
        },
        Err(problems) => problems
            .iter()
            .for_each(|problem| keep_old(&problem.to_string())),
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

/// A configuration that can be put in force.
struct Prepared {
    config: Config,
    opened: Opened,
    sites: Sites,
    tls: Tls,
    modules: Catalog,
}

fn apply(
    running: &Mutex<Running>,
    config: Config,
    is_over: &dyn Fn() -> bool,
) -> Result<(), String> {
    let prepared = prepare(&mut lock(running), config)?;
    let applications = &prepared.config.applications;
    let changed = keep_applications(running, applications, is_over).inspect_err(|_| {
        let running = &mut *lock(running);
        running.listeners.close_unused(&running.config);
    })?;
    put_in_force(&mut lock(running), prepared);
    // What is no longer wanted was asked until now.
    drop(changed);
    Ok(())
}

/// Sockets first: all that can fail comes before all that takes effect.
fn prepare(running: &mut Running, config: Config) -> Result<Prepared, String> {
    let opened = running.listeners.open(&config, running.workers.len())?;
    let sites = running.programs.open(&config).and_then(|programs| {
        let tls = Tls::open(&config, &running.logger, Some(&running.tls))?;
        let listening = (&running.listeners, &tls);
        let sites = Sites::new(&config, listening, &programs, Some(&running.sites));
        let sites = sites.map_err(|error| error.to_string())?;
        Ok((sites, tls, programs.modules()))
    });
    let (sites, tls, modules) = sites.inspect_err(|_| {
        running.listeners.close_unused(&running.config);
    })?;
    Ok(Prepared {
        config,
        opened,
        sites,
        tls,
        modules,
    })
}

fn put_in_force(running: &mut Running, prepared: Prepared) {
    let Prepared {
        config,
        opened,
        sites,
        tls,
        modules,
    } = prepared;
    let settings = limits::settings(&config, &running.listeners, running.fd_limit);
    let settings = Arc::new(settings);
    let unused = running.listeners.close_unused(&config);
    // Before the new listeners, which only the new sites know.
    serve(running, Arc::new(sites));
    running.tls = tls;
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
}
