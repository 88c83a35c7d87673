//! The exchange with a program: the request's body goes in while its output comes out, each as fast as the other side
//! accepts it. Processes and sockets are behind `ProgramLink`.
//!
//! Neither direction waits for the other, so a program may read and write in any order. Memory per exchange: one piece
//! of the body, one part of the output, and the streams' buffers.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::StreamItem;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::request_body::{PartialBody, truncation_failure};
use lowroad_handler::spool::{STALL, SpoolLimits};
use lowroad_handler::{HandlerFailure, HandlerResponse};
use lowroad_http::status::StatusCode;

use crate::head::reply::{BodyRemainder, CgiReply};

/// A program: a process, or a server behind a connection.
pub trait ProgramLink: Send + Unpin + 'static {
    /// Takes some bytes of the request's body off the front; ready when it has. A program may refuse more of the body.
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome>;

    /// Signals the end of the body; ready when that is done.
    fn poll_feed_end(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Waits for the next event; output is appended.
    ///
    /// # Errors
    /// The program is lost.
    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>>;

    /// Whether it was lost before it can have acted on the request.
    fn is_unused(&self) -> bool {
        false
    }

    /// The executor that polls it and streams the rest of its output.
    fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Runtime
    }

    /// Whether its output has ended and only its exit status is missing, which does not take long.
    fn has_output_ended(&self) -> bool {
        false
    }

    /// The exchange is complete. `fed` = the whole body was passed. Otherwise the program is dropped, and must
    /// end then.
    fn finish(self, fed: bool);
}

/// Whether a program accepts more of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedOutcome {
    /// It took some bytes.
    Some,
    /// It accepts no more.
    Closed,
}

/// An event from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOutput {
    /// Output was appended.
    Output,
    /// Another sign of progress.
    Other,
    /// The end of its output.
    End,
}

/// A request that ended without a response.
pub struct ScriptFailure {
    /// The failure.
    pub failure: HandlerFailure,
    /// The body, if the request may be sent to another program.
    pub replayable_body: Option<PartialBody>,
    /// Whether the output is no valid response, so that the server is not at fault.
    pub is_output_bad: bool,
}

/// While the program is silent, a closed client connection is noticed at least after this time.
const TICK: Duration = Duration::from_millis(500);
/// The maximum of a body that is collected without waiting, before the response is streamed.
const AT_ONCE_LEN_MAX: usize = 64 << 10;
/// The limits for collecting a response that may be stored: only a complete one can be.
const KEPT_LEN_MAX: usize = 1 << 20;
const KEPT_WAIT: Duration = Duration::from_secs(1);

/// The settings of an exchange.
#[derive(Clone)]
pub struct ScriptTerms {
    /// The timeout without progress in either direction.
    pub idle_timeout: Duration,
    /// Receives failures after the start of the response.
    pub notice: OperatorNotice,
    /// Buffers for slow clients; `None`: the program waits.
    pub spools: Option<Arc<SpoolLimits>>,
}

/// Waits for the head of the response, and spawns a task for the body if it must be streamed.
///
/// # Errors
/// [`ScriptFailure`]
pub async fn answer<P: ProgramLink>(
    program: P,
    body: PartialBody,
    mut reply: CgiReply,
    terms: &ScriptTerms,
) -> Result<HandlerResponse, ScriptFailure> {
    let idle_timeout = terms.idle_timeout;
    let mut exchange = ScriptExchange {
        executor: program.executor(),
        program,
        empty: body.is_none(),
        feed: FeedState::Untouched(body),
        is_output_bad: false,
    };
    match exchange.receive_head(&mut reply, idle_timeout).await {
        Ok(ScriptProgress::All) => {
            exchange.finish();
            // The output was complete, so a failure is the script's: no other server would do better.
            reply.finish().map_err(|failure| ScriptFailure {
                failure,
                replayable_body: None,
                is_output_bad: true,
            })
        }
        Ok(ScriptProgress::Head) => {
            let (response, rest) = reply.stream();
            let executor = exchange.executor.clone();
            executor.spawn(exchange.stream(rest, terms.clone()));
            Ok(response)
        }
        Err(failure) => Err(exchange.into_failure(failure)),
    }
}

