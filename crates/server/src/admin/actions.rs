//! Performs the operations of the admin service. Runs on helper threads, since an operation may wait for the disk or
//! the main thread.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::BodySender;
use lowroad_http::status::StatusCode;
use lowroad_metrics::ExpositionFormat;
use lowroad_response_cache::purge::{self, PurgeReport, PurgeTarget};
use lowroad_site::explain::{self, ExplainView, ExplainedRequest};
use rustix::process::{Signal, getpid, kill_process};

use super::access::AdminAccess;
use super::audit;
use super::call::AdminCall;
use super::counters::AdminCounters;
use super::dashboard;
use super::event_streams::EventStreams;
use super::operations::{AdminOperation, AdminPermission, AdminRequest};
use super::problem::AdminProblem;
use super::resources::deny::DenyChange;
use super::resources::{certificates, deny, log, origins, sites};
use super::service::{AdminOutcome, AdminReply};
use crate::events::{CommandReply, MainEvent};
use crate::limits;
use crate::metrics;
use crate::metrics::hot_urls::{HotUrls, QueryValues};
use crate::metrics::snapshot_json;
use crate::metrics::snapshot_notes::SnapshotNotes;
use crate::running_server::{RunningServer, lock};
use crate::status;
use crate::upgrade::control;

/// The OpenAPI document of the service.
pub const OPENAPI: &str = include_str!("openapi.json");
/// The refusal of a command during a reload.
const RELOADING: &str = "a reload is in progress; try again when it has ended";
/// Capacity of the response stream of `stop`; its text is far shorter.
const STOP_LEN_MAX: usize = 1024;
/// The interval between the snapshots of an event stream.
pub const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Performs operations on a running server.
pub struct AdminActions {
    running: Arc<Mutex<RunningServer>>,
    events_to_main: Sender<MainEvent>,
    access: Arc<AdminAccess>,
    counters: Arc<AdminCounters>,
    /// The event streams of clients with all permissions, and of those that may only look.
    full_events: EventStreams,
    read_events: EventStreams,
    /// The response streams of `stop`, which stay open until the process ends.
    stop_responses: Mutex<Vec<BodySender>>,
    /// The refusal of further commands while one waits for the main thread.
    busy: Mutex<Option<&'static str>>,
}

