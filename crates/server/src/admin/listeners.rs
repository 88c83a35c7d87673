//! Opens the admin addresses and starts the service on them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lowroad_config::Config;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::driver::IoDriver;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::listener::{self, ListenSocket};
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::panic_policy;
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_limits::ConnectionLimit;
use lowroad_tls_listener::{TlsEndpoint, TlsListeners};

use super::access::AdminAccess;
use super::actions::{AdminActions, EVENT_INTERVAL};
use super::admin_socket::AdminSocket;
use super::audit::RefusalAudit;
use super::counters::AdminCounters;
use super::operations::LIST_LEN_MAX;
use super::service::{AdminHelpers, AdminMailbox, AdminService, TCP_LISTENER, UNIX_LISTENER};
use crate::events::MainEvent;
use crate::running_server::{RunningServer, lock};
use crate::upgrade::predecessor::Predecessor;

/// Helper threads for operations that may wait, such as reloads and purges, and for all others: scrapes and changes are
/// answered however many purges wait.
const HELPER_COUNT: usize = 4;
/// How long responses may last after a successor has taken over.
const DRAIN_MS: u64 = 5_000;

/// The open admin addresses.
pub struct AdminListeners {
    /// The Unix socket, or a warning with the reason why it could not be opened.
    unix: Result<AdminSocket, String>,
    tcp: Option<ListenSocket>,
    /// TLS of the TCP listener; `None`: clear text.
    tls: Option<Arc<TlsEndpoint>>,
    access: Arc<AdminAccess>,
    access_warnings: Vec<String>,
    /// The mailboxes of the event loops.
    mailboxes: SharedMailboxes,
    /// Disconnected once all event loops have ended.
    ended: Option<Receiver<Infallible>>,
}

/// The mailboxes of the event loops that have started.
type SharedMailboxes = Arc<Mutex<Vec<AdminMailbox>>>;

impl AdminListeners {
    /// Opens the addresses, or takes those of the predecessor, and reads the tokens. Called at the start, while the
    /// process is root.
    ///
    /// # Errors
    /// The TCP address can't be opened, or a token can't be read. A missing Unix socket is only a warning.
    pub fn open(
        config: &Config,
        tls: &TlsListeners,
        mut predecessor: Option<&mut Predecessor>,
    ) -> Result<AdminListeners, String> {
        let admin = &config.admin;
        let path = config.server.admin.as_deref();
        let taken = predecessor
            .as_mut()
            .and_then(|predecessor| predecessor.take_admin_unix_socket(path));
        let mut tcp = |address| {
            let predecessor = predecessor.as_mut();
            match predecessor.and_then(|it| it.take_admin_socket(address)) {
                Some(socket) => Ok(socket),
                None => open_tcp(address)
                    .map_err(|error| format!("admin.listen: can't listen at {address}: {error}")),
            }
        };
        Ok(AdminListeners {
            unix: match taken {
                Some(taken) => Ok(AdminSocket::take_over(taken)),
                None => AdminSocket::open(path),
            },
            mailboxes: SharedMailboxes::default(),
            ended: None,
            access: Arc::new(AdminAccess::new(admin).map_err(|error| format!("admin: {error}"))?),
            access_warnings: AdminAccess::warnings(admin),
            tls: tls.admin_endpoint(),
            tcp: match admin.listen {
                Some(address) => Some(tcp(address)?),
                None => None,
            },
        })
    }

