//! CGI programs (RFC 3875): one process for each request.
//!
//! A program runs in the folder of its file, in its own process group and under limits ([`lowroad_children::limits`]),
//! with exactly the variables of [`environment`] and none of the server's. A separate process starts it ([`spawner`]).
//! Each line of its stderr is logged. Its response ends with its output. If its request is cancelled, its process
//! group is killed; children of a program that exits by itself live on.

pub mod environment;
mod process;
pub mod spawner;
pub mod stderr;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lowroad_children::descriptors;
use lowroad_children::limits::Limits;
use lowroad_config::{Cgi, Route, Symlinks};
use lowroad_handler::collect::Gathered;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::Spools;
use lowroad_handler::{Begun, Failure, Handler, Request};
use lowroad_http::status::Status;
use lowroad_limits::{ConcurrencyLimit, Permit};

use self::environment::Environment;
use self::process::Process;
use self::spawner::Spawner;
use crate::head::reply::Reply;
use crate::head::{Form, HeadLimits};
use crate::script::lookup::{self, kind_below};
use crate::script::talk::{self, Terms};
use crate::script::{Meaning, Rules, Script, base_of, find, mounted};

/// The handler of a route to CGI programs.
pub struct CgiHandler {
    rules: Rules,
    /// The part of a path before the program's name; empty if programs are among the site's files.
    base: String,
    symlinks: Symlinks,
    head_limits: HeadLimits,
    cgi: Cgi,
    running: Arc<ConcurrencyLimit>,
    spawner: Arc<Spawner>,
    terms: Terms,
    user: Option<(u32, u32)>,
}

impl CgiHandler {
    /// Creates the handler of `route` to `cgi`, whose programs `spawner` starts. `symlinks` is the site's policy.
    ///
    /// # Errors
    /// The folder of the programs does not exist.
    pub fn new(
        route: &Route,
        cgi: &Cgi,
        symlinks: Symlinks,
        spawner: Arc<Spawner>,
        notice: Notice,
    ) -> std::io::Result<CgiHandler> {
        let rules = Rules {
            pattern: route.pattern.clone(),
            ending: String::new(),
            index: String::new(),
        };
        // Only a check at start: the path is resolved again for each request.
        if let Some(path) = &cgi.path {
            std::fs::canonicalize(path)?;
        }
        Ok(CgiHandler {
            base: match cgi.path {
                Some(_) => base_of(&route.pattern),
                // Among the site's files the whole path is the script's.
                None => String::new(),
            },
            rules,
            symlinks,
            head_limits: HeadLimits::new(route),
            cgi: cgi.clone(),
            running: ConcurrencyLimit::new(route.concurrency_max),
            spawner,
            terms: Terms {
                silence: Duration::from_millis(route.timeout_ms),
                notice,
                spools: None,
            },
            user: None,
        })
    }

    /// Runs the programs as this user and group.
    #[must_use]
    pub fn as_user(mut self, user: (u32, u32)) -> CgiHandler {
        self.user = Some(user);
        self
    }

