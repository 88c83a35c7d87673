//! SQL pages: templates with database queries, among the files of a site.
//!
//! A page is a file with the suffix `.lrp`, a minijinja template. `functions` has the functions that templates can
//! call, `constant` prevents SQL injection, and `render_attempt` explains how a page waits for databases. This file
//! processes a request. The documentation for authors of pages is `docs/pages.md`.

mod budget;
mod budget_guards;
mod constant;
mod csrf;
mod database;
mod direct_page;
mod form;
mod functions;
mod render_attempt;
mod reply;
mod request_values;
mod sites;
mod statement;
mod table;
mod template_budget;
mod templates;
mod value;

use std::io::Write;
use std::sync::Arc;

use lowroad_handler::request::BodyReadError;
use lowroad_handler::{Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult};
use lowroad_http::status::StatusCode;
use lowroad_limits::ConcurrencyLimit;
use minijinja::{ErrorKind, Value, context};

use self::budget::TIME_MAX;
use self::database::{DatabaseAnswer, PageDatabase, PageSession};
use self::direct_page::DirectPage;
use self::render_attempt::{RenderAttempt, RenderStop};
use self::reply::PageResponseHead;
use self::request_values::TemplateRequest;
use self::sites::TemplateSite;
use self::templates::{TemplateFault, TemplateSet};

pub use self::csrf::CsrfKey;
pub use self::database::DatabaseSet;
pub use self::sites::TemplateSites;

/// The memory limit of a page divided by this is available for the request body, which is held as bytes, as text and as
/// a form.
const BODY_MEMORY_DIVISOR: usize = 8;

/// The maximum length of a rendered page in bytes.
const PAGE_LEN_MAX: usize = 8 << 20;

/// A page that has taken more steps of the template engine than this (some ten thousand per millisecond) is from then
/// on rendered on separate threads, so that it does not delay other requests.
const STEPS_INLINE_MAX: u64 = 50_000;

/// The maximum number of pages that are rendered concurrently on separate threads.
const HEAVY_MAX: usize = 4;

/// The handler for the pages of one route. Routes may share databases, the CSRF key and templates.
pub struct PagesHandler {
    databases: Arc<DatabaseSet>,
    database: Option<Arc<PageDatabase>>,
    key: CsrfKey,
    sites: Arc<TemplateSites>,
    heavy: Arc<ConcurrencyLimit>,
    /// The memory limit of a page in bytes.
    memory_len_max: usize,
}

/// The counters of all pages.
pub fn counts() -> Vec<(&'static str, u64)> {
    vec![("pages.over_memory", budget::over_memory())]
}

impl PagesHandler {
    /// Creates the handler of a route.
    ///
    /// # Errors
    /// The route names an unknown database.
    pub fn new(
        config: &lowroad_config::schema::PagesConfig,
        databases: Arc<DatabaseSet>,
        key: CsrfKey,
        sites: Arc<TemplateSites>,
    ) -> Result<PagesHandler, String> {
        let find = |name: &String| {
            let found = databases.find(name).cloned();
            found.ok_or_else(|| format!("no database is named {name:?}: add it as [[database]]"))
        };
        let database = config.database.as_ref().map(find).transpose()?;
        Ok(PagesHandler {
            databases,
            database,
            key,
            sites,
            heavy: ConcurrencyLimit::with_unbounded_queue(HEAVY_MAX),
            memory_len_max: config.memory_len_max,
        })
    }

    async fn answer(&self, mut request: HandlerRequest) -> Result<HandlerResponse, HandlerFailure> {
        let (folder, prefix_len) = request.files();
        // `path` is relative to the site's folder or the alias, as for files.
        let path = request.path().get(prefix_len..).unwrap_or_default();
        let name = templates::page_name(path).ok_or_else(HandlerFailure::not_found)?;
        let (site, templates) = self.sites.site_templates(folder);
        // This check precedes reading the body: a missing page is 404, even if the body is invalid.
        check_exists(&templates, &name)?;
        let visit = self.read_request(&name, &mut request).await?;
        let direct = self.direct(&templates, &name, &visit).await;
        let mut response = match direct {
            Some(answer) => answer?,
            None => self.render(templates, name, Arc::new(visit)).await?,
        };
        self.tag_response(&site, &mut response);
        Ok(response)
    }

