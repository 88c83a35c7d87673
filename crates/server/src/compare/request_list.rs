//! Lists of requests: lines of method and URL, or access logs.

use std::collections::HashSet;

use lowroad_http::method::Method;

/// A request without a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListedRequest {
    /// The method.
    pub method: Method,
    /// The target: path and query.
    pub target: String,
    /// The host, if the line has one.
    pub host: Option<String>,
}

/// The distinct requests of a list, in their order.
#[derive(Debug, Default)]
pub struct RequestList {
    /// The requests.
    pub requests: Vec<ListedRequest>,
    /// Lines without a request, or with another method.
    pub skipped: usize,
}

/// Reads a list: at most `count` distinct requests. Requests of logs with other methods than GET and HEAD are skipped
/// unless `all_methods`.
pub fn parse_requests(text: &str, count: usize, all_methods: bool) -> RequestList {
    let mut list = RequestList::default();
    let mut known = HashSet::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // No URL contains a quote (RFC 3986 §2), and each line of a log does.
        let is_log = line.contains('"');
        let request = if is_log {
            log_request(line)
        } else {
            plain_request(line)
        };
        let is_sent = |request: &ListedRequest| {
            // A POST from a log could order something again; a list is written on purpose.
            !is_log || all_methods || matches!(request.method, Method::Get | Method::Head)
        };
        match request.filter(is_sent) {
            Some(request) if list.requests.len() < count => {
                if known.insert(request.clone()) {
                    list.requests.push(request);
                }
            }
            _ => list.skipped += 1,
        }
    }
    list
}

/// `GET /path`, `GET http://host/path`, or a URL alone.
fn plain_request(line: &str) -> Option<ListedRequest> {
    let mut words = line.split_ascii_whitespace();
    let (first, second) = (words.next()?, words.next());
    let (method, url) = match second {
        Some(url) => (first, url),
        None => ("GET", first),
    };
    if words.next().is_some() {
        return None;
    }
    let method = Method::parse(method.as_bytes())?;
    let (host, target) = match url.split_once("://") {
        None => (None, url.to_string()),
        Some((_, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let path = if path.is_empty() { "/" } else { path };
            (Some(host.to_string()), path.to_string())
        }
    };
    request(method, &target, host)
}

/// A line of the combined format, or of the extended one, which ends with the host.
fn log_request(line: &str) -> Option<ListedRequest> {
    let mut quoted = line.split('"').skip(1).step_by(2);
    let request_line = quoted.next()?;
    // The combined format has two further texts, the extended one three.
    let host = quoted
        .nth(2)
        .filter(|host| !host.is_empty() && *host != "-")
        .map(str::to_string);
    let mut words = request_line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    // A backslash begins an escaped byte, so the target isn't known.
    if !version.starts_with("HTTP/") || target.contains('\\') {
        return None;
    }
    request(Method::parse(method.as_bytes())?, target, host)
}

fn request(method: Method, target: &str, host: Option<String>) -> Option<ListedRequest> {
    let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_valid =
        target.starts_with('/') && is_text(target) && host.as_deref().is_none_or(is_text);
    is_valid.then(|| ListedRequest {
        method,
        target: target.to_string(),
        host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, all_methods: bool) -> (Vec<String>, usize) {
        let list = parse_requests(text, 10, all_methods);
        let show = |request: &ListedRequest| {
            let host = request.host.as_deref().unwrap_or_default();
            format!("{} {host}{}", request.method.as_str(), request.target)
        };
        (list.requests.iter().map(show).collect(), list.skipped)
    }

    #[test]
    fn plain_lines_and_urls_are_read_once() {
        let text = "# comment\nGET /a\nHEAD /a\n/b?c\nGET http://h.example/d\nGET http://h.example\nGET /a\nDELETE /x\nGET\nGET a\n";
        let expected = [
            "GET /a",
            "HEAD /a",
            "GET /b?c",
            "GET h.example/d",
            "GET h.example/",
            "DELETE /x",
        ];
        let (found, skipped) = lines(text, false);
        assert_eq!(found, expected);
        assert_eq!(skipped, 2);
    }

    #[test]
    fn logs_are_read_without_unsafe_methods() {
        let text = r#"192.0.2.1 - - [29/Nov/2026:05:18:46 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl"
192.0.2.1 - - [29/Nov/2026:05:18:46 +0000] "POST /b HTTP/1.1" 200 5 "-" "curl"
192.0.2.1 - - [29/Nov/2026:05:18:46 +0000] "GET /c HTTP/1.1" 200 5 "-" "curl" hit 0.000 "h.example"
192.0.2.1 - - [29/Nov/2026:05:18:46 +0000] "\x16\x03" 400 5 "-" "-"
"#;
        assert_eq!(
            lines(text, false),
            (vec!["GET /a".into(), "GET h.example/c".into()], 2)
        );
        assert_eq!(lines(text, true).0[1], "POST /b");
    }

    #[test]
    fn count_bounds_the_list() {
        let list = parse_requests("/a\n/b\n/c\n", 2, false);
        assert_eq!((list.requests.len(), list.skipped), (2, 1));
    }
}
