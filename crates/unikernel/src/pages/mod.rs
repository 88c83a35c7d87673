//! Dynamic pages: each runs until it needs the database, and continues when the response has arrived. In contrast to
//! files, pages allocate memory for a request, so the number of concurrent pages is limited.

mod task;
mod values;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_http::h1::H1RequestHead;
use lowroad_mysql::{DataFault, MySqlEvent, StatementRefusal};
use lowroad_net::{ConnectionId, SendQueueFull, StackCalls};
use lowroad_page::{CompiledPage, RunStep};

use crate::archive::{self, ArchiveEntry, SiteArchive};
use crate::database::{self, DatabaseClient, LossCause, LostQuery};
pub use task::{FinishedPage, PageFailure, PageVisit};
use task::{PageState, PageTask};
use values::{from_database, to_database};

/// Maximum number of concurrent pages, if memory suffices. Pages are the only part of the server that allocates memory
/// after the start; this number and the limits of a page bound that memory.
const TASKS_MAX: usize = 64;
/// Maximum memory of a page: its text (twice while the buffer grows), its values, and its share of the database
/// connections.
const TASK_LEN: usize = 192 << 10;
/// Memory for the log and for other uses besides pages.
const OTHERS_LEN: usize = 512 << 10;
/// Maximum number of queued requests for pages; further ones get 503.
const QUEUE_MAX: usize = 1024;
/// Time after which a waiting page is aborted.
const TASK_TIMEOUT_US: u64 = 15_000_000;

/// The pages of the site, the tasks that generate them, and the database connections.
pub struct PageEngine {
    /// Sorted by the address of the source in memory.
    pages: Vec<(&'static archive::PageSource, CompiledPage)>,
    tasks: Vec<PageTask>,
    free: Vec<usize>,
    /// Tasks that can continue.
    ready: VecDeque<usize>,
    /// Connections with an unread request for a page, which wait for a free task.
    queue: VecDeque<ConnectionId>,
    /// Tasks that wait for a database connection, the oldest first.
    waiting: VecDeque<usize>,
    database: Option<DatabaseClient>,
    /// Whether the database connections were closed for the shutdown.
    is_stopped: bool,
    problem: Option<String>,
    finished_count: u64,
}

impl PageEngine {
    /// Parses the pages of the site. The number of concurrent pages is limited by `memory_len` bytes, but at least one.
    ///
    /// # Errors
    /// If a page or the database settings are invalid: a text for the operator.
    pub fn new(
        site: &SiteArchive,
        secret: [u8; 32],
        memory_len: usize,
        cores: u16,
    ) -> Result<PageEngine, String> {
        let count = (memory_len.saturating_sub(OTHERS_LEN) / TASK_LEN).clamp(1, TASKS_MAX);
        let mut pages = Vec::new();
        for (_, entry) in site.entries() {
            if let ArchiveEntry::Page(source) = entry {
                let page = CompiledPage::parse_with(source.name, source.text, &mut |name| {
                    site.source(name)
                })
                .map_err(|error| format!("{}:{}: {}", source.name, error.line, error.message))?;
                pages.push((source, page));
            }
        }
        // Sorted once, for the binary search in `begin`.
        pages.sort_by_key(|(source, _)| core::ptr::from_ref(*source).addr());
        Ok(PageEngine {
            pages,
            tasks: (0..count).map(|_| PageTask::new()).collect(),
            free: (0..count).rev().collect(),
            ready: VecDeque::with_capacity(TASKS_MAX),
            queue: VecDeque::with_capacity(QUEUE_MAX),
            waiting: VecDeque::with_capacity(TASKS_MAX),
            database: DatabaseClient::from_settings(site, secret, cores)?,
            is_stopped: false,
            problem: None,
            finished_count: 0,
        })
    }

