//! Responses from a file: the whole file, ranges, or 304. The selection is the same as in `lowroad serve`.

use alloc::vec::Vec;
use core::fmt::Write;

use lowroad_http::content_coding::ContentCoding;
use lowroad_http::head_writer::HeadWriter;
use lowroad_http::method::Method;
use lowroad_http::preconditions::{self, PreconditionOutcome, Validators};
use lowroad_http::range::{ByteRange, RangeSet, RangesSpecifier};
use lowroad_http::request::Request;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;

use crate::archive::{DATE_AT, FileVariant, SiteArchive};
use crate::refusal_page::{self, RefusalPage};
use crate::response::{ResponseContext, UnikernelResponse};

/// Maximum total length of several ranges, which are copied. If it is exceeded, the whole file is sent, as RFC 9110
/// §14.2 allows.
const RANGES_LEN_MAX: usize = 32 << 10;

/// Writes the response for a file, according to the conditions and ranges in the request.
#[inline]
pub fn send(
    site: &SiteArchive,
    file: &'static FileVariant,
    request: &Request<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    // Most requests have no conditional or range fields.
    if preconditions::may_differ(request) {
        return send_conditional(site, file, request, context, out);
    }
    write_whole(file, request, context, out);
}

/// The common case: stored head and body, with the current date.
#[inline]
fn write_whole(
    file: &'static FileVariant,
    request: &Request<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    let has_body = request.method == Method::Get;
    // The stored head is for a persistent HTTP/1.1 connection; in other cases a Connection field must be added.
    if has_body && context.keep_alive && context.version == HttpVersion::Http11 {
        out.whole_file = Some(file);
        return write_persistent(file, &context.date, out);
    }
    out.status(StatusCode::OK);
    let head = file.head();
    // The head without its empty line.
    let open = head.strip_suffix(b"\r\n").unwrap_or(head);
    out.copied.extend_from_slice(open);
    out.copied.extend_from_slice(context.head_end());
    if has_body {
        out.static_bytes = file.body();
        out.sums = file.sums;
        out.body_len = file.body().len();
    }
    set_date(&context.date, &mut out.copied);
}

/// Writes the response with a whole file on a persistent connection, replacing the content of `out`.
#[inline]
pub fn write_persistent(file: &'static FileVariant, date: &[u8; 29], out: &mut UnikernelResponse) {
    out.status(StatusCode::OK);
    out.copied.clear();
    out.copied.extend_from_slice(file.head());
    set_date(date, &mut out.copied);
    out.static_bytes = file.body();
    out.sums = file.sums;
    out.body_len = file.body().len();
}

#[inline]
fn set_date(date: &[u8; 29], head: &mut [u8]) {
    if let Some(target) = head.get_mut(DATE_AT..DATE_AT + date.len()) {
        target.copy_from_slice(date);
    }
}

/// RFC 9110 §13.2.2: evaluates preconditions first, then ranges if If-Range allows it.
fn send_conditional(
    site: &SiteArchive,
    file: &'static FileVariant,
    request: &Request<'_>,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    let validators = Validators {
        etag: file.etag.as_bytes(),
        last_modified: file.last_modified_s,
    };
    let has_body = request.method == Method::Get;
    let refusal = |status, field| RefusalPage {
        status,
        explanation: None,
        field,
        has_body,
    };
    // Preconditions before ranges (RFC 9110 §13.2.2).
    match preconditions::evaluate(request, &validators, context.unix_s) {
        PreconditionOutcome::NotModified => return write_not_modified(file, context, out),
        PreconditionOutcome::Failed => {
            let page = refusal(StatusCode::PRECONDITION_FAILED, None);
            return refusal_page::page(site, page, context, out);
        }
        PreconditionOutcome::Proceed => {}
    }
    let len = file.body().len();
    let ranges = preconditions::ranges(request, &validators, context.unix_s, len as u64);
    match ranges {
        RangesSpecifier::One(range) => write_range(file, range, context, out),
        RangesSpecifier::Many(ranges) if ranges_len(&ranges) <= RANGES_LEN_MAX as u64 => {
            write_multipart_ranges(file, &ranges, context, out);
        }
        // A server may ignore Range. Many ranges would cost more than the whole file.
        RangesSpecifier::Whole | RangesSpecifier::Many(_) => {
            write_whole(file, request, context, out)
        }
        RangesSpecifier::Unsatisfiable => {
            let mut value = Vec::new();
            value.extend_from_slice(b"bytes */");
            lowroad_http::head_writer::put_number(&mut value, len as u64);
            let field = Some(("Content-Range", value.as_slice()));
            let page = refusal(StatusCode::RANGE_NOT_SATISFIABLE, field);
            refusal_page::page(site, page, context, out);
        }
    }
}