/// How much of a response has arrived.
enum ScriptProgress {
    /// The head.
    Head,
    /// The whole response.
    All,
}

struct ScriptExchange<P> {
    executor: ResponseExecutor,
    program: P,
    /// Whether there is no body.
    empty: bool,
    feed: FeedState,
    is_output_bad: bool,
}

/// The state of the request's body.
enum FeedState {
    /// No byte was read.
    Untouched(PartialBody),
    /// Waiting for the client.
    Waiting(PartialBody),
    /// Waiting for the program to accept these bytes.
    Giving(PartialBody, Bytes),
    /// The body has ended; the program is being notified.
    Ending,
    /// Completely passed on.
    Done,
    /// The program refused the rest.
    Refused,
}

/// The result of one feeding step.
enum FeedStep {
    /// It must wait, or is done.
    Wait,
    /// The next step can follow.
    On,
    /// The program took some bytes.
    Fed,
}

/// An event of the exchange.
enum ScriptEvent {
    /// The program took some bytes.
    Fed,
    Part(ProgramOutput),
}

impl<P: ProgramLink> ScriptExchange<P> {
    async fn receive_head(
        &mut self,
        reply: &mut CgiReply,
        idle_timeout: Duration,
    ) -> Result<ScriptProgress, HandlerFailure> {
        let executor = self.executor.clone();
        loop {
            let event = poll_fn(|context| self.poll_event(context, reply.output()));
            let event = executor.timeout(idle_timeout, event).await;
            match event.map_err(|_| timeout_failure(reply.script_file(), idle_timeout))?? {
                // The timeout restarts with each sign of progress.
                ScriptEvent::Fed | ScriptEvent::Part(ProgramOutput::Other) => {}
                ScriptEvent::Part(ProgramOutput::End) => {
                    self.parse_head(reply)?;
                    return Ok(ScriptProgress::All);
                }
                ScriptEvent::Part(ProgramOutput::Output) if self.parse_head(reply)? => break,
                ScriptEvent::Part(ProgramOutput::Output) => {}
            }
        }
        // A storable response is collected: only a complete one can be stored with a known length.
        match reply.may_be_stored() {
            true => self.collect_storable(reply, idle_timeout).await,
            false => self.collect_available(reply).await,
        }
    }

    /// Returns whether the head is complete.
    fn parse_head(&mut self, reply: &mut CgiReply) -> Result<bool, HandlerFailure> {
        let parsed = reply.parse_head();
        self.is_output_bad = parsed.is_err();
        parsed
    }

    /// Waits a moment for the end of a storable response.
    async fn collect_storable(
        &mut self,
        reply: &mut CgiReply,
        idle_timeout: Duration,
    ) -> Result<ScriptProgress, HandlerFailure> {
        let executor = self.executor.clone();
        let collection = async {
            while reply.body_len() < KEPT_LEN_MAX {
                let event = poll_fn(|context| self.poll_event(context, reply.output()));
                if matches!(event.await?, ScriptEvent::Part(ProgramOutput::End)) {
                    return Ok(ScriptProgress::All);
                }
            }
            Ok(ScriptProgress::Head)
        };
        // A slow rest is streamed after all: storing it must not delay the client.
        let collected = executor
            .timeout(KEPT_WAIT.min(idle_timeout), collection)
            .await;
        collected.unwrap_or(Ok(ScriptProgress::Head))
    }

    /// Collects the output that is available without waiting, so that a short response needs neither a task nor a
    /// stream.
    async fn collect_available(
        &mut self,
        reply: &mut CgiReply,
    ) -> Result<ScriptProgress, HandlerFailure> {
        while reply.body_len() < AT_ONCE_LEN_MAX {
            let event = poll_fn(|context| match self.poll_event(context, reply.output()) {
                // Only the exit status is missing, which arrives soon: worth waiting for, to know whether all is
                // complete.
                Poll::Pending if self.program.has_output_ended() => Poll::Pending,
                event => Poll::Ready(event),
            });
            match event.await {
                Poll::Pending => break,
                Poll::Ready(Ok(ScriptEvent::Part(ProgramOutput::End))) => {
                    return Ok(ScriptProgress::All);
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(failure)) => return Err(failure),
            }
        }
        Ok(ScriptProgress::Head)
    }

