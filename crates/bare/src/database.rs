//! Connections to the database server: opened when somebody wants to ask, kept, and opened anew when they are
//! lost. Knows no page: who asks is a number.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_mysql::{Client, Error, Event, Limits, Login, Refused, Value};
use lowroad_net::{Calls, Id, Piece};

use crate::archive::Archive;

/// Connections of the machine at once, shared out to its cores; each has one at least.
const LINKS_MAX: usize = 8;
/// A connection that is not ready after this is given up.
const LOGIN_TIMEOUT_US: u64 = 5_000_000;
/// Wait before the next try, first and longest.
const RETRY_US: (u64, u64) = (100_000, 5_000_000);
/// The longest wait after a page failed because the server is away.
const RETRY_ASKED_US: u64 = 1_000_000;
/// The server ends a statement by itself after this.
const STATEMENT_TIMEOUT_MS: u32 = 10_000;
/// A statement with its values, or a row, is not longer.
const PACKET_LEN_MAX: usize = 60_000;
/// Rows of an answer.
const ROW_COUNT_MAX: u32 = 10_000;

/// Who asks.
pub type Asker = usize;

struct Link {
    id: Id,
    client: Client,
    asker: Option<Asker>,
    /// Something came in answer to what is asked.
    is_answered: bool,
    /// Nothing was asked before on this connection.
    is_new: bool,
    /// Until then the login must be done.
    login_end_us: Option<u64>,
}

/// What became of a question when its connection was lost.
pub struct Lost {
    /// Who has asked.
    pub asker: Asker,
    /// The cause of the loss.
    pub cause: LossCause,
}

/// The cause of the loss of a connection with a pending query.
pub enum LossCause {
    /// The server had ended an old connection before the question came: asking again is safe and useful.
    Stale,
    /// The server closed the connection, or sent bytes that can't be parsed.
    Server,
    /// The response exceeds a limit, so the client did not read the rest of it: the page's fault.
    Answer(Error),
}

/// Connections to one database server.
pub struct Database {
    address: SocketAddrV4,
    login: Login,
    secret: [u8; 32],
    links: Vec<Link>,
    links_max: usize,
    opened: Vec<Id>,
    retry_us: u64,
    backoff_us: u64,
    /// When the last attempt failed.
    failed_us: u64,
    /// The last attempt failed, and no connection is logged in.
    is_down: bool,
    /// A page failed since the last tick because the server is away.
    is_asked_for: bool,
    serial: u64,
    /// Why the last connection was refused or lost, for the console.
    pub trouble: Option<String>,
    /// The same for the log, where each failed page repeats it.
    pub reason: String,
    /// Connections opened, statements sent, connections lost.
    pub counts: [u64; 3],
}

/// Names of [`Database::counts`].
pub const COUNTS: [&str; 3] = [
    "database_connects",
    "database_statements",
    "database_losses",
];

