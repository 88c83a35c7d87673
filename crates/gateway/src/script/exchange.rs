//! The exchange with a program: passes the request body to the program while receiving its output, each as fast as the
//! receiving side accepts it. [`ProgramLink`] abstracts from processes and sockets.
//!
//! Neither direction waits for the other, so a program may read and write in any order. Memory per exchange: one piece
//! of the request body, one part of the output, and the buffers of the streams.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::StreamItem;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::operator_notice::{OperatorNotice, RequestNotice};
use lowroad_handler::request_body::{PartialBody, truncation_failure};
use lowroad_handler::spool::{STALL, SpoolLimits};
use lowroad_handler::{HandlerFailure, HandlerResponse};
use lowroad_http::status::StatusCode;

use crate::head::reply::{BodyRemainder, CgiReply};

/// A program: a process, or a FastCGI server at the other end of a connection.
pub trait ProgramLink: Send + Unpin + 'static {
    /// Passes the beginning of `bytes` to the program and removes it; ready when done. The program may refuse more
    /// input.
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome>;

    /// Signals the end of the request body; ready when done.
    fn poll_feed_end(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Waits for the next event. Output is appended to `output`.
    ///
    /// # Errors
    /// The program has ended unexpectedly, or its connection was lost.
    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>>;

    /// Whether the program was lost before it can have processed any part of the request.
    fn is_unused(&self) -> bool {
        false
    }

    /// The executor that polls the program and streams the remaining output.
    fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Runtime
    }

    /// Whether the output has ended and only the exit status is missing, which arrives soon.
    fn has_output_ended(&self) -> bool {
        false
    }

    /// Called when the exchange is complete; `fed` = the whole body was passed. In all other cases the program is
    /// dropped, which must end it.
    fn finish(self, fed: bool);
}

/// Whether a program accepts more of the request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedOutcome {
    /// The program took some bytes.
    Some,
    /// The program accepts no more bytes.
    Closed,
}

/// An event of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOutput {
    /// Output was appended.
    Output,
    /// Progress other than output.
    Other,
    /// The output has ended.
    End,
}

/// A request that ended without a response.
pub struct ScriptFailure {
    /// The failure.
    pub failure: HandlerFailure,
    /// The request body, if the request may be sent to another program.
    pub replayable_body: Option<PartialBody>,
    /// Whether the output is not a valid response; the server is then not at fault.
    pub is_output_bad: bool,
}

/// While the program sends nothing, a disconnected client is noticed after at most this time.
const TICK: Duration = Duration::from_millis(500);
/// The number of body bytes that are collected without waiting before the response is streamed.
const COLLECTED_LEN_MAX: usize = 64 << 10;
/// Limits for collecting a storable response, which can be stored only when complete.
const STORABLE_LEN_MAX: usize = 1 << 20;
const STORABLE_WAIT: Duration = Duration::from_secs(1);

/// The parameters of an exchange.
#[derive(Clone)]
pub struct ScriptTerms {
    /// The time without progress in either direction after which the exchange fails.
    pub idle_timeout: Duration,
    /// Receives failures that occur after the start of the response.
    pub notice: OperatorNotice,
    /// Spools for slow clients; with `None`, the program has to wait.
    pub spools: Option<Arc<SpoolLimits>>,
}

/// Waits for the head of the response. If the body is not complete by then, spawns a task that streams it; `notice`
/// reports its failure.
///
/// # Errors
/// [`ScriptFailure`]
pub async fn answer<P: ProgramLink>(
    program: P,
    body: PartialBody,
    mut reply: CgiReply,
    terms: &ScriptTerms,
    notice: &RequestNotice,
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
            // The output was complete, so the script caused the failure: another server would not help.
            reply.finish().map_err(|failure| ScriptFailure {
                failure,
                replayable_body: None,
                is_output_bad: true,
            })
        }
        Ok(ScriptProgress::Head) => {
            let (response, rest) = reply.stream();
            let executor = exchange.executor.clone();
            executor.spawn(exchange.stream(rest, terms.clone(), notice.clone()));
            Ok(response)
        }
        Err(failure) => Err(exchange.into_failure(failure)),
    }
}

/// How much of the response has arrived.
enum ScriptProgress {
    /// The head.
    Head,
    /// The whole response.
    All,
}

struct ScriptExchange<P> {
    executor: ResponseExecutor,
    program: P,
    /// Whether the request has no body.
    empty: bool,
    feed: FeedState,
    is_output_bad: bool,
}

/// The state of the request body.
enum FeedState {
    /// No byte of the body was read.
    Untouched(PartialBody),
    /// Waits for bytes from the client.
    Waiting(PartialBody),
    /// Waits for the program to accept these bytes.
    Feeding(PartialBody, Bytes),
    /// The body has ended; its end is being signalled to the program.
    Ending,
    /// The whole body and its end were passed on.
    Done,
    /// The program refused the rest of the body.
    Refused,
}

/// The result of one step of passing on the body.
enum FeedStep {
    /// No progress is possible now, or the body is done.
    Wait,
    /// The next step can follow immediately.
    Continue,
    /// The program took some bytes.
    Fed,
}

/// An event of the exchange.
enum ScriptEvent {
    /// The program took some bytes of the request body.
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
        // A storable response is collected, because it can be stored only when complete.
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

