//! The first part of the start: all steps that need root, and giving up root.

use std::sync::Arc;

use lowroad_config::Config;
use lowroad_disk::DiskFolder;
use lowroad_handler::origin_control::KeptChange;
use lowroad_log::ErrorLogger;
use lowroad_privileges::account::{self, ServerAccount};
use lowroad_privileges::hide_process;
use lowroad_privileges::starter;
use lowroad_site::listeners::{
    HandedDatagrams, HandedSockets, ListenerSet, NewDatagrams, NewSockets,
};
use lowroad_store::change_feed::ChangeFeed;
use lowroad_tls_listener::TlsListeners;

use super::{ServerStart, disk_cache, worker_threads};
use crate::admin::listeners::AdminListeners;
use crate::deny_list::DenyList;
use crate::init::InitLink;
use crate::level::{LevelHealth, LevelProcesses, LevelStart};
use crate::log_writers::LogWriters;
use crate::traces::TraceExport;
use crate::{limits, secret_file, softirq};

/// The parts of a server that were opened with root's rights, or were started before root was given up.
pub struct PrivilegedParts {
    pub shared: SharedParts,
    pub logs: LogWriters,
    pub init: Option<InitLink>,
    pub new_sockets: NewSockets,
    pub new_datagrams: NewDatagrams,
    pub admin: AdminListeners,
    pub traces: Option<TraceExport>,
    /// The folder of the disk cache, unless a predecessor has it.
    pub disk_folder: Option<DiskFolder>,
    /// The processes of the level in front of this server.
    pub level_processes: Option<Box<dyn LevelProcesses>>,
}

/// The parts that become part of the state that all threads share.
pub struct SharedParts {
    pub logger: ErrorLogger,
    pub listeners: ListenerSet,
    pub tls: TlsListeners,
    pub changes: Arc<ChangeFeed>,
    /// The key of the predecessor that signs the cookies of sticky sessions.
    pub session_key: Option<Vec<u8>>,
    /// The changes of operators to servers of origins, from the predecessor.
    pub origin_changes: Vec<KeptChange>,
    /// The client addresses that operators deny, from the predecessor.
    pub deny: DenyList,
    /// The maximum number of descriptors.
    pub fd_limit: u64,
    /// The state of the level in front of this server.
    pub softirq: Option<Arc<dyn LevelHealth>>,
}

