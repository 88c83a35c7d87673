//! Puts requests to programs: at once on the worker where they answer at once, as one of its tasks
//! where they only wait for sockets, else on the runtime beside it. What comes later comes by the
//! worker's mailbox.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lowroad_dynamic::request::Head;
use lowroad_dynamic::{Answering, Begun, Body, Failure, Objects, Request as Call};
use lowroad_engine::tasks::Tasks;
use lowroad_engine::{Exchange, Token};
use lowroad_http::request::{Framing, Request, Target};
use lowroad_http::status::Status;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::answer::Outcome;
use crate::dynamic::counts::{Waits, one};
use crate::dynamic::keeping::Keeping;
use crate::dynamic::kept::Key;
use crate::dynamic::objects::SiteObjects;
use crate::dynamic::reply::Reply;
use crate::dynamic::routes::Route;
use crate::fetch::{Fetcher, Reply as Post};
use crate::sites::Site;
use crate::store::SharedStore;
use crate::stored::Stored;

/// One worker's way to the programs.
pub struct Calls {
    /// The number of the worker.
    pub worker: usize,
    /// Where what takes time is done.
    pub runtime: Handle,
    /// The worker itself, where what only waits is done.
    pub tasks: Tasks,
    /// How what came of it gets back.
    pub post: Post,
    /// What sites have stored.
    pub store: Arc<SharedStore>,
    /// Who loads it.
    pub fetcher: Arc<Fetcher>,
    /// What the site of the last call has.
    pub last: RefCell<Option<Arc<SiteObjects>>>,
}

/// What is put to a program.
pub struct Asked<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// The normalised host name, where each has a folder of its own; else empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The address at which it came in.
    pub local: SocketAddr,
    /// The request itself.
    pub request: &'a Request<'a>,
}

/// How far a call has come.
pub enum Started {
    /// There is an answer from before, [`Kept`](crate::dynamic::kept::Kept).
    Known(Arc<Stored>),
    /// It is over.
    Over(Result<Reply, Failure>),
    /// It goes on; dropping this gives it up.
    Runs(Box<dyn Send>),
}

impl Calls {
    /// Puts a request to a route's program, unless its answer is known.
    pub fn start(&self, asked: &Asked<'_>, route: &Arc<Route>, exchange: &mut Exchange) -> Started {
        let known = |key: Key| key.find(&self.store, exchange.now_ms);
        if route.keeps.load(Relaxed)
            && let Some(known) = self.key(asked).and_then(known)
        {
            one(&route.counts.kept);
            return Started::Known(known);
        }
        one(&route.counts.calls);
        let changed = match route.keeps.load(Relaxed) {
            true => Key::of_changed(asked.request, asked.site, &self.store),
            false => None,
        };
        // Before the program sees anything: what is purged from now on, it may have seen.
        let purges = self.store.purges();
        let objects = self.objects(asked);
        let call = call_of(asked, exchange, objects.clone());
        let (answering, here) = match route.handler.clone().begin(self.worker, call) {
            Begun::Answered(Err(failure)) => {
                one(&route.counts.failed);
                return Started::Over(Err(failure));
            }
            Begun::Answered(Ok(response)) => match objects.complete_now(response) {
                Ok(mut reply) => {
                    if reply.may_be_kept()
                        && let Some(key) = self.key(asked)
                    {
                        let keeping = self.keeping(key.made_after(purges), route);
                        keeping.keep(&mut reply, &self.runtime);
                    }
                    forget_if_changed(changed.as_ref(), &reply, &self.store);
                    return Started::Over(Ok(reply));
                }
                Err(response) => (Box::pin(async { Ok(*response) }) as Answering, false),
            },
            Begun::Later(answering) => (answering, false),
            Begun::Here(answering) => (answering, true),
        };
        let key = self.key(asked).map(|key| key.made_after(purges));
        let task = Task {
            answering,
            objects,
            keeping: key.map(|key| self.keeping(key, route)),
            changed,
            waits: Waits::at(route),
            route: route.clone(),
        };
        self.run(task, exchange.token, here)
    }

    /// What the site has; mostly it is that of the last call.
    fn objects(&self, asked: &Asked<'_>) -> Arc<SiteObjects> {
        let mut last = self.last.borrow_mut();
        if let Some(objects) = &*last
            && Arc::ptr_eq(&objects.site, asked.site)
            && *objects.host == *asked.host
        {
            return objects.clone();
        }
        let objects = Arc::new(SiteObjects {
            site: asked.site.clone(),
            store: self.store.clone(),
            fetcher: self.fetcher.clone(),
            host: asked.host.into(),
        });
        last.insert(objects).clone()
    }

    /// Holds on to no site.
    pub fn forget(&self) {
        self.last.take();
    }