fn write_not_modified(file: &FileVariant, context: &ResponseContext, out: &mut UnikernelResponse) {
    out.status(StatusCode::NOT_MODIFIED);
    // RFC 9110 §15.4.5: only fields that a 200 would also have.
    HeadWriter::start(&mut out.copied, StatusCode::NOT_MODIFIED, &context.date)
        .lines(file.shared_fields);
    out.copied.extend_from_slice(context.head_end());
}

/// The bytes of a range, which must be within the file.
fn range_bytes(file: &FileVariant, range: ByteRange) -> &'static [u8] {
    let range = range.start as usize..range.end as usize;
    file.body().get(range).unwrap_or_default()
}

fn write_range(
    file: &FileVariant,
    range: ByteRange,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    out.status(StatusCode::PARTIAL_CONTENT);
    let body = range_bytes(file, range);
    let mut head = HeadWriter::start(&mut out.copied, StatusCode::PARTIAL_CONTENT, &context.date);
    head.lines(file.fields);
    head.content_range(range.start, range.end, file.body().len() as u64);
    head.field_u64("Content-Length", body.len() as u64);
    head.finish_open();
    out.copied.extend_from_slice(context.head_end());
    out.static_bytes = body;
    out.body_len = body.len();
}

fn ranges_len(ranges: &RangeSet) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// multipart/byteranges, RFC 9110 §14.6.
fn write_multipart_ranges(
    file: &FileVariant,
    ranges: &RangeSet,
    context: &ResponseContext,
    out: &mut UnikernelResponse,
) {
    out.status(StatusCode::PARTIAL_CONTENT);
    let mut boundary = alloc::string::String::new();
    // Writing to a string can't fail.
    let _ = write!(boundary, "{:016x}{:016x}", context.serial, !context.serial);
    let mut body = Vec::new();
    for range in ranges.iter() {
        body.extend_from_slice(b"\r\n--");
        body.extend_from_slice(boundary.as_bytes());
        body.extend_from_slice(b"\r\n");
        let mut head = HeadWriter::resume(&mut body);
        head.field("Content-Type", file.content_type.as_bytes());
        head.content_range(range.start, range.end, file.body().len() as u64);
        head.finish();
        body.extend_from_slice(range_bytes(file, *range));
    }
    body.extend_from_slice(b"\r\n--");
    body.extend_from_slice(boundary.as_bytes());
    body.extend_from_slice(b"--\r\n");
    boundary.insert_str(0, "multipart/byteranges; boundary=");
    let mut head = HeadWriter::start(&mut out.copied, StatusCode::PARTIAL_CONTENT, &context.date);
    // Only the shared fields are sent: Content-Type is that of the multipart.
    head.lines(file.shared_fields);
    head.field("Content-Type", boundary.as_bytes());
    // The ranges refer to the encoded representation.
    if file.encoding != ContentCoding::Identity {
        head.field("Content-Encoding", file.encoding.as_str().as_bytes());
    }
    head.field_u64("Content-Length", body.len() as u64);
    head.finish_open();
    out.copied.extend_from_slice(context.head_end());
    out.copied.extend_from_slice(&body);
    out.body_len = body.len();
}
