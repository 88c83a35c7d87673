//! Connections to the database server: opened on demand, kept, and reopened after a loss.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_mysql::{
    LoginRequest, MySqlClient, MySqlError, MySqlEvent, MySqlLimits, SqlValue, StatementRefusal,
};
use lowroad_net::{ConnectionId, SendPiece, StackCalls};

use crate::archive::SiteArchive;

/// Maximum number of connections of the whole machine, divided among the cores. Each core may have at least one.
const LINKS_MAX: usize = 8;
/// Time after which a connection without a completed login is dropped.
const LOGIN_TIMEOUT_US: u64 = 5_000_000;
/// Minimum and maximum delay before a new attempt to connect.
const RETRY_US: (u64, u64) = (100_000, 5_000_000);
/// Maximum delay after a page has failed because the server is unreachable.
const RETRY_ASKED_US: u64 = 1_000_000;
/// Limit for the execution of a statement, enforced by the database server.
const STATEMENT_TIMEOUT_MS: u32 = 10_000;
/// Maximum length of a statement with its values, and of a row.
const PACKET_LEN_MAX: usize = 60_000;
/// Maximum number of rows in a response.
const ROW_COUNT_MAX: u32 = 10_000;

/// Index of the page task that waits for the query.
pub type QueryOwner = usize;

struct DatabaseLink {
    id: ConnectionId,
    client: MySqlClient,
    owner: Option<QueryOwner>,
    /// Whether the server has begun the response to the pending query.
    is_answered: bool,
    /// Whether no response to a query was completed on this connection yet.
    is_new: bool,
    /// The deadline of the login; `None` once the connection is logged in.
    login_end_us: Option<u64>,
}

/// A query that was pending when its connection was lost.
pub struct LostQuery {
    /// The owner of the query.
    pub owner: QueryOwner,
    /// The cause of the loss.
    pub cause: LossCause,
}

/// The reason that a connection with a pending query was lost.
pub enum LossCause {
    /// The server had closed the idle connection before the query arrived, so the query can be repeated safely.
    Stale,
    /// The server closed the connection, or sent bytes that can't be parsed.
    Server,
    /// The response exceeds a limit, so the client stopped reading it. This is an error of the page.
    ResponseLimit(MySqlError),
}

/// Connections to one database server.
pub struct DatabaseClient {
    address: SocketAddrV4,
    login: LoginRequest,
    secret: [u8; 32],
    links: Vec<DatabaseLink>,
    links_max: usize,
    opened: Vec<ConnectionId>,
    retry_us: u64,
    backoff_us: u64,
    /// The time of the last failed attempt to connect.
    failed_us: u64,
    /// Whether the last attempt failed and no connection is logged in.
    is_down: bool,
    /// Whether a page has failed since the last tick because the server is unreachable.
    is_retry_requested: bool,
    serial: u64,
    /// The reason of the last rejected or lost connection, for the console.
    pub problem: Option<String>,
    /// The same reason for the log, which repeats it for each failed page.
    pub reason: String,
    /// Numbers of connections opened, statements sent, and connections lost.
    pub counts: [u64; 3],
}

/// The names of `counts`.
pub const COUNTS: [&str; 3] = [
    "database_connects",
    "database_statements",
    "database_losses",
];

impl DatabaseClient {
    /// Creates the client for the database server in the site's settings, if there is one. `cores` is the number of
    /// cores that share the connections.
    ///
    /// # Errors
    /// If the settings are invalid: a text for the operator.
    pub fn from_settings(
        site: &SiteArchive,
        secret: [u8; 32],
        cores: u16,
    ) -> Result<Option<DatabaseClient>, String> {
        let Some(address) = site.setting("database.address") else {
            return Ok(None);
        };
        let address = address.parse().map_err(|_| {
            format!("`{address}` is not the address of a database server: write 192.0.2.1:3306")
        })?;
        let text = |key| site.setting(key).unwrap_or_default().to_string();
        let login = LoginRequest {
            user: text("database.user"),
            password: text("database.password"),
            database: text("database.name"),
            read_only: true,
            statement_timeout_ms: STATEMENT_TIMEOUT_MS,
            trusts_key: false,
            ..LoginRequest::default()
        };
        let links_max = (LINKS_MAX / usize::from(cores)).max(1);
        Ok(Some(DatabaseClient {
            address,
            login,
            secret,
            links: Vec::with_capacity(links_max),
            links_max,
            opened: Vec::new(),
            retry_us: 0,
            backoff_us: RETRY_US.0,
            failed_us: 0,
            is_down: false,
            is_retry_requested: false,
            serial: 0,
            problem: None,
            reason: String::new(),
            counts: [0; 3],
        }))
    }

