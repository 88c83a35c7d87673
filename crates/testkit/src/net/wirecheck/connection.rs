//! A connection of the verifying client: sends the requests of a turn, and compares the responses with the expected
//! ones. Only HTTP/1.1 with Content-Length is supported; other framing counts as wrong.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::CheckContext;
use super::plan::{AnswerExpectation, TurnEnding, TurnKind, TurnPlan};

const HEAD_LEN_MAX: usize = 16 << 10;

/// A failure, with a description.
#[derive(Debug)]
pub enum CheckFailure {
    /// A response differs from the expected one.
    Wrong(String),
    /// There was no complete response at the deadline.
    Hung(String),
    /// The connection was reset, or refused.
    Reset(String),
    /// The connection ended before the end of a response.
    ClosedEarly(String),
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, detail) = match self {
            CheckFailure::Wrong(detail) => ("wrong", detail),
            CheckFailure::Hung(detail) => ("hung", detail),
            CheckFailure::Reset(detail) => ("reset", detail),
            CheckFailure::ClosedEarly(detail) => ("closed early", detail),
        };
        write!(f, "{kind}: {detail}")
    }
}

/// A connection of the client.
pub struct CheckConnection {
    stream: TcpStream,
    received: Vec<u8>,
    turns: usize,
    deadline: Instant,
}

struct CheckedHead {
    status: u16,
    text: String,
}

impl CheckConnection {
    /// Connects.
    pub fn open(address: SocketAddr, deadline: Duration) -> Result<CheckConnection, CheckFailure> {
        let stream = TcpStream::connect_timeout(&address, deadline);
        let stream = stream.map_err(|error| io_failure("connecting", 0, &error))?;
        // Each piece becomes a segment.
        stream.set_nodelay(true).expect("a socket");
        Ok(CheckConnection {
            stream,
            received: Vec::new(),
            turns: 0,
            deadline: Instant::now() + deadline,
        })
    }

    /// Whether the connection had no turn yet.
    pub fn is_new(&self) -> bool {
        self.turns == 0
    }

    /// Performs one turn. True if the connection continues afterwards.
    pub fn turn(
        &mut self,
        plan: &TurnPlan,
        deadline: Duration,
        shared: &CheckContext,
    ) -> Result<bool, CheckFailure> {
        // The whole turn has one deadline, as a timeout per read would not limit the turn's total time.
        self.deadline = Instant::now() + deadline;
        self.turns += 1;
        let context = format!("turn {} of the connection", self.turns);
        self.send(plan)
            .map_err(|error| io_failure(&context, 0, &error))?;
        let mut closes = false;
        for expected in &plan.expectations {
            closes = self.answer(plan, expected, shared)?;
            shared.count_correct();
        }
        match plan.ending {
            TurnEnding::KeepAlive | TurnEnding::KeepAlive10 if !closes => {
                self.expect_no_more_bytes().map(|()| true)
            }
            TurnEnding::ClientCloses => self.expect_no_more_bytes().map(|()| false),
            // This includes a close that the server has announced.
            _ => self.end().map(|()| false),
        }
    }

