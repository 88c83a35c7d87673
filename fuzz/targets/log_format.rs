//! Fuzz target: formats of access logs. The first byte selects text with default escapes, text with JSON escapes, or the
//! members of a JSON object; the format follows up to a line feed, and then bytes of a request.
//!
//! Checks, besides the absence of panics: a mistake has an offset within the format; the entry is one line of printable
//! bytes, regardless of the request's content, and a value adds no double quote to text with default escapes.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use lowroad_log::format::EscapeMode;
use lowroad_log::{AccessEntry, EntryDetails, TextFormat, TextFormatter, ValueTexts};

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else {
        return;
    };
    let end = rest.iter().position(|byte| *byte == b'\n');
    let (format, request) = rest.split_at(end.unwrap_or(rest.len()));
    let Ok(text) = std::str::from_utf8(format) else {
        return;
    };
    let parsed = match mode % 3 {
        0 => TextFormat::parse(text, EscapeMode::Hex),
        1 => TextFormat::parse(text, EscapeMode::Json),
        _ => TextFormat::json(text.split(' ')),
    };
    match parsed {
        Ok(format) => check(format, text, mode % 3, request),
        Err(error) => {
            assert!(error.offset <= text.len());
            assert!(!error.reason.to_string().is_empty());
        }
    }
});

fn check(format: TextFormat, text: &str, mode: u8, request: &[u8]) {
    let (first, second) = request.split_at(request.len() / 2);
    let bounds = vec![0; format.values().len()];
    let bounds: Vec<usize> = bounds.into_iter().chain([request.len()]).collect();
    let entry = AccessEntry {
        peer: [192, 0, 2, 7].into(),
        user: first,
        unix_ms: 784_111_777_042,
        line: request,
        host: first,
        status: 200,
        body_bytes: 5,
        whole: true,
        referer: second,
        user_agent: second,
        duration_us: 17,
        outcome: "hit",
        level: "worker",
        tls: "",
    };
    let details = EntryDetails {
        values: ValueTexts {
            bytes: request,
            bounds: &bounds,
        },
        ..EntryDetails::default()
    };
    let mut line = Vec::new();
    TextFormatter::new(Arc::new(format)).append(&entry, &details, &mut line);
    let line = String::from_utf8(line).expect("UTF-8");
    let line = line.strip_suffix('\n').expect("a line");
    assert!(!line.contains(|c: char| c.is_control() && c != '\t'));
    if mode == 0 {
        assert_eq!(line.matches('"').count(), text.matches('"').count());
    }
}
