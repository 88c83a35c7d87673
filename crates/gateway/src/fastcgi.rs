//! FastCGI handler, mainly for php-fpm.
//!
//! A request is sent by one write on a pooled connection ([`server`]); a short response is received by one read.
//! Servers that report FCGI_MPXS_CONNS get several concurrent requests per connection (`multiplexed_link`). php-fpm
//! does not report FCGI_MPXS_CONNS, so its connections carry one request at a time (`exclusive_request`). With several
//! servers, `backends` selects one for each request.

mod backends;
pub mod control;
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
use lowroad_engine::upstream_tries::TryRecorder;
use lowroad_handler::operator_notice::{OperatorNotice, RequestNotice};
use lowroad_handler::request_body::PartialBody;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, ResponseContent,
    RouteProbe,
};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit, RefusalReason};
use lowroad_origin::PoolCounters;
use lowroad_origin::group::AttemptOutcome;

use self::backends::{BackendAttempt, BackendSet};
use self::exclusive_request::{ExclusiveRequest, ExclusiveTerms};
use self::multiplexed_link::RequestTicket;
use self::multiplexed_request::MultiplexedRequest;
use self::record::ParamsWriter;
use self::server::{FastCgiLease, FastCgiServer, FastCgiServers, ServerUnreachable};
use crate::cgi::environment::CgiEnvironment;
use crate::cgi::stderr::StderrLines;
use crate::head::reply::CgiReply;
use crate::head::{HeadLimits, OutputForm};
use crate::proxy::connect_errors::group_refusal;
use crate::script::exchange::{ScriptFailure, ScriptTerms, answer};
use crate::script::lookup::{ScriptCache, kind_below};
use crate::script::{
    LocatedScript, PathMeaning, RequestedPath, ScriptFolder, ScriptRules, base_path, find,
    find_by_name, front_controller, mounted_program,
};

/// The handler of a route to FastCGI servers.
pub struct FastCgiHandler {
    rules: ScriptRules,
    /// If the server is a single program: the path prefix before PATH_INFO.
    base: String,
    head_limits: HeadLimits,
    fastcgi: FastCgiConfig,
    symlinks: SymlinkPolicy,
    script_cache: ScriptCache,
    concurrency: Arc<ConcurrencyLimit>,
    backends: Arc<BackendSet>,
    terms: ScriptTerms,
}