    /// Tags a response with the name of its site's template set. If the response may be cached, starts watching the
    /// templates.
    fn tag_response(&self, site: &TemplateSite, response: &mut HandlerResponse) {
        response.source = Some(site.name.clone());
        if reply::may_be_stored(&response.fields) {
            self.sites.mark_cached(site);
        }
    }

    /// Reads the body, and refuses requests sent by pages of other sites.
    async fn read_request(
        &self,
        name: &str,
        request: &mut HandlerRequest,
    ) -> Result<TemplateRequest, HandlerFailure> {
        // The sending site is checked before the body is read, which can be large.
        if !form::is_safe(request.method) && request_values::is_cross_site(request) {
            return Err(HandlerFailure::new(
                StatusCode::FORBIDDEN,
                format!(
                    "{name}: a page of another site sent this request (Sec-Fetch-Site: cross-site)"
                ),
            ));
        }
        let body_len_max = self.memory_len_max / BODY_MEMORY_DIVISOR;
        let body = request.body.read(body_len_max).await;
        let body = body.map_err(|error| body_failure(name, error, body_len_max))?;
        let kind = request.field("Content-Type").unwrap_or_default();
        let kind = String::from_utf8_lossy(kind).into_owned();
        let text = String::from_utf8_lossy(&body).into_owned();
        // The text and the values of the form both stay in memory.
        let body_len = text.len() + body.len();
        let form = form::fields(&kind, body).await.map_err(|reason| {
            HandlerFailure::new(
                StatusCode::BAD_REQUEST,
                format!("{name}: the form is malformed: {reason}"),
            )
        })?;
        // The token is needed for browsers that do not send Sec-Fetch-Site.
        if !form::is_safe(request.method) && !request_values::has_token(request, &form, &self.key) {
            return Err(HandlerFailure::new(
                StatusCode::FORBIDDEN,
                format!(
                    "{name}: the form has no valid token: put {{{{ csrf_field() }}}} into the \
                     form, or send csrf_token() in the field {}",
                    csrf::HEADER
                ),
            ));
        }
        let mut visit = TemplateRequest::new(request, form, text, &self.key);
        visit.body_len = body_len;
        Ok(visit)
    }

    /// Renders a page without the template engine, if the page only reads and the direct renderer supports it;
    /// otherwise `None`.
    async fn direct(
        &self,
        templates: &TemplateSet,
        name: &str,
        visit: &TemplateRequest,
    ) -> Option<Result<HandlerResponse, HandlerFailure>> {
        // The direct renderer uses only one Cookie field line.
        if !visit.safe || visit.has_several_cookie_lines() {
            return None;
        }
        let direct = DirectPage {
            templates,
            name,
            page: &*templates.direct(name)?,
            visit,
            database: self.database.as_ref()?,
            memory_len_max: self.memory_len_max,
        };
        direct.answer().await
    }