    /// Begins to generate a page. Returns false if the request is queued: then its connection is resumed later.
    ///
    /// # Errors
    /// `SendQueueFull` if the queue is full.
    pub fn begin(
        &mut self,
        visit: PageVisit,
        source: &'static archive::PageSource,
        head: &H1RequestHead<'_>,
        peer: SocketAddrV4,
    ) -> Result<bool, SendQueueFull> {
        let address = core::ptr::from_ref(source).addr();
        let source_address = |entry: &(&'static archive::PageSource, CompiledPage)| {
            core::ptr::from_ref(entry.0).addr()
        };
        // The address identifies a source, since each lookup in the archive returns the same reference.
        let page = self.pages.binary_search_by_key(&address, source_address);
        let page = page.map_err(|_| SendQueueFull)?;
        let Some(at) = self.free.pop() else {
            if self.queue.len() == QUEUE_MAX {
                return Err(SendQueueFull);
            }
            self.queue.push_back(visit.id);
            return Ok(false);
        };
        let task = &mut self.tasks[at];
        task.visit = visit;
        task.input.set(head, peer);
        task.page = page;
        task.run.begin(&self.pages[page].1);
        task.text.clear();
        task.state = PageState::Ready;
        task.is_repeated = false;
        self.ready.push_back(at);
        Ok(true)
    }

    /// Continues the tasks that can run. Returns a finished page, which the caller must pass to
    /// `PageEngine::release_task`. Call it until it returns `None`.
    pub fn run(&mut self, calls: &mut impl StackCalls) -> Option<FinishedPage> {
        // Queries are sent first, so that the database processes them while other pages run.
        self.send_queries(calls);
        while let Some(at) = self.ready.pop_front() {
            if let Some(result) = self.step(at) {
                self.finished_count += 1;
                self.tasks[at].state = PageState::Ended;
                let visit = self.tasks[at].visit;
                return Some(FinishedPage {
                    visit,
                    task_index: at,
                    result,
                });
            }
            // The step may have requested a query.
            self.send_queries(calls);
        }
        None
    }

    /// The task of a finished page.
    pub fn task(&self, at: usize) -> &PageTask {
        &self.tasks[at]
    }

    /// The next queued connection, if a task is free for it. `started`: the number of connections that were returned
    /// before without beginning a page yet.
    pub fn next_queued(&mut self, started: usize) -> Option<ConnectionId> {
        match started < self.free.len() {
            true => self.queue.pop_front(),
            false => None,
        }
    }

    /// Releases the task of a finished page.
    pub fn release_task(&mut self, at: usize) {
        self.tasks[at].clear();
        self.free.push(at);
    }

    /// Runs a page until it is finished or needs the database.
    fn step(&mut self, at: usize) -> Option<Result<(), PageFailure>> {
        let task = &mut self.tasks[at];
        // If the page failed while it waited, it does not run again.
        if let PageState::Failing(failure) = task.state {
            return Some(Err(failure));
        }
        let (source, page) = &self.pages[task.page];
        let name = source.name;
        let (failure, reason) = match task.run.step(page, &task.input, &mut task.text) {
            RunStep::Done => return Some(Ok(())),
            RunStep::Query { .. } => match &mut self.database {
                _ if self.is_stopped => (
                    PageFailure::NoDatabase,
                    format!("{name}: the machine is shutting down"),
                ),
                None => (
                    PageFailure::Page,
                    format!("{name}: the site has no database: build it with --database"),
                ),
                // If the server is known to be unreachable, a page fails immediately instead of waiting.
                Some(database) if database.is_unreachable() => {
                    database.request_retry();
                    (
                        PageFailure::NoDatabase,
                        format!("{name}: {}", database.reason),
                    )
                }
                Some(_) => {
                    task.state = PageState::AwaitsConnection;
                    self.waiting.push_back(at);
                    return None;
                }
            },
            RunStep::Failed(failure) => (
                PageFailure::Page,
                format!("{name}:{}: {}", failure.line, failure.message),
            ),
        };
        task.reason = reason;
        // Only errors of the page itself are reported here; the database client reports its own.
        if failure == PageFailure::Page {
            self.problem = Some(task.reason.clone());
        }
        Some(Err(failure))
    }

    /// Makes a waiting page fail.
    fn fail(&mut self, at: usize, failure: PageFailure, reason: &str) {
        let task = &mut self.tasks[at];
        let name = self.pages[task.page].0.name;
        task.state = PageState::Failing(failure);
        task.reason = format!("{name}: {reason}");
        if failure == PageFailure::Page {
            self.problem = Some(task.reason.clone());
        }
        self.ready.push_back(at);
    }