    /// Opens connections if fewer are available than the `waiting` tasks need, and drops connections with an overdue
    /// login. Returns the time of the next call.
    pub fn tick(
        &mut self,
        calls: &mut impl StackCalls,
        now_us: u64,
        waiting: usize,
    ) -> Option<u64> {
        let is_due = |link: &DatabaseLink| link.login_end_us.is_some_and(|end_us| end_us <= now_us);
        while let Some(at) = self.links.iter().position(is_due) {
            // The next attempt to a server that does not respond is delayed; the delay grows.
            let link = self.links.swap_remove(at);
            self.back_off(now_us, "no response in time");
            // If another login is pending, it is to the same server, which does not respond either.
            self.is_down = !self.is_logged_in();
            calls.abort(link.id);
        }
        if core::mem::take(&mut self.is_retry_requested) {
            // After a page has failed, the next attempt is made one second after the last one at the latest.
            self.retry_us = self.retry_us.min(self.failed_us + RETRY_ASKED_US);
        }
        // A connection is available if it is idle, or will be idle after its login.
        let is_available =
            |link: &&DatabaseLink| link.login_end_us.is_some() || link.client.is_idle();
        let mut available = self.links.iter().filter(is_available).count();
        // One connection is kept open, so that the first request does not wait for it.
        while available < waiting.max(1)
            && self.links.len() < self.links_max
            && self.retry_us <= now_us
        {
            if !self.open(calls, now_us) {
                self.retry_us = now_us + self.backoff_us;
                break;
            }
            available += 1;
        }
        let logins = self.links.iter().filter_map(|link| link.login_end_us).min();
        let retry = (available < waiting.max(1) && self.retry_us > now_us).then_some(self.retry_us);
        [logins, retry].into_iter().flatten().min()
    }

    fn open(&mut self, calls: &mut impl StackCalls, now_us: u64) -> bool {
        let Ok(id) = calls.connect(self.address) else {
            return false;
        };
        self.counts[0] += 1;
        self.serial += 1;
        // Each connection needs a nonce of its own, and the secret is always the same.
        let mut random = self.secret;
        for (byte, serial) in random.iter_mut().zip(self.serial.to_le_bytes()) {
            *byte ^= serial;
        }
        self.opened.push(id);
        self.links.push(DatabaseLink {
            id,
            client: MySqlClient::new(self.login.clone(), limits(), random),
            owner: None,
            is_answered: false,
            is_new: true,
            login_end_us: Some(now_us + LOGIN_TIMEOUT_US),
        });
        true
    }

    /// Connections opened since the last call.
    pub fn take_opened(&mut self) -> Vec<ConnectionId> {
        core::mem::take(&mut self.opened)
    }

    /// Whether a connection is available for a query.
    pub fn has_free(&self) -> bool {
        self.links.iter().any(|link| link.client.is_idle())
    }

