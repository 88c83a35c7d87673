//! CGI programs (RFC 3875): one process for each request.
//!
//! A program runs in the folder of its file, in its own process group and under resource limits
//! ([`lowroad_child_processes::limits`]). Its environment is exactly that of [`environment`]; nothing is inherited from
//! the server. Programs are started by a separate process ([`spawner`]). Each line of stderr is logged. The response
//! is complete when the program closes its output. If the request is cancelled, the process group is killed; if the program exits
//! normally, its child processes continue to run.

pub mod environment;
mod process;
pub mod spawner;
pub mod stderr;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lowroad_child_processes::descriptors;
use lowroad_child_processes::limits::ProcessLimits;
use lowroad_config::{CgiConfig, RouteConfig, SymlinkPolicy};
use lowroad_handler::operator_notice::{OperatorNotice, RequestNotice};
use lowroad_handler::request_body::PartialBody;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{Handler, HandlerFailure, HandlerRequest, HandlerResult};
use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit, RefusalReason};

use self::environment::CgiEnvironment;
use self::process::CgiProcess;
use self::spawner::CgiSpawner;
use crate::head::reply::CgiReply;
use crate::head::{HeadLimits, OutputForm};
use crate::script::exchange::{self, ScriptTerms};
use crate::script::lookup::{self, kind_below};
use crate::script::{
    LocatedScript, PathMeaning, RequestedPath, ScriptFolder, ScriptRules, base_path, find,
    mounted_program,
};

/// The handler of a route to CGI programs.
pub struct CgiHandler {
    rules: ScriptRules,
    /// The path prefix of the folder of programs; empty if programs are files of the site.
    base: String,
    symlinks: SymlinkPolicy,
    head_limits: HeadLimits,
    cgi: CgiConfig,
    concurrency: Arc<ConcurrencyLimit>,
    spawner: Arc<CgiSpawner>,
    terms: ScriptTerms,
    user: Option<(u32, u32)>,
}

impl CgiHandler {
    /// Creates the handler of a route to CGI programs, which `spawner` starts. `symlinks` is the site's policy.
    ///
    /// # Errors
    /// The programs' folder does not exist.
    pub fn new(
        route: &RouteConfig,
        cgi: &CgiConfig,
        symlinks: SymlinkPolicy,
        spawner: Arc<CgiSpawner>,
        notice: OperatorNotice,
    ) -> std::io::Result<CgiHandler> {
        let rules = ScriptRules {
            pattern: route.pattern.clone(),
            suffix: String::new(),
            index: String::new(),
        };
        // The folder is only checked here; its path is resolved again for each request.
        if let Some(path) = &cgi.path {
            std::fs::canonicalize(path)?;
        }
        Ok(CgiHandler {
            base: match cgi.path {
                Some(_) => base_path(&route.pattern),
                // Scripts are among the site's files, so their path is the whole request path.
                None => String::new(),
            },
            rules,
            symlinks,
            head_limits: HeadLimits::new(route),
            cgi: cgi.clone(),
            concurrency: ConcurrencyLimit::new(route.concurrency_max),
            spawner,
            terms: ScriptTerms {
                idle_timeout: Duration::from_millis(route.timeout_ms),
                notice,
                spools: None,
            },
            user: None,
        })
    }

    /// Sets the user and group of the programs.
    #[must_use]
    pub fn as_user(mut self, uid: u32, gid: u32) -> CgiHandler {
        self.user = Some((uid, gid));
        self
    }

