//! FastCGI servers, mainly php-fpm.
//!
//! A request is one write on a connection of the pool ([`server`]), and a short response is one read. Servers that
//! report FCGI_MPXS_CONNS get several requests on a connection (`multiplexed_link`); php-fpm does not
//! (`exclusive_request`). With several interchangeable servers, `backends` chooses one.

mod backends;
mod exclusive_request;
pub mod link;
mod multiplexed_link;
mod multiplexed_request;
pub mod record;
pub mod server;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lowroad_config::{FastCgiConfig, RouteConfig, SymlinkPolicy};
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::request_body::PartialBody;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, ResponseContent,
    RouteProbe,
};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit};
use lowroad_origin::PoolCounters;
use lowroad_origin::group::AttemptOutcome;

use self::backends::{BackendAttempt, BackendSet};
use self::exclusive_request::{ExclusiveRequest, LoneTerms};
use self::multiplexed_link::RequestTicket;
use self::multiplexed_request::MultiplexedRequest;
use self::record::ParamsWriter;
use self::server::{FastCgiLease, FastCgiServer, FastCgiServers, ServerUnreachable};
use crate::cgi::environment::CgiEnvironment;
use crate::cgi::stderr::StderrLines;
use crate::head::reply::CgiReply;
use crate::head::{HeadLimits, OutputForm};
use crate::script::exchange::{ScriptFailure, ScriptTerms, answer};
use crate::script::lookup::{ScriptCache, kind_below};
use crate::script::{
    LocatedScript, PathMeaning, RequestedPath, ScriptFolder, ScriptRules, base_path, find,
    find_by_name, front_controller, mounted_program,
};

/// The handler of a route to FastCGI servers.
pub struct FastCgiHandler {
    rules: ScriptRules,
    /// The part of a path before PATH_INFO, if the server is a single program.
    base: String,
    head_limits: HeadLimits,
    fastcgi: FastCgiConfig,
    symlinks: SymlinkPolicy,
    script_cache: ScriptCache,
    concurrency: Arc<ConcurrencyLimit>,
    backends: BackendSet,
    terms: ScriptTerms,
}

impl FastCgiHandler {
    /// Creates the handler of `route` to `fastcgi`, with servers from `servers`. `symlinks` is the site's policy.
    /// Resolves names.
    pub fn new(
        route: &RouteConfig,
        fastcgi: &FastCgiConfig,
        symlinks: SymlinkPolicy,
        servers: &FastCgiServers,
        notice: OperatorNotice,
    ) -> FastCgiHandler {
        // The index file's extension is that of the scripts: a wildcard pattern alone does not select them.
        let suffix = Path::new(&fastcgi.index)
            .extension()
            .and_then(|extension| extension.to_str())
            .map_or_else(String::new, |extension| format!(".{extension}"));
        FastCgiHandler {
            base: base_path(&route.pattern),
            head_limits: HeadLimits::new(route),
            rules: ScriptRules {
                pattern: route.pattern.clone(),
                suffix,
                index: fastcgi.index.clone(),
            },
            fastcgi: fastcgi.clone(),
            symlinks,
            script_cache: ScriptCache::default(),
            concurrency: ConcurrencyLimit::new(route.concurrency_max),
            backends: BackendSet::new(fastcgi, servers, &notice),
            terms: ScriptTerms {
                idle_timeout: Duration::from_millis(route.timeout_ms),
                notice,
                spools: None,
            },
        }
    }

    /// Requests in progress.
    pub fn requests_in_progress(&self) -> usize {
        self.concurrency.in_use()
    }

    /// Counters of the server's pool, which other routes may share; `None` with several servers.
    pub fn pool(&self) -> Option<PoolCounters> {
        self.backends.only().map(|server| server.pool.counts())
    }

