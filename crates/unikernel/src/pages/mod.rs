//! Dynamic pages: each runs until it needs the database, and continues with the response. Only pages allocate memory
//! for a request, so the number of concurrent pages is bounded.

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

/// The most concurrent pages, if memory suffices. Their memory is the only one that isn't allocated at the start; this
/// bound and the limits of a page bound it.
const TASKS_MAX: usize = 64;
/// The most memory of a page: its text, twice while it grows, its values, and its share of the database connections.
const TASK_LEN: usize = 192 << 10;
/// Memory for the log and other uses besides pages.
const OTHERS_LEN: usize = 512 << 10;
/// The most queued requests for pages; more get 503.
const QUEUE_MAX: usize = 1024;
/// A page that takes longer is aborted.
const TASK_TIMEOUT_US: u64 = 15_000_000;

/// The site's pages, the tasks that generate them, and the database.
pub struct PageEngine {
    /// By the address of the source, as returned by a lookup.
    pages: Vec<(&'static archive::PageSource, CompiledPage)>,
    tasks: Vec<PageTask>,
    free: Vec<usize>,
    /// Tasks that can continue.
    ready: VecDeque<usize>,
    /// Connections with an unread request that wait for a free task.
    queue: VecDeque<ConnectionId>,
    /// Tasks that wait for a database connection, in order.
    waiting: VecDeque<usize>,
    database: Option<DatabaseClient>,
    /// The database connections were closed for the shutdown.
    is_stopped: bool,
    problem: Option<String>,
    finished_count: u64,
}

impl PageEngine {
    /// Parses the site's pages. As many run concurrently as `memory_len` bytes suffice for, and at least one.
    ///
    /// # Errors
    /// A text for the operator: a page or the database settings are invalid.
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
        // Sorted once, for the binary search of `begin`.
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

    /// Begins a page. False: the request is queued, and its input is resumed later.
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
        // A source is identified by its address: the archive gives the same reference at each lookup.
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
        task.state = PageState::Runs;
        task.is_repeated = false;
        self.ready.push_back(at);
        Ok(true)
    }

    /// Continues the tasks that can run. Returns a finished page, which the caller passes to `PageEngine::end`; to be
    /// called until `None`.
    pub fn run(&mut self, calls: &mut impl StackCalls) -> Option<FinishedPage> {
        // Queries first, so that the database works while other pages run.
        self.send_queries(calls);
        while let Some(at) = self.ready.pop_front() {
            if let Some(result) = self.step(at) {
                self.finished_count += 1;
                self.tasks[at].state = PageState::Ended;
                let visit = self.tasks[at].visit;
                return Some(FinishedPage { visit, at, result });
            }
            // The step may have asked for a query.
            self.send_queries(calls);
        }
        None
    }

    /// The task of a finished page.
    pub fn task(&self, at: usize) -> &PageTask {
        &self.tasks[at]
    }

    /// The next queued connection for which a task is free; `started` were returned since the last page began.
    pub fn next_queued(&mut self, started: usize) -> Option<ConnectionId> {
        match started < self.free.len() {
            true => self.queue.pop_front(),
            false => None,
        }
    }

    /// Releases the task of a finished page.
    pub fn end(&mut self, at: usize) {
        self.tasks[at].clear();
        self.free.push(at);
    }

