//! Receives the decoded fields of a request: checks each one, and records the positions of those with a meaning. Read
//! RFC 9113 §8.2 and §8.3, RFC 9114 §4.2 and §4.3.

use alloc::vec::Vec;

use super::request_head::FieldSpans;
use super::{MalformedRequest, RequestRules, TextSpan};
use crate::field_coding::{DecodedField, ENTRY_LEN, FieldClass, FieldSink};
use crate::list_values;
use crate::refusal::RequestRefusal;
use crate::streams::Priority;

/// Receives the decoded fields of a request.
pub(crate) struct RequestFieldSink<'t> {
    pub(super) text: &'t mut Vec<u8>,
    pub(super) rules: RequestRules<'t>,
    pub(super) spans: &'t mut FieldSpans,
}

impl FieldSink for RequestFieldSink<'_> {
    #[inline]
    fn text(&mut self) -> &mut Vec<u8> {
        self.text
    }

    #[inline(always)]
    fn on_field(&mut self, field: DecodedField) {
        let len = self.text.len() - field.line_start;
        // RFC 9113 §6.5.2 defines this size, which excludes the four bytes of ": " and CRLF.
        self.spans.section_len += len - 4 + ENTRY_LEN;
        if self.spans.section_len > self.rules.section_len_max {
            self.record_fault(MalformedRequest::Refused(RequestRefusal::HeadTooLarge));
        }
        let result = match self.spans.first_fault.is_none() && field.is_value_valid {
            true => self.take(field),
            false => Err(MalformedRequest::Malformed("an invalid field value")),
        };
        if let Err(fault) = result {
            // After the first fault, decoding continues only to update the table of HPACK, and to find its own errors.
            self.record_fault(fault);
            self.text.truncate(field.line_start);
        }
    }

    #[inline(always)]
    fn has_failed(&self) -> bool {
        self.spans.first_fault.is_some()
    }
}

impl<'t> RequestFieldSink<'t> {
    pub(crate) fn new(
        text: &'t mut Vec<u8>,
        rules: RequestRules<'t>,
        spans: &'t mut FieldSpans,
    ) -> RequestFieldSink<'t> {
        text.clear();
        RequestFieldSink { text, rules, spans }
    }

    #[cold]
    fn record_fault(&mut self, fault: MalformedRequest) {
        self.spans.first_fault.get_or_insert(fault);
    }

    #[inline(always)]
    fn take(&mut self, field: DecodedField) -> Result<(), MalformedRequest> {
        let value_at = field.line_start + field.name_len + 2;
        let value = TextSpan {
            start: value_at,
            len: self.text.len() - 2 - value_at,
        };
        // Pseudo-header fields do not count towards `fields_max`.
        if field.kind.is_pseudo() {
            return self.pseudo(field.kind, value);
        }
        let lines_at = *self.spans.lines_at.get_or_insert(field.line_start);
        self.spans.count += 1;
        if self.spans.count > self.rules.limits.fields_max {
            return Err(MalformedRequest::Refused(RequestRefusal::TooManyFields));
        }
        match field.kind {
            FieldClass::Plain => {}
            FieldClass::Indexed(indexed) => {
                let line_offset = |at: usize| (at - lines_at) as u32;
                let len = value.len as u32;
                self.spans.index.add_at(
                    indexed,
                    line_offset(field.line_start),
                    line_offset(value.start),
                    len,
                );
            }
            FieldClass::Presence(indexed) => self.spans.index.mark(indexed),
            special_kind => self.special(special_kind, field, value)?,
        }
        Ok(())
    }

    #[inline(never)]
    fn pseudo(&mut self, kind: FieldClass, value: TextSpan) -> Result<(), MalformedRequest> {
        // RFC 9113 §8.3: pseudo-header fields come first.
        if self.spans.lines_at.is_some() {
            return Err(MalformedRequest::Malformed("a pseudo-header after a field"));
        }
        let bytes = value.slice(self.text);
        let slot = match kind {
            FieldClass::Method => &mut self.spans.name,
            FieldClass::Path => &mut self.spans.path,
            FieldClass::InvalidAuthority => {
                self.spans.is_host_invalid = true;
                &mut self.spans.authority
            }
            FieldClass::Authority => &mut self.spans.authority,
            FieldClass::Protocol => &mut self.spans.protocol,
            FieldClass::Scheme if self.spans.scheme == 0 => {
                self.spans.scheme = match bytes {
                    b"http" => 1,
                    b"https" => 2,
                    _ => {
                        return Err(MalformedRequest::Malformed(
                            "a scheme other than http and https",
                        ));
                    }
                };
                return Ok(());
            }
            FieldClass::Scheme => return Err(REPEATED),
            _ => return Err(MalformedRequest::Malformed("a response pseudo-header")),
        };
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(REPEATED),
        }
    }

    #[inline(never)]
    fn special(
        &mut self,
        kind: FieldClass,
        field: DecodedField,
        value: TextSpan,
    ) -> Result<(), MalformedRequest> {
        let bytes = value.slice(self.text);
        match kind {
            FieldClass::Cookie => self.cookie(field, value),
            FieldClass::Host | FieldClass::InvalidHost => {
                self.spans.is_host_invalid |= kind == FieldClass::InvalidHost;
                match self.spans.host.replace(value) {
                    None => Ok(()),
                    Some(_) => Err(MalformedRequest::Malformed("Host is repeated")),
                }
            }
            FieldClass::ContentLength => {
                let len = list_values::decimal(bytes);
                match (len, self.spans.content_len) {
                    (Some(_), None) => {
                        self.spans.content_len = len;
                        Ok(())
                    }
                    (None, _) => Err(MalformedRequest::Malformed(
                        "Content-Length is not a number",
                    )),
                    _ => Err(MalformedRequest::Malformed("Content-Length is repeated")),
                }
            }
            FieldClass::Expect if bytes.eq_ignore_ascii_case(b"100-continue") => {
                self.spans.expects_continue = true;
                Ok(())
            }
            // RFC 9110 §10.1.1: the response is 417.
            FieldClass::Expect => Err(MalformedRequest::Refused(
                RequestRefusal::ExpectationUnknown,
            )),
            FieldClass::Priority => {
                self.spans.priority = Priority::parse(bytes);
                Ok(())
            }
            // RFC 9113 §8.2.2: `trailers` is the only permitted value.
            FieldClass::Te if bytes.eq_ignore_ascii_case(b"trailers") => Ok(()),
            FieldClass::Te | FieldClass::ConnectionSpecific => {
                Err(MalformedRequest::Malformed("a connection-specific field"))
            }
            _ => Err(MalformedRequest::Malformed("an invalid field name")),
        }
    }

    /// Joins the cookie crumbs that RFC 9113 §8.2.3 allows into one line.
    fn cookie(&mut self, field: DecodedField, value: TextSpan) -> Result<(), MalformedRequest> {
        if self.spans.cookie_end == field.line_start && field.line_start >= 2 {
            // Overwrite the CRLF of the previous line, and drop the name.
            self.text[field.line_start - 2..field.line_start].copy_from_slice(b"; ");
            self.text.copy_within(value.start.., field.line_start);
            self.text.truncate(field.line_start + value.len + 2);
        } else {
            self.spans.has_scattered_cookies |= self.spans.cookie_end > 0;
        }
        self.spans.cookie_end = self.text.len();
        Ok(())
    }
}

const REPEATED: MalformedRequest = MalformedRequest::Malformed("a pseudo-header is repeated");
