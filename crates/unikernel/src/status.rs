//! The resources with the counters of the machine.

use alloc::string::String;
use core::fmt::Write;

use lowroad_http::head_writer::HeadWriter;
use lowroad_http::status::StatusCode;

use crate::response::{ResponseContext, UnikernelResponse};

/// Formats counters as text: a line with name and value for each.
pub fn text(counters: &[(&'static str, u64)]) -> String {
    let mut out = String::new();
    for (name, count) in counters {
        // Writing to a string can't fail.
        let _ = writeln!(out, "{name:34} {count}");
    }
    out
}

/// Formats counters as a JSON object.
pub fn json(counters: &[(&'static str, u64)]) -> String {
    let mut out = String::from("{");
    for (at, (name, count)) in counters.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // Writing to a string can't fail.
        let _ = write!(out, "{comma}\"{name}\":{count}");
    }
    out.push_str("}\n");
    out
}

/// Writes a response with such a text; the response must not be cached.
pub fn write(
    content_type: &[u8],
    body: &[u8],
    has_body: bool,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    out.status(StatusCode::OK);
    let mut head = HeadWriter::start(&mut out.copied, StatusCode::OK, &context.date);
    head.field("Content-Type", content_type);
    // Counters and log are private and change constantly.
    head.field("Cache-Control", b"no-store");
    head.field_u64("Content-Length", body.len() as u64);
    head.finish_open();
    out.copied.extend_from_slice(context.head_end());
    if has_body {
        out.copied.extend_from_slice(body);
        out.body_len = body.len();
    }
}
