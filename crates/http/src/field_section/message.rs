//! Field sections other than requests: response heads, trailers, and sections that are decoded only to update the
//! dynamic table. Read RFC 9113 §8.1, §8.2 and §8.3.2, RFC 9114 §4.1 to §4.3.

use alloc::vec::Vec;

use crate::field_coding::{DecodedField, ENTRY_LEN, FieldClass, FieldSink};
use crate::fields::{FieldName, StandardHeader};
use crate::list_values;

/// Receives the fields of a response head or of trailers.
pub(crate) struct ResponseFieldSink<'t> {
    text: &'t mut Vec<u8>,
    len_max: usize,
    section_len: usize,
    is_trailers: bool,
    has_lines: bool,
    pub(crate) status: Option<u16>,
    pub(crate) content_len: Option<u64>,
    first_fault: Option<&'static str>,
}

impl FieldSink for ResponseFieldSink<'_> {
    fn text(&mut self) -> &mut Vec<u8> {
        self.text
    }

    fn on_field(&mut self, field: DecodedField) {
        let len = self.text.len() - field.line_start;
        self.section_len += len - 4 + ENTRY_LEN;
        if self.section_len > self.len_max {
            self.first_fault
                .get_or_insert("a field section that is too large");
        }
        if let Some(reason) = self.fault(field) {
            self.first_fault.get_or_insert(reason);
        }
        // Only regular fields are kept in the text; the status is stored as a number.
        if self.first_fault.is_some() || field.kind.is_pseudo() {
            self.text.truncate(field.line_start);
        } else {
            self.has_lines = true;
        }
    }

    fn has_failed(&self) -> bool {
        self.first_fault.is_some()
    }
}

impl<'t> ResponseFieldSink<'t> {
    pub(crate) fn trailers(text: &'t mut Vec<u8>, len_max: usize) -> ResponseFieldSink<'t> {
        ResponseFieldSink::new(text, len_max, true)
    }

    pub(crate) fn response(text: &'t mut Vec<u8>, len_max: usize) -> ResponseFieldSink<'t> {
        ResponseFieldSink::new(text, len_max, false)
    }

    fn new(text: &'t mut Vec<u8>, len_max: usize, is_trailers: bool) -> ResponseFieldSink<'t> {
        text.clear();
        ResponseFieldSink {
            text,
            len_max,
            section_len: 0,
            is_trailers,
            has_lines: false,
            status: None,
            content_len: None,
            first_fault: None,
        }
    }

    fn fault(&mut self, field: DecodedField) -> Option<&'static str> {
        let line = &self.text[field.line_start..];
        let value = line.get(field.name_len + 2..line.len() - 2);
        let value = value.unwrap_or_default();
        match field.kind {
            _ if !field.is_value_valid => Some("an invalid field value"),
            // RFC 9113 §8.3: `:status` occurs once, before all other fields.
            FieldClass::Status if !self.is_trailers && !self.has_lines && self.status.is_none() => {
                let code = list_values::decimal(value).filter(|_| value.len() == 3);
                self.status = code.and_then(|code| u16::try_from(code).ok());
                self.status.is_none().then_some("an invalid status")
            }
            kind if kind.is_pseudo() => Some("a misplaced pseudo-header"),
            FieldClass::InvalidName => Some("an invalid field name"),
            FieldClass::ConnectionSpecific => Some("a connection-specific field"),
            FieldClass::ContentLength if !self.is_trailers => {
                let len = list_values::decimal(value);
                // Equal repetitions count as one (RFC 9110 §8.6).
                let is_valid = len.is_some()
                    && self
                        .content_len
                        .is_none_or(|previous| Some(previous) == len);
                self.content_len = len;
                (!is_valid).then_some("Content-Length is not a number")
            }
            _ => None,
        }
    }

    /// The first fault of the section, if any.
    pub(crate) fn section_fault(&self) -> Option<&'static str> {
        match self.first_fault {
            None if !self.is_trailers && self.status.is_none() => Some("the status is missing"),
            first_fault => first_fault,
        }
    }
}

/// Discards all fields; decoding only updates the dynamic table.
pub(crate) struct DiscardSink<'t>(pub(crate) &'t mut Vec<u8>);

impl FieldSink for DiscardSink<'_> {
    fn text(&mut self) -> &mut Vec<u8> {
        self.0
    }

    fn on_field(&mut self, field: DecodedField) {
        self.0.truncate(field.line_start);
    }
}

/// Whether HTTP/2 and HTTP/3 allow the field: connection-specific fields are forbidden (RFC 9113 §8.2.2, RFC 9114
/// §4.2).
pub(crate) fn is_end_to_end(name: FieldName<'_>) -> bool {
    !matches!(
        name,
        FieldName::Known(
            StandardHeader::Connection
                | StandardHeader::KeepAlive
                | StandardHeader::ProxyConnection
                | StandardHeader::TransferEncoding
                | StandardHeader::Upgrade
        )
    )
}
