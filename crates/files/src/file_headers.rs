//! Builds the head of a file's representation when it is loaded, so that a response only copies it and sets the date.
//!
//! The fields are ordered so that 304 and 206 responses consist of slices of the head: first the fields of every
//! response, then those about the content, then the length.

use lowroad_config as config;
use lowroad_http::content_coding::ContentCoding;
use lowroad_http::date;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::{EncodedHead, HeadEncoder};
use lowroad_site_rules::{HeaderPatterns, SiteFields};

/// The properties of a representation from which the head is built.
pub struct HeadFacts<'a> {
    /// The decoded path, for header rules.
    pub path: &'a [u8],
    /// The Content-Type.
    pub content_type: &'a str,
    /// The content coding of the body.
    pub encoding: ContentCoding,
    /// The coding of the file itself (`.svgz`), the same for all clients.
    pub coding: ContentCoding,
    /// Whether the choice of the encoding depends on the request, so that Vary is needed.
    pub varies: bool,
    /// The length of the body in bytes.
    pub len: u64,
    /// The entity tag, with its quotes; empty if there is none.
    pub etag: &'a str,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
}

/// Builds the head, without the empty line, and with a Date that is overwritten for each response.
pub fn build(
    facts: &HeadFacts<'_>,
    site: &config::SiteConfig,
    patterns: &HeaderPatterns,
) -> EncodedHead {
    let (rules, cache_control) = SiteFields::for_file(site, patterns, facts.path);
    let mut head = HeadEncoder::start(StatusCode::OK);
    let mut field = |name: &str, value: &[u8]| {
        if rules.keeps(name, value) {
            head.field(name, value);
        }
    };
    if let Some(modified_s) = facts.modified_s {
        field("Last-Modified", &date::format(modified_s));
    }
    if !facts.etag.is_empty() {
        field("ETag", facts.etag.as_bytes());
    }
    if facts.varies {
        field("Vary", b"Accept-Encoding");
    }
    if let Some(value) = cache_control {
        field("Cache-Control", value.as_bytes());
    }
    // Cache-Control from `[[site.cache_control]]` counts as a field of the response, which header rules may replace.
    let has = |name: &str| cache_control.is_some() && same_name(name, "Cache-Control");
    for (name, value) in rules.added(has) {
        head.field(name, value.as_bytes());
    }
    head.begin_content();
    // A file that is coded itself (`.svgz`) gets no second coding.
    let coding = match facts.encoding {
        ContentCoding::Identity => facts.coding,
        encoding => encoding,
    };
    let content = [
        ("Content-Type", facts.content_type),
        ("Content-Encoding", coding.as_str()),
        ("Accept-Ranges", "bytes"),
    ];
    let is_encoded = coding != ContentCoding::Identity;
    for (name, value) in content {
        if (is_encoded || name != "Content-Encoding") && rules.keeps(name, value.as_bytes()) {
            head.field(name, value.as_bytes());
        }
    }
    head.finish(facts.len)
}

fn same_name(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::fields::FieldName;
    use lowroad_http::stored_head::StoredSection;
    use lowroad_variables::Template;

    fn facts() -> HeadFacts<'static> {
        HeadFacts {
            path: b"/a.css",
            content_type: "text/css",
            encoding: ContentCoding::Brotli,
            coding: ContentCoding::Identity,
            varies: true,
            len: 1234,
            etag: "\"e\"",
            modified_s: Some(784_111_777),
        }
    }

    #[test]
    fn field_order_permits_304_and_206_slices() {
        let EncodedHead {
            text: head,
            map: encoded,
        } = {
            let site = config::site_for_folder("/".into());
            build(&facts(), &site, &HeaderPatterns::new(&site))
        };
        let text = |fields: StoredSection<'_>| {
            let line = |(name, value): (FieldName<'_>, &[u8])| {
                format!("{}: {}\n", name.as_str(), String::from_utf8_lossy(value))
            };
            fields.fields().map(line).collect::<String>()
        };
        let shared =
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nETag: \"e\"\nVary: Accept-Encoding\n";
        assert_eq!(text(encoded.shared(&head)), shared);
        let about = "Content-Type: text/css\nContent-Encoding: br\nAccept-Ranges: bytes\n";
        assert_eq!(text(encoded.all(&head)), format!("{shared}{about}"));
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(head.ends_with(b"\r\nContent-Length: 1234\r\n"));
        assert_eq!(encoded.h1_len(), head.len());
        assert_eq!(encoded.etag(&head), b"\"e\"");
        assert_eq!(encoded.content_type(&head), b"text/css");
    }

    #[test]
    fn header_rules_add_replace_and_remove_fields() {
        let mut site = config::site_for_folder("/".into());
        let pattern = |text| config::PathPattern::parse(text).expect("pattern");
        site.cache_control.push(config::PatternRule {
            pattern: pattern("*.css"),
            value: "max-age=60".into(),
        });
        site.headers.push(config::HeaderRule {
            pattern: pattern("/**"),
            table: 0,
            conditions: config::RequestConditions::default(),
            set: vec![
                ("X-Own".into(), Template::literal("1")),
                ("Content-Type".into(), Template::literal("text/own")),
            ],
            append: Vec::new(),
            default: Vec::new(),
            remove: vec!["etag".into()],
        });
        let EncodedHead {
            text: bytes,
            map: encoded,
        } = build(&facts(), &site, &HeaderPatterns::new(&site));
        let head = String::from_utf8_lossy(&bytes);
        assert!(
            head.contains("Cache-Control: max-age=60\r\nX-Own: 1\r\nContent-Type: text/own\r\n")
        );
        assert!(!head.contains("ETag") && !head.contains("text/css"));
        assert_eq!(encoded.etag(&bytes), b"");
    }
}
