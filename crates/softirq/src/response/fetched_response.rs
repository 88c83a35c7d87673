//! A response of the origin without its framing.

/// A field's name and value.
type FetchedField = (Vec<u8>, Vec<u8>);

/// A complete response of the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedResponse {
    /// The status.
    pub status: u16,
    /// The reason phrase, possibly empty.
    pub reason: Vec<u8>,
    /// Names and values of the fields in order; values without surrounding whitespace.
    pub fields: Vec<FetchedField>,
    /// The content, without transfer coding.
    pub body: Vec<u8>,
    /// Time of its arrival, in seconds since 1970.
    pub at_unix_secs: u64,
}

impl FetchedResponse {
    /// Names and values of the fields.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields()
            .find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// This response with its fields updated by those of a 304 (RFC 9111 §3.2), except for fields that describe the
    /// message or the unchanged content.
    #[must_use]
    pub fn updated_by(&self, not_modified: &FetchedResponse) -> FetchedResponse {
        let new = &not_modified.fields;
        let mut fields = Vec::with_capacity(self.fields.len());
        for (at, (name, value)) in self.fields.iter().enumerate() {
            if !is_updated(name) || not_modified.field_of(name).is_none() {
                fields.push((name.clone(), value.clone()));
            } else if !self.fields[..at].iter().any(|f| is_named(f, name)) {
                // Updated fields keep their position, so that a 304 without changes changes no byte.
                fields.extend(new.iter().filter(|f| is_named(f, name)).cloned());
            }
        }
        let is_added = |f: &&FetchedField| is_updated(&f.0) && self.field_of(&f.0).is_none();
        fields.extend(new.iter().filter(is_added).cloned());
        FetchedResponse {
            status: self.status,
            reason: self.reason.clone(),
            fields,
            body: self.body.clone(),
            at_unix_secs: not_modified.at_unix_secs,
        }
    }

    fn field_of(&self, name: &[u8]) -> Option<&FetchedField> {
        self.fields.iter().find(|f| is_named(f, name))
    }
}

fn is_named(field: &FetchedField, name: &[u8]) -> bool {
    field.0.eq_ignore_ascii_case(name)
}

/// Whether a 304 may change this field of a stored response.
fn is_updated(name: &[u8]) -> bool {
    // ETag is kept because it can differ only in strength, and servers that compress send the entity tag of the
    // uncompressed representation in a 304.
    const KEPT: [&str; 9] = [
        "etag",
        "content-length",
        "content-encoding",
        "content-type",
        "content-range",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ];
    !KEPT
        .iter()
        .any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
}

/// The validators of a stored response (RFC 9111 §4.3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevalidationFields {
    /// For If-None-Match.
    pub etag: Option<Vec<u8>>,
    /// For If-Modified-Since.
    pub last_modified: Option<Vec<u8>>,
}

impl RevalidationFields {
    /// The validators of a response. Only a 200 is validated, since a 304 has no defined meaning for other statuses.
    pub fn from_response(response: &FetchedResponse) -> RevalidationFields {
        if response.status != 200 {
            return RevalidationFields::default();
        }
        let owned = |name| response.field(name).map(<[u8]>::to_vec);
        RevalidationFields {
            etag: owned("etag"),
            last_modified: owned("last-modified"),
        }
    }

    /// Whether there are no validators.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(status: u16, fields: &[(&str, &str)]) -> FetchedResponse {
        let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        FetchedResponse {
            status,
            reason: b"OK".to_vec(),
            fields: fields.iter().map(owned).collect(),
            body: b"body".to_vec(),
            at_unix_secs: 7,
        }
    }

    #[test]
    fn not_modified_updates_fields_and_keeps_the_content() {
        let stored = fetched(
            200,
            &[
                ("Date", "old"),
                ("Content-Length", "4"),
                ("X-A", "1"),
                ("X-A", "2"),
                ("ETag", "\"e\""),
            ],
        );
        let new = fetched(
            304,
            &[
                ("date", "new"),
                ("content-length", "0"),
                ("X-New", "4"),
                ("x-a", "3"),
            ],
        );
        let updated = stored.updated_by(&new);
        assert_eq!((updated.status, &updated.body), (200, &stored.body));
        let all: Vec<_> = updated.fields().collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"date", b"new"),
            (b"Content-Length", b"4"),
            (b"x-a", b"3"),
            (b"ETag", b"\"e\""),
            (b"X-New", b"4"),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn not_modified_with_equal_fields_changes_nothing() {
        let stored = fetched(
            200,
            &[("Date", "d"), ("ETag", "\"e\""), ("X-A", "1"), ("X-A", "2")],
        );
        let new = fetched(
            304,
            &[("X-A", "1"), ("X-A", "2"), ("ETag", "\"e\""), ("Date", "d")],
        );
        assert_eq!(stored.updated_by(&new), stored);
    }

    #[test]
    fn field_names_are_case_insensitive() {
        let stored = fetched(200, &[("X-A", "1"), ("x-a", "2")]);
        assert_eq!(stored.field("x-A"), Some(b"1".as_slice()));
        assert_eq!(stored.field("x-b"), None);
    }
}