impl FastCgiHandler {
    /// Creates the handler of a route to FastCGI servers, which are taken from `servers`. `symlinks` is the site's
    /// policy. Resolves host names.
    pub fn new(
        route: &RouteConfig,
        fastcgi: &FastCgiConfig,
        symlinks: SymlinkPolicy,
        servers: &FastCgiServers,
        notice: OperatorNotice,
    ) -> FastCgiHandler {
        // If the pattern ends in a wildcard, scripts are recognized by the index file's extension.
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

    /// Counters of the connection pool, which other routes may share; `None` with several servers.
    pub fn pool(&self) -> Option<PoolCounters> {
        self.backends.only().map(|server| server.pool.counts())
    }

    /// Sets the spools, which buffer responses for slow clients.
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
        // The script is looked up before the body is read, so a 404 needs no upload.
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
            notice: RequestNotice::new(&self.terms.notice, RequestLabel::from(&request)),
            request,
            script,
            body_len,
            // The response and the request body share the permit: it is released when both are finished.
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

/// The failure of a request, and the outcome that is reported for the server.
fn failure_outcome(script_failure: ScriptFailure) -> (HandlerFailure, AttemptOutcome) {
    let outcome = backends::outcome(&script_failure);
    (script_failure.failure, outcome)
}

/// A server and a connection to it, for one request.
struct ServerLease {
    server: Arc<FastCgiServer>,
    kind: LeaseKind,
    /// Records the attempt, if the access log needs it.
    recorder: Option<TryRecorder>,
}

enum LeaseKind {
    /// A connection for this request only.
    Exclusive(FastCgiLease),
    /// A request slot on a multiplexed connection.
    Multiplexed(RequestTicket),
}

impl LeaseKind {
    /// Whether other requests have used the connection before, as far as it is known.
    fn is_reused(&self) -> bool {
        matches!(self, LeaseKind::Exclusive(lease) if lease.is_reused)
    }
}

/// A request and the script found for it.
struct ScriptRequest {
    worker: usize,
    request: HandlerRequest,
    script: LocatedScript,
    /// The script's path in the server's file system; the server's name if it is a single program.
    file: Arc<Path>,
    body_len: Option<u64>,
    permit: Arc<Permit>,
    notice: RequestNotice,
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
                .with_reason(RefusalReason::Concurrency)
        })
    }

    async fn resolve_path(
        self: &Arc<Self>,
        worker: usize,
        request: &HandlerRequest,
    ) -> Result<PathMeaning, HandlerFailure> {
        if let Some(meaning) = self.meaning_by_name(request) {
            return Ok(meaning);
        }
        let worker_handle = self.backends.worker_handle(worker);
        let now_ms = worker_handle.timers.now_ms();
        let plain_len = request.plain_path_len();
        let is_plain = plain_len >= request.path().len();
        let (folder, prefix_len) = request.files();
        // An encoded slash changes the result but not the decoded path, which is the cache key, so the cache is
        // bypassed.
        if is_plain && let Some(meaning) = self.script_cache.get(folder, request.path(), now_ms) {
            return Ok(meaning);
        }
        // A helper thread does the look-up, because a slow disk must not block the worker.
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
        // `now_ms` is the time before the look-up, so that a change during the look-up does not extend the result's
        // lifetime.
        if is_plain {
            self.script_cache
                .insert(folder, request.path(), now_ms, &meaning);
        }
        Ok(meaning)
    }

    /// The meaning of a path, if no file is looked up for it.
    fn meaning_by_name(&self, request: &HandlerRequest) -> Option<PathMeaning> {
        // The configuration names the program or the script.
        if self.is_one_program() {
            let program = mounted_program(request.path(), &self.base);
            return Some(PathMeaning::Script(program));
        }
        if let Some(script) = &self.fastcgi.script {
            let script = front_controller(request.path(), script);
            return Some(PathMeaning::Script(script));
        }
        // With script_root, the files may be on another machine: only the name of the script is checked. The files of
        // an alias are local.
        let is_remote = self.fastcgi.script_root.is_some() && request.extra.alias.is_none();
        let requested = RequestedPath {
            path: request.path(),
            plain_len: request.plain_path_len(),
        };
        is_remote.then(|| find_by_name(requested, &self.rules))
    }

    /// The script of a request, as text. Blocks.
    fn explain_script(&self, request: &HandlerRequest) -> String {
        let meaning = self.meaning_by_name(request).unwrap_or_else(|| {
            let (folder, prefix_len) = request.files();
            let requested = RequestedPath {
                path: request.path(),
                plain_len: request.plain_path_len(),
            };
            self.look_up(ScriptFolder { folder, prefix_len }, requested)
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
        match meaning {
            PathMeaning::Script(LocatedScript { name, info }) if info.is_empty() => {
                format!("SCRIPT_NAME {}", text(&name))
            }
            PathMeaning::Script(LocatedScript { name, info }) => {
                format!("SCRIPT_NAME {}, PATH_INFO {}", text(&name), text(&info))
            }
            PathMeaning::SlashMissing => "nothing: a redirect to the path with a slash".into(),
            PathMeaning::Nothing => "nothing: no script has the path, so the answer is 404".into(),
        }
    }

    /// Whether the server is a single program, without script files.
    fn is_one_program(&self) -> bool {
        self.fastcgi.script.as_deref() == Some("")
    }

    /// The site's root as seen by the server.
    fn root<'r>(&'r self, request: &'r HandlerRequest) -> &'r Path {
        self.fastcgi.script_root.as_deref().unwrap_or(&request.root)
    }

    fn script_file(&self, request: &HandlerRequest, script: &LocatedScript) -> Arc<Path> {
        if self.is_one_program() {
            return Path::new(self.backends.name()).into();
        }
        // A front controller may lie outside of the alias; its name is then relative to the root instead.
        let alias = request.extra.alias.as_ref().filter(|alias| {
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

    /// Finds the script of a path in a folder. Blocks.
    fn look_up(&self, folder: ScriptFolder<'_>, requested: RequestedPath<'_>) -> PathMeaning {
        let file_kind = |name: &[u8]| kind_below(folder, name, self.symlinks);
        find(requested, &self.rules, file_kind)
    }

    /// Leases a connection for a request. A server that refuses the connection has not seen the request, so another
    /// server is tried.
    async fn connect_any(
        &self,
        script_request: &ScriptRequest,
    ) -> Result<(ServerLease, Option<BackendAttempt>), HandlerFailure> {
        let (mut tried, mut last) = (Vec::new(), None);
        loop {
            // The circuit breaker counts failures per client: failures of a single client must not eject a server.
            let client = script_request.request.peer;
            let chosen = self.backends.choose(&tried, script_request.worker, client);
            let (server, attempt) = match (chosen, last) {
                (Ok(chosen), _) => chosen,
                (Err(_), Some(failure)) => return Err(failure),
                (Err(no_member), None) => {
                    let reason = self.backends.explain_absence(no_member);
                    let detail = format!("{}: {reason}", self.backends.name());
                    return Err(HandlerFailure {
                        reason: group_refusal(no_member),
                        ..HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    });
                }
            };
            let retry_notices = server.retry_notices.clone();
            let unreachable = match self.connect(script_request, server, false).await {
                Ok(server_lease) => {
                    let mut attempt = attempt;
                    attempt.iter_mut().for_each(BackendAttempt::mark_connected);
                    return Ok((server_lease, attempt));
                }
                Err(unreachable) => unreachable,
            };
            // If the server is merely busy, no other server is tried: the load would only move there.
            let Some(attempt) = attempt.filter(|_| unreachable.is_absent) else {
                return Err(unreachable.failure);
            };
            tried.push(attempt.member);
            let now_ms = self
                .backends
                .worker_handle(script_request.worker)
                .timers
                .now_ms();
            // The failure is reported immediately, so that the next choice takes it into account.
            attempt.report(AttemptOutcome::ConnectFailed, now_ms);
            if !self
                .backends
                .may_try_another(tried.len(), script_request.worker)
            {
                return Err(unreachable.failure);
            }
            let text = format!("{}; trying another server", unreachable.failure.detail);
            if let Some(text) = retry_notices.admit(&text, now_ms) {
                script_request.notice.send(&text);
            }
            last = Some(unreachable.failure);
        }
    }

    /// Leases a connection to a server, and records the attempt; with `fresh`, a new connection.
    async fn connect(
        &self,
        script_request: &ScriptRequest,
        server: Arc<FastCgiServer>,
        fresh: bool,
    ) -> Result<ServerLease, ServerUnreachable> {
        let tries = script_request.request.extra.upstream_tries.as_ref();
        let recorder = tries.map(|tries| tries.begin(server.address()));
        let leased = self.lease(script_request, &server, fresh).await;
        if let Some(recorder) = &recorder {
            match &leased {
                Ok(kind) => recorder.connected(kind.is_reused()),
                Err(unreachable) => recorder.failed(unreachable.failure.status.code()),
            }
        }
        leased.map(|kind| ServerLease {
            server,
            kind,
            recorder,
        })
    }

    async fn lease(
        &self,
        script_request: &ScriptRequest,
        server: &Arc<FastCgiServer>,
        fresh: bool,
    ) -> Result<LeaseKind, ServerUnreachable> {
        // The timeout for the response head also limits the wait for a connection.
        let timeouts = self.backends.acquire_timeouts(self.terms.idle_timeout);
        if server.multiplexes() {
            let shared = server
                .lease_shared(script_request.worker, fresh, timeouts)
                .await?;
            // If the shared connection was just lost, an exclusive one is used.
            if let Some(ticket) = shared.reserve_ticket(self.stderr_lines(script_request)) {
                return Ok(LeaseKind::Multiplexed(ticket));
            }
        }
        // Without `keeps_connections`, only new connections are used: after a response the script may still run or its
        // process may exit, and an idle connection shows neither.
        let fresh = fresh || !self.fastcgi.keeps_connections;
        let lease = server.lease(script_request.worker, fresh, timeouts).await?;
        Ok(LeaseKind::Exclusive(lease))
    }

    fn stderr_lines(&self, script_request: &ScriptRequest) -> StderrLines {
        StderrLines::new(
            script_request.file.clone(),
            script_request.request.method,
            script_request.request.raw_path(),
            script_request.notice.clone(),
        )
    }

    /// Sends the request on the leased connection.
    ///
    /// # Errors
    /// The failure, and the server.
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
        let ServerLease {
            server,
            kind,
            recorder,
        } = server_lease;
        let recorded_end = recorder.as_ref().map(TryRecorder::end_guard);
        let notice = &script_request.notice;
        let (request_server, permit) = (server.clone(), script_request.permit.clone());
        let result = match kind {
            LeaseKind::Multiplexed(ticket) => {
                // Multiplexed connections are kept open: other requests use them.
                let out = self.encode(script_request, ticket.id, true);
                let multiplexed = MultiplexedRequest::new(
                    ticket,
                    request_server,
                    script_request.worker,
                    out,
                    idempotent,
                    permit,
                    recorded_end,
                );
                answer(multiplexed, body, reply, &self.terms, notice).await
            }
            LeaseKind::Exclusive(lease) => {
                let terms = ExclusiveTerms {
                    is_idempotent: idempotent,
                    keeps_connection: self.fastcgi.keeps_connections,
                    recorded_end,
                };
                let out = self.encode(
                    script_request,
                    exclusive_request::ID,
                    terms.keeps_connection,
                );
                let stderr_lines = self.stderr_lines(script_request);
                let exclusive =
                    ExclusiveRequest::new(lease, request_server, out, terms, stderr_lines, permit);
                answer(exclusive, body, reply, &self.terms, notice).await
            }
        };
        if let Some(recorder) = recorder {
            match &result {
                Ok(response) => recorder.answered(response.status.code()),
                Err(failed) => recorder.failed(failed.failure.status.code()),
            }
        }
        result.map_err(|script_failure| (script_failure, server))
    }

    /// Repeats the request on a new connection to the same server, after the server had closed the reused one.
    ///
    /// # Errors
    /// The failure, and the outcome to report for the server.
    async fn resend_request(
        &self,
        script_request: &ScriptRequest,
        body: PartialBody,
        server: Arc<FastCgiServer>,
    ) -> Result<HandlerResponse, (HandlerFailure, AttemptOutcome)> {
        let connected = self.connect(script_request, server, true).await;
        let server_lease = connected.map_err(|unreachable| {
            // A server that is merely busy is not at fault.
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
            // PHP applications verify passwords themselves, although RFC 3875 §4.1.18 advises against passing the
            // field.
            authorization: true,
            extra: &self.fastcgi.env,
            pattern: &self.rules.pattern,
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

    fn explain_request(&self, request: &HandlerRequest) -> Vec<String> {
        vec![self.explain_script(request)]
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

/// Redirects to a folder's path with a slash: 301 for GET and HEAD, 308 otherwise.
fn redirect_to_slash(request: &HandlerRequest) -> HandlerResponse {
    let mut location = Vec::new();
    // The decoded path may contain line breaks, which must not reach the field unencoded.
    lowroad_http::target::encode_path(request.path(), &mut location);
    location.push(b'/');
    if let Some(query) = request.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let status = match request.method {
        // Clients may change POST to GET on a 301, but not on a 308 (RFC 9110 §15.4.2).
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