    /// Lets an answer be made beside the worker, or by it, which gets it by its mailbox.
    fn run(&self, task: Task, token: Token, here: bool) -> Started {
        let post = self.post.clone();
        let mut due = Due {
            post,
            token,
            is: true,
        };
        let work = async move {
            let result = task.run().await;
            due.is = false;
            (due.post)(due.token, Outcome::Reply(result.map(Box::new)));
        };
        if here {
            // Polled at once: what it asks of others is on its way before this worker waits.
            return Started::Runs(Box::new(self.tasks.start(work)));
        }
        let task = self.runtime.spawn(work);
        Started::Runs(Box::new(Running(task.abort_handle())))
    }

    fn keeping(&self, key: Key, route: &Arc<Route>) -> Keeping {
        Keeping {
            key,
            store: self.store.clone(),
            route: route.clone(),
        }
    }

    fn key(&self, asked: &Asked<'_>) -> Option<Key> {
        Key::of(asked.request, asked.site, &self.store)
    }
}

/// An answer being made.
struct Task {
    answering: Answering,
    objects: Arc<SiteObjects>,
    keeping: Option<Keeping>,
    /// Where something is kept that the request may change.
    changed: Option<Key>,
    waits: Waits,
    route: Arc<Route>,
}

impl Task {
    async fn run(self) -> Result<Reply, Failure> {
        let waits = self.waits;
        let answer = async {
            let response = self.answering.await?;
            self.objects.complete(response).await
        };
        let mut answer = answer.await;
        match &mut answer {
            Ok(reply) => {
                forget_if_changed(self.changed.as_ref(), reply, &self.objects.store);
                if let Some(keeping) = self.keeping {
                    keeping.keep(reply, &Handle::current());
                }
            }
            Err(_) => one(&self.route.counts.failed),
        }
        drop(waits);
        answer
    }
}

/// Forgets what a request has changed, unless it failed.
fn forget_if_changed(changed: Option<&Key>, reply: &Reply, store: &SharedStore) {
    if let Some(key) = changed.filter(|_| reply.status().code() < 400) {
        key.forget(store);
    }
}

/// An answer that somebody waits for, and gets even if making it panics.
struct Due {
    post: Post,
    token: Token,
    is: bool,
}

impl Drop for Due {
    fn drop(&mut self) {
        if self.is {
            let failure = Failure::new(Status::INTERNAL_ERROR, "its task ended without an answer");
            (self.post)(self.token, Outcome::Reply(Err(failure)));
        }
    }
}

/// A call that is given up when nobody waits for it any more.
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The request as programs see it.
fn call_of(asked: &Asked<'_>, exchange: &mut Exchange, objects: Arc<dyn Objects>) -> Call {
    let request = asked.request;
    let (raw_path, query) = match request.target {
        Target::Origin { path, query, .. } => (path, query),
        _ => (asked.path, None),
    };
    let host = request.host.unwrap_or_default();
    let other_lines;
    let lines = if names_host_in_target(request) {
        other_lines = lines_with_host(request, host);
        &other_lines[..]
    } else {
        request.lines()
    };
    Call {
        method: request.method,
        version: request.version,
        head: Head::new((raw_path, query), asked.path, host, lines),
        peer: exchange.peer,
        local: asked.local,
        root: asked.site.folder(asked.host),
        objects,
        body: body_of(request.framing, exchange),
    }
}

/// Whether the target is in absolute-form: then Host does not count (RFC 9112 §3.2.2), and may say
/// something else.
fn names_host_in_target(request: &Request<'_>) -> bool {
    request.line().get(request.method.as_str().len() + 1) != Some(&b'/')
}

/// The field lines with this Host in the place of what was sent.
fn lines_with_host(request: &Request<'_>, host: &[u8]) -> Vec<u8> {
    let mut lines = [b"Host: ", host, b"\r\n"].concat();
    let fields = request.fields();
    for (name, value) in fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"host")) {
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

fn body_of(framing: Framing, exchange: &mut Exchange) -> Body {
    let stream = exchange.body.take();
    match framing {
        Framing::None => Body::none(),
        Framing::Length(len) => Body {
            len: Some(len),
            stream,
        },
        Framing::Chunked => Body { len: None, stream },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::limits::Limits;
    use lowroad_http::request::{Parsed, parse};

    #[test]
    fn a_host_in_the_target_is_the_one_that_counts() {
        let head = b"GET http://good/x HTTP/1.1\r\nA: b\r\nHost: evil\r\nC: d\r\n\r\n";
        let Ok(Parsed::Complete(request)) = parse(head, &Limits::default()) else {
            panic!("it is a request");
        };
        assert!(names_host_in_target(&request));
        let lines = lines_with_host(&request, request.host.unwrap_or_default());
        assert_eq!(lines, b"Host: good\r\nA: b\r\nC: d\r\n");
    }
}
