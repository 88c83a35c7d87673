//! The conversation with an origin about one request: the request goes out while its response comes in, each as fast as
//! the other side takes it. Knows neither how an origin is chosen nor what is done with its response.
//!
//! What is held at a time is one piece of the request's body, one part of the response, and what the streams hold.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::{Next, Sender, stream};
use lowroad_handler::collect::cut;
use lowroad_handler::executor::Executor;
use lowroad_handler::interims::Interims;
use lowroad_handler::spool::STALL;
use lowroad_handler::{Content, Failure, Fields, Response};
use lowroad_http::h1;
use lowroad_http::method::Method;
use lowroad_http::status::Status;
use lowroad_origin::group::Outcome;

use super::leave::Leave;
use super::link::{Broken, Links, Said};
use super::request_body::RequestBody;
use super::sending::Sending;
use super::servers::{Place, Try};
use super::tunnel;
use crate::script::talk::Terms;

/// A connection for one request.
type Lease = lowroad_origin::Lease<Links>;

/// How much of a body is taken, if it is there at once, before it is streamed.
const AT_ONCE_LEN_MAX: usize = 64 << 10;
/// How many bytes of a response wait for the client.
const WAITING_LEN_MAX: usize = 64 << 10;
/// How long a client that went away can stay unnoticed while the origin says nothing.
const TICK: Duration = Duration::from_millis(500);

/// A request under way. Dropped, its connection is closed, by which the origin knows.
pub struct Talk {
    /// Whom it is with.
    pub place: Arc<Place>,
    /// Its try of one of several servers.
    pub attempt: Option<Try>,
    /// Its connection.
    pub lease: Lease,
    /// The connection may be used for other clients.
    pub is_shared: bool,
    /// What of the request is on its way.
    pub sending: Sending,
    /// Its body, if it has one.
    pub body: Option<RequestBody>,
    /// How far the body is.
    pub progress: BodyProgress,
    /// The request's.
    pub method: Method,
    /// Leave to be under way.
    pub leave: Leave,
    /// What was found wrong with the server.
    pub found: Option<Outcome>,
}

/// How far the body of the request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BodyProgress {
    /// More is to come.
    Coming,
    /// It was all, or there is none.
    Sent,
    /// The origin takes no more.
    Refused,
}

/// How a response was not got.
pub struct Stopped {
    /// Why.
    pub failure: Failure,
    /// What that says of the server.
    pub outcome: Outcome,
    /// The try, still to be reported.
    pub attempt: Option<Try>,
    /// All of the request's body, if that is still there.
    pub body: Option<Option<RequestBody>>,
    /// Leave to be under way.
    pub leave: Leave,
    /// Something of the request may have reached the server.
    pub sent: bool,
    /// Something came back.
    pub is_answered: bool,
    /// The connection was one that had been kept, and the server had closed it: nothing is wrong with it.
    pub is_stale: bool,
}

impl Stopped {
    /// Before anything was sent.
    pub fn before(
        failure: Failure,
        outcome: Outcome,
        attempt: Option<Try>,
        (body, leave): (Option<RequestBody>, Leave),
    ) -> Stopped {
        Stopped {
            failure,
            outcome,
            attempt,
            body: Some(body),
            leave,
            sent: false,
            is_answered: false,
            is_stale: false,
        }
    }
}

/// What happened.
enum Turn {
    /// Some of the request was sent.
    Sent,
    Said(Said),
}

/// What began.
enum Begun {
    Response(Head),
    /// The connection speaks this protocol, and these are the fields of the response that says so.
    Protocol(Vec<u8>, Fields),
}

/// The end of a body: the fields behind it.
type Ended = Option<Box<Fields>>;

/// What a response began with.
struct Head {
    status: Status,
    fields: Fields,
    len: Option<u64>,
}

impl Talk {
    /// Gets a response: waits for its head, for `first_byte` at most, and leaves a task to stream the rest if there is more.
    ///
    /// # Errors
    /// [`Stopped`]
    pub async fn response(
        mut self: Box<Self>,
        first_byte: Duration,
        terms: &Terms,
        interims: &mut Interims,
    ) -> Result<Response, Stopped> {
        let head = self.head(first_byte, interims);
        let head = match head.await {
            Ok(Begun::Response(head)) => head,
            Ok(Begun::Protocol(protocol, fields)) => {
                return Ok(tunnel::begin(self, terms.silence, protocol, fields));
            }
            Err(failure) => return Err(self.stop(failure)),
        };
        self.leave.stay_request();
        if matches!(head.status.code(), 502..=504) {
            self.found = Some(Outcome::ServerError);
        }
        let is_bodiless = self.method == Method::Head || head.status.is_bodiless();
        if !is_bodiless && let Some(body) = self.lease.connection.take_rest() {
            self.finish();
            return Ok(head.response(Content::Bytes(body)));
        }
        let (parts, ended) = match self.at_once().await {
            Ok(had) => had,
            Err(failure) => return Err(self.stop(failure)),
        };
        if let (Some(None), false) = (&ended, is_bodiless) {
            self.finish();
            return Ok(head.response(Content::Bytes(joined(parts))));
        }
        let (to, stream) = stream(WAITING_LEN_MAX);
        for part in parts {
            // It is open: this function holds the other end.
            let _ = to.push(part);
        }
        let len = head.len;
        match ended {
            Some(trailers) => {
                to.end_with(trailers);
                self.finish();
            }
            None => {
                let executor = self.executor();
                executor.spawn(self.pass_on(to, terms.clone()));
            }
        }
        Ok(head.response(Content::Stream { len, stream }))
    }