impl AdminActions {
    /// Creates the actions of a running server. `events_to_main` sends events to its main thread.
    pub fn new(
        running: Arc<Mutex<RunningServer>>,
        events_to_main: Sender<MainEvent>,
        access: Arc<AdminAccess>,
        counters: Arc<AdminCounters>,
    ) -> AdminActions {
        AdminActions {
            running,
            events_to_main,
            access,
            counters,
            full_events: EventStreams::default(),
            read_events: EventStreams::default(),
            stop_responses: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// Performs an operation. A change is audited, also if it is refused.
    ///
    /// # Errors
    /// A problem to report to the client.
    pub fn run(&self, call: &AdminCall) -> AdminOutcome {
        let outcome = self.perform(call);
        let entry = call.request.entry;
        if entry.permission == AdminPermission::Full {
            let is_made = outcome
                .as_ref()
                .map_or_else(|it| it.unsaved.is_some(), |_| true);
            self.counters.count_change(entry, is_made);
            let logger = lock(&self.running).logger.clone();
            audit::write(&logger, call, &outcome);
        }
        outcome
    }

    fn perform(&self, call: &AdminCall) -> AdminOutcome {
        let (request, permission) = (&call.request, call.client.permission);
        match request.entry.operation {
            AdminOperation::Root => Ok(dashboard::redirect()),
            AdminOperation::Dashboard => Ok(dashboard::page()),
            AdminOperation::Metrics => self.metrics(&call.accept),
            AdminOperation::Status => Ok(AdminReply::text(status::status(&lock(&self.running)))),
            AdminOperation::Snapshot => Ok(json(self.snapshot(permission))),
            AdminOperation::Events => self.events(permission),
            AdminOperation::Urls => Ok(json(self.urls(permission))),
            AdminOperation::Config => self.config(),
            AdminOperation::Explain => self.explain(request),
            AdminOperation::Purge => self.purge(request),
            AdminOperation::Maintenance => self.maintenance(request),
            AdminOperation::Reload => self.command(MainEvent::Reload, RELOADING),
            AdminOperation::Upgrade => self.command(MainEvent::Upgrade, control::IN_PROGRESS),
            AdminOperation::Stop => self.stop(),
            AdminOperation::Sites => Ok(sites::list(&lock(&self.running))),
            AdminOperation::Certificates => Ok(certificates::list(&lock(&self.running))),
            AdminOperation::RenewCertificate => {
                certificates::renew(&*self.lock_for_change()?, call)
            }
            AdminOperation::Log => Ok(log::show(&lock(&self.running))),
            AdminOperation::ChangeLog => log::change(&*self.lock_for_change()?, call),
            AdminOperation::Deny => Ok(deny::show(&mut lock(&self.running))),
            AdminOperation::ReplaceDeny => {
                let changed = deny::replace(&mut *self.lock_for_change()?, call);
                self.await_deny_switch(changed)
            }
            AdminOperation::ChangeDeny => {
                let changed = deny::patch(&mut *self.lock_for_change()?, call);
                self.await_deny_switch(changed)
            }
            AdminOperation::Origins => origins::list(&lock(&self.running)),
            AdminOperation::Origin => origins::show(&lock(&self.running), call),
            AdminOperation::Server => origins::show_server(&lock(&self.running), call),
            // Under the server's lock, so that two changes, or a change and a reload, follow each other.
            AdminOperation::AddServer => origins::add_server(&*self.lock_for_change()?, call),
            AdminOperation::ChangeServer => origins::change_server(&*self.lock_for_change()?, call),
            AdminOperation::RemoveServer => origins::remove_server(&*self.lock_for_change()?, call),
            AdminOperation::Description => Ok(json(Bytes::from_static(OPENAPI.as_bytes()))),
        }
    }

    /// Sends a snapshot to the event streams, if there are any.
    pub fn send_events(&self) {
        for permission in [AdminPermission::Read, AdminPermission::Full] {
            let streams = self.streams(permission);
            // A snapshot takes the server's lock and visits all counters, so it is only made for an open stream.
            if !streams.is_empty() {
                streams.send(&self.snapshot(permission));
            }
        }
    }

    fn streams(&self, permission: AdminPermission) -> &EventStreams {
        match permission {
            AdminPermission::Read => &self.read_events,
            AdminPermission::Full => &self.full_events,
        }
    }

    fn metrics(&self, accept: &str) -> AdminOutcome {
        let format = ExpositionFormat::from_accept(accept);
        let snapshot = metrics::snapshot(&self.running, self.access.refused(), &self.counters);
        let body = format.write(snapshot).ok_or_else(|| {
            let detail = "the metrics could not be written: a fault of the server";
            AdminProblem::new(StatusCode::INTERNAL_ERROR, detail)
        })?;
        Ok(AdminReply::new(format.content_type(), body.into()))
    }

    fn snapshot(&self, permission: AdminPermission) -> Bytes {
        let snapshot = metrics::snapshot(&self.running, self.access.refused(), &self.counters);
        let notes = SnapshotNotes::new(&lock(&self.running), query_values(permission));
        snapshot_json::write(&snapshot, notes).into()
    }

    fn urls(&self, permission: AdminPermission) -> Bytes {
        let urls = HotUrls::new(&lock(&self.running), query_values(permission));
        urls.to_json().to_string().into()
    }

    /// The values in force; those of a start-only table are those of the start.
    fn config(&self) -> AdminOutcome {
        let (file, current, started) = {
            let running = lock(&self.running);
            let document = &running.config.document;
            let Some(file) = document.files.first() else {
                let detail = "the server was started without a configuration file";
                return Err(AdminProblem::not_found(detail.to_owned()));
            };
            let started = running.start_settings.effective().clone();
            // The server keeps its working directory, so the path means the same file for each reload.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            (file, document.effective.clone(), started)
        };
        let mut answer = current.with_start_tables(&started).to_json();
        answer["file"] = file.to_string_lossy().into();
        Ok(json(answer.to_string().into()))
    }

    fn events(&self, permission: AdminPermission) -> AdminOutcome {
        let first = self.snapshot(permission);
        let stream = self.streams(permission).open(&first).ok_or_else(|| {
            let detail = "too many event streams are open";
            AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        Ok(AdminReply::streamed("text/event-stream", stream))
    }

    fn explain(&self, request: &AdminRequest) -> AdminOutcome {
        let url = request.required("url")?;
        let headers: Vec<String> = request.all("header").map(str::to_owned).collect();
        // Unlocks after the copy, since the explanation may wait for the disk.
        let view = view(&lock(&self.running));
        let explained = ExplainedRequest {
            method: request.parameter("method").unwrap_or("GET"),
            url,
            fields: &headers,
        };
        match explain::explain(&view, explained) {
            Some(text) => Ok(AdminReply::text(text)),
            None => {
                let addresses: Vec<String> = view
                    .addresses
                    .iter()
                    .map(|(_, address)| address.to_string())
                    .collect();
                // A client's URL has the port of a mapping, as of a container, which the server does not know.
                Err(AdminProblem::not_found(format!(
                    "this server does not listen at {url}, but at {}; behind a port mapping, name the server's own \
                     port in the URL, and the client's with -H 'Host: NAME:PORT'",
                    addresses.join(", ")
                )))
            }
        }
    }

    fn purge(&self, request: &AdminRequest) -> AdminOutcome {
        let target: PurgeTarget = request
            .required("target")?
            .parse()
            .map_err(AdminProblem::bad_request)?;
        let is_soft = match request.parameter("soft") {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(other) => {
                let detail = format!("soft={other}: the values are 1 and 0");
                return Err(AdminProblem::bad_request(detail));
            }
        };
        // The lock is released at the end of this block: the wait for the disk below must not delay other operations.
        let (store, ports, normalized) = {
            let running = lock(&self.running);
            let addresses = running.listeners.addresses.iter();
            let ports: Vec<u16> = addresses.map(|(_, address)| address.port()).collect();
            (
                running.store.clone(),
                ports,
                target.normalized(running.sites.query_rules()),
            )
        };
        if let Some(port) = request.parameter("port")
            && !ports.iter().any(|known| known.to_string() == port)
        {
            let detail = format!("this server does not listen at port {port}");
            return Err(AdminProblem::not_found(detail));
        }
        // Earlier purges are applied first, so that their responses do not count as this one's.
        store.apply_purges_now();
        for target in normalized.iter().chain([&target]) {
            target.purge(&store, purge::kind(is_soft));
        }
        // Written to the disk before the response is sent, so that a confirmed purge survives a kill of the server.
        let is_durable = !store.has_released_disk_cache()
            && store
                .tier()
                .is_none_or(|tier| tier.wait_for_durable_purges());
        let report = PurgeReport {
            ports,
            is_durable,
            removed: store.apply_purges_now(),
        };
        Ok(AdminReply::text(report.to_string()))
    }

    /// Turns the maintenance mode on or off: of the site with a name, or of all.
    fn maintenance(&self, request: &AdminRequest) -> AdminOutcome {
        let is_on = match request.required("mode")? {
            "on" => true,
            "off" => false,
            other => {
                let detail = format!("mode is {other:?}, not on or off");
                return Err(AdminProblem::bad_request(detail));
            }
        };
        let name = request.parameter("site");
        // The lock also keeps a reload from replacing the sites meanwhile.
        let running = self.lock_for_change()?;
        let sites = running.sites.all.iter();
        let sites = sites.filter(|site| name.is_none_or(|name| site.rules.label == name));
        let sites: Vec<_> = sites.collect();
        if sites.is_empty() {
            let labels = running
                .sites
                .all
                .iter()
                .map(|site| site.rules.label.as_str());
            let labels: Vec<&str> = labels.collect();
            let name = name.unwrap_or_default();
            let detail = format!(
                "no site is named {name:?}; the sites are {}",
                labels.join(", ")
            );
            return Err(AdminProblem::not_found(detail));
        }
        let mut text = String::new();
        let word = if is_on { "on" } else { "off" };
        for site in sites {
            let is_changed = site.maintenance.set(is_on);
            let note = match (is_changed, site.maintenance.is_on() == is_on) {
                (_, false) => ", but its file is there",
                (true, true) => "",
                (false, true) => ", as before",
            };
            text += &format!("{}: maintenance is {word}{note}\n", site.rules.label);
        }
        // The level below must not answer with its copies.
        running.changes.notify();
        running.logger.info(format_args!(
            "maintenance {word}: {}",
            name.unwrap_or("all sites")
        ));
        Ok(AdminReply::text(text))
    }

    /// The server for a change, which a successor would not know once it is starting.
    ///
    /// # Errors
    /// An upgrade is in progress.
    fn lock_for_change(&self) -> Result<MutexGuard<'_, RunningServer>, AdminProblem> {
        let running = lock(&self.running);
        match running.is_handing_over {
            true => Err(AdminProblem::new(
                StatusCode::CONFLICT,
                control::IN_PROGRESS,
            )),
            false => Ok(running),
        }
    }

    /// Waits until all workers use a changed deny list, without the server's lock.
    fn await_deny_switch(&self, changed: DenyChange) -> AdminOutcome {
        let (outcome, switch) = changed?;
        let forwarder = lock(&self.running).deny_forwarder.clone();
        if let Some(forwarder) = forwarder {
            forwarder.notify();
        }
        switch.wait();
        outcome
    }

    /// Sends a command to the main thread and waits for its result. Only one command waits at a time, since each occupies a
    /// helper thread: `busy` is the refusal of others.
    fn command(
        &self,
        event: impl FnOnce(CommandReply) -> MainEvent,
        busy: &'static str,
    ) -> AdminOutcome {
        let _waiting = WaitingCommand::begin(&self.busy, busy)
            .map_err(|refusal| AdminProblem::new(StatusCode::CONFLICT, refusal))?;
        self.wait_for_main(event)
    }

    fn wait_for_main(&self, event: impl FnOnce(CommandReply) -> MainEvent) -> AdminOutcome {
        let (done, result) = channel();
        // During a shutdown the main thread is gone: the message is dropped with its sender, so `recv` fails.
        let _ = self.events_to_main.send(event(done));
        match result.recv() {
            Ok(Ok(text)) => Ok(AdminReply::text(format!("{text}\n"))),
            Ok(Err(text)) => Err(AdminProblem::new(StatusCode::CONFLICT, text)),
            Err(_) => Err(AdminProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is shutting down",
            )),
        }
    }

    /// Sends SIGTERM to this process. The response ends with the process, so that clients can wait for its end.
    fn stop(&self) -> AdminOutcome {
        let (sender, stream) = lowroad_engine::stream::stream(STOP_LEN_MAX);
        let text = format!("{}\n", std::process::id());
        // `stream` holds the receiver, so the push does not fail.
        let _ = sender.push(text.into());
        // Kept until the process ends: if the sender were dropped, the response would end immediately.
        let mut stops = self
            .stop_responses
            .lock()
            .unwrap_or_else(|it| it.into_inner());
        stops.push(sender);
        let killed = kill_process(getpid(), Signal::TERM);
        killed.map_err(|error| {
            AdminProblem::new(StatusCode::INTERNAL_ERROR, format!("SIGTERM: {error}"))
        })?;
        Ok(AdminReply::streamed("text/plain; charset=utf-8", stream))
    }
}

/// A command that waits for the main thread. Its end, also by a panic, permits the next one.
struct WaitingCommand<'a>(&'a Mutex<Option<&'static str>>);

impl WaitingCommand<'_> {
    /// Begins to wait, with the refusal of others.
    ///
    /// # Errors
    /// Another command waits: its refusal of others.
    fn begin<'a>(
        waiting: &'a Mutex<Option<&'static str>>,
        refusal: &'static str,
    ) -> Result<WaitingCommand<'a>, &'static str> {
        let mut current = waiting.lock().unwrap_or_else(|it| it.into_inner());
        match *current {
            Some(refusal) => Err(refusal),
            None => {
                *current = Some(refusal);
                Ok(WaitingCommand(waiting))
            }
        }
    }
}

impl Drop for WaitingCommand<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(|it| it.into_inner()) = None;
    }
}

/// Queries may contain secrets, such as the token of a link for a new password.
fn query_values(permission: AdminPermission) -> QueryValues {
    match permission {
        AdminPermission::Read => QueryValues::Masked,
        AdminPermission::Full => QueryValues::Shown,
    }
}

fn json(body: Bytes) -> AdminReply {
    AdminReply::new("application/json", body)
}

/// Copies the state that an explanation needs, so that the explanation runs without the lock.
fn view(running: &RunningServer) -> ExplainView {
    let limits = limits::settings(&running.config, &running.listeners, running.fd_limit);
    ExplainView {
        sites: running.sites.clone(),
        addresses: running.listeners.addresses.clone(),
        store: running.store.clone(),
        fetcher: running.fetcher.clone(),
        limits: limits.http,
        object_len_max: running.config.server.cache_object_len_max,
        logger: running.logger.clone(),
    }
}