    /// Sends a query on an available connection.
    ///
    /// # Errors
    /// [`StatementRefusal::Busy`] if no connection is available.
    pub fn send_query<'v>(
        &mut self,
        calls: &mut impl StackCalls,
        owner: QueryOwner,
        statement: &str,
        values: impl ExactSizeIterator<Item = SqlValue<'v>>,
    ) -> Result<(), StatementRefusal> {
        let mut links = self.links.iter_mut();
        let link = links
            .find(|link| link.client.is_idle())
            .ok_or(StatementRefusal::Busy)?;
        link.client.execute(statement, values)?;
        link.owner = Some(owner);
        // From now on, a loss before any response means that the server had closed an idle connection.
        link.is_answered = false;
        self.counts[1] += 1;
        flush(calls, link);
        Ok(())
    }

    /// Processes received bytes. `events` gets the parts of the response for the owner of the query; after the last
    /// part the connection is available again.
    ///
    /// # Errors
    /// If the connection can't be used any more; with its pending query.
    pub fn input(
        &mut self,
        calls: &mut impl StackCalls,
        now_us: u64,
        id: ConnectionId,
        bytes: &[u8],
        mut events: impl FnMut(QueryOwner, MySqlEvent<'_>),
    ) -> Result<(), Option<LostQuery>> {
        let Some(at) = self.links.iter().position(|link| link.id == id) else {
            return Ok(());
        };
        let link = &mut self.links[at];
        let mut owner = link.owner;
        let (mut is_ready, mut refusal) = (false, None);
        let result = link
            .client
            .input(bytes, &mut |event| match (&event, owner) {
                (MySqlEvent::Ready, _) => is_ready = true,
                (MySqlEvent::Done { .. } | MySqlEvent::Failed(_), Some(query_owner)) => {
                    // Later events on the connection have no owner.
                    events(query_owner, event);
                    owner = None;
                }
                (_, Some(query_owner)) => events(query_owner, event),
                (MySqlEvent::Failed(failure), None) => refusal = Some(failure.message.to_string()),
                _ => {}
            });
        link.is_answered = true;
        // The response is complete, so the connection is available again and was useful.
        if link.owner.is_some() && owner.is_none() {
            link.owner = None;
            link.is_new = false;
            self.backoff_us = RETRY_US.0;
        }
        if is_ready {
            link.login_end_us = None;
            self.is_down = false;
            self.retry_us = 0;
            self.problem = None;
        }
        if let Err(error) = result {
            // The position in the byte stream is unknown now, so the connection can't be used again.
            calls.abort(id);
            return Err(self.drop_unusable(now_us, at, error, refusal));
        }
        flush(calls, &mut self.links[at]);
        Ok(())
    }

    /// Sends output that did not fit into the send queue before.
    pub fn sent(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        if let Some(link) = self.links.iter_mut().find(|link| link.id == id) {
            flush(calls, link);
        }
    }

    /// Handles the end of a connection. Returns its pending query.
    pub fn on_connection_lost(&mut self, now_us: u64, id: ConnectionId) -> Option<LostQuery> {
        let at = self.links.iter().position(|link| link.id == id)?;
        let link = self.links.swap_remove(at);
        self.handle_end(now_us, &link, "the connection was refused or lost");
        let cause = match !link.is_new && !link.is_answered {
            true => LossCause::Stale,
            false => LossCause::Server,
        };
        link.owner.map(|owner| LostQuery { owner, cause })
    }

    /// Drops a connection after invalid bytes. Returns its pending query, if there is one.
    fn drop_unusable(
        &mut self,
        now_us: u64,
        at: usize,
        error: MySqlError,
        refusal: Option<String>,
    ) -> Option<LostQuery> {
        let link = self.links.swap_remove(at);
        let reason = refusal.unwrap_or_else(|| error.to_string());
        self.handle_end(now_us, &link, &reason);
        let cause = match error.is_response_error() {
            true => LossCause::ResponseLimit(error),
            false => LossCause::Server,
        };
        link.owner.map(|owner| LostQuery { owner, cause })
    }

    /// Handles the end of a connection. The next attempt is delayed only if the connection has served no page.
    /// Otherwise a client with queries that end connections would block the database for all others.
    fn handle_end(&mut self, now_us: u64, link: &DatabaseLink, reason: &str) {
        // A connection that has worked is replaced immediately; otherwise the next attempt is delayed.
        let was_useful = link.owner.is_some() || !link.is_new;
        match was_useful {
            true => {
                self.counts[2] += 1;
                self.retry_us = 0;
                self.reason = format!("database server {}: {reason}", self.address);
            }
            false => self.back_off(now_us, reason),
        }
    }

    /// Closes all connections.
    pub fn close(self, calls: &mut impl StackCalls) {
        for link in self.links {
            calls.abort(link.id);
        }
    }

    /// Whether the last attempt failed and no connection is logged in.
    pub fn is_unreachable(&self) -> bool {
        self.is_down
    }

    /// Shortens the delay of the next attempt after a page has failed because the server is unreachable.
    pub fn request_retry(&mut self) {
        self.is_retry_requested = true;
    }

    fn is_logged_in(&self) -> bool {
        self.links.iter().any(|link| link.login_end_us.is_none())
    }

    /// Drops the connection with the pending query of `owner`. The response is no longer needed.
    pub fn abandon_query(&mut self, calls: &mut impl StackCalls, owner: QueryOwner) {
        let has_owner = |link: &DatabaseLink| link.owner == Some(owner);
        if let Some(at) = self.links.iter().position(has_owner) {
            let link = self.links.swap_remove(at);
            calls.abort(link.id);
            self.retry_us = 0;
        }
    }

    /// Delays the next attempt after a connection that failed, or ended before its first use.
    fn back_off(&mut self, now_us: u64, reason: &str) {
        self.counts[2] += 1;
        self.retry_us = now_us + self.backoff_us;
        // Exponential backoff, so that a failing server is not flooded.
        self.backoff_us = (self.backoff_us * 2).min(RETRY_US.1);
        self.failed_us = now_us;
        // Other connections may still be logged in.
        self.is_down |= self.links.is_empty();
        self.reason = format!("database server {}: {reason}", self.address);
        self.problem = Some(self.reason.clone());
    }

    /// The reason that the server is unreachable, for the operator. It is returned once.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }
}

/// The limits of a connection.
pub fn limits() -> MySqlLimits {
    MySqlLimits {
        packet_len_max: PACKET_LEN_MAX,
        row_count_max: ROW_COUNT_MAX,
        ..MySqlLimits::default()
    }
}

/// Sends the output of the client; output that does not fit is sent by `DatabaseClient::sent`.
fn flush(calls: &mut impl StackCalls, link: &mut DatabaseLink) {
    let output = link.client.output();
    // If the send queue is full, `sent` sends the output later.
    if !output.is_empty() && calls.send(link.id, SendPiece::Copied(output)).is_ok() {
        let len = output.len();
        link.client.sent(len);
    }
}
