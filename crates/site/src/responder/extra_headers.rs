//! The header fields that are added to a stored response, such as Age and Cache-Status. For a hit, only two numbers
//! vary, so the lines are written backwards into a buffer of fixed size, and appended to the stored head in one piece.
//! This module is independent of the response and the store.

use lowroad_cache::cache_status::CacheStatus;
use lowroad_engine::HeadBuilder;
use lowroad_http::fields::{FieldName, ResponseFields, StandardHeader};
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::StoredSection;
use lowroad_response_cache::cache_status;
use lowroad_routes::response_redirect;
use lowroad_site_rules::SiteFields;

use crate::sites::SitePath;

/// The fields that are sent in addition to those of the stored head.
#[derive(Clone, Copy, Default)]
pub struct ExtraHeaders<'a> {
    /// The Date of the response, if the origin has sent one.
    pub date: Option<&'a [u8; 29]>,
    /// The age of the response in seconds, if Age is sent (RFC 9111 §5.1).
    pub age_s: Option<u64>,
    /// The value of Cache-Status (RFC 9211).
    pub cache_status: Option<CacheStatus<'a>>,
    /// Fields that are only for this client.
    pub client_fields: Option<&'a ResponseFields>,
    /// The fields of a program's response that named this file; they take precedence over those of the file.
    pub program: Option<ProgramFields<'a>>,
}

/// The fields of a program's response that named a file.
#[derive(Clone, Copy)]
pub struct ProgramFields<'a> {
    /// The fields of the program's response.
    pub fields: &'a ResponseFields,
    /// The path that the client requested.
    pub client_path: SitePath<'a>,
    /// Whether fields about the content are included.
    pub includes_content_fields: bool,
}

impl ProgramFields<'_> {
    /// The Content-Type of the program's response.
    pub fn content_type(&self) -> Option<&[u8]> {
        self.fields
            .standard_values(StandardHeader::ContentType)
            .next()
    }

    /// Writes the fields that describe the file's bytes, then the other fields of the program's response.
    pub fn write(
        &self,
        status: StatusCode,
        file_fields: StoredSection<'_>,
        head: &mut HeadBuilder<'_>,
    ) {
        let has_type = self.content_type().is_some();
        let rules = SiteFields::new(&self.client_path.site.rules, self.client_path.path, status);
        for (name, value) in file_fields.fields() {
            let is_sent = match name {
                FieldName::Known(StandardHeader::ContentType) => !has_type,
                // The validators and codings of the file describe the bytes that are sent.
                name => {
                    response_redirect::is_response_specific(name.as_str())
                        || name.as_str() == "Vary"
                }
            };
            if is_sent {
                head.field(name.as_str(), value);
            }
        }
        let is_type = |name| name == FieldName::Known(StandardHeader::ContentType);
        let fields = self.fields.for_clients();
        for (name, value) in
            fields.filter(|(name, _)| self.includes_content_fields || !is_type(*name))
        {
            if rules.keeps(name.as_str(), value) {
                head.field(name.as_str(), value);
            }
        }
        for (name, value) in rules.added(|name| self.fields.values(name).next().is_some()) {
            head.field(name, value.as_bytes());
        }
    }
}

impl ExtraHeaders<'_> {
    /// A copy for responses without the content of the file, such as 304.
    pub fn without_content(&self) -> Self {
        let mut extra_headers = *self;
        if let Some(program) = &mut extra_headers.program {
            // In a 304 or multipart response, Content-Type would describe other bytes.
            program.includes_content_fields = false;
        }
        extra_headers
    }

    /// Adds the fields to a head.
    pub fn write(&self, head: &mut HeadBuilder<'_>) {
        if let Some(fields) = self.client_fields {
            head.fields(fields);
        }
        if let Some(age_s) = self.age_s {
            head.field_u64("Age", age_s);
        }
        if let Some(status) = &self.cache_status {
            cache_status::write(status, head);
        }
    }
}

/// The number of digits of `u64::MAX`.
const DIGITS_MAX: usize = 20;
const LEN_MAX: usize =
    b"Age: \r\nCache-Status: lowroad; hit; ttl=-; detail=memory\r\n".len() + 2 * DIGITS_MAX;

/// Field lines that are written backwards.
pub struct HeaderLines {
    bytes: [u8; LEN_MAX],
    /// The start of the lines in `bytes`; at most `LEN_MAX`.
    start: usize,
}

impl Default for HeaderLines {
    #[inline]
    fn default() -> HeaderLines {
        HeaderLines {
            bytes: [0; LEN_MAX],
            start: LEN_MAX,
        }
    }
}

impl HeaderLines {
    /// The lines for a hit in memory; the line of an absent number is omitted.
    #[inline]
    pub fn for_hit(age_s: Option<u64>, ttl_secs: Option<i64>) -> HeaderLines {
        let mut lines = HeaderLines::default();
        if let Some(ttl_secs) = ttl_secs {
            lines.prepend(b"; detail=memory\r\n");
            lines.prepend_number(ttl_secs.unsigned_abs());
            if ttl_secs < 0 {
                lines.prepend(b"-");
            }
            lines.prepend(b"Cache-Status: lowroad; hit; ttl=");
        }
        if let Some(age_s) = age_s {
            lines.prepend(b"\r\n");
            lines.prepend_number(age_s);
            lines.prepend(b"Age: ");
        }
        lines
    }

    /// The lines as bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline(always)]
    fn prepend(&mut self, text: &[u8]) {
        let end = self.start;
        self.start -= text.len();
        self.bytes[self.start..end].copy_from_slice(text);
    }

    #[inline(always)]
    fn prepend_number(&mut self, mut number: u64) {
        loop {
            self.start -= 1;
            self.bytes[self.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_engine::response::DetachedResponse;
    use lowroad_http::h1::BodyLen;
    use lowroad_http::limits::RequestLimits;
    use lowroad_http::status::StatusCode;

    const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    /// The lines that `ExtraHeaders::write` writes.
    fn lines_of(extras: &ExtraHeaders<'_>) -> String {
        let mut unsent = DetachedResponse::default();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(unsent.request(request, &RequestLimits::default()).is_some());
        let mut response = unsent.response(DATE);
        let mut head = response.head(StatusCode::OK);
        extras.write(&mut head);
        head.end(BodyLen::Known(0));
        let text = String::from_utf8(unsent.into_bytes(1000).expect("short")).expect("ASCII");
        let text = text.split_once("GMT\r\n").expect("a date").1;
        text.split_once("Content-Length")
            .expect("a length")
            .0
            .into()
    }

    #[test]
    fn header_lines_of_hit_equal_generic_extra_headers() {
        let ttls = [None, Some(0), Some(-17), Some(i64::MIN), Some(i64::MAX)];
        for (age_s, ttl_secs) in [None, Some(0), Some(10), Some(u64::MAX)]
            .into_iter()
            .flat_map(|age_s| ttls.map(|ttl_secs| (age_s, ttl_secs)))
        {
            let extras = ExtraHeaders {
                date: None,
                age_s,
                cache_status: ttl_secs.map(|ttl_secs| cache_status::hit(ttl_secs, None)),
                ..ExtraHeaders::default()
            };
            let lines = HeaderLines::for_hit(age_s, ttl_secs);
            assert_eq!(String::from_utf8_lossy(lines.as_bytes()), lines_of(&extras));
        }
    }
}