    /// Runs a page until it ends or needs the database.
    fn step(&mut self, at: usize) -> Option<Result<(), PageFailure>> {
        let task = &mut self.tasks[at];
        // The failure was reported to the task while it waited.
        if let PageState::Fails(failure) = task.state {
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
                // A page must not wait for a server that is known to be away.
                Some(database) if database.is_unreachable() => {
                    database.request_retry();
                    (
                        PageFailure::NoDatabase,
                        format!("{name}: {}", database.reason),
                    )
                }
                Some(_) => {
                    task.state = PageState::Wants;
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
        // Only faults of the page itself concern the operator; the database reports its own.
        if failure == PageFailure::Page {
            self.problem = Some(task.reason.clone());
        }
        Some(Err(failure))
    }

    /// Fails a waiting page.
    fn fail(&mut self, at: usize, failure: PageFailure, reason: &str) {
        let task = &mut self.tasks[at];
        let name = self.pages[task.page].0.name;
        task.state = PageState::Fails(failure);
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
        // Collected, since `fail` needs the whole engine.
        let mut too_long = Vec::new();
        while !self.waiting.is_empty() && database.has_free() {
            let Some(at) = self.waiting.pop_front() else {
                break;
            };
            let task = &mut self.tasks[at];
            let page = &self.pages[task.page].1;
            // A repeated step returns the same query as before.
            let step = task.run.step(page, &task.input, &mut task.text);
            let RunStep::Query { statement, values } = step else {
                task.state = PageState::Runs;
                self.ready.push_back(at);
                continue;
            };
            match database.send_query(calls, at, statement, values.map(to_database)) {
                Ok(()) => task.state = PageState::Asks,
                Err(StatementRefusal::Busy) => {
                    // The task keeps its turn.
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
                    task.state = PageState::Runs;
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
                        PageState::Fails(fault.map_or(PageFailure::Page, PageFailure::Data));
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

    /// Sends output to the database server that did not fit before.
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

    /// Fails the waiting pages while the database is away, instead of waiting for the next attempt.
    fn fail_if_unreachable(&mut self) {
        let Some(database) = &mut self.database else {
            return;
        };
        if self.waiting.is_empty() || !database.is_unreachable() {
            return;
        }
        database.request_retry();
        // Each page's log entry gets the same reason.
        let reason = database.reason.clone();
        for at in core::mem::take(&mut self.waiting) {
            self.fail(at, PageFailure::NoDatabase, &reason);
        }
    }

    /// Repeats a lost query once if that is safe; otherwise fails its page.
    fn handle_lost_query(&mut self, lost_query: &LostQuery) {
        let owner = lost_query.owner;
        let task = &mut self.tasks[owner];
        let (failure, reason) = match &lost_query.cause {
            // Once: a server that closes each connection must not cause a loop.
            LossCause::Stale if !task.is_repeated => {
                task.is_repeated = true;
                task.state = PageState::Wants;
                // To the front: the page has waited already.
                return self.waiting.push_front(owner);
            }
            LossCause::Stale | LossCause::Server => {
                let reason = self.database.as_ref().map(|database| &database.reason);
                (PageFailure::NoDatabase, reason.cloned().unwrap_or_default())
            }
            LossCause::Answer(error) => (PageFailure::Page, error.to_string()),
        };
        self.fail(owner, failure, &reason);
    }

    /// Removes a queued connection that has ended.
    pub fn unqueue(&mut self, id: ConnectionId) {
        self.queue.retain(|queued| *queued != id);
    }

    /// Aborts the page of a connection that has ended.
    pub fn forget(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        if let Some(at) = self.tasks.iter().position(|task| task.visit.id == id) {
            self.drop_task(calls, at);
        }
    }

    fn drop_task(&mut self, calls: &mut impl StackCalls, at: usize) {
        if let (PageState::Asks, Some(database)) = (&self.tasks[at].state, &mut self.database) {
            database.abandon_query(calls, at);
        }
        self.ready.retain(|index| *index != at);
        self.waiting.retain(|index| *index != at);
        self.end(at);
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
                let waits = matches!(task.state, PageState::Asks | PageState::Wants);
                // Running pages end by their limit of steps.
                if !waits || now_us < task.visit.start_us + TASK_TIMEOUT_US {
                    continue;
                }
                if matches!(task.state, PageState::Asks) {
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

    /// Whether no periodic call is needed: no page runs and there is no database.
    pub fn is_idle(&self) -> bool {
        self.database.is_none() && self.free.len() == self.tasks.len() && self.queue.is_empty()
    }

    /// During the shutdown, closes the database connections once no page needs them.
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

    /// The last problem, for the operator; returned once.
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
