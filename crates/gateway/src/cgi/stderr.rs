//! Writes a program's stderr to the log line by line, with limits.

use std::path::Path;
use std::sync::Arc;

use lowroad_handler::operator_notice::RequestNotice;
use lowroad_http::method::Method;

/// The maximum length of a line; longer lines are truncated.
const LINE_LEN_MAX: usize = 2048;
/// The maximum number of lines per request; further lines are dropped.
const LINES_MAX: usize = 100;

/// Splits the stderr of one request into lines.
#[derive(Clone)]
pub struct StderrLines {
    script_file: Arc<Path>,
    method: Method,
    /// The path without the query, which may contain secrets.
    path: Box<[u8]>,
    notice: RequestNotice,
    line: Vec<u8>,
    lines: usize,
}

impl StderrLines {
    /// `script_file`, `method` and `path` (undecoded) are shown with each line.
    pub fn new(
        script_file: Arc<Path>,
        method: Method,
        path: &[u8],
        notice: RequestNotice,
    ) -> StderrLines {
        StderrLines {
            script_file,
            method,
            path: path.into(),
            notice,
            line: Vec::new(),
            lines: 0,
        }
    }

    /// Processes bytes of stderr.
    pub fn push(&mut self, bytes: &[u8]) {
        // A broken program must not fill the log.
        if self.lines > LINES_MAX {
            return;
        }
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            // The excess of a long line is dropped, but its end is still searched for.
            let room = LINE_LEN_MAX.saturating_sub(self.line.len());
            self.line
                .extend_from_slice(piece.get(..room).unwrap_or(piece));
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Logs the current line, even if it is unfinished.
    pub fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        if text.is_empty() || self.lines > LINES_MAX {
            return;
        }
        self.lines += 1;
        let (script_file, method) = (self.script_file.display(), self.method.as_str());
        let path = self.path.escape_ascii();
        let text = match self.lines > LINES_MAX {
            true => "further lines are dropped".into(),
            false => text,
        };
        // The text is escaped, because control characters could forge log lines.
        let text = text.escape_debug();
        self.notice
            .send(&format!("{script_file}: {method} {path}: {text}"));
    }
}

/// A notice for a request in tests, which is not written.
#[cfg(test)]
pub fn silent_notice() -> RequestNotice {
    let notice: lowroad_handler::operator_notice::OperatorNotice = Arc::new(|_, _| {});
    RequestNotice::new(&notice, tests::label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use lowroad_handler::operator_notice::OperatorNotice;
    use lowroad_handler::request_label::RequestLabel;

    pub fn label() -> RequestLabel {
        RequestLabel {
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            host: b"a".as_slice().into(),
            request_id: 1,
        }
    }

    #[test]
    fn stderr_lines_are_limited_in_length_and_number() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let notice: OperatorNotice = Arc::new(move |line, request| {
            assert_eq!(request, Some(&label()));
            sink.lock().expect("a lock").push(line.to_string());
        });
        let notice = RequestNotice::new(&notice, label());
        let mut stderr_lines =
            StderrLines::new(Arc::from(Path::new("a")), Method::Get, b"/x", notice);
        stderr_lines.push(b"one\r\n\ntw");
        stderr_lines.push(b"o\x1b[2J\nthree");
        stderr_lines.end_line();
        stderr_lines.push(&[b'x'; 5000]);
        stderr_lines.push(b"\n");
        for _ in 0..1000 {
            stderr_lines.push(b"again\n");
        }
        let seen = seen.lock().expect("a lock");
        let want = ["one", "two\\u{1b}[2J", "three"].map(|text| format!("a: GET /x: {text}"));
        assert_eq!(seen[..3], want);
        assert_eq!(seen[3].len(), "a: GET /x: ".len() + LINE_LEN_MAX);
        assert_eq!(seen.len(), LINES_MAX + 1);
        assert!(seen[LINES_MAX].contains("dropped"));
    }
}