    /// Sends the queries of waiting tasks while database connections are free.
    fn send_queries(&mut self, calls: &mut impl StackCalls) {
        let Some(database) = &mut self.database else {
            return;
        };
        // Tasks with a query that is too long are collected first, since `fail` borrows the whole engine.
        let mut too_long = Vec::new();
        while !self.waiting.is_empty() && database.has_free() {
            let Some(at) = self.waiting.pop_front() else {
                break;
            };
            let task = &mut self.tasks[at];
            let page = &self.pages[task.page].1;
            // A repeated step returns the same query.
            let step = task.run.step(page, &task.input, &mut task.text);
            let RunStep::Query { statement, values } = step else {
                task.state = PageState::Ready;
                self.ready.push_back(at);
                continue;
            };
            match database.send_query(calls, at, statement, values.map(to_database)) {
                Ok(()) => task.state = PageState::AwaitsResponse,
                Err(StatementRefusal::Busy) => {
                    // The task remains the first one in the queue.
                    self.waiting.push_front(at);
                    break;
                }
                Err(StatementRefusal::TooLong) => too_long.push(at),
            }
        }
        for at in too_long {
            let reason = "a statement with its values is longer than 60,000 bytes";
            self.fail(at, PageFailure::Page, reason);
        }
    }

    /// Processes bytes from the database server.
    pub fn input(
        &mut self,
        calls: &mut impl StackCalls,
        now_us: u64,
        id: ConnectionId,
        bytes: &[u8],
    ) {
        let Some(database) = &mut self.database else {
            return;
        };
        let (tasks, pages) = (&mut self.tasks, &self.pages);
        let (ready, problem) = (&mut self.ready, &mut self.problem);
        let result = database.input(calls, now_us, id, bytes, |owner, event| {
            let task: &mut PageTask = &mut tasks[owner];
            match event {
                MySqlEvent::Columns(columns) => {
                    task.run
                        .columns(columns.iter().map(|column| column.name.as_str()));
                }
                MySqlEvent::Value(value) => task.run.value(from_database(value)),
                MySqlEvent::RowEnd => task.run.row_end(),
                MySqlEvent::Done { .. } => {
                    task.run.finish_query();
                    task.state = PageState::Ready;
                    ready.push_back(owner);
                }
                MySqlEvent::Failed(failure) => {
                    let name = pages[task.page].0.name;
                    task.reason = format!(
                        "{name}: the database reports {}: {}",
                        failure.code, failure.message
                    );
                    *problem = Some(task.reason.clone());
                    let fault = DataFault::from_number(failure.code);
                    task.state =
                        PageState::Failing(fault.map_or(PageFailure::Page, PageFailure::Data));
                    ready.push_back(owner);
                }
                MySqlEvent::StartTls | MySqlEvent::Ready => {}
            }
        });
        if let Err(lost_query) = result {
            if let Some(lost_query) = lost_query {
                self.handle_lost_query(&lost_query);
            }
            self.fail_if_unreachable();
        }
    }

    /// Sends output to the database server that did not fit into the send queue before.
    pub fn sent(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        if let Some(database) = &mut self.database {
            database.sent(calls, id);
        }
    }

    /// Handles the end of a database connection.
    pub fn on_connection_lost(&mut self, now_us: u64, id: ConnectionId) {
        let lost_query = self
            .database
            .as_mut()
            .and_then(|database| database.on_connection_lost(now_us, id));
        if let Some(lost_query) = lost_query {
            self.handle_lost_query(&lost_query);
        }
        self.fail_if_unreachable();
    }

    /// Makes the waiting pages fail if the database is unreachable, so that they do not wait for the next attempt.
    fn fail_if_unreachable(&mut self) {
        let Some(database) = &mut self.database else {
            return;
        };
        if self.waiting.is_empty() || !database.is_unreachable() {
            return;
        }
        database.request_retry();
        // The same reason is logged for each page.
        let reason = database.reason.clone();
        for at in core::mem::take(&mut self.waiting) {
            self.fail(at, PageFailure::NoDatabase, &reason);
        }
    }

    /// Repeats a lost query once if that is safe. Otherwise its page fails.
    fn handle_lost_query(&mut self, lost_query: &LostQuery) {
        let owner = lost_query.owner;
        let task = &mut self.tasks[owner];
        let (failure, reason) = match &lost_query.cause {
            // A query is repeated only once: a server that closes each connection must not cause a loop.
            LossCause::Stale if !task.is_repeated => {
                task.is_repeated = true;
                task.state = PageState::AwaitsConnection;
                // The page goes to the front of the queue, since it has already waited.
                return self.waiting.push_front(owner);
            }
            LossCause::Stale | LossCause::Server => {
                let reason = self.database.as_ref().map(|database| &database.reason);
                (PageFailure::NoDatabase, reason.cloned().unwrap_or_default())
            }
            LossCause::ResponseLimit(error) => (PageFailure::Page, error.to_string()),
        };
        self.fail(owner, failure, &reason);
    }