    /// The warnings that the Unix socket could not be opened, or that the service is exposed.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.unix
            .as_ref()
            .err()
            .into_iter()
            .chain(&self.access_warnings)
    }

    /// The URL of the TCP listener.
    pub fn url(&self) -> Option<String> {
        let address = self.tcp.as_ref()?.address()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{address}/"))
    }

    /// A duplicate of the TCP socket, for a successor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share_tcp(&self) -> io::Result<Option<ListenSocket>> {
        self.tcp.as_ref().map(ListenSocket::share).transpose()
    }

    /// A duplicate of the Unix socket with its path, for a successor.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share_unix(&self) -> io::Result<Option<(PathBuf, OwnedFd)>> {
        self.unix.as_ref().ok().map(AdminSocket::share).transpose()
    }

    /// Ends the service, because a successor answers at its addresses. Open streams, such as those of dashboards, end soon
    /// and are opened again by their clients. `is_taken`: the successor uses the Unix socket of this service.
    pub fn stop(&mut self, is_taken: bool) {
        match &mut self.unix {
            Ok(socket) if is_taken => socket.leave_file(),
            // Otherwise commands would find two servers.
            Ok(socket) => socket.remove_file(),
            Err(_) => {}
        }
        // Once the successor has ended, these sockets would accept connections that get no answer.
        self.unix = Err("a successor has taken over".to_owned());
        self.tcp = None;
        let mailboxes = self
            .mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for mailbox in mailboxes.iter() {
            mailbox.post(MailboxMessage::HandOver(TCP_LISTENER));
            mailbox.post(MailboxMessage::HandOver(UNIX_LISTENER));
            mailbox.post(MailboxMessage::Drain {
                timeout_ms: DRAIN_MS,
            });
        }
    }

    /// Waits until the event loops have ended after [`AdminListeners::stop`], so that their last responses are sent.
    pub fn wait_for_end(&self) {
        if let Some(ended) = &self.ended {
            // Nothing is ever sent.
            let _ = ended.recv_timeout(Duration::from_millis(2 * DRAIN_MS));
        }
    }

    /// Starts the service on its own threads, which answer until the process ends. Each address has its own event loop and
    /// limits, so that clients of the TCP address, which need no token to connect, can't use up the connections of the
    /// Unix socket.
    ///
    /// # Errors
    /// No thread or descriptor is available.
    pub fn serve(
        &mut self,
        running: Arc<Mutex<RunningServer>>,
        events: Sender<MainEvent>,
    ) -> io::Result<()> {
        let logger = lock(&running).logger.clone();
        let counters = Arc::<AdminCounters>::default();
        let actions = AdminActions::new(running, events, self.access.clone(), counters.clone());
        let actions = Arc::new(actions);
        // Not the workers' pool: their file reads must not wait behind a reload.
        let helpers = AdminHelpers {
            quick: HelperPool::start_as("admin", HELPER_COUNT)?,
            waiting: HelperPool::start_as("admin-wait", HELPER_COUNT)?,
        };
        let refusals = Arc::new(RefusalAudit::new(logger.clone()));
        let unix = match &mut self.unix {
            Ok(socket) => Some(socket.serve()?),
            Err(_) => None,
        };
        let tcp = match &self.tcp {
            Some(socket) => Some(socket.share()?),
            None => None,
        };
        let (is_running, ended) = channel();
        self.ended = Some(ended);
        let sockets = unix.map(AdminListener::Unix).into_iter();
        for listener in sockets.chain(tcp.map(AdminListener::Tcp)) {
            let parts = AdminWorkerParts {
                listener,
                access: self.access.clone(),
                counters: counters.clone(),
                actions: actions.clone(),
                helpers: helpers.clone(),
                refusals: refusals.clone(),
                tls: self.tls.clone(),
                mailboxes: self.mailboxes.clone(),
                _is_running: is_running.clone(),
            };
            let logger = logger.clone();
            panic_policy::start("admin", move || {
                if let Err(error) = parts.run() {
                    logger.error(format_args!("the admin service can't start: {error}"));
                }
            })?;
        }
        // On its own thread: an event loop that waits for the server's lock would delay all operators.
        panic_policy::start("admin-events", move || {
            loop {
                thread::sleep(EVENT_INTERVAL);
                actions.send_events();
            }
        })
    }
}

/// A listening socket of the service.
enum AdminListener {
    Unix(OwnedFd),
    Tcp(ListenSocket),
}

/// The parts of an event loop, kept so that the loop can be rebuilt after a panic.
struct AdminWorkerParts {
    listener: AdminListener,
    access: Arc<AdminAccess>,
    counters: Arc<AdminCounters>,
    actions: Arc<AdminActions>,
    helpers: AdminHelpers,
    refusals: Arc<RefusalAudit>,
    tls: Option<Arc<TlsEndpoint>>,
    mailboxes: SharedMailboxes,
    /// Dropped when the loop has ended.
    _is_running: Sender<Infallible>,
}

impl AdminWorkerParts {
    /// Runs the event loop until the process ends or a successor has taken over.
    fn run(&self) -> io::Result<()> {
        let driver = EpollDriver::new(self.helpers.quick.clone())?;
        let mailbox: AdminMailbox = WorkerMailbox::new(driver.waker());
        // A copy, since the loop may be started again after a panic and needs the descriptor then.
        let (id, socket) = match &self.listener {
            AdminListener::Unix(socket) => {
                (UNIX_LISTENER, ListenSocket::adopt(socket.try_clone()?)?)
            }
            AdminListener::Tcp(socket) => (TCP_LISTENER, socket.share()?),
        };
        mailbox.post(MailboxMessage::Listen(id, socket));
        let service = AdminService::new(
            self.actions.clone(),
            self.access.clone(),
            self.counters.clone(),
            self.helpers.clone(),
            self.refusals.clone(),
            mailbox.clone(),
            self.tls.clone(),
        );
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(mailbox.clone());
        let settings = Arc::new(settings());
        let (admission, counters) = (
            Arc::<ConnectionLimit>::default(),
            Arc::<WorkerCounters>::default(),
        );
        Worker::new(driver, service, mailbox, settings, admission, counters).run();
        Ok(())
    }
}

fn open_tcp(address: SocketAddr) -> io::Result<ListenSocket> {
    // SO_REUSEPORT would share the port of another server silently.
    listener::probe(address)?;
    ListenSocket::open(address)
}

/// Checks whether a server could create the Unix socket at `path`.
///
/// # Errors
/// The warning that a server would print: it runs without the socket.
pub fn check(path: &Path) -> Result<(), String> {
    AdminSocket::check(path)
}

/// Connection limits of the admin service.
fn settings() -> WorkerSettings {
    WorkerSettings {
        accept_max: 16,
        header_timeout_ms: 5_000,
        body_timeout_ms: 5_000,
        idle_timeout_ms: 60_000,
        // Ends connections of clients that stop reading, such as a suspended browser.
        send_timeout_ms: 30_000,
        rate_min: 0,
        rate_grace_ms: 5_000,
        connections_max: 256,
        connections_per_address_max: 128,
        requests_max: 0,
        proxy_protocol_listeners: Vec::new(),
        h2: lowroad_http::h2::H2Settings::default(),
        h3: lowroad_http::h3::H3Settings::default(),
        http: lowroad_http::limits::RequestLimits {
            // Most operations have a lower limit.
            body_len_max: LIST_LEN_MAX,
            ..Default::default()
        },
    }
}
