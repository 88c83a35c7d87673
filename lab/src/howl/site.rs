//! The served files in memory: each reply has head and body in one contiguous buffer. Does no I/O on sockets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

/// A reply, ready to be written.
pub struct HowlReply {
    bytes: Vec<u8>,
    head_len: usize,
}

impl HowlReply {
    fn new(status: &str, kind: &str, body: &[u8], keep_alive: bool) -> Arc<HowlReply> {
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nServer: howl\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\nConnection: {connection}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        let head_len = bytes.len();
        bytes.extend_from_slice(body);
        Arc::new(HowlReply { bytes, head_len })
    }

    /// The bytes to send: all of them, or only the head for HEAD.
    pub fn bytes(&self, head_only: bool) -> &[u8] {
        if head_only {
            &self.bytes[..self.head_len]
        } else {
            &self.bytes
        }
    }
}

/// The handling of one request.
pub struct HowlAction<'a> {
    /// The reply to send.
    pub reply: &'a Arc<HowlReply>,
    /// Whether the request was HEAD.
    pub head_only: bool,
    /// Whether the connection is closed after the reply.
    pub close: bool,
    /// Length of the request.
    pub used_len: usize,
}

/// The contents of the served folder, as read at the start.
pub struct HowlSite {
    files: HashMap<Vec<u8>, Arc<HowlReply>>,
    not_found: Arc<HowlReply>,
    bad_request: Arc<HowlReply>,
    not_implemented: Arc<HowlReply>,
}

impl HowlSite {
    /// Reads all files under `root`.
    pub fn load(root: &Path, keep_alive: bool) -> anyhow::Result<HowlSite> {
        let mut site = HowlSite::empty(keep_alive);
        site.add_folder(root, "/", keep_alive)
            .with_context(|| format!("cannot read the files of {}", root.display()))?;
        Ok(site)
    }

    fn empty(keep_alive: bool) -> HowlSite {
        let plain = |status: &str, keep_alive| {
            let body = format!("{status}\n");
            HowlReply::new(status, "text/plain", body.as_bytes(), keep_alive)
        };
        HowlSite {
            files: HashMap::new(),
            not_found: plain("404 Not Found", keep_alive),
            bad_request: plain("400 Bad Request", false),
            not_implemented: plain("501 Not Implemented", false),
        }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    fn add_folder(&mut self, folder: &Path, url: &str, keep_alive: bool) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&path, &format!("{url}{name}/"), keep_alive)?;
            } else if kind.is_file() {
                let body = std::fs::read(&path).with_context(|| path.display().to_string())?;
                let reply = HowlReply::new("200 OK", kind_of(&name), &body, keep_alive);
                if name == "index.html" {
                    self.files.insert(url.into(), Arc::clone(&reply));
                }
                self.files.insert(format!("{url}{name}").into(), reply);
            }
        }
        Ok(())
    }

    /// Finds the reply to the first request in `received`, which should be complete.
    pub fn answer(&self, received: &[u8]) -> HowlAction<'_> {
        let refuse = |reply| HowlAction {
            reply,
            head_only: false,
            close: true,
            used_len: received.len(),
        };
        // An incomplete head is rejected, since requests must arrive in one piece.
        let Some(end) = find(received, b"\r\n\r\n") else {
            return refuse(&self.bad_request);
        };
        let head = &received[..end + 2];
        let line_end = find(head, b"\r\n").expect("the head ends with it");
        let mut words = head[..line_end].split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version)) =
            (words.next(), words.next(), words.next())
        else {
            return refuse(&self.bad_request);
        };
        let head_only = match method {
            b"GET" => false,
            b"HEAD" => true,
            _ => return refuse(&self.not_implemented),
        };
        // A query does not select another file.
        let path = target.split(|&byte| byte == b'?').next().unwrap_or(target);
        HowlAction {
            reply: self.files.get(path).unwrap_or(&self.not_found),
            head_only,
            close: closes(&head[line_end..], version),
            used_len: end + 4,
        }
    }
}

/// Whether the connection is closed: HTTP/1.1 persists and HTTP/1.0 closes by default (RFC 9112 section 9.3).
fn closes(fields: &[u8], version: &[u8]) -> bool {
    let has_option = |option: &[u8]| {
        fields.split(|&byte| byte == b'\n').any(|line| {
            line.len() > 11
                && line[..11].eq_ignore_ascii_case(b"connection:")
                && line[11..].trim_ascii().eq_ignore_ascii_case(option)
        })
    };
    match version {
        b"HTTP/1.1" => has_option(b"close"),
        _ => !has_option(b"keep-alive"),
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|part| part == needle)
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html" | "htm") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("txt") => "text/plain",
        Some("gif") => "image/gif",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> HowlSite {
        let mut site = HowlSite::empty(true);
        let page = HowlReply::new("200 OK", "text/html", b"hello", true);
        site.files.insert(b"/page.html".to_vec(), page);
        site
    }

    fn status(site: &HowlSite, request: &str) -> String {
        let answer = site.answer(request.as_bytes());
        String::from_utf8_lossy(&answer.reply.bytes(answer.head_only)[9..12]).into_owned()
    }

    #[test]
    fn query_is_ignored_in_file_lookup() {
        let site = site();
        assert_eq!(status(&site, "GET /page.html HTTP/1.1\r\n\r\n"), "200");
        assert_eq!(status(&site, "GET /page.html?a=b HTTP/1.1\r\n\r\n"), "200");
        assert_eq!(status(&site, "GET /other HTTP/1.1\r\n\r\n"), "404");
    }

    #[test]
    fn unsupported_requests_get_an_error_and_close() {
        let site = site();
        assert_eq!(status(&site, "POST /page.html HTTP/1.1\r\n\r\n"), "501");
        assert_eq!(status(&site, "GET /page.html"), "400");
        assert_eq!(status(&site, "GET\r\n\r\n"), "400");
        assert!(site.answer(b"\r\n\r\n").close);
    }

    #[test]
    fn head_response_has_no_body() {
        let site = site();
        let answer = site.answer(b"HEAD /page.html HTTP/1.1\r\n\r\n");
        let bytes = answer.reply.bytes(answer.head_only);
        assert!(bytes.ends_with(b"\r\n\r\n"), "{bytes:?}");
        assert!(answer.reply.bytes(false).ends_with(b"hello"));
    }

    #[test]
    fn persistence_depends_on_version_and_connection_field() {
        let site = site();
        let closes = |request: &str| site.answer(request.as_bytes()).close;
        assert!(!closes("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(closes("GET / HTTP/1.1\r\nconnection: Close\r\n\r\n"));
        assert!(closes("GET / HTTP/1.0\r\n\r\n"));
        assert!(!closes("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn only_first_pipelined_request_is_consumed() {
        let first = "GET /page.html HTTP/1.1\r\n\r\n";
        let both = format!("{first}GET / HTTP/1.1\r\n\r\n");
        assert_eq!(site().answer(both.as_bytes()).used_len, first.len());
    }
}