    /// Removes a connection that has ended from the queue.
    pub fn unqueue(&mut self, id: ConnectionId) {
        self.queue.retain(|queued| *queued != id);
    }

    /// Aborts the page of a connection that has ended.
    pub fn abort_page(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        if let Some(at) = self.tasks.iter().position(|task| task.visit.id == id) {
            self.drop_task(calls, at);
        }
    }

    fn drop_task(&mut self, calls: &mut impl StackCalls, at: usize) {
        if let (PageState::AwaitsResponse, Some(database)) =
            (&self.tasks[at].state, &mut self.database)
        {
            database.abandon_query(calls, at);
        }
        self.ready.retain(|index| *index != at);
        self.waiting.retain(|index| *index != at);
        self.release_task(at);
    }

    /// Aborts overdue pages and maintains the database connections. Returns the time of the next call.
    pub fn tick(&mut self, calls: &mut impl StackCalls, now_us: u64) -> Option<u64> {
        let mut next_us = (!self.queue.is_empty()).then_some(now_us + 100_000);
        let Some(database) = self.database.as_mut() else {
            return next_us;
        };
        let mut overdue = Vec::new();
        if self.free.len() < self.tasks.len() {
            next_us = Some(now_us + 1_000_000);
            for at in 0..self.tasks.len() {
                let task = &mut self.tasks[at];
                let waits = matches!(
                    task.state,
                    PageState::AwaitsResponse | PageState::AwaitsConnection
                );
                // A running page is bounded by its limit of steps.
                if !waits || now_us < task.visit.start_us + TASK_TIMEOUT_US {
                    continue;
                }
                if matches!(task.state, PageState::AwaitsResponse) {
                    database.abandon_query(calls, at);
                }
                self.waiting.retain(|index| *index != at);
                overdue.push(at);
            }
        }
        let database_us = database.tick(calls, now_us, self.waiting.len());
        for at in overdue {
            let reason = format!("it took longer than {} s", TASK_TIMEOUT_US / 1_000_000);
            self.fail(at, PageFailure::TimedOut, &reason);
        }
        self.fail_if_unreachable();
        [next_us, database_us].into_iter().flatten().min()
    }

    /// Whether `tick` need not be called: no page runs or is queued, and there is no database.
    pub fn is_idle(&self) -> bool {
        self.database.is_none() && self.free.len() == self.tasks.len() && self.queue.is_empty()
    }

    /// Closes the database connections for the shutdown, once no page needs them.
    pub fn stop(&mut self, calls: &mut impl StackCalls) {
        // Pages that have begun are completed first.
        if self.free.len() < self.tasks.len() || !self.queue.is_empty() {
            return;
        }
        if let Some(database) = self.database.take() {
            self.is_stopped = true;
            database.close(calls);
        }
    }

    /// Database connections opened since the last call.
    pub fn take_opened(&mut self) -> Vec<ConnectionId> {
        self.database
            .as_mut()
            .map(DatabaseClient::take_opened)
            .unwrap_or_default()
    }

    /// The last problem, for the operator. It is returned once.
    pub fn take_problem(&mut self) -> Option<String> {
        let database_problem = || {
            self.database
                .as_mut()
                .and_then(DatabaseClient::take_problem)
        };
        self.problem.take().or_else(database_problem)
    }

    /// Names and values of the counters.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let page_counters = [
            ("pages_made", self.finished_count),
            ("pages_now", (self.tasks.len() - self.free.len()) as u64),
            ("pages_max", self.tasks.len() as u64),
            ("pages_waiting", self.waiting.len() as u64),
            ("pages_queued", self.queue.len() as u64),
        ];
        let counts = self.database.as_ref().map(|database| database.counts);
        let database_counters = counts.map(|counts| database::COUNTS.into_iter().zip(counts));
        page_counters
            .into_iter()
            .chain(database_counters.into_iter().flatten())
    }
}