    /// Waits briefly for the end of a storable response.
    async fn collect_storable(
        &mut self,
        reply: &mut CgiReply,
        idle_timeout: Duration,
    ) -> Result<ScriptProgress, HandlerFailure> {
        let executor = self.executor.clone();
        let collection = async {
            while reply.body_len() < STORABLE_LEN_MAX {
                let event = poll_fn(|context| self.poll_event(context, reply.output()));
                if matches!(event.await?, ScriptEvent::Part(ProgramOutput::End)) {
                    return Ok(ScriptProgress::All);
                }
            }
            Ok(ScriptProgress::Head)
        };
        // If the response takes longer it is streamed: storing must not delay the client.
        let collected = executor
            .timeout(STORABLE_WAIT.min(idle_timeout), collection)
            .await;
        collected.unwrap_or(Ok(ScriptProgress::Head))
    }

    /// Collects the output that is available without waiting, so that a short response needs neither a task nor a
    /// stream.
    async fn collect_available(
        &mut self,
        reply: &mut CgiReply,
    ) -> Result<ScriptProgress, HandlerFailure> {
        while reply.body_len() < COLLECTED_LEN_MAX {
            let event = poll_fn(|context| match self.poll_event(context, reply.output()) {
                // Only the exit status is missing, which arrives soon and shows whether the output is complete.
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

    /// Streams the remaining response. From here on, a failure truncates it.
    async fn stream(mut self, mut rest: BodyRemainder, terms: ScriptTerms, notice: RequestNotice) {
        match self.stream_parts(&mut rest, &terms).await {
            Ok(true) => {
                self.finish();
                let script_file = rest.script_file().clone();
                // If there were fewer bytes than declared, the response is truncated, and the operator is informed.
                if let Err(missing) = rest.end() {
                    let file = script_file.display();
                    notice.send(&format!("{file} sent {missing} bytes too few"));
                }
            }
            Ok(false) => {}
            // The client disconnected, which is not a failure.
            Err(failure) if failure.detail.is_empty() => {}
            Err(failure) => notice.send(&failure.detail),
        }
    }

    /// Returns true at the end of the output, and false if the client disconnected.
    async fn stream_parts(
        &mut self,
        rest: &mut BodyRemainder,
        terms: &ScriptTerms,
    ) -> Result<bool, HandlerFailure> {
        let idle_timeout = terms.idle_timeout;
        let mut spools = terms.spools.as_ref();
        let mut output = Vec::new();
        // The time without events, in whole ticks.
        let mut idle_time = Duration::ZERO;
        let tick = TICK.min(idle_timeout);
        let executor = self.executor.clone();
        // An empty push shows whether the bytes that came with the head have filled the buffer.
        let Ok(mut room) = rest.push(Bytes::new()) else {
            return Ok(false);
        };
        loop {
            if !room {
                // The program still gets its input meanwhile: it may have to read before it writes, so waiting alone
                // could deadlock. Once a spool is used, only the spool waits for the client.
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
                // There is room again, in the client's buffer or in the spool: the silence of the program is measured
                // from here.
                (room, idle_time) = (true, Duration::ZERO);
            }
            let event = poll_fn(|context| self.poll_event(context, &mut output));
            let Ok(event) = executor.timeout(tick, event).await else {
                idle_time += tick;
                if idle_time >= idle_timeout {
                    return Err(timeout_failure(rest.script_file(), idle_timeout));
                }
                // An empty push only detects whether the client has disconnected.
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
            // The client is polled first: when its buffer has room, `stream_parts` continues.
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
        // The input is passed first: a program may need the body before it responds.
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

    /// Passes as much of the request body as the program accepts; returns whether it took any byte.
    fn poll_feed(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let mut fed = false;
        // The loop is bounded: a fast client and a fast program must not starve other tasks of the worker.
        for _ in 0..16 {
            // `Refused` is only a placeholder while the state is moved.
            let feed = std::mem::replace(&mut self.feed, FeedState::Refused);
            let (feed, step) = self.feed_once(feed, context)?;
            self.feed = feed;
            match step {
                FeedStep::Wait => return Ok(fed),
                FeedStep::Continue => {}
                FeedStep::Fed => fed = true,
            }
        }
        // The bound was reached although the program may accept more: the task is polled again.
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
                // The body stays `Untouched`: while no byte was read, the request can be sent to another program.
                Poll::Pending => (FeedState::Untouched(body), FeedStep::Wait),
                Poll::Ready(next) => (next_feed_state(body, next)?, FeedStep::Continue),
            },
            FeedState::Waiting(mut body) => match body.poll_next(context) {
                Poll::Pending => (FeedState::Waiting(body), FeedStep::Wait),
                Poll::Ready(next) => (next_feed_state(body, next)?, FeedStep::Continue),
            },
            FeedState::Feeding(body, mut bytes) => {
                match self.program.poll_feed(context, &mut bytes) {
                    Poll::Pending => (FeedState::Feeding(body, bytes), FeedStep::Wait),
                    // A program may ignore its input and respond nevertheless.
                    Poll::Ready(FeedOutcome::Closed) => (FeedState::Refused, FeedStep::Wait),
                    Poll::Ready(FeedOutcome::Some) if bytes.is_empty() => {
                        (FeedState::Waiting(body), FeedStep::Fed)
                    }
                    Poll::Ready(FeedOutcome::Some) => {
                        (FeedState::Feeding(body, bytes), FeedStep::Fed)
                    }
                }
            }
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
        // Bytes that were taken from the body are not kept, so only an untouched body can be sent again.
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
        StreamItem::Bytes(bytes) => Ok(FeedState::Feeding(body, bytes)),
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