impl PrivilegedParts {
    /// Opens the parts, and gives up root. Afterwards credentials and descriptors are final, so that threads may start.
    ///
    /// # Errors
    /// When the server can't start: the reason and a remedy.
    pub fn open(config: &Config, start: &mut ServerStart<'_>) -> Result<PrivilegedParts, String> {
        let (account, user_note) = account::account(config)?;
        // The logs are opened with root's rights; later the privileged helper reopens them.
        let logs = LogWriters::open(config, account.as_ref())?;
        let logger = logs.logger();
        let init = match start.predecessor {
            Some(predecessor) => predecessor.take_init(),
            None => InitLink::find(),
        };
        // Marks inherited descriptors close-on-exec, so that CGI programs do not get them.
        if let Err(error) = lowroad_engine::set_descriptors_cloexec() {
            logger.warn(format_args!(
                "programs inherit the descriptors that this server was started with: {error}"
            ));
        }
        let (fd_limit, fd_note) = limits::raise_fd_limit(config);
        let (mut listeners, new_sockets) = open_listeners(config, start)?;
        // The successor of an upgrade starts as root, too, and shares ports that a reload has opened.
        listeners.datagram_owner = account.as_ref().map(|it| it.ids().uid);
        // A predecessor may still have ports, as this process may at a reload.
        listeners.probes_datagrams = start.predecessor.is_none();
        let mut no_datagrams = HandedDatagrams::default();
        let handed = match start.predecessor {
            Some(predecessor) => predecessor.datagrams(),
            None => &mut no_datagrams,
        };
        let workers = worker_threads::count(config);
        let new_datagrams = listeners.open_datagrams(config, workers, handed)?;
        listeners.probes_datagrams = false;
        // TLS is prepared before root is given up, because usually only root can read private keys.
        let predecessor = start.predecessor.as_ref();
        let ticket_keys = predecessor.and_then(|it| it.ticket_keys.as_deref());
        let quic = predecessor.and_then(|it| it.quic);
        let tls = TlsListeners::start(config, &logger, account.as_ref(), ticket_keys, quic)?;
        let admin = AdminListeners::open(config, &tls, start.predecessor.as_mut())?;
        let traces = TraceExport::open(config.traces.as_ref())?;
        warn_about_configuration(config, &admin, &logger);
        let changes = Arc::<ChangeFeed>::default();
        // The predecessor has the folder and the level until it hands over.
        let (disk_folder, level_start) = match start.predecessor {
            Some(_) => (None, LevelStart::Later),
            // The folder is locked before `drop_root` changes the owner of the files in it.
            None => (disk_cache::take_folder(config, &logger)?, LevelStart::Now),
        };
        let access_sinks = logs.access_sinks();
        let level =
            softirq::managed_level::start(config, access_sinks, &logger, &changes, level_start)?;
        let rights_notes = give_up_root(config, start, account)?;
        let notes = [fd_note, level.startup_warning, user_note].into_iter();
        for note in notes.chain(rights_notes).flatten() {
            logger.info(format_args!("{note}"));
        }
        let predecessor = start.predecessor.as_ref();
        Ok(PrivilegedParts {
            shared: SharedParts {
                logger,
                listeners,
                tls,
                changes,
                session_key: predecessor.and_then(|it| it.session_key.clone()),
                origin_changes: predecessor.map_or_else(Vec::new, |it| it.origin_changes.clone()),
                deny: predecessor.map_or_else(DenyList::default, |it| it.deny()),
                fd_limit,
                softirq: level.health,
            },
            logs,
            init,
            new_sockets,
            new_datagrams,
            admin,
            traces,
            disk_folder,
            level_processes: level.processes,
        })
    }
}

/// Opens the listening sockets, one of each listener for each worker, except those that the predecessor has handed over.
fn open_listeners(
    config: &Config,
    start: &mut ServerStart<'_>,
) -> Result<(ListenerSet, NewSockets), String> {
    let mut listeners = ListenerSet::default();
    let mut no_sockets = HandedSockets::default();
    let handed = match start.predecessor {
        Some(predecessor) => predecessor.sockets(),
        None => &mut no_sockets,
    };
    // Ports below 1024 need root or CAP_NET_BIND_SERVICE (ip(7)).
    let new_sockets = listeners.open_with(config, worker_threads::count(config), handed)?;
    if let Some(front) = &mut start.front {
        front.intercept(&mut listeners, &new_sockets)?;
    }
    Ok((listeners, new_sockets))
}

/// Logs warnings about the configuration.
fn warn_about_configuration(config: &Config, admin: &AdminListeners, logger: &ErrorLogger) {
    let open_secrets = secret_file::warnings(config.document.secret_files());
    for warning in admin.warnings().chain(&open_secrets) {
        logger.warn(format_args!("{warning}"));
    }
    for warning in &config.document.warnings {
        logger.warn(format_args!("{warning}"));
    }
}

/// Gives up root for the rights of `account`, if there is one. Returns notes for the log.
fn give_up_root(
    config: &Config,
    start: &ServerStart<'_>,
    account: Option<ServerAccount>,
) -> Result<[Option<String>; 2], String> {
    let mut notes = [None, None];
    if let Some(account) = account {
        // Started while this process is root, so that a successor can have root's rights at its start.
        let starter_error = start.program.as_ref().ok().map(starter::start);
        let starter_note = starter_error
            .and_then(Result::err)
            .map(|error| format!("this server can't be upgraded while it runs: {error}"));
        notes = [
            account.drop_root(config, start.source.as_deref())?,
            starter_note,
        ];
    }
    // Otherwise child processes would inherit ambient capabilities (capabilities(7)).
    account::forget_ambient_capabilities();
    // Otherwise other processes of the same user could read this process's secrets in /proc.
    hide_process()?;
    Ok(notes)
}