    /// Renders the page and executes its calls, in turns, until no answer is missing.
    async fn render(
        &self,
        templates: Arc<TemplateSet>,
        name: String,
        visit: Arc<TemplateRequest>,
    ) -> Result<HandlerResponse, HandlerFailure> {
        let page = Arc::new(SitePage { templates, name });
        let mut session = PageSession::default();
        let mut answers = Vec::new();
        // The rows and the body count against the page's memory limit.
        let mut rows_len = visit.body_len;
        // Each round adds one answer, so `functions::CALLS_MAX` bounds the number of rounds.
        loop {
            let attempt = RenderAttempt {
                visit: visit.clone(),
                databases: self.databases.clone(),
                database: self.database.clone(),
                answers,
                room: self.memory_len_max.saturating_sub(rows_len),
                calls: 0,
                reply: PageResponseHead::default(),
                stop: None,
            };
            let result = self.run_attempt(&page, attempt).await?;
            match result.end {
                PageEnd::Call(database, call) => {
                    answers = result.answers;
                    // Calls run between attempts: a thread that renders never waits for a database.
                    let answer = session.call(&database, &call).await;
                    rows_len += answer.as_ref().map_or(0, DatabaseAnswer::len);
                    answers.push(answer.map(|answer| answer.value(call.shape)));
                }
                PageEnd::Failed(failure) => return Err(failure),
                PageEnd::Rendered(text) => {
                    let response = result.reply.response(text, visit.is_personal(), visit.safe);
                    let response = response.map_err(|reason| page.failure(&reason))?;
                    // Writes are committed only after the response is known to be valid.
                    session.end().await.map_err(|fault| {
                        HandlerFailure::new(
                            fault.status,
                            format!("{}: {}", page.file(), fault.reason),
                        )
                    })?;
                    return Ok(response);
                }
            }
        }
    }

    async fn run_attempt(
        &self,
        page: &Arc<SitePage>,
        attempt: RenderAttempt,
    ) -> Result<AttemptResult, HandlerFailure> {
        if !page.templates.is_heavy(&page.name) {
            return Ok(page.run(attempt));
        }
        // A heavy page would delay all other requests on this runtime thread.
        let permit = self.heavy.acquire(0, 0).await;
        let page = page.clone();
        // It is rendered on a thread for blocking work: the runtime's worker threads are few, and shared with all other
        // requests.
        let thread = tokio::task::spawn_blocking(move || {
            // The permit moves to the thread, so that rendering for an abandoned request still counts until it ends.
            let _permit = permit;
            page.run(attempt)
        });
        thread.await.map_err(|error| {
            HandlerFailure::new(
                StatusCode::INTERNAL_ERROR,
                format!("the thread of a page ended: {error}"),
            )
        })
    }
}

impl Handler for PagesHandler {
    fn begin(self: Arc<Self>, _worker: usize, request: HandlerRequest) -> HandlerResult {
        HandlerResult::OnRuntime(Box::pin(async move { self.answer(request).await }))
    }
}

/// A page of a site.
struct SitePage {
    templates: Arc<TemplateSet>,
    name: String,
}

/// The result of an attempt to render a page.
struct AttemptResult {
    answers: Vec<Result<Value, database::DatabaseFault>>,
    reply: PageResponseHead,
    end: PageEnd,
}

enum PageEnd {
    Rendered(Vec<u8>),
    Call(Arc<PageDatabase>, database::DatabaseCall),
    Failed(HandlerFailure),
}

impl SitePage {
    fn run(&self, attempt: RenderAttempt) -> AttemptResult {
        let request = Value::from_dyn_object(attempt.visit.clone());
        let room = attempt.room;
        let (attempt, rendered) =
            attempt.run(|| budget::with_budget(room, TIME_MAX, || self.text(request)));
        // `stop` takes precedence over the template error, which it has caused.
        let end = match (attempt.stop, rendered) {
            (Some(RenderStop::Call(database, call)), _) => PageEnd::Call(database, call),
            // `redirect()` ends rendering with an engine error that is not a failure.
            (Some(RenderStop::Ended), _) => PageEnd::Rendered(Vec::new()),
            (Some(RenderStop::Fault(fault)), Err(error)) => {
                PageEnd::Failed(failure(&self.templates, fault.status, &error))
            }
            (_, Err(error)) => {
                PageEnd::Failed(failure(&self.templates, StatusCode::INTERNAL_ERROR, &error))
            }
            (_, Ok(text)) => PageEnd::Rendered(text),
        };
        AttemptResult {
            answers: attempt.answers,
            reply: attempt.reply,
            end,
        }
    }