    /// Waits for what comes after all interim responses.
    async fn head(&mut self, silence: Duration, interims: &mut Interims) -> Result<Begun, Failure> {
        // Before the turns: nothing can have come yet, so nothing is looked for.
        poll_fn(|context| Poll::Ready(self.poll_send(context))).await?;
        let executor = self.executor();
        loop {
            let turn = poll_fn(|context| self.poll_turn(context));
            match executor.timeout(silence, turn).await {
                Err(_) => return Err(self.silent(silence)),
                Ok(Ok(Turn::Said(Said::Head(status, fields, len)))) => {
                    return Ok(Begun::Response(Head {
                        status,
                        fields,
                        len,
                    }));
                }
                Ok(Ok(Turn::Said(Said::Interim(status, fields)))) => {
                    interims.send(status, fields);
                }
                Ok(Ok(Turn::Said(Said::Upgraded(protocol, fields)))) => {
                    return Ok(Begun::Protocol(protocol, fields));
                }
                Ok(Ok(_)) => {}
                Ok(Err(failure)) => return Err(failure),
            }
        }
    }

    /// Takes what of the body is there at once, so that a short one needs neither a task nor a stream; and its end, with
    /// the fields behind it, if that was all.
    async fn at_once(&mut self) -> Result<(VecDeque<Bytes>, Option<Ended>), Failure> {
        let (mut parts, mut len) = (VecDeque::new(), 0);
        while len < AT_ONCE_LEN_MAX {
            let turn = poll_fn(|context| Poll::Ready(self.poll_turn(context))).await;
            match turn {
                Poll::Pending => break,
                Poll::Ready(turn) => match turn? {
                    Turn::Said(Said::Data(data)) => {
                        len += data.len();
                        parts.push_back(data);
                    }
                    Turn::Said(Said::End(trailers)) => return Ok((parts, Some(trailers))),
                    Turn::Said(_) | Turn::Sent => {}
                },
            }
        }
        Ok((parts, None))
    }

    /// Passes the rest of a body on. What goes wrong now cuts it short.
    async fn pass_on(mut self: Box<Self>, to: Sender, terms: Terms) {
        match self.pass_parts(to, &terms).await {
            Ok(Some((to, trailers))) => {
                self.finish();
                to.end_with(trailers);
            }
            // The client went away, which is nobody's fault.
            Ok(None) => {}
            Err(failure) if failure.detail.is_empty() => {}
            Err(failure) => {
                self.report(self.found.unwrap_or(Outcome::Cancelled));
                self.place.failed(&failure.detail);
                (terms.notice)(&failure.detail);
            }
        }
    }

