//! A page task: the state of a page while it is generated, and its result.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lowroad_http::head_writer::HeadWriter;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_mysql::DataFault;
use lowroad_net::{ConnectionId, LARGE};
use lowroad_page::{PageLimits, PageRun};

use crate::page_input::PageInput;
use crate::response::{ResponseContext, UnikernelResponse};

/// The limits of a page. Its text and the head of the response fit into one large buffer.
const LIMITS: PageLimits = PageLimits {
    output_len_max: LARGE - 8192,
    memory_len_max: 64 << 10,
    step_count_max: 1_000_000,
    query_count_max: 100,
};
/// If the text buffer is larger than this, it is freed after the page.
const KEPT_LEN_MAX: usize = 16 << 10;

/// The reason that a page failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFailure {
    /// The page or one of its statements is invalid, or exceeds a limit.
    Page,
    /// The client's data are invalid.
    Data(DataFault),
    /// No connection to the database is available.
    NoDatabase,
    /// The page took too long.
    TimedOut,
}

impl PageFailure {
    /// The status code of the response.
    pub fn status(self) -> StatusCode {
        match self {
            PageFailure::Page => StatusCode::INTERNAL_ERROR,
            PageFailure::Data(DataFault::Invalid) => StatusCode::BAD_REQUEST,
            PageFailure::Data(DataFault::Conflict) => StatusCode::CONFLICT,
            PageFailure::NoDatabase => StatusCode::SERVICE_UNAVAILABLE,
            PageFailure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The explanation for the client.
    pub fn explanation(self) -> &'static str {
        match self {
            PageFailure::Page => "The page could not be made.",
            PageFailure::Data(DataFault::Invalid) => "The data are invalid.",
            PageFailure::Data(DataFault::Conflict) => "The data conflict with others.",
            PageFailure::NoDatabase => "The database is unavailable. Try again in a moment.",
            PageFailure::TimedOut => "The database did not answer in time.",
        }
    }
}

/// A finished page, successful or failed.
pub struct FinishedPage {
    /// The request that the page was generated for.
    pub visit: PageVisit,
    /// The index of the task, for `PageEngine::task` and `PageEngine::release_task`.
    pub task_index: usize,
    /// The result.
    pub result: Result<(), PageFailure>,
}

/// A request for a page.
#[derive(Clone, Copy)]
pub struct PageVisit {
    /// The client's connection.
    pub id: ConnectionId,
    /// Whether the connection is kept open after the response.
    pub keep_alive: bool,
    /// The time of arrival of the request, in microseconds.
    pub start_us: u64,
}

impl PageVisit {
    /// The value in a free task.
    pub const NONE: PageVisit = PageVisit {
        id: ConnectionId {
            index: u32::MAX,
            generation: 0,
        },
        keep_alive: false,
        start_us: 0,
    };
}

/// The state of a task.
pub enum PageState {
    /// Not in use.
    Free,
    /// Finished; its text has not been sent yet.
    Ended,
    /// Can continue.
    Ready,
    /// Waits for a free database connection.
    AwaitsConnection,
    /// Waits for the response of the database.
    AwaitsResponse,
    /// Fails with this reason when it is run next.
    Failing(PageFailure),
}

/// A task that generates pages, one after another; its memory is reused.
pub struct PageTask {
    /// The request for the page.
    pub visit: PageVisit,
    /// The copied data of the request.
    pub input: PageInput,
    /// The index of the page.
    pub page: usize,
    /// The page's interpreter: variables and position.
    pub run: PageRun,
    /// The generated text.
    pub text: Vec<u8>,
    /// The task's state.
    pub state: PageState,
    /// Whether its query was repeated, because the server had closed the connection.
    pub is_repeated: bool,
    /// The reason that the page failed, for the log.
    pub reason: String,
}

impl PageTask {
    /// A free task.
    pub fn new() -> PageTask {
        PageTask {
            visit: PageVisit::NONE,
            input: PageInput::new(),
            page: 0,
            run: PageRun::new(LIMITS),
            text: Vec::new(),
            state: PageState::Free,
            is_repeated: false,
            reason: String::new(),
        }
    }

    /// Clears the data of a page, and frees an unusually large text buffer.
    pub fn clear(&mut self) {
        self.state = PageState::Free;
        self.reason = String::new();
        self.visit = PageVisit::NONE;
        if self.text.capacity() > KEPT_LEN_MAX {
            *self = PageTask::new();
        }
    }

    /// Writes the response with the generated page.
    pub fn write(&self, context: &ResponseContext, out: &mut UnikernelResponse) {
        let reply = self.run.reply();
        let status = reply
            .status
            .and_then(StatusCode::new)
            .unwrap_or(StatusCode::OK);
        out.status(status);
        let mut head = HeadWriter::start(&mut out.copied, status, &context.date);
        let has_field = |name: &str| {
            let mut fields = reply.fields.iter();
            fields.any(|(field_name, _)| field_name.eq_ignore_ascii_case(name))
        };
        if !has_field("content-type") {
            head.field("Content-Type", b"text/html; charset=utf-8");
        }
        if !has_field("cache-control") {
            match reply.cache_s {
                Some(cache_s) => {
                    let kind = if reply.is_personal { "private, " } else { "" };
                    let value = format!("{kind}max-age={cache_s}");
                    head.field("Cache-Control", value.as_bytes());
                }
                None => {
                    head.field("Cache-Control", b"no-cache");
                }
            }
        }
        for (name, value) in &reply.fields {
            head.field(name, value.as_bytes());
        }
        // RFC 9110 §8.6: no Content-Length with 204.
        if !status.is_bodiless() {
            head.field_u64("Content-Length", self.text.len() as u64);
        }
        head.finish_open();
        out.copied.extend_from_slice(context.head_end());
        if self.input.method != Method::Head && !status.is_bodiless() {
            out.copied.extend_from_slice(&self.text);
            out.body_len = self.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use super::*;

    /// docs/image.md has a table with these limits.
    #[test]
    fn limits_match_documentation() {
        const IMAGE: &str = include_str!("../../../../docs/image.md");
        let number = |number: usize| {
            let digits = format!("{number}");
            let (head, tail) = digits.split_at((digits.len() - 1) % 3 + 1);
            let groups = tail.as_bytes().chunks(3);
            groups.fold(head.to_owned(), |all, group| {
                all + "," + core::str::from_utf8(group).expect("digits")
            })
        };
        let database = crate::database::limits();
        for text in [
            format!("{} bytes of text", number(LIMITS.output_len_max)),
            format!("{} bytes of memory", number(LIMITS.memory_len_max)),
            format!("{} steps", number(LIMITS.step_count_max as usize)),
            format!("{} statements", LIMITS.query_count_max),
            format!("{} rows", number(database.row_count_max as usize)),
            format!("{} columns", database.column_count_max),
            format!("each row of {} bytes", number(database.packet_len_max)),
            format!("{} are kept prepared", database.statement_count_max),
        ] {
            assert!(IMAGE.contains(&text), "{text}");
        }
    }
}