    /// Sets the spools, which buffer responses for slow clients.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> CgiHandler {
        self.terms.spools = spools;
        self
    }

    async fn answer(
        self: Arc<Self>,
        mut request: HandlerRequest,
        permit: Permit,
    ) -> Result<lowroad_handler::HandlerResponse, HandlerFailure> {
        let body = std::mem::take(&mut request.body);
        let (body, permit) =
            PartialBody::with_permit_released(body, permit, || self.permit()).await?;
        let body_len = body.len;
        let method = request.method;
        let notice = RequestNotice::new(&self.terms.notice, RequestLabel::from(&request));
        let process_notice = notice.clone();
        let handler = self.clone();
        // Looking up and starting a program may both wait for the disk, so they run on a blocking thread.
        let start_task = tokio::task::spawn_blocking(move || {
            handler.start(&request, body_len, permit, process_notice)
        });
        let (process, form) = start_task.await.map_err(|_| {
            HandlerFailure::new(StatusCode::INTERNAL_ERROR, "a helper thread ended")
        })??;
        let reply = CgiReply::new(process.file().clone(), form, self.head_limits, method);
        exchange::answer(process, body, reply, &self.terms, &notice)
            .await
            .map_err(|script_failure| script_failure.failure)
    }

    fn permit(&self) -> Result<Permit, HandlerFailure> {
        self.concurrency.try_acquire().ok_or_else(|| {
            let detail = format!(
                "{} programs of {} are running; raise the route's concurrency to allow more",
                self.concurrency.max(),
                self.location()
            );
            HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .with_reason(RefusalReason::Concurrency)
        })
    }

    /// The location of the programs, for messages.
    fn location(&self) -> std::path::Display<'_> {
        let path = self.cgi.path.as_deref();
        path.unwrap_or(Path::new("the site")).display()
    }

    /// Finds and starts the program of a request. Blocks.
    fn start(
        &self,
        request: &HandlerRequest,
        body_len: Option<u64>,
        permit: Permit,
        notice: RequestNotice,
    ) -> Result<(CgiProcess, OutputForm), HandlerFailure> {
        let (script, file) = self.find(request)?;
        // The executable bit is checked here: execve, in the spawner, would only report EACCES.
        if !lookup::is_executable(&file) {
            let detail = format!("{} is not executable; run chmod +x", file.display());
            return Err(HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail));
        }
        let environment = CgiEnvironment {
            request,
            script: &script,
            file: Some(&file),
            root: &request.root,
            body_len,
            // RFC 3875 §4.1.18: servers should not pass credentials to scripts.
            authorization: false,
            extra: &self.cgi.env,
            pattern: &self.rules.pattern,
        };
        let form = match file.file_name() {
            Some(name) if name.as_encoded_bytes().starts_with(b"nph-") => OutputForm::Http,
            _ => OutputForm::Cgi,
        };
        let limits = ProcessLimits {
            memory_len_max: self.cgi.memory_len_max,
            cpu_s_max: self.cgi.cpu_s_max,
            processes_max: self.cgi.processes_max,
            user: self.user,
            descriptors: descriptors::program_limits(),
            // The spawner ends with the server, and the programs end with the spawner.
            ends_with_parent: true,
        };
        let process_context = process::ProcessContext {
            permit,
            exit_timeout: self.terms.idle_timeout,
            notice,
        };
        let process =
            CgiProcess::start(&file, &environment, limits, &self.spawner, process_context)?;
        Ok((process, form))
    }

    /// Finds the program of a request, and its file.
    fn find(&self, request: &HandlerRequest) -> Result<(LocatedScript, PathBuf), HandlerFailure> {
        let (programs_path, prefix_len) = match &self.cgi.path {
            // The path is resolved for each request, so that a deployment can switch a symbolic link.
            Some(path) => (resolve_programs_path(path)?, self.base.len()),
            None => {
                let (folder, prefix_len) = request.files();
                (folder.to_path_buf(), prefix_len)
            }
        };
        // A single program handles every path below the route.
        if programs_path.is_file() {
            return Ok((mounted_program(request.path(), &self.base), programs_path));
        }
        let folder = ScriptFolder {
            folder: &programs_path,
            prefix_len,
        };
        let requested = RequestedPath {
            path: request.path(),
            plain_len: request.plain_path_len(),
        };
        let script = self.script(folder, requested);
        let script = script.ok_or_else(HandlerFailure::not_found)?;
        let file = file(&programs_path, prefix_len, &script);
        Ok((script, file))
    }

    fn script(
        &self,
        folder: ScriptFolder<'_>,
        requested: RequestedPath<'_>,
    ) -> Option<LocatedScript> {
        requested.path.strip_prefix(self.base.as_bytes())?;
        let file_kind = |name: &[u8]| kind_below(folder, name, self.symlinks);
        match find(requested, &self.rules, file_kind) {
            PathMeaning::Script(script) => Some(script),
            PathMeaning::SlashMissing | PathMeaning::Nothing => None,
        }
    }
}

/// The file of a script; `prefix_len` is the length of the URL path prefix that stands for the folder.
fn file(folder: &Path, prefix_len: usize, script: &LocatedScript) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let name = script.name.get(prefix_len + 1..).unwrap_or_default();
    folder.join(std::ffi::OsStr::from_bytes(name))
}

/// Resolves symbolic links for each request: a deployment may replace the folder by changing a link.
fn resolve_programs_path(path: &Path) -> Result<PathBuf, HandlerFailure> {
    std::fs::canonicalize(path).map_err(|error| {
        let detail = format!(
            "can't open the folder of programs {}: {error}",
            path.display()
        );
        HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail)
    })
}

impl Handler for CgiHandler {
    fn begin(self: Arc<Self>, _: usize, request: HandlerRequest) -> HandlerResult {
        match self.permit() {
            Ok(permit) => HandlerResult::OnRuntime(Box::pin(self.answer(request, permit))),
            Err(failure) => HandlerResult::Ready(Err(failure)),
        }
    }
}
