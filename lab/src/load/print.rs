//! Output of a run: progress, the figures as text, and explanations of errors.

use std::fmt::Write as _;
use std::io::Write as _;

use super::outcome::TimeDistribution;
use super::{LoadResult, LoadRun, LoadSnapshot, RequestPace};

/// Prints progress on standard error: on a terminal one line that is overwritten, otherwise a line every few seconds.
pub(crate) struct LoadMeter {
    is_enabled: bool,
    terminal: bool,
    printed_seconds: u64,
}

/// Without a terminal only one snapshot in this many is printed.
const SELDOM: u64 = 5;

impl LoadMeter {
    pub(crate) fn new(is_enabled: bool, terminal: bool) -> LoadMeter {
        LoadMeter {
            is_enabled,
            terminal,
            printed_seconds: 0,
        }
    }

    pub(crate) fn show(&mut self, snapshot: &LoadSnapshot) {
        self.printed_seconds += 1;
        // The lines of a log are not overwritten, so they are printed less often.
        if !self.is_enabled || (!self.terminal && !self.printed_seconds.is_multiple_of(SELDOM)) {
            return;
        }
        let line = progress_line(snapshot);
        // A closed standard error is no reason to end the run.
        let _ = if self.terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    pub(crate) fn end(&self) {
        if self.is_enabled && self.terminal && self.printed_seconds > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn progress_line(snapshot: &LoadSnapshot) -> String {
    let phase = if snapshot.warming {
        "warming up".to_string()
    } else {
        format!("{:.0} of {:.0} s", snapshot.elapsed_s, snapshot.duration_s)
    };
    let mut line = format!(
        "{phase}  {} requests/s  {}/s  p50 {}  p99 {}",
        count(snapshot.requests_per_s),
        bytes(snapshot.bytes_per_s),
        time(snapshot.p50_us as f64),
        time(snapshot.p99_us as f64),
    );
    if snapshot.errors > 0 {
        let _ = write!(line, "  {} errors", snapshot.errors);
    }
    line
}

/// Formats the figures as text.
pub(crate) fn text(load: &LoadRun, outcome: &LoadResult) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    line(
        "requests/s",
        format!(
            "{}   ({} right answers in {:.2} s)",
            count(outcome.requests_per_s),
            outcome.requests,
            outcome.duration_s
        ),
    );
    if let Some(offered) = outcome.offered_per_s {
        let unit = match load.pace {
            RequestPace::Connections(_) => "connections/s",
            RequestPace::Closed | RequestPace::Requests(_) => "requests/s",
        };
        line("offered", format!("{} {unit}", count(offered)));
    }
    line("received", format!("{}/s", bytes(outcome.bytes_per_s)));
    line(
        "connections",
        format!(
            "{} made ({}/s), {} answers each",
            outcome.connections,
            count(outcome.connections_per_s),
            count(outcome.requests_per_connection)
        ),
    );
    let mut row = |name: &str, times: &TimeDistribution| line(name, times_text(times));
    row("latency", &outcome.latency_us);
    if !matches!(load.pace, RequestPace::Closed) {
        row("  service", &outcome.service_us);
    }
    row("  response", &outcome.response_us);
    row("  transfer", &outcome.transfer_us);
    row("connect", &outcome.connect_us);
    row("connection", &outcome.connection_us);
    let rate = &outcome.reply_rate;
    if rate.samples > 0 {
        line(
            "reply rate",
            format!(
                "min {} mean {} max {} stddev {} ({} samples of 5 s)",
                count(rate.min),
                count(rate.mean),
                count(rate.max),
                count(rate.stddev),
                rate.samples
            ),
        );
    }
    if let Some(conforming) = &outcome.conforming {
        line(
            "conforming",
            format!(
                "{} connections ({:.1} %) reached {} kbit/s",
                conforming.connections,
                100.0 * conforming.share,
                conforming.least_bits_per_s / 1000
            ),
        );
    }
    for class in &outcome.classes {
        line(
            &format!("  {}", class.name),
            format!(
                "{} right, {} wrong, p50 {} p99 {}",
                class.requests,
                class.errors,
                time(class.latency_us.p50 as f64),
                time(class.latency_us.p99 as f64)
            ),
        );
    }
    let statuses = outcome.statuses.iter().map(|(s, n)| format!("{s}: {n}"));
    line("statuses", statuses.collect::<Vec<_>>().join(", "));
    if outcome.unfinished > 0 {
        line(
            "unfinished",
            format!("{} when time was up", outcome.unfinished),
        );
    }
    line("errors", outcome.errors.to_string());
    line("own CPU", format!("{:.0} %", 100.0 * outcome.cpu_share));
    text
}

fn times_text(times: &TimeDistribution) -> String {
    if times.count == 0 {
        return "-".into();
    }
    format!(
        "mean {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        time(times.mean),
        time(times.p50 as f64),
        time(times.p90 as f64),
        time(times.p99 as f64),
        time(times.p99_9 as f64),
        time(times.max as f64)
    )
}

/// Explains the errors of a run, with remedies.
pub(crate) fn complaints(load: &LoadRun, outcome: &LoadResult) -> Vec<String> {
    let server = load
        .target
        .addresses
        .first()
        .map_or("the server".to_string(), ToString::to_string);
    let mut lines: Vec<String> = outcome
        .errors_by_kind
        .iter()
        .map(|(kind, count)| format!("{count} times: {}", explanation(kind, &server)))
        .collect();
    if outcome.requests == 0 && lines.is_empty() {
        lines.push(format!(
            "no answer from {server} in {:.1} s ({} requests in progress)",
            outcome.duration_s, outcome.unfinished
        ));
    }
    if !lines.is_empty() {
        lines.push(format!("{} right answers were counted", outcome.requests));
    }
    lines
}

fn explanation(kind: &str, server: &str) -> String {
    match kind {
        "connect_refused" => {
            format!("{server} refused the connection: check that a server listens there")
        }
        "connect_timeout" => format!("{server} did not finish the handshake in time"),
        "connect_unreachable" => format!("no route to {server}: check address and network"),
        "ports_exhausted" => format!(
            "no local port was left for {server}: use fewer connections a second, or widen \
             net.ipv4.ip_local_port_range"
        ),
        "descriptors_exhausted" => {
            "no descriptor was left: raise ulimit -n or use fewer --connections".into()
        }
        "tls" => format!(
            "the TLS handshake with {server} failed: check certificate and version (--ca names \
             trusted authorities, --insecure accepts any certificate)"
        ),
        "reset" => format!("{server} reset the connection"),
        "stream_reset" => format!("{server} reset the stream of a request (HTTP/2)"),
        "closed" => format!("{server} closed the connection before the answer was complete"),
        "timeout" => format!("{server} sent nothing for too long (--timeout)"),
        "malformed" => format!("{server} sent an invalid HTTP/1 answer"),
        "endless" => format!("an answer from {server} did not end"),
        "unasked" => format!("{server} sent bytes that were not requested"),
        "wrong_status" => "an answer had an unexpected status".into(),
        "wrong_length" => "the length of an answer differed from the file".into(),
        "wrong_checksum" => "the content of an answer differed from the file".into(),
        "lacking" => "an answer did not match the script's pattern (take)".into(),
        kind_name => kind_name.to_string(),
    }
}

fn count(number: f64) -> String {
    match number {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 1.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

fn bytes(number: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = number;
    for unit in units {
        if scaled < 1000.0 || unit == "TB" {
            return format!("{scaled:.1} {unit}");
        }
        scaled /= 1000.0;
    }
    String::new()
}

fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ErrorKind;

    #[test]
    fn every_error_kind_has_an_explanation() {
        for kind in ErrorKind::ALL {
            assert_ne!(explanation(kind.name(), "who"), kind.name());
        }
    }

    #[test]
    fn figures_are_printed_with_few_digits() {
        assert_eq!(time(12.3), "12 us");
        assert_eq!(time(12_340.0), "12.34 ms");
        assert_eq!(bytes(1_234_567.0), "1.2 MB");
        assert_eq!(count(0.5), "0.50");
    }
}