    /// Streams the rest of a response. A failure from here on truncates it.
    async fn stream(mut self, mut rest: BodyRemainder, terms: ScriptTerms) {
        let notice = &terms.notice;
        match self.stream_parts(&mut rest, &terms).await {
            Ok(true) => {
                self.finish();
                let script_file = rest.script_file().clone();
                // Fewer bytes than announced: the client's response is truncated, and the operator is informed.
                if let Err(missing) = rest.end() {
                    notice(&format!(
                        "{} sent {missing} bytes too few",
                        script_file.display()
                    ));
                }
            }
            Ok(false) => {}
            // The client left, which is no failure.
            Err(failure) if failure.detail.is_empty() => {}
            Err(failure) => notice(&failure.detail),
        }
    }

    /// Returns whether the output was complete; otherwise the client left.
    async fn stream_parts(
        &mut self,
        rest: &mut BodyRemainder,
        terms: &ScriptTerms,
    ) -> Result<bool, HandlerFailure> {
        let idle_timeout = terms.idle_timeout;
        let mut spools = terms.spools.as_ref();
        let mut output = Vec::new();
        // The time since the last event, in whole ticks.
        let mut idle_time = Duration::ZERO;
        let tick = TICK.min(idle_timeout);
        let executor = self.executor.clone();
        let Ok(mut room) = rest.push(Bytes::new()) else {
            return Ok(false);
        };
        loop {
            if !room {
                // The program is still fed meanwhile: it may have to read before it writes, so waiting alone could
                // deadlock. Once the response is spooled, only the spool waits for the client.
                let stall = spools.map_or(Duration::MAX, |_| STALL);
                match executor.timeout(stall, self.feed_until_room(rest)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(())) => return Ok(false),
                    Err(_) => {
                        if let Some(spools) = spools.take() {
                            rest.spool(spools, &executor);
                        }
                    }
                }
                // There is room again, in the client's stream or the spool: the program's silence is counted from here.
                (room, idle_time) = (true, Duration::ZERO);
            }
            let event = poll_fn(|context| self.poll_event(context, &mut output));
            let Ok(event) = executor.timeout(tick, event).await else {
                idle_time += tick;
                if idle_time >= idle_timeout {
                    return Err(timeout_failure(rest.script_file(), idle_timeout));
                }
                // Nothing to add: this only notices a client that has left.
                match rest.push(Bytes::new()) {
                    Ok(_) => continue,
                    Err(_) => return Ok(false),
                }
            };
            let part = event?;
            idle_time = Duration::ZERO;
            match part {
                ScriptEvent::Part(ProgramOutput::End) => return Ok(true),
                ScriptEvent::Part(ProgramOutput::Output) => {
                    match rest.push(std::mem::take(&mut output).into()) {
                        Ok(has_room) => room = has_room,
                        Err(_) => return Ok(false),
                    }
                }
                ScriptEvent::Fed | ScriptEvent::Part(ProgramOutput::Other) => {}
            }
        }
    }

    async fn feed_until_room(&mut self, rest: &BodyRemainder) -> Result<(), ()> {
        let mut room = std::pin::pin!(rest.room());
        poll_fn(|context| {
            // The client first: when it has room, feeding continues in the normal loop.
            if let Poll::Ready(room) = room.as_mut().poll(context) {
                return Poll::Ready(room.map_err(|_| ()));
            }
            match self.poll_feed(context) {
                Err(_) => Poll::Ready(Err(())),
                Ok(_) => Poll::Pending,
            }
        })
        .await
    }

    fn poll_event(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ScriptEvent, HandlerFailure>> {
        // Fed before reading: a program may need the body before it responds.
        let fed = match self.poll_feed(context) {
            Ok(fed) => fed,
            Err(failure) => return Poll::Ready(Err(failure)),
        };
        match self.program.poll_part(context, output) {
            Poll::Ready(part) => Poll::Ready(part.map(ScriptEvent::Part)),
            Poll::Pending if fed => Poll::Ready(Ok(ScriptEvent::Fed)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Passes as much of the body as the program accepts. Returns whether it took any byte.
    fn poll_feed(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let mut fed = false;
        // Bounded: a fast client with a fast program must not starve the worker's other tasks.
        for _ in 0..16 {
            // A placeholder, so that the state can be moved; replaced by `feed_once`.
            let feed = std::mem::replace(&mut self.feed, FeedState::Refused);
            let (feed, step) = self.feed_once(feed, context)?;
            self.feed = feed;
            match step {
                FeedStep::Wait => return Ok(fed),
                FeedStep::On => {}
                FeedStep::Fed => fed = true,
            }
        }
        // The loop's limit was reached although the program may accept more: request another poll.
        context.waker().wake_by_ref();
        Ok(fed)
    }

    fn feed_once(
        &mut self,
        feed: FeedState,
        context: &mut Context<'_>,
    ) -> Result<(FeedState, FeedStep), HandlerFailure> {
        Ok(match feed {
            FeedState::Untouched(mut body) => match body.poll_next(context) {
                // Still untouched: a body of which no byte was read can be sent to another program.
                Poll::Pending => (FeedState::Untouched(body), FeedStep::Wait),
                Poll::Ready(next) => (next_feed_state(body, next)?, FeedStep::On),
            },
            FeedState::Waiting(mut body) => match body.poll_next(context) {
                Poll::Pending => (FeedState::Waiting(body), FeedStep::Wait),
                Poll::Ready(next) => (next_feed_state(body, next)?, FeedStep::On),
            },
            FeedState::Giving(body, mut bytes) => match self.program.poll_feed(context, &mut bytes)
            {
                Poll::Pending => (FeedState::Giving(body, bytes), FeedStep::Wait),
                Poll::Ready(FeedOutcome::Closed) => (FeedState::Refused, FeedStep::Wait),
                Poll::Ready(FeedOutcome::Some) if bytes.is_empty() => {
                    (FeedState::Waiting(body), FeedStep::Fed)
                }
                Poll::Ready(FeedOutcome::Some) => (FeedState::Giving(body, bytes), FeedStep::Fed),
            },
            FeedState::Ending => match self.program.poll_feed_end(context) {
                Poll::Pending => (FeedState::Ending, FeedStep::Wait),
                Poll::Ready(()) => (FeedState::Done, FeedStep::Wait),
            },
            FeedState::Done | FeedState::Refused => (feed, FeedStep::Wait),
        })
    }

    fn finish(self) {
        let fed = matches!(self.feed, FeedState::Done);
        self.program.finish(fed);
    }

    fn into_failure(self, failure: HandlerFailure) -> ScriptFailure {
        let is_unused = self.program.is_unused();
        let replayable_body = match self.feed {
            FeedState::Untouched(body) if is_unused => Some(body),
            _ if is_unused && self.empty => Some(PartialBody::none()),
            _ => None,
        };
        ScriptFailure {
            failure,
            replayable_body,
            is_output_bad: self.is_output_bad,
        }
    }
}

fn next_feed_state(body: PartialBody, next: StreamItem) -> Result<FeedState, HandlerFailure> {
    match next {
        StreamItem::Bytes(bytes) => Ok(FeedState::Giving(body, bytes)),
        StreamItem::End => Ok(FeedState::Ending),
        StreamItem::Cut => Err(truncation_failure()),
    }
}

fn timeout_failure(script_file: &Path, idle_timeout: Duration) -> HandlerFailure {
    let (script_file, ms) = (script_file.display(), idle_timeout.as_millis());
    let detail = format!(
        "{script_file} neither read nor sent anything for {ms} ms; if it needs longer, raise the route's timeout"
    );
    HandlerFailure::new(StatusCode::GATEWAY_TIMEOUT, detail)
}
