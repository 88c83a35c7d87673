//! A simulated client: its request is passed to a handler in a task of a worker, and the response is read with random
//! pauses.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::WorkerHandle;
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_engine::tasks::TaskHandle;
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_handler::{Handler, HandlerRequest, HandlerResult, ResponseContent};
use lowroad_http::method::Method;
use lowroad_testkit::TempFolder;

use crate::cgi_support::{get, head};
use crate::peer::{RequestedBody, body_of, pattern};

/// The behavior of a client.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The time at which the request starts, and its worker.
    pub start_ms: u64,
    pub worker: usize,
    pub wanted: RequestedBody,
    pub path: &'static str,
    /// Whether its request is idempotent.
    pub idempotent: bool,
    /// The pauses before each piece of the request body and of the response body.
    pub send_pause_ms: u64,
    pub read_pause_ms: u64,
    /// Whether the request body is truncated.
    pub cut: bool,
    /// The time at which the client disconnects.
    pub leave_ms: Option<u64>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The status code and the reason.
    Failed(u16, String),
    Whole(Vec<u8>),
    Cut(Vec<u8>),
}

/// A client.
pub struct Client {
    pub plan: Plan,
    pub outcome: Arc<Mutex<Option<(Outcome, u64)>>>,
    task: Option<TaskHandle>,
    pub left: bool,
}

impl Client {
    pub fn new(plan: Plan) -> Client {
        Client {
            plan,
            outcome: Arc::default(),
            task: None,
            left: false,
        }
    }

    /// Whether the client is done.
    pub fn is_over(&self) -> bool {
        self.left || self.outcome.lock().expect("a lock").is_some()
    }

    /// Starts the request or disconnects, if it is time.
    pub fn step(&mut self, now_ms: u64, handler: &Arc<FastCgiHandler>, locals: &[WorkerHandle]) {
        let plan = self.plan;
        if self.task.is_none() && now_ms >= plan.start_ms && !self.left {
            let local = locals[plan.worker].clone();
            let work = ask(plan, handler.clone(), local.clone(), self.outcome.clone());
            self.task = Some(local.tasks.start(work));
        }
        if plan.leave_ms.is_some_and(|leave_ms| now_ms >= leave_ms) && !self.is_over() {
            self.left = true;
            self.task = None;
        }
    }

    /// Checks that a complete response is correct, and that a truncated one is a prefix of the correct one.
    pub fn check(&self) {
        let right = body_of(self.plan.wanted);
        match &*self.outcome.lock().expect("a lock") {
            None => assert!(self.left, "no answer: {:?}", self.plan),
            Some((Outcome::Whole(body), _)) => {
                assert!(*body == right, "{:?}: {} bytes", self.plan, body.len());
            }
            Some((Outcome::Cut(body), _)) => {
                let same = body.iter().zip(&right).take_while(|(a, b)| a == b);
                let (plan, at) = (self.plan, same.count());
                let shown = body[at..].escape_ascii().to_string();
                assert!(shown.is_empty(), "{plan:?}: at {at}: {shown:.400}");
            }
            Some((Outcome::Failed(status, why), _)) => {
                assert!(
                    matches!(status, 400 | 404 | 502 | 503 | 504),
                    "{status} {why}"
                );
            }
        }
    }
}

async fn ask(
    plan: Plan,
    handler: Arc<FastCgiHandler>,
    local: WorkerHandle,
    to: Arc<Mutex<Option<(Outcome, u64)>>>,
) {
    let answer = match handler.begin(plan.worker, request(plan, &local)) {
        HandlerResult::Ready(answer) => answer,
        HandlerResult::OnWorker(answering) => answering.await,
        HandlerResult::OnRuntime(_) => panic!("it is to be polled here"),
    };
    let outcome = match answer {
        Err(failure) => Outcome::Failed(failure.status.code(), failure.detail),
        Ok(response) => read(response.content, plan, &local).await,
    };
    let now_ms = local.timers.now_ms();
    let before = to.lock().expect("a lock").replace((outcome, now_ms));
    assert!(before.is_none(), "two answers");
}

async fn read(content: ResponseContent, plan: Plan, local: &WorkerHandle) -> Outcome {
    let (len, stream) = match content {
        ResponseContent::Bytes(bytes) => return Outcome::Whole(bytes.to_vec()),
        ResponseContent::Stream { len, stream } => (len, stream),
        ResponseContent::Stored(_)
        | ResponseContent::Upgrade(_)
        | ResponseContent::LocalRedirect(_) => {
            panic!("nothing is stored")
        }
    };
    let mut body = Vec::new();
    loop {
        if plan.read_pause_ms > 0 {
            let pause = Duration::from_millis(plan.read_pause_ms);
            local.timers.sleep(pause).await;
        }
        match stream.next().await {
            StreamItem::Bytes(bytes) => body.extend_from_slice(&bytes),
            StreamItem::End => {
                assert!(len.is_none_or(|len| len == body.len() as u64));
                return Outcome::Whole(body);
            }
            StreamItem::Cut => return Outcome::Cut(body),
        }
    }
}

fn request(plan: Plan, local: &WorkerHandle) -> HandlerRequest {
    let RequestedBody {
        number,
        len,
        body_len,
    } = plan.wanted;
    // Shared by all cases, like the root of a site.
    static FOLDER: OnceLock<TempFolder> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = TempFolder::new();
        folder.file("index.php", "");
        folder
    });
    let target = format!("{}?n={number}&len={len}&body={body_len}", plan.path);
    let mut request = get(folder.path(), &target);
    if !plan.idempotent {
        request.method = Method::Post;
    }
    if body_len == 0 {
        return request;
    }
    request.head = head(&target, "Content-Type: text/plain\r\n");
    let (sender, receiver) = stream(10_000);
    request.body.len = Some(body_len as u64);
    request.body.stream = Some(receiver);
    let timers = local.timers.clone();
    let sending = async move {
        let body = pattern(number, body_len);
        let end = if plan.cut { body.len() / 2 } else { body.len() };
        for piece in body[..end].chunks(3_000) {
            if plan.send_pause_ms > 0 {
                let pause = Duration::from_millis(plan.send_pause_ms);
                timers.sleep(pause).await;
            }
            if sender.send(Bytes::copy_from_slice(piece)).await.is_err() {
                return;
            }
        }
        if !plan.cut {
            sender.end();
        }
    };
    local.tasks.spawn(sending).detach();
    request
}
