//! The response metadata that a page can set: status, fields and cache lifetime. All values are validated, so that none
//! can inject further fields.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A response without its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageReply {
    /// The status, 200 to 599; `None` means 200.
    pub status: Option<u16>,
    /// Fields with distinct names. Connection-specific fields and Content-Length are excluded.
    pub fields: Vec<(String, String)>,
    /// The cache lifetime in seconds.
    pub cache_s: Option<u64>,
    /// The page used data that differs between clients, so only the browser of this client may store the response.
    pub is_personal: bool,
}

/// The maximum number of fields that a page can set.
const FIELDS_MAX: usize = 32;

impl PageReply {
    pub(crate) fn clear(&mut self) {
        self.status = None;
        self.fields.clear();
        self.cache_s = None;
        self.is_personal = false;
    }

    pub(crate) fn set_status(&mut self, code: i64) -> Result<(), String> {
        let status = u16::try_from(code)
            .ok()
            .filter(|code| (200..600).contains(code));
        self.status = Some(status.ok_or_else(|| format!("{code} is not a valid response status"))?);
        Ok(())
    }

    /// Sets a field, replacing a field of the same name.
    pub(crate) fn set_field(&mut self, name: &str, value: &str) -> Result<(), String> {
        const OTHERS: &[&str] = &[
            "set-cookie",
            "content-length",
            "connection",
            "transfer-encoding",
        ];
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is not a valid field name"));
        }
        if OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!("a page can't set {name}"));
        }
        // Line breaks would inject fields (RFC 9110 §5.5).
        if value
            .bytes()
            .any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f)
        {
            return Err(format!("the value of {name} contains control characters"));
        }
        self.fields
            .retain(|(field_name, _)| !field_name.eq_ignore_ascii_case(name));
        // The number is checked after the removal, since replacing a field adds none.
        if self.fields.len() == FIELDS_MAX {
            return Err(format!("a page can set at most {FIELDS_MAX} fields"));
        }
        self.fields.push((name.into(), value.trim().into()));
        Ok(())
    }
}

/// Whether a byte is allowed in a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