    /// Sets spools, which buffer responses for slow clients.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> FastCgiHandler {
        self.terms.spools = spools;
        self
    }

    async fn answer(
        self: Arc<Self>,
        worker: usize,
        mut request: HandlerRequest,
        permit: Permit,
    ) -> Result<HandlerResponse, HandlerFailure> {
        // Looked up before the body is read: a 404 needs no upload.
        let script = match self.resolve_path(worker, &request).await? {
            PathMeaning::Script(script) => script,
            PathMeaning::SlashMissing => return Ok(redirect_to_slash(&request)),
            PathMeaning::Nothing => return Err(HandlerFailure::not_found()),
        };
        let body = std::mem::take(&mut request.body);
        let (body, permit) =
            PartialBody::with_permit_released(body, permit, || self.permit()).await?;
        let body_len = body.len;
        let script_request = ScriptRequest {
            worker,
            file: self.script_file(&request, &script),
            request,
            script,
            body_len,
            // Shared with the program: the permit is held until the last of response and request is done.
            permit: Arc::new(permit),
        };
        let (server_lease, attempt) = self.connect_any(&script_request).await?;
        // The retry is boxed because it is rare: the common future would otherwise reserve space for two attempts.
        let result = match self.send_request(&script_request, body, server_lease).await {
            Err((
                ScriptFailure {
                    replayable_body: Some(body),
                    ..
                },
                server,
            )) => Box::pin(self.resend_request(&script_request, body, server)).await,
            result => result.map_err(|(script_failure, _)| failure_outcome(script_failure)),
        };
        let outcome = match &result {
            Ok(_) => AttemptOutcome::Answered,
            Err((_, outcome)) => *outcome,
        };
        if let Some(attempt) = attempt {
            attempt.report(outcome, self.backends.worker_handle(worker).timers.now_ms());
        }
        result.map_err(|(failure, _)| failure)
    }
}

/// The failure of a request, and its evidence about the server.
fn failure_outcome(script_failure: ScriptFailure) -> (HandlerFailure, AttemptOutcome) {
    let outcome = backends::outcome(&script_failure);
    (script_failure.failure, outcome)
}

/// A server and a connection for a request.
struct ServerLease {
    server: Arc<FastCgiServer>,
    kind: LeaseKind,
}

enum LeaseKind {
    /// An exclusive connection.
    Lone(FastCgiLease),
    /// A slot on a multiplexed connection.
    Guest(RequestTicket),
}

/// A request with the look-up results.
struct ScriptRequest {
    worker: usize,
    request: HandlerRequest,
    script: LocatedScript,
    /// The script's path in the server's file system; the server's name if it has no scripts.
    file: Arc<Path>,
    body_len: Option<u64>,
    permit: Arc<Permit>,
}

impl FastCgiHandler {
    fn permit(&self) -> Result<Permit, HandlerFailure> {
        self.concurrency.try_acquire().ok_or_else(|| {
            let detail = format!(
                "{} requests to {} are in progress; raise the route's concurrency to allow more",
                self.concurrency.max(),
                self.backends.name()
            );
            HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })
    }

    async fn resolve_path(
        self: &Arc<Self>,
        worker: usize,
        request: &HandlerRequest,
    ) -> Result<PathMeaning, HandlerFailure> {
        // The configuration names the script, so no look-up is needed: the server reports a missing one.
        if self.is_one_program() {
            return Ok(PathMeaning::Script(mounted_program(
                request.path(),
                &self.base,
            )));
        }
        if let Some(script) = &self.fastcgi.script {
            return Ok(PathMeaning::Script(front_controller(
                request.path(),
                script,
            )));
        }
        let worker_handle = self.backends.worker_handle(worker);
        let now_ms = worker_handle.timers.now_ms();
        let plain_len = request.plain_path_len();
        let is_plain = plain_len >= request.path().len();
        // With script_root the files may be on another machine, so only the name is checked. Aliases are local.
        if self.fastcgi.script_root.is_some() && request.extra.alias.is_none() {
            let requested = RequestedPath {
                path: request.path(),
                plain_len,
            };
            return Ok(find_by_name(requested, &self.rules));
        }
        let (folder, prefix_len) = request.files();
        // An encoded slash changes the look-up's result, but not the decoded path, so such paths bypass the cache.
        if is_plain && let Some(meaning) = self.script_cache.get(folder, request.path(), now_ms) {
            return Ok(meaning);
        }
        // A slow disk must not block the worker, so a helper thread does the look-up.
        let (handler, path) = (self.clone(), request.path().to_vec());
        let folder_path = folder.clone();
        let lookup = worker_handle.offload(move || {
            let folder = ScriptFolder {
                folder: &folder_path,
                prefix_len,
            };
            let requested = RequestedPath {
                path: &path,
                plain_len,
            };
            handler.look_up(folder, requested)
        });
        let Ok(lookup) = lookup else {
            let detail = "too many script look-ups wait for the disk";
            return Err(HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        };
        let Some(meaning) = lookup.await else {
            let detail = "the look-up of the script ended without a result";
            return Err(HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail));
        };
        // The time from before the look-up: a change during it must not extend the result's lifetime.
        if is_plain {
            self.script_cache
                .insert(folder, request.path(), now_ms, &meaning);
        }
        Ok(meaning)
    }

    /// Whether the server is a single program without scripts.
    fn is_one_program(&self) -> bool {
        self.fastcgi.script.as_deref() == Some("")
    }