impl Database {
    /// The server that the site's settings name, if they name one, for one of so many cores.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn of(site: &Archive, secret: [u8; 32], cores: u16) -> Result<Option<Database>, String> {
        let Some(address) = site.setting("database.address") else {
            return Ok(None);
        };
        let address = address.parse().map_err(|_| {
            format!("`{address}` is no address of a database server: write 192.0.2.1:3306")
        })?;
        let text = |key| site.setting(key).unwrap_or_default().to_string();
        let login = Login {
            user: text("database.user"),
            password: text("database.password"),
            database: text("database.name"),
            read_only: true,
            statement_timeout_ms: STATEMENT_TIMEOUT_MS,
            trusts_key: false,
            ..Login::default()
        };
        let links_max = (LINKS_MAX / usize::from(cores)).max(1);
        Ok(Some(Database {
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
            is_asked_for: false,
            serial: 0,
            trouble: None,
            reason: String::new(),
            counts: [0; 3],
        }))
    }

    /// Opens a connection if `wanting` who wait have fewer on their way; gives up those that take too long.
    /// Gives the time of the next call.
    pub fn tick(&mut self, calls: &mut impl Calls, now_us: u64, wanting: usize) -> Option<u64> {
        let due = |link: &Link| link.login_end_us.is_some_and(|end_us| end_us <= now_us);
        while let Some(at) = self.links.iter().position(due) {
            let link = self.links.swap_remove(at);
            self.back_off(now_us, "it does not answer");
            // Other attempts wait for the same silent server.
            self.is_down = !self.is_logged_in();
            calls.abort(link.id);
        }
        if core::mem::take(&mut self.is_asked_for) {
            self.retry_us = self.retry_us.min(self.failed_us + RETRY_ASKED_US);
        }
        let coming = |link: &&Link| link.login_end_us.is_some() || link.client.is_idle();
        let mut coming = self.links.iter().filter(coming).count();
        // One is kept open, so that the first visitor does not wait for it.
        while coming < wanting.max(1)
            && self.links.len() < self.links_max
            && self.retry_us <= now_us
        {
            if !self.open(calls, now_us) {
                self.retry_us = now_us + self.backoff_us;
                break;
            }
            coming += 1;
        }
        let logins = self.links.iter().filter_map(|link| link.login_end_us).min();
        let retry = (coming < wanting.max(1) && self.retry_us > now_us).then_some(self.retry_us);
        [logins, retry].into_iter().flatten().min()
    }

    fn open(&mut self, calls: &mut impl Calls, now_us: u64) -> bool {
        let Ok(id) = calls.connect(self.address) else {
            return false;
        };
        self.counts[0] += 1;
        self.serial += 1;
        let mut random = self.secret;
        for (byte, serial) in random.iter_mut().zip(self.serial.to_le_bytes()) {
            *byte ^= serial;
        }
        self.opened.push(id);
        self.links.push(Link {
            id,
            client: Client::new(self.login.clone(), limits(), random),
            asker: None,
            is_answered: false,
            is_new: true,
            login_end_us: Some(now_us + LOGIN_TIMEOUT_US),
        });
        true
    }

    /// Connections that were begun since the last call.
    pub fn take_opened(&mut self) -> Vec<Id> {
        core::mem::take(&mut self.opened)
    }

    /// Whether somebody can ask now.
    pub fn has_free(&self) -> bool {
        self.links.iter().any(|link| link.client.is_idle())
    }

    /// Asks on a free connection.
    ///
    /// # Errors
    /// [`Refused::Busy`] if none is free.
    pub fn ask<'v>(
        &mut self,
        calls: &mut impl Calls,
        asker: Asker,
        statement: &str,
        values: impl ExactSizeIterator<Item = Value<'v>>,
    ) -> Result<(), Refused> {
        let mut links = self.links.iter_mut();
        let link = links
            .find(|link| link.client.is_idle())
            .ok_or(Refused::Busy)?;
        link.client.execute(statement, values)?;
        link.asker = Some(asker);
        link.is_answered = false;
        self.counts[1] += 1;
        flush(calls, link);
        Ok(())
    }

    /// Bytes have come. `events` gets what they mean for who asks; when the answer is whole it is told so and the
    /// connection is free.
    ///
    /// # Errors
    /// The connection is of no use any more; what became of who has asked on it.
    pub fn input(
        &mut self,
        calls: &mut impl Calls,
        now_us: u64,
        id: Id,
        bytes: &[u8],
        mut events: impl FnMut(Asker, Event<'_>),
    ) -> Result<(), Option<Lost>> {
        let Some(at) = self.links.iter().position(|link| link.id == id) else {
            return Ok(());
        };
        let link = &mut self.links[at];
        let mut asker = link.asker;
        let (mut is_ready, mut refusal) = (false, None);
        let taken = link
            .client
            .input(bytes, &mut |event| match (&event, asker) {
                (Event::Ready, _) => is_ready = true,
                (Event::Done { .. } | Event::Failed(_), Some(asking)) => {
                    events(asking, event);
                    asker = None;
                }
                (_, Some(asking)) => events(asking, event),
                (Event::Failed(failure), None) => refusal = Some(failure.message.to_string()),
                _ => {}
            });
        link.is_answered = true;
        if link.asker.is_some() && asker.is_none() {
            link.asker = None;
            link.is_new = false;
            self.backoff_us = RETRY_US.0;
        }
        if is_ready {
            link.login_end_us = None;
            self.is_down = false;
            self.retry_us = 0;
            self.trouble = None;
        }
        if let Err(error) = taken {
            calls.abort(id);
            return Err(self.unusable(now_us, at, error, refusal));
        }
        flush(calls, &mut self.links[at]);
        Ok(())
    }

    /// What did not fit before is sent.
    pub fn sent(&mut self, calls: &mut impl Calls, id: Id) {
        if let Some(link) = self.links.iter_mut().find(|link| link.id == id) {
            flush(calls, link);
        }
    }

    /// A connection has ended.
    pub fn lost(&mut self, now_us: u64, id: Id) -> Option<Lost> {
        let at = self.links.iter().position(|link| link.id == id)?;
        let link = self.links.swap_remove(at);
        self.ended(now_us, &link, "the connection is refused or lost");
        let cause = match !link.is_new && !link.is_answered {
            true => LossCause::Stale,
            false => LossCause::Server,
        };
        link.asker.map(|asker| Lost { asker, cause })
    }

    /// Drops a connection with invalid bytes. Returns its pending query, if there is one.
    fn unusable(
        &mut self,
        now_us: u64,
        at: usize,
        error: Error,
        refusal: Option<String>,
    ) -> Option<Lost> {
        let link = self.links.swap_remove(at);
        let reason = refusal.unwrap_or_else(|| error.to_string());
        self.ended(now_us, &link, &reason);
        let cause = match error.is_of_answer() {
            true => LossCause::Answer(error),
            false => LossCause::Server,
        };
        link.asker.map(|asker| Lost { asker, cause })
    }

    /// Handles the end of a connection. Only a connection that has served no page delays the next one: otherwise a
    /// visitor with queries that end connections would block the database for all others.
    fn ended(&mut self, now_us: u64, link: &Link, reason: &str) {
        let was_of_use = link.asker.is_some() || !link.is_new;
        match was_of_use {
            true => {
                self.counts[2] += 1;
                self.retry_us = 0;
                self.reason = format!("database server {}: {reason}", self.address);
            }
            false => self.back_off(now_us, reason),
        }
    }

    /// Closes all connections.
    pub fn close(self, calls: &mut impl Calls) {
        for link in self.links {
            calls.abort(link.id);
        }
    }

    /// Whether the last attempt failed and no connection is logged in.
    pub fn is_unreachable(&self) -> bool {
        self.is_down
    }

    /// Shortens the wait for the next attempt, as a page failed because the server is away.
    pub fn ask_for_retry(&mut self) {
        self.is_asked_for = true;
    }

    fn is_logged_in(&self) -> bool {
        self.links.iter().any(|link| link.login_end_us.is_none())
    }

    /// Nobody wants an answer any more: the connection that owes it goes.
    pub fn give_up(&mut self, calls: &mut impl Calls, asker: Asker) {
        let of_asker = |link: &Link| link.asker == Some(asker);
        if let Some(at) = self.links.iter().position(of_asker) {
            let link = self.links.swap_remove(at);
            calls.abort(link.id);
            self.retry_us = 0;
        }
    }

    /// Delays the next attempt after a connection that failed or ended before its first use.
    fn back_off(&mut self, now_us: u64, reason: &str) {
        self.counts[2] += 1;
        self.retry_us = now_us + self.backoff_us;
        self.backoff_us = (self.backoff_us * 2).min(RETRY_US.1);
        self.failed_us = now_us;
        self.is_down |= self.links.is_empty();
        self.reason = format!("database server {}: {reason}", self.address);
        self.trouble = Some(self.reason.clone());
    }

    /// Since when it can't be reached, in the operator's words.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }
}

/// The limits of a connection.
pub fn limits() -> Limits {
    Limits {
        packet_len_max: PACKET_LEN_MAX,
        row_count_max: ROW_COUNT_MAX,
        ..Limits::default()
    }
}

/// Sends what the client wants to send; what does not fit waits for [`Database::sent`].
fn flush(calls: &mut impl Calls, link: &mut Link) {
    let output = link.client.output();
    if !output.is_empty() && calls.send(link.id, Piece::Copied(output)).is_ok() {
        let len = output.len();
        link.client.sent(len);
    }
}
