//! The access log's lines of answers at this level, to standard output, by a thread of the log: if that
//! can't keep up, lines are lost and counted, and the daemon does not wait.

use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_http::h1::{first_line, parse};
use lowroad_http::limits::Limits;
use lowroad_log::{Entry, Sink, combined, extended, json};
use lowroad_softirq::level::events::Event;

/// Writes lines, or nothing.
pub struct Lines {
    write: Option<fn(&Entry<'_>, &mut Vec<u8>)>,
    sink: Option<Sink>,
    line: Vec<u8>,
}

impl Lines {
    /// In the format of that name, into that log.
    pub fn new(format: Option<&str>, sink: Option<Sink>) -> Lines {
        Lines {
            write: format.map(|format| match format {
                "json" => json,
                "extended" => extended,
                _ => combined,
            }),
            sink,
            line: Vec::new(),
        }
    }

    /// Writes the line of an answer.
    pub fn write(&mut self, event: &Event<'_>) {
        let Event::Answered {
            when_ns,
            client,
            status,
            body_len,
            head,
            ..
        } = *event
        else {
            return;
        };
        let Some(write) = self.write else { return };
        let request = match parse(head, &Limits::default()) {
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
        let entry = Entry {
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
        write(&entry, &mut self.line);
        if let Some(sink) = &self.sink {
            // Lost lines are counted by the log.
            let _ = sink.push(std::mem::take(&mut self.line));
        }
    }
}

/// From the programs' clock to the wall's.
fn unix_ms(when_ns: u64) -> u64 {
    let ago_ms = lowroad_softirq::now_ns().saturating_sub(when_ns) / 1_000_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |since| since.as_millis());
    u64::try_from(now_ms).unwrap_or(0).saturating_sub(ago_ms)
}