    /// Sets spools, which buffer responses for slow clients.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<Spools>>) -> CgiHandler {
        self.terms.spools = spools;
        self
    }

    async fn answer(
        self: Arc<Self>,
        mut request: Request,
        permit: Permit,
    ) -> Result<lowroad_handler::Response, Failure> {
        let body = std::mem::take(&mut request.body);
        let (body, permit) = Gathered::with_leave(body, permit, || self.permit()).await?;
        let body_len = body.len;
        let method = request.method;
        let handler = self.clone();
        // Both the look-up and the start of a program may wait for the disk, so they run on a blocking thread.
        let started =
            tokio::task::spawn_blocking(move || handler.start(&request, body_len, permit));
        let (process, form) = started
            .await
            .map_err(|_| Failure::new(Status::INTERNAL_ERROR, "a helper thread ended"))??;
        let reply = Reply::new(process.file().clone(), form, self.head_limits, method);
        talk::answer(process, body, reply, &self.terms)
            .await
            .map_err(|stopped| stopped.failure)
    }

    fn permit(&self) -> Result<Permit, Failure> {
        self.running.try_acquire().ok_or_else(|| {
            let detail = format!(
                "{} programs of {} run already; the route's concurrency allows no more",
                self.running.max(),
                self.place()
            );
            Failure::new(Status::SERVICE_UNAVAILABLE, detail)
        })
    }

    /// The location of the programs, for messages.
    fn place(&self) -> std::path::Display<'_> {
        let path = self.cgi.path.as_deref();
        path.unwrap_or(Path::new("the site")).display()
    }

    /// Finds and starts the program. Blocks.
    fn start(
        &self,
        request: &Request,
        body_len: Option<u64>,
        permit: Permit,
    ) -> Result<(Process, Form), Failure> {
        let (script, file) = self.find(request)?;
        // Checked before the start, where execve would fail with EACCES in another process.
        if !lookup::is_executable(&file) {
            let detail = format!("{} may not be run; make it executable", file.display());
            return Err(Failure::new(Status::INTERNAL_ERROR, detail));
        }
        let environment = Environment {
            request,
            script: &script,
            file: Some(&file),
            root: &request.root,
            body_len,
            // RFC 3875 §4.1.18: servers should not pass credentials to scripts.
            authorization: false,
            extra: &self.cgi.env,
        };
        let form = match file.file_name() {
            Some(name) if name.as_encoded_bytes().starts_with(b"nph-") => Form::Http,
            _ => Form::Cgi,
        };
        let limits = Limits {
            memory_len_max: self.cgi.memory_len_max,
            cpu_s_max: self.cgi.cpu_s_max,
            processes_max: self.cgi.processes_max,
            user: self.user,
            descriptors: descriptors::of_programs(),
            // No program outlives the spawner, which dies with the server.
            ends_with_parent: true,
        };
        let keep = process::Keep {
            permit,
            patience: self.terms.silence,
            notice: self.terms.notice.clone(),
        };
        let process = Process::start(&file, &environment, limits, &self.spawner, keep)?;
        Ok((process, form))
    }

    /// Finds the program for a request, and its file.
    fn find(&self, request: &Request) -> Result<(Script, PathBuf), Failure> {
        let (place, way_len) = match &self.cgi.path {
            // Resolved for each request, so that a deployment may switch a symbolic link.
            Some(path) => (now_at(path)?, self.base.len()),
            None => {
                let (folder, way_len) = request.files();
                (folder.to_path_buf(), way_len)
            }
        };
        // A single program takes every path below the route.
        if place.is_file() {
            return Ok((mounted(request.path(), &self.base), place));
        }
        let script = self.script(
            (&place, way_len),
            (request.path(), request.plain_path_len()),
        );
        let script = script.ok_or_else(Failure::not_found)?;
        let file = file(&place, way_len, &script);
        Ok((script, file))
    }

    fn script(&self, (folder, way_len): (&Path, usize), path: (&[u8], usize)) -> Option<Script> {
        path.0.strip_prefix(self.base.as_bytes())?;
        let look = |name: &[u8]| kind_below(folder, (name, way_len), self.symlinks);
        match find(path, &self.rules, look) {
            Meaning::Script(script) => Some(script),
            Meaning::SlashMissing | Meaning::Nothing => None,
        }
    }
}

/// The file of a script; the first `way_len` bytes of its name lead to the folder.
fn file(folder: &Path, way_len: usize, script: &Script) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let name = script.name.get(way_len + 1..).unwrap_or_default();
    folder.join(std::ffi::OsStr::from_bytes(name))
}

/// Resolves symbolic links for each request: a deployment may replace the folder by changing a link.
fn now_at(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path).map_err(|error| {
        let detail = format!("the programs at {}: {error}", path.display());
        Failure::new(Status::INTERNAL_ERROR, detail)
    })
}

impl Handler for CgiHandler {
    fn begin(self: Arc<Self>, _: usize, request: Request) -> Begun {
        match self.permit() {
            Ok(permit) => Begun::Later(Box::pin(self.answer(request, permit))),
            Err(failure) => Begun::Answered(Err(failure)),
        }
    }
}
