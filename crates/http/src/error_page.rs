//! The built-in HTML error page, for sites that configure no page for a status.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::status::StatusCode;

/// The built-in page: the error in one sentence, readable on all devices.
pub fn built_in(status: StatusCode, explanation: &str) -> Vec<u8> {
    let (code, reason) = (status.code(), status.reason());
    let explanation = escape(explanation);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{code} {reason}</title>\n\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}}</style>\n\
         <h1>{code} {reason}</h1>\n<p>{explanation}</p>\n</html>\n"
    )
    .into_bytes()
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The explanation of a 403 for a directory without an index file and with listing disabled.
pub const NO_INDEX: &str = "This folder has no index page, and its files are not listed.";

/// The explanation of a status for the site's visitor.
pub fn explanation(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => "Access is not permitted.",
        StatusCode::NOT_FOUND => "No page was found at this address.",
        StatusCode::METHOD_NOT_ALLOWED => "This page can only be read (GET, HEAD).",
        StatusCode::REQUEST_TIMEOUT => "The request did not arrive in time.",
        StatusCode::PRECONDITION_FAILED => "The page does not meet the conditions of the request.",
        StatusCode::RANGE_NOT_SATISFIABLE => "The requested range lies beyond the end.",
        StatusCode::MISDIRECTED_REQUEST => "This server has no site of this name.",
        StatusCode::TOO_MANY_REQUESTS => "There were too many requests. Try again later.",
        StatusCode::SERVICE_UNAVAILABLE => "The server is overloaded. Try again in a moment.",
        StatusCode::INTERNAL_ERROR => "The server could not produce a response.",
        _ => "The request could not be processed.",
    }
}
