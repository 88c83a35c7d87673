//! Pages rendered without the template engine, by `lowroad-page`. It continues after a query instead of rendering
//! again, and rows cost a fraction. It supports a part of the language, and pages that only read. A page that fails
//! here is rendered by the engine, which reports the fault.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_handler::{Failure, Response};
use lowroad_http::fields::Lines;
use lowroad_page::{Limits, Page, Request, Run, Step, Value as Cell};

use super::database::{Answer, Call, Database, Mode, Session, Want};
use super::functions::CALLS_MAX;
use super::reply::Reply;
use super::templates::Templates;
use super::value::Param;
use super::visit::Visit;
use super::{PAGE_LEN_MAX, STEPS_INLINE_MAX, attempt, place, statement};

/// The most steps; the engine allows more.
const STEPS_MAX: u64 = 500_000;

/// The most bytes of its rows and texts; the engine allows as many as the route's limit. A text may be made before its
/// length is checked, up to six times as long as its source.
const MEMORY_LEN_MAX: usize = 8 << 20;

/// A page that takes longer than this at a time, and many steps, is moved to the engine's separate threads for good.
/// The steps count too, since any page may take long on a busy machine.
const SLICE_MAX: Duration = Duration::from_millis(20);

/// A page and the request for it.
pub struct Direct<'d> {
    pub templates: &'d Templates,
    pub name: &'d str,
    pub page: &'d Page,
    pub visit: &'d Visit,
    /// The route's database.
    pub database: &'d Arc<Database>,
    /// Bytes that the page may use.
    pub memory_len_max: usize,
}

impl Direct<'_> {
    /// The response; `None` if the engine must make it.
    pub async fn answer(&self) -> Option<Result<Response, Failure>> {
        let mut run = Run::new(Limits {
            output_len_max: PAGE_LEN_MAX,
            memory_len_max: self.memory_len_max.min(MEMORY_LEN_MAX),
            step_count_max: STEPS_MAX,
            query_count_max: CALLS_MAX as u32,
        });
        run.begin(self.page);
        let mut text = Vec::new();
        let mut session = Session::default();
        let mut rows_len = 0;
        while let Some(mut call) = self.step(&mut run, &mut text)? {
            call.len_max = self.memory_len_max.saturating_sub(rows_len);
            let answer = match session.call(self.database, &call).await {
                Ok(answer) => answer,
                Err(fault) => {
                    let (part, line) = run.place(self.page);
                    let reason = attempt::told(&call, &fault);
                    let detail = place(self.templates, part, line as usize, &reason);
                    return Some(Err(Failure::new(fault.status, detail)));
                }
            };
            rows_len += answer.len();
            give(&answer, &mut run)?;
        }
        session.end().await.ok()?;
        let said = run.reply();
        let reply = reply(said)?;
        reply.response(text, said.is_personal, true).ok().map(Ok)
    }

    /// Renders to the next query, if there is one; `None` if the page is unsupported here.
    fn step(&self, run: &mut Run, text: &mut Vec<u8>) -> Option<Option<Call>> {
        let start = Instant::now();
        let call = match run.step(self.page, self.visit, text) {
            Step::Done => None,
            Step::Failed(_) => return None,
            Step::Query { statement, values } => {
                let params = values.map(param).collect::<Option<Vec<Param>>>()?;
                if statement::parameters(statement) != params.len() {
                    return None;
                }
                Some(Call {
                    sql: statement.into(),
                    params,
                    want: Want::Rows,
                    mode: Mode::of(statement, Want::Rows, true)?,
                    len_max: 0,
                    rows_max: self.database.rows_max,
                    timeout: self.database.timeout,
                })
            }
        };
        if run.steps() > STEPS_INLINE_MAX && start.elapsed() > SLICE_MAX {
            self.templates.note_heavy(self.name);
        }
        Some(call)
    }
}

/// Passes a query's rows to the page; `None` if they contain bytes that are not text, which only the engine supports.
fn give(answer: &Answer, run: &mut Run) -> Option<()> {
    let Answer::Rows(table) = answer else {
        return None;
    };
    if table.has_bytes() {
        return None;
    }
    run.columns(table.names());
    for at in 0..table.row_count() {
        table.row(at).for_each(|cell| run.value(cell));
        run.row_end();
    }
    run.answered();
    Some(())
}

fn param(value: Cell<'_>) -> Option<Param> {
    Some(match value {
        Cell::Null => Param::Null,
        Cell::Bool(it) => Param::Bool(it),
        Cell::Int(it) => Param::Int(it),
        Cell::UInt(it) => Param::Int(it.try_into().ok()?),
        Cell::Float(it) => Param::Float(it),
        Cell::Text(it) => Param::Text(it.to_owned()),
        Cell::Bytes(it) => Param::Blob(it.to_vec()),
    })
}

fn reply(said: &lowroad_page::Reply) -> Option<Reply> {
    let mut reply = Reply::default();
    if let Some(code) = said.status {
        reply.status(code).ok()?;
    }
    for (name, value) in &said.fields {
        reply.field(name, value).ok()?;
    }
    if let Some(seconds) = said.cache_s {
        reply.keep(seconds, Vec::new()).ok()?;
    }
    Some(reply)
}

impl Request for Visit {
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
        Lines::of(&self.lines)
            .find(is_named)
            .map(|(_, value)| value)
    }
}