    fn send(&mut self, plan: &TurnPlan) -> io::Result<()> {
        for piece in &plan.pieces {
            let mut remaining = &piece[..];
            while !remaining.is_empty() {
                self.stream
                    .set_write_timeout(Some(self.remaining_time()?))?;
                let len = self.stream.write(remaining)?;
                remaining = &remaining[len..];
            }
        }
        if plan.ending == TurnEnding::HalfClose {
            self.stream.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Receives a response and compares it with the expected one. True if the response has `Connection: close`.
    fn answer(
        &mut self,
        plan: &TurnPlan,
        expected: &AnswerExpectation,
        shared: &CheckContext,
    ) -> Result<bool, CheckFailure> {
        let head = self.head()?;
        compare_head(&head, plan, expected)?;
        let len = if expected.head_only {
            0
        } else {
            length(&head)?
        };
        self.receive_until(len)?;
        let body: Vec<u8> = self.received.drain(..len).collect();
        compare_body(&head, &body, plan, expected)?;
        // The entity tag is stored only after a complete response.
        if let (Some(path), Some(etag), 200) = (&expected.path, head.field("etag"), head.status) {
            shared.store_etag(path, etag);
        }
        let connection = head.field("connection");
        Ok(connection.is_some_and(|value| value.eq_ignore_ascii_case("close")))
    }

    fn head(&mut self) -> Result<CheckedHead, CheckFailure> {
        let end = loop {
            let found = self
                .received
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            if let Some(position) = found {
                break position + 4;
            }
            // A server that never ends its head must not fill the memory.
            if self.received.len() > HEAD_LEN_MAX {
                return Err(CheckFailure::Wrong(format!(
                    "a head of {HEAD_LEN_MAX} bytes"
                )));
            }
            self.receive_until(self.received.len() + 1)?;
        };
        let bytes: Vec<u8> = self.received.drain(..end).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        match status.and_then(|status| status.parse().ok()) {
            Some(status) => Ok(CheckedHead { status, text }),
            None => Err(CheckFailure::Wrong(format!(
                "a head that is none: {text:?}"
            ))),
        }
    }

    fn receive_until(&mut self, len: usize) -> Result<(), CheckFailure> {
        while self.received.len() < len {
            let count = self.receive();
            let count = count.map_err(|e| io_failure("receiving", self.received.len(), &e))?;
            if count == 0 {
                let detail = format!("after {} bytes of {len}", self.received.len());
                return Err(CheckFailure::ClosedEarly(self.describe(&detail)));
            }
        }
        Ok(())
    }

    /// Expects the server to close the connection without further bytes.
    fn end(&mut self) -> Result<(), CheckFailure> {
        self.expect_no_more_bytes()?;
        let count = self.receive();
        let count = count.map_err(|error| io_failure("the planned end", 0, &error))?;
        if count > 0 {
            return self.expect_no_more_bytes();
        }
        Ok(())
    }

    /// Fails if there are bytes beyond the responses.
    fn expect_no_more_bytes(&self) -> Result<(), CheckFailure> {
        if self.received.is_empty() {
            return Ok(());
        }
        let start = &self.received[..self.received.len().min(100)];
        let start = String::from_utf8_lossy(start);
        let detail = format!("{} bytes too many: {start:?}", self.received.len());
        Err(CheckFailure::Wrong(self.describe(&detail)))
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining_time()?))?;
        let mut buffer = [0; 65536];
        let len = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..len]);
        Ok(len)
    }

    fn remaining_time(&self) -> io::Result<Duration> {
        // For the socket, a timeout of zero would mean no timeout.
        let remaining = self.deadline.checked_duration_since(Instant::now());
        let remaining = remaining.filter(|remaining| !remaining.is_zero());
        remaining.ok_or_else(|| ErrorKind::TimedOut.into())
    }

    fn describe(&self, detail: &str) -> String {
        let local_address = self.stream.local_addr().map(|address| address.to_string());
        let local_address = local_address.unwrap_or_default();
        format!("{detail} (turn {} from {local_address})", self.turns)
    }
}

impl CheckedHead {
    fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (field_name, value) = line.split_once(':')?;
            field_name.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn compare_head(
    head: &CheckedHead,
    plan: &TurnPlan,
    expected: &AnswerExpectation,
) -> Result<(), CheckFailure> {
    let wrong = |detail: String| Err(CheckFailure::Wrong(format!("{detail} in {:?}", head.text)));
    if head.status != expected.status {
        return wrong(format!("not {}", expected.status));
    }
    // The expected CRC-32 is that of the content without content coding.
    if head.field("content-encoding").is_some() {
        return wrong("encoded content".to_owned());
    }
    // RFC 9110 section 6.6.1; all servers here have a clock.
    if head.field("date").is_none_or(|date| date.len() != 29) {
        return wrong("no date".to_owned());
    }
    let content_length = head.field("content-length").map(str::to_owned);
    let expected_length = expected.content.map(|(len, _)| len.to_string());
    // Apache omits a length of 0 in responses to HEAD.
    let is_omitted = expected.head_only && content_length.is_none();
    if expected_length.is_some() && content_length != expected_length && !is_omitted {
        return wrong(format!("no content length of {expected_length:?}"));
    }
    if plan.kind == TurnKind::Range && content_length.as_deref() != Some("2") {
        return wrong("not two bytes".to_owned());
    }
    Ok(())
}

fn compare_body(
    head: &CheckedHead,
    body: &[u8],
    plan: &TurnPlan,
    expected: &AnswerExpectation,
) -> Result<(), CheckFailure> {
    let Some((_, expected_crc32)) = expected.content.filter(|_| !expected.head_only) else {
        return Ok(());
    };
    let crc32 = crc32fast::hash(body);
    if crc32 == expected_crc32 {
        return Ok(());
    }
    let kind = plan.kind.name();
    Err(CheckFailure::Wrong(format!(
        "{kind}: CRC-32 {crc32:08x}, not {expected_crc32:08x}, of {} bytes after {:?}",
        body.len(),
        head.text
    )))
}

fn length(head: &CheckedHead) -> Result<usize, CheckFailure> {
    let content_length = head.field("content-length");
    let len = content_length.and_then(|len| len.parse().ok());
    len.ok_or_else(|| CheckFailure::Wrong(format!("no length in {:?}", head.text)))
}

fn io_failure(action: &str, received: usize, error: &io::Error) -> CheckFailure {
    let detail = format!("{action}, {received} bytes received: {error}");
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => CheckFailure::Hung(detail),
        _ => CheckFailure::Reset(detail),
    }
}
