//! CGI programs (RFC 3875): one process for each request.
//!
//! A program runs in the folder it is in, in a process group of its own ([`group`]) under limits
//! ([`limits`]), with exactly the environment that [`environment`] makes, and nothing of the server's.
//! What it writes to stderr goes to the log, line by line. When its request is over, in whatever
//! way, its group is ended.
//!
//! It knows nothing of sites, nor how a path is found to be this handler's.

pub mod environment;
pub mod group;
pub mod limits;
pub mod process;
pub mod stderr;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lowroad_config::{Cgi, Route, Symlinks};
use lowroad_engine::concurrency::{Concurrency, Permit};
use lowroad_http::status::Status;

use self::environment::Environment;
use self::process::Process;
use crate::collect::Gathered;
use crate::head::Form;
use crate::head::reply::Reply;
use crate::notice::Notice;
use crate::script::lookup::{self, kind};
use crate::script::talk::{self, Terms};
use crate::script::{Meaning, Rules, Script, base_of, find};
use crate::spool::Spools;
use crate::{Begun, Failure, Handler, Request};

/// Answers a route's requests with the programs of a folder.
pub struct CgiHandler {
    rules: Rules,
    /// The part of a path before the program's.
    base: String,
    symlinks: Symlinks,
    cgi: Cgi,
    running: Arc<Concurrency>,
    terms: Terms,
    user: Option<(u32, u32)>,
}

impl CgiHandler {
    /// A handler for `route`, which goes to `cgi`. `symlinks` are those of the site.
    ///
    /// # Errors
    /// The folder of the programs can't be found.
    pub fn new(
        route: &Route,
        cgi: &Cgi,
        symlinks: Symlinks,
        notice: Notice,
    ) -> std::io::Result<CgiHandler> {
        let rules = Rules {
            pattern: route.pattern.clone(),
            ending: String::new(),
            index: String::new(),
        };
        std::fs::canonicalize(&cgi.folder)?;
        Ok(CgiHandler {
            base: base_of(&route.pattern),
            rules,
            symlinks,
            cgi: cgi.clone(),
            running: Concurrency::new(route.concurrency_max),
            terms: Terms {
                silence: Duration::from_millis(route.timeout_ms),
                notice,
                spools: None,
            },
            user: None,
        })
    }

    /// The same with programs that run as this user and group.
    #[must_use]
    pub fn as_user(mut self, user: (u32, u32)) -> CgiHandler {
        self.user = Some(user);
        self
    }

    /// Has responses wait in spools that their clients take slowly.
    #[must_use]
    pub fn with_spools(mut self, spools: Option<Arc<Spools>>) -> CgiHandler {
        self.terms.spools = spools;
        self
    }

    async fn answer(
        self: Arc<Self>,
        mut request: Request,
        permit: Permit,
    ) -> Result<crate::Response, Failure> {
        let body = std::mem::take(&mut request.body);
        let (body, permit) = Gathered::with_leave(body, permit, || self.permit()).await?;
        let body_len = body.len;
        let method = request.method;
        let handler = self.clone();
        // Looking for it and starting it wait for the disk.
        let started =
            tokio::task::spawn_blocking(move || handler.start(&request, body_len, permit));
        let (process, form) = started
            .await
            .map_err(|_| Failure::new(Status::INTERNAL_ERROR, "a helper thread ended"))??;
        let reply = Reply::new(process.file().clone(), form, method);
        talk::answer(process, body, reply, &self.terms)
            .await
            .map_err(|stopped| stopped.failure)
    }

    fn permit(&self) -> Result<Permit, Failure> {
        self.running.try_acquire().ok_or_else(|| {
            let detail = format!(
                "{} programs of {} run already; the route's concurrency allows no more",
                self.running.max(),
                self.cgi.folder.display()
            );
            Failure::new(Status::SERVICE_UNAVAILABLE, detail)
        })
    }

    /// Finds and starts the program. Blocks.
    fn start(
        &self,
        request: &Request,
        body_len: Option<u64>,
        permit: Permit,
    ) -> Result<(Process, Form), Failure> {
        let folder = self.folder()?;
        let script = self.script(&folder, request.path());
        let script = script.ok_or_else(Failure::not_found)?;
        let file = self.file(&folder, &script);
        if !lookup::is_executable(&file) {
            let detail = format!("{} may not be run; make it executable", file.display());
            return Err(Failure::new(Status::INTERNAL_ERROR, detail));
        }
        let environment = Environment {
            request,
            script: &script,
            file: &file,
            body_len,
            authorization: false,
            extra: &self.cgi.env,
        };
        let form = match file.file_name() {
            Some(name) if name.as_encoded_bytes().starts_with(b"nph-") => Form::Http,
            _ => Form::Cgi,
        };
        let limits = limits::Limits {
            memory_len_max: self.cgi.memory_len_max,
            cpu_s_max: self.cgi.cpu_s_max,
            user: self.user,
            ends_with_parent: false,
        };
        let keep = process::Keep {
            permit,
            patience: self.terms.silence,
            notice: self.terms.notice.clone(),
        };
        let process = Process::start(&file, &environment, limits, keep)?;
        Ok((process, form))
    }

    /// Where the folder is now: a new version may be put in place by a symbolic link.
    fn folder(&self) -> Result<PathBuf, Failure> {
        let folder = &self.cgi.folder;
        std::fs::canonicalize(folder).map_err(|error| {
            let detail = format!("the folder of programs {}: {error}", folder.display());
            Failure::new(Status::INTERNAL_ERROR, detail)
        })
    }

    fn script(&self, folder: &Path, path: &[u8]) -> Option<Script> {
        let base = self.base.len();
        path.strip_prefix(self.base.as_bytes())?;
        let look = |name: &[u8]| match name.get(base..) {
            // The folders before the programs' need not be there.
            None | Some([]) => crate::script::Kind::Folder,
            Some(name) => kind(folder, name, self.symlinks),
        };
        match find(path, &self.rules, look) {
            Meaning::Script(script) => Some(script),
            Meaning::SlashMissing | Meaning::Nothing => None,
        }
    }

    fn file(&self, folder: &Path, script: &Script) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let name = script.name.get(self.base.len() + 1..).unwrap_or_default();
        folder.join(std::ffi::OsStr::from_bytes(name))
    }
}

impl Handler for CgiHandler {
    fn begin(self: Arc<Self>, _: usize, request: Request) -> Begun {
        match self.permit() {
            Ok(permit) => Begun::Later(Box::pin(self.answer(request, permit))),
            Err(failure) => Begun::Answered(Err(failure)),
        }
    }
}
