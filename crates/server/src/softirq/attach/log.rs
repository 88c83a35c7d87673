//! Writes access log lines of the level's responses to standard output, through a log thread. The daemon never waits
//! for the log: if the thread can't keep up, lines are dropped and counted. If the server above the level writes a
//! binary log, each line contains a record for it.

use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_binary_log::batch_line;
use lowroad_http::h1::{first_line, parse};
use lowroad_http::limits::RequestLimits;
use lowroad_log::{AccessEntry, LineFormat, LineFormatter, LineSink};
use lowroad_softirq::level::events::LevelEvent;

/// The form of a line.
enum LineForm {
    /// A line of an access log.
    Text(LineFormatter),
    /// A record of the binary log.
    Record,
}

/// Writes access log lines, if logging is on.
pub struct LineWriter {
    form: Option<LineForm>,
    sink: Option<LineSink>,
    line: Vec<u8>,
}

impl LineWriter {
    /// Creates a writer for the log format of this name.
    pub fn new(format: Option<&str>, sink: Option<LineSink>) -> LineWriter {
        LineWriter {
            form: format.map(|format| match format {
                "json" => LineForm::Text(LineFormatter::new(LineFormat::Json)),
                "extended" => LineForm::Text(LineFormatter::new(LineFormat::Extended)),
                "binary" => LineForm::Record,
                _ => LineForm::Text(LineFormatter::new(LineFormat::Combined)),
            }),
            sink,
            line: Vec::new(),
        }
    }

    /// Writes the access log line of a response.
    pub fn write(&mut self, event: &LevelEvent<'_>) {
        let LevelEvent::Answered {
            time_ns: when_ns,
            client,
            status,
            body_len,
            head,
            ..
        } = *event
        else {
            return;
        };
        let Some(form) = &mut self.form else {
            return;
        };
        let request = match parse(head, &RequestLimits::default()) {
            Ok(parsed) => parsed.map(|head| head.request),
            Err(_) => None,
        };
        let field = |field: Option<&'_ [u8]>| field.unwrap_or_default().to_vec();
        let (host, referer, user_agent) = match &request {
            Some(request) => (
                field(request.authority),
                field(request.referer()),
                field(request.user_agent()),
            ),
            None => Default::default(),
        };
        let entry = AccessEntry {
            peer: client,
            user: b"",
            unix_ms: unix_ms(when_ns),
            line: first_line(head),
            host: &host,
            status,
            body_bytes: u64::from(body_len),
            whole: true,
            referer: &referer,
            user_agent: &user_agent,
            duration_us: 0,
            outcome: "hit",
            level: "softirq",
            tls: "",
        };
        self.line.clear();
        match form {
            LineForm::Text(formatter) => formatter.append(&entry, &mut self.line),
            LineForm::Record => batch_line::append_line(&entry, &mut self.line),
        }
        if let Some(sink) = &self.sink {
            // The log counts the lines that it drops.
            let _ = sink.push(&self.line);
        }
    }
}

/// Converts the programs' monotonic clock to Unix time.
fn unix_ms(time_ns: u64) -> u64 {
    let age_ms = lowroad_softirq::now_ns().saturating_sub(time_ns) / 1_000_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |since| since.as_millis());
    u64::try_from(now_ms).unwrap_or(0).saturating_sub(age_ms)
}