    /// The stream and the fields behind it, if it came to its end; else the client went away.
    async fn pass_parts(
        &mut self,
        mut to: Sender,
        terms: &Terms,
    ) -> Result<Option<(Sender, Ended)>, Failure> {
        let silence = terms.silence;
        let (executor, tick) = (self.executor(), TICK.min(silence));
        let mut spools = terms.spools.as_ref();
        // For how long nothing was heard, at least.
        let mut quiet = Duration::ZERO;
        loop {
            let stall = spools.map_or(Duration::MAX, |_| STALL);
            let room = poll_fn(|context| self.poll_room(&to, context));
            match executor.timeout(stall, room).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => {
                    if let Some(spools) = spools.take() {
                        to = spools.behind(to, &executor);
                    }
                    quiet = Duration::ZERO;
                }
            }
            let turn = poll_fn(|context| self.poll_turn(context));
            let Ok(turn) = executor.timeout(tick, turn).await else {
                quiet += tick;
                match quiet >= silence {
                    true => return Err(self.silent(silence)),
                    false => continue,
                }
            };
            quiet = Duration::ZERO;
            match turn? {
                Turn::Said(Said::Data(data)) => {
                    if to.push(data).is_err() {
                        return Ok(None);
                    }
                }
                Turn::Said(Said::End(trailers)) => return Ok(Some((to, trailers))),
                Turn::Said(_) | Turn::Sent => {}
            }
        }
    }

    /// Ready when the client has room: false if it went away. The request goes on being sent meanwhile.
    fn poll_room(&mut self, to: &Sender, context: &mut Context<'_>) -> Poll<bool> {
        match to.poll_room(context) {
            Poll::Ready(room) => Poll::Ready(room.is_ok()),
            Poll::Pending => match self.poll_send(context) {
                Err(_) => Poll::Ready(false),
                Ok(_) => Poll::Pending,
            },
        }
    }

    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<Turn, Failure>> {
        let sent = self.poll_send(context)?;
        match self.lease.connection.poll_said(context) {
            Poll::Ready(Ok(said)) => {
                self.lease.heard();
                self.sending.is_answered = true;
                Poll::Ready(Ok(Turn::Said(said)))
            }
            Poll::Ready(Err(broken)) => {
                // Whoever has said anything may have done something, too.
                let has_said = self.lease.connection.has_input();
                self.sending.is_answered |= has_said || matches!(broken, Broken::Bad(_));
                self.found = Some(match broken {
                    Broken::Bad(_) => Outcome::Malformed,
                    Broken::Closed | Broken::Failed(_) => Outcome::Lost,
                });
                let detail = format!("{} {broken}", self.place.name);
                Poll::Ready(Err(Failure::new(Status::BAD_GATEWAY, detail)))
            }
            Poll::Pending if sent => Poll::Ready(Ok(Turn::Sent)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends what the origin takes of the request. Whether it took anything.
    ///
    /// # Errors
    /// The client broke off its body.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let mut has_sent = false;
        // Not for ever: a client and an origin that are both fast must not keep others waiting.
        for _ in 0..16 {
            if !self.sending.has_more() {
                match self.next_piece(context)? {
                    true => continue,
                    false => return Ok(has_sent),
                }
            }
            let connection = &mut self.lease.connection;
            match connection.poll_write_buffer(context, self.sending.buffer()) {
                Poll::Pending => {
                    self.sending.lent();
                    return Ok(has_sent);
                }
                Poll::Ready(Ok(len @ 1..)) => {
                    self.sending.sent(len);
                    has_sent = true;
                }
                // It may have answered all the same.
                Poll::Ready(_) => {
                    self.progress = BodyProgress::Refused;
                    self.sending.give_up();
                }
            }
        }
        context.waker().wake_by_ref();
        Ok(has_sent)
    }

    /// Takes more of the body, if there is to be more and some has come.
    fn next_piece(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        let Some(body) = &mut self.body else {
            return Ok(false);
        };
        if self.progress != BodyProgress::Coming {
            return Ok(false);
        }
        let Poll::Ready(next) = body.poll_next(context) else {
            return Ok(false);
        };
        let http = &mut self.lease.connection.http;
        let framed = match next {
            Next::Bytes(bytes) => {
                let framed = http.data(bytes.len() as u64, self.sending.fresh());
                self.sending.put(bytes, http.data_end());
                framed
            }
            Next::End => {
                let mut lines = Vec::new();
                if let Some(trailers) = body.trailers() {
                    h1::put_fields(trailers, &mut lines);
                }
                self.progress = BodyProgress::Sent;
                http.end(&lines, self.sending.fresh())
            }
            Next::Cut => return Err(cut()),
        };
        framed.map_err(|_| cut())?;
        Ok(true)
    }

    /// All was said: the connection is kept if that holds for both sides.
    fn finish(mut self: Box<Self>) {
        self.report(self.found.unwrap_or(Outcome::Answered));
        if self.progress == BodyProgress::Sent
            && self.is_shared
            && !self.sending.has_more()
            && self.lease.connection.http.is_idle()
        {
            self.place.pool.give_back(self.lease);
        }
    }

    /// What came of the try, if there are several servers.
    pub fn report(&mut self, outcome: Outcome) {
        if let Some(attempt) = self.attempt.take() {
            let timers = &self.place.pool.local(self.lease.worker).timers;
            attempt.report(outcome, timers.now_ms());
        }
    }

    /// How far it came.
    fn stop(self: Box<Self>, failure: Failure) -> Stopped {
        let is_lost = self.found == Some(Outcome::Lost);
        let body = match self.body {
            Some(body) => body.rewound().map(Some),
            None => Some(None),
        };
        Stopped {
            failure,
            outcome: self.found.unwrap_or(Outcome::Cancelled),
            attempt: self.attempt,
            body,
            leave: self.leave,
            sent: self.sending.has_begun(),
            is_answered: self.sending.is_answered,
            is_stale: self.lease.kept && is_lost && !self.sending.is_answered,
        }
    }

    fn silent(&mut self, silence: Duration) -> Failure {
        self.found = Some(Outcome::TimedOut);
        let name = &self.place.name;
        let detail = format!("{name} said nothing for {} ms", silence.as_millis());
        Failure::new(Status::GATEWAY_TIMEOUT, detail)
    }

    pub(super) fn executor(&self) -> Executor {
        Executor::Worker(self.place.pool.local(self.lease.worker).clone())
    }
}

impl Head {
    fn response(self, content: Content) -> Response {
        Response {
            status: self.status,
            fields: self.fields,
            content,
            made_from: None,
        }
    }
}

fn joined(mut parts: VecDeque<Bytes>) -> Bytes {
    if parts.len() > 1 {
        let mut all = Vec::with_capacity(parts.iter().map(Bytes::len).sum());
        parts.iter().for_each(|part| all.extend_from_slice(part));
        return all.into();
    }
    parts.pop_front().unwrap_or_default()
}