    /// The site's root in the server's file system.
    fn root<'r>(&'r self, request: &'r HandlerRequest) -> &'r Path {
        self.fastcgi.script_root.as_deref().unwrap_or(&request.root)
    }

    fn script_file(&self, request: &HandlerRequest, script: &LocatedScript) -> Arc<Path> {
        if self.is_one_program() {
            return Path::new(self.backends.name()).into();
        }
        // A front controller outside the alias is found by its own name, independent of the requested path.
        let alias = request.extra.alias.as_ref().filter(|alias| {
            // The script may lie outside of the alias, if a front controller answers.
            let (prefix, rest) = script.name.split_at(alias.path_len.min(script.name.len()));
            request.path().starts_with(prefix) && rest.starts_with(b"/")
        });
        let (folder, name) = match alias {
            Some(alias) => (&*alias.folder, &script.name[alias.path_len..]),
            None => (self.root(request), &script.name[..]),
        };
        let name = name.strip_prefix(b"/").unwrap_or(name);
        folder.join(std::ffi::OsStr::from_bytes(name)).into()
    }

    /// Looks a script up in a folder. Blocks.
    fn look_up(&self, folder: ScriptFolder<'_>, requested: RequestedPath<'_>) -> PathMeaning {
        let file_kind = |name: &[u8]| kind_below(folder, name, self.symlinks);
        find(requested, &self.rules, file_kind)
    }

    /// Connects to a server for a request. Servers that refuse the connection have not seen the request, so the next
    /// is tried.
    async fn connect_any(
        &self,
        script_request: &ScriptRequest,
    ) -> Result<(ServerLease, Option<BackendAttempt>), HandlerFailure> {
        let (mut tried, mut last) = (Vec::new(), None);
        loop {
            // Failures of one client must not eject a server for all (see the circuit breaker).
            let client = script_request.request.peer;
            let chosen = self.backends.choose(&tried, script_request.worker, client);
            let (server, attempt) = match (chosen, last) {
                (Ok(chosen), _) => chosen,
                (Err(_), Some(failure)) => return Err(failure),
                (Err(no_member), None) => {
                    let reason = self.backends.explain_absence(no_member);
                    let detail = format!("{}: {reason}", self.backends.name());
                    return Err(HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail));
                }
            };
            let unreachable = match self.connect(script_request, server, false).await {
                Ok(server_lease) => {
                    let mut attempt = attempt;
                    attempt.iter_mut().for_each(BackendAttempt::mark_connected);
                    return Ok((server_lease, attempt));
                }
                Err(unreachable) => unreachable,
            };
            // A busy server is not replaced: its load would only move to the others.
            let Some(attempt) = attempt.filter(|_| unreachable.is_absent) else {
                return Err(unreachable.failure);
            };
            tried.push(attempt.member);
            let now_ms = self
                .backends
                .worker_handle(script_request.worker)
                .timers
                .now_ms();
            // Reported at once, so that the next choice already knows.
            attempt.report(AttemptOutcome::ConnectFailed, now_ms);
            if !self
                .backends
                .may_try_another(tried.len(), script_request.worker)
            {
                return Err(unreachable.failure);
            }
            let detail = &unreachable.failure.detail;
            (self.terms.notice)(&format!("{detail}; trying another server"));
            last = Some(unreachable.failure);
        }
    }

    /// A connection to a server. `fresh` = not a reused one.
    async fn connect(
        &self,
        script_request: &ScriptRequest,
        server: Arc<FastCgiServer>,
        fresh: bool,
    ) -> Result<ServerLease, ServerUnreachable> {
        // The timeout of the response's head also bounds the wait for a connection.
        let timeouts = self.backends.acquire_timeouts(self.terms.idle_timeout);
        if server.multiplexes() {
            let shared = server
                .lease_shared(script_request.worker, fresh, timeouts)
                .await?;
            // If the shared connection was lost just now, an exclusive one still works.
            if let Some(ticket) = shared.reserve_ticket(self.stderr_lines(script_request)) {
                let kind = LeaseKind::Guest(ticket);
                return Ok(ServerLease { server, kind });
            }
        }
        // After the response a script may go on, or its process may end: neither is visible on the idle connection.
        let fresh = fresh || !self.fastcgi.keeps_connections;
        let kind = LeaseKind::Lone(server.lease(script_request.worker, fresh, timeouts).await?);
        Ok(ServerLease { server, kind })
    }

    fn stderr_lines(&self, script_request: &ScriptRequest) -> StderrLines {
        StderrLines::new(
            script_request.file.clone(),
            script_request.request.method,
            script_request.request.raw_path(),
            self.terms.notice.clone(),
        )
    }

    /// Sends the request to the connected server.
    ///
    /// # Errors
    /// How it failed, and the server.
    async fn send_request(
        &self,
        script_request: &ScriptRequest,
        body: PartialBody,
        server_lease: ServerLease,
    ) -> Result<HandlerResponse, (ScriptFailure, Arc<FastCgiServer>)> {
        let idempotent = script_request.request.method.is_idempotent();
        let reply = CgiReply::new(
            script_request.file.clone(),
            OutputForm::FastCgi,
            self.head_limits,
            script_request.request.method,
        );
        let ServerLease { server, kind } = server_lease;
        let (request_server, permit) = (server.clone(), script_request.permit.clone());
        let result = match kind {
            LeaseKind::Guest(ticket) => {
                // Multiplexed connections are always kept: other requests use them.
                let out = self.encode(script_request, ticket.id, true);
                let multiplexed = MultiplexedRequest::new(
                    ticket,
                    request_server,
                    script_request.worker,
                    out,
                    idempotent,
                    permit,
                );
                answer(multiplexed, body, reply, &self.terms).await
            }
            LeaseKind::Lone(lease) => {
                let terms = LoneTerms {
                    is_idempotent: idempotent,
                    keeps_connection: self.fastcgi.keeps_connections,
                };
                let out = self.encode(
                    script_request,
                    exclusive_request::ID,
                    terms.keeps_connection,
                );
                let stderr_lines = self.stderr_lines(script_request);
                let exclusive =
                    ExclusiveRequest::new(lease, request_server, out, terms, stderr_lines, permit);
                answer(exclusive, body, reply, &self.terms).await
            }
        };
        result.map_err(|script_failure| (script_failure, server))
    }

    /// Repeats the request at the same server on a new connection, since the server had closed the reused one.
    ///
    /// # Errors
    /// The failure, and its evidence about the server.
    async fn resend_request(
        &self,
        script_request: &ScriptRequest,
        body: PartialBody,
        server: Arc<FastCgiServer>,
    ) -> Result<HandlerResponse, (HandlerFailure, AttemptOutcome)> {
        let connected = self.connect(script_request, server, true).await;
        let server_lease = connected.map_err(|unreachable| {
            // A busy server is no evidence of a fault.
            let outcome = match unreachable.is_absent {
                true => AttemptOutcome::ConnectFailed,
                false => AttemptOutcome::Cancelled,
            };
            (unreachable.failure, outcome)
        })?;
        let result = self.send_request(script_request, body, server_lease).await;
        result.map_err(|(script_failure, _)| failure_outcome(script_failure))
    }

    /// Encodes FCGI_BEGIN_REQUEST and FCGI_PARAMS.
    fn encode(&self, script_request: &ScriptRequest, id: u16, keeps_connection: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024 + script_request.request.lines().len());
        record::write_begin_request(&mut out, id, keeps_connection);
        let mut params = ParamsWriter::start(&mut out, id);
        let environment = CgiEnvironment {
            request: &script_request.request,
            script: &script_request.script,
            file: (!self.is_one_program()).then_some(&*script_request.file),
            root: self.root(&script_request.request),
            body_len: script_request.body_len,
            // PHP applications check passwords themselves; RFC 3875 §4.1.18 would omit the field.
            authorization: true,
            extra: &self.fastcgi.env,
        };
        environment.for_each_variable(|name, value| params.write(name, value));
        params.finish();
        out
    }
}