    fn text(&self, request: Value) -> Result<Vec<u8>, minijinja::Error> {
        let template = self.templates.environment.get_template(&self.name)?;
        let mut text = BoundedText(Vec::with_capacity(template.source().len() * 2));
        let rendered = template.render_captured_to(context! { request }, &mut text);
        if self.was_heavy(&rendered) || budget::is_late() {
            self.templates.mark_heavy(&self.name);
        }
        rendered.map(|_| text.0)
    }

    /// Whether rendering took many steps, or was aborted for that reason. Steps are counted instead of time, since on a
    /// busy machine any page can take long.
    fn was_heavy(&self, rendered: &Result<minijinja::Captured<'_>, minijinja::Error>) -> bool {
        match rendered {
            Ok(captured) => {
                let levels = captured.state().fuel_levels();
                levels.is_some_and(|(used, _)| used > STEPS_INLINE_MAX)
            }
            Err(error) => error.kind() == ErrorKind::OutOfFuel,
        }
    }

    fn file(&self) -> String {
        self.templates.root.join(&self.name).display().to_string()
    }

    fn failure(&self, reason: &str) -> HandlerFailure {
        HandlerFailure::new(
            StatusCode::INTERNAL_ERROR,
            format!("{}: {reason}", self.file()),
        )
    }
}

/// The output of a page, limited in length.
struct BoundedText(Vec<u8>);

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The length is checked while the text grows, since a loop may write endlessly.
        if self.0.len() + bytes.len() > PAGE_LEN_MAX {
            let reason = format!("the page is longer than {PAGE_LEN_MAX} bytes");
            return Err(std::io::Error::other(reason));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn check_exists(templates: &TemplateSet, name: &str) -> Result<(), HandlerFailure> {
    match templates.environment.get_template(name) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::TemplateNotFound => {
            Err(HandlerFailure::not_found())
        }
        Err(error) => Err(failure(templates, StatusCode::INTERNAL_ERROR, &error)),
    }
}

fn body_failure(name: &str, error: BodyReadError, body_len_max: usize) -> HandlerFailure {
    match error {
        BodyReadError::TooLong => HandlerFailure::new(
            StatusCode::CONTENT_TOO_LARGE,
            format!(
                "{name}: the request's body is longer than {body_len_max} bytes, an eighth of the route's memory"
            ),
        ),
        BodyReadError::Cut => HandlerFailure::new(
            StatusCode::BAD_REQUEST,
            format!("{name}: the request's body was truncated"),
        ),
    }
}

/// Converts an engine error to a message `FILE:LINE: reason`, with the location of the innermost error (for example, in
/// an included template).
fn failure(
    templates: &TemplateSet,
    status: StatusCode,
    error: &minijinja::Error,
) -> HandlerFailure {
    let mut location = (error.name().unwrap_or_default().to_string(), error.line());
    let mut reason = reason(error);
    let mut source = std::error::Error::source(error);
    // The innermost error has the line of the cause, outer errors the lines of the include statements.
    while let Some(inner) = source {
        if let Some(fault) = inner.downcast_ref::<TemplateFault>() {
            location = (fault.name.clone(), Some(fault.line));
            reason = fault.reason.clone();
        } else if let Some(inner) = inner.downcast_ref::<minijinja::Error>() {
            if let Some(name) = inner.name() {
                location = (name.to_string(), inner.line());
            }
            reason = self::reason(inner);
        } else {
            reason = format!("{reason}: {inner}");
        }
        source = inner.source();
    }
    let detail = located_message(templates, &location.0, location.1.unwrap_or(1), &reason);
    HandlerFailure::new(status, detail)
}

/// The message `FILE:LINE: reason`. It may contain client data, from a database's message, so control characters are
/// replaced.
fn located_message(templates: &TemplateSet, name: &str, line: usize, reason: &str) -> String {
    let file = templates.root.join(name);
    let detail = format!("{}:{line}: {reason}", file.display());
    detail.replace(char::is_control, " ")
}

fn reason(error: &minijinja::Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            "the template takes too long: it loops for ever, or over too many values".into()
        }
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}
