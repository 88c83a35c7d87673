//! Renders pages with `lowroad_page` instead of the template engine. Unlike the engine, `lowroad_page` continues after
//! a query without rendering again, and processes rows at a fraction of the cost. It supports only a part of the
//! template language, and only pages without writes. If rendering fails here, the engine renders the page again and
//! reports the error.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_handler::{HandlerFailure, HandlerResponse};
use lowroad_http::fields::FieldLines;
use lowroad_page::{CompiledPage, PageLimits, PageRequest, PageRun, PageValue as Cell, RunStep};

use super::database::{
    CallMode, DatabaseAnswer, DatabaseCall, PageDatabase, PageSession, ResultShape,
};
use super::functions::CALLS_MAX;
use super::reply::PageResponseHead;
use super::request_values::TemplateRequest;
use super::templates::TemplateSet;
use super::value::SqlParam;
use super::{PAGE_LEN_MAX, STEPS_INLINE_MAX, located_message, render_attempt, statement};

/// The maximum number of rendering steps; the template engine permits more steps.
const STEPS_MAX: u64 = 500_000;

/// The maximum memory of rows and texts in bytes; the engine permits the whole limit of the route. A text's length may
/// be checked only after it was built, at up to six times the length of its source.
const MEMORY_LEN_MAX: usize = 8 << 20;

/// A page that takes more time than this between two queries, and also many steps, is from then on rendered by the
/// engine on separate threads. The condition includes steps, since on a busy machine any page can take long.
const SLICE_MAX: Duration = Duration::from_millis(20);

/// A page and its request.
pub struct DirectPage<'d> {
    pub templates: &'d TemplateSet,
    pub name: &'d str,
    pub page: &'d CompiledPage,
    pub visit: &'d TemplateRequest,
    /// The default database of the route.
    pub database: &'d Arc<PageDatabase>,
    /// The page's memory limit in bytes.
    pub memory_len_max: usize,
}

impl DirectPage<'_> {
    /// The response; `None` if the engine must render the page.
    pub async fn answer(&self) -> Option<Result<HandlerResponse, HandlerFailure>> {
        let mut run = PageRun::new(PageLimits {
            output_len_max: PAGE_LEN_MAX,
            memory_len_max: self.memory_len_max.min(MEMORY_LEN_MAX),
            step_count_max: STEPS_MAX,
            query_count_max: CALLS_MAX as u32,
        });
        run.begin(self.page);
        let mut text = Vec::new();
        let mut session = PageSession::default();
        let mut rows_len = 0;
        while let Some(mut call) = self.step(&mut run, &mut text)? {
            // The rows of earlier queries count against the page's memory limit.
            call.len_max = self.memory_len_max.saturating_sub(rows_len);
            let answer = match session.call(self.database, &call).await {
                Ok(answer) => answer,
                Err(fault) => {
                    let (part, line) = run.source_location(self.page);
                    let reason = render_attempt::describe_failure(&call, &fault);
                    let detail = located_message(self.templates, part, line as usize, &reason);
                    return Some(Err(HandlerFailure::new(fault.status, detail)));
                }
            };
            rows_len += answer.len();
            // On `None`, the engine renders the page from the start, which is safe after reads only.
            pass_rows(&answer, &mut run)?;
        }
        // There is nothing to commit after reads only, so this cannot fail; if it does, the engine reports the error.
        session.end().await.ok()?;
        let page_reply = run.reply();
        let reply = reply(page_reply)?;
        reply
            .response(text, page_reply.is_personal, true)
            .ok()
            .map(Ok)
    }

    /// Renders up to the next query or to the end of the page; `None` if the page needs the engine.
    fn step(&self, run: &mut PageRun, text: &mut Vec<u8>) -> Option<Option<DatabaseCall>> {
        let start = Instant::now();
        let call = match run.step(self.page, self.visit, text) {
            RunStep::Done => None,
            RunStep::Failed(_) => return None,
            RunStep::Query { statement, values } => {
                let params = values.map(param).collect::<Option<Vec<SqlParam>>>()?;
                // The page was parsed with the SQL dialect of MariaDB; in the dialect of its database, the number of
                // parameters can differ.
                if statement::parameters(statement, self.database.dialect) != params.len() {
                    return None;
                }
                Some(DatabaseCall {
                    sql: statement.into(),
                    params,
                    shape: ResultShape::Rows,
                    mode: CallMode::from_sql(
                        statement,
                        self.database.dialect,
                        ResultShape::Rows,
                        true,
                    )?,
                    len_max: 0,
                    rows_max: self.database.rows_max,
                    timeout: self.database.timeout,
                })
            }
        };
        // The condition includes steps, since on a busy machine any page can take long.
        if run.steps() > STEPS_INLINE_MAX && start.elapsed() > SLICE_MAX {
            self.templates.mark_heavy(self.name);
        }
        Some(call)
    }
}

/// Passes the rows of a query to the page; `None` if they contain bytes that are not text, which only the engine
/// supports.
fn pass_rows(answer: &DatabaseAnswer, run: &mut PageRun) -> Option<()> {
    let DatabaseAnswer::Rows(table) = answer else {
        return None;
    };
    if table.has_bytes() {
        return None;
    }
    run.columns(table.names());
    for row in 0..table.row_count() {
        table.row(row).for_each(|cell| run.value(cell));
        run.row_end();
    }
    run.finish_query();
    Some(())
}

fn param(value: Cell<'_>) -> Option<SqlParam> {
    Some(match value {
        Cell::Null => SqlParam::Null,
        Cell::Bool(it) => SqlParam::Bool(it),
        Cell::Int(it) => SqlParam::Int(it),
        // A number above `i64::MAX` fits no parameter; the engine reports the error.
        Cell::UInt(it) => SqlParam::Int(it.try_into().ok()?),
        Cell::Float(it) => SqlParam::Float(it),
        Cell::Text(it) => SqlParam::Text(it.to_owned()),
        Cell::Bytes(it) => SqlParam::Blob(it.to_vec()),
    })
}

fn reply(page_reply: &lowroad_page::PageReply) -> Option<PageResponseHead> {
    let mut reply = PageResponseHead::default();
    if let Some(code) = page_reply.status {
        reply.status(code).ok()?;
    }
    for (name, value) in &page_reply.fields {
        reply.field(name, value).ok()?;
    }
    if let Some(seconds) = page_reply.cache_s {
        // There are no cache tags: pages rendered here cannot set any.
        reply.set_caching(seconds, Vec::new()).ok()?;
    }
    Some(reply)
}

impl PageRequest for TemplateRequest {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn target(&self) -> &[u8] {
        &self.target
    }

    fn host(&self) -> &[u8] {
        &self.host
    }

    fn query(&self) -> &[u8] {
        &self.query
    }

    fn peer(&self) -> IpAddr {
        self.peer
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let is_named = |line: &(&[u8], &[u8])| line.0.eq_ignore_ascii_case(name.as_bytes());
        FieldLines::new(&self.lines)
            .find(is_named)
            .map(|(_, value)| value)
    }
}