impl Handler for FastCgiHandler {
    fn explain_member(&self, _: &RouteProbe<'_>) -> Option<String> {
        self.backends.describe_choice()
    }

    fn status(&self) -> Option<String> {
        self.backends.text()
    }

    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult {
        match self.permit() {
            Ok(permit) => HandlerResult::OnWorker(Box::pin(self.answer(worker, request, permit))),
            Err(failure) => HandlerResult::Ready(Err(failure)),
        }
    }
}

/// Redirects to a folder's path with a slash: 301 for GET and HEAD, 308 otherwise, so that a form is sent again.
fn redirect_to_slash(request: &HandlerRequest) -> HandlerResponse {
    let mut location = Vec::new();
    lowroad_http::target::encode_path(request.path(), &mut location);
    location.push(b'/');
    if let Some(query) = request.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let status = match request.method {
        // RFC 9110 §15.4.2: clients may change POST to GET on a 301, but not on a 308.
        Method::Get | Method::Head => StatusCode::MOVED_PERMANENTLY,
        _ => StatusCode::PERMANENT_REDIRECT,
    };
    let response = HandlerResponse {
        status,
        fields: lowroad_handler::ResponseFields::new(),
        content: ResponseContent::Bytes(bytes::Bytes::new()),
        source: None,
    };
    response.field("Location", location)
}
