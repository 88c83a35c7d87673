//! What a page says about its response besides the text. It checks what it is told, so that no value breaks out
//! of its field.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A response without its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status, from 200 to 599; none means 200.
    pub status: Option<u16>,
    /// Fields with different names, none of which is about the connection or the length.
    pub fields: Vec<(String, String)>,
    /// Seconds for which it may be kept.
    pub cache_s: Option<u64>,
    /// The page looked at what differs from visitor to visitor: only the visitor's browser may keep it.
    pub is_personal: bool,
}

/// Fields of a page.
const FIELDS_MAX: usize = 32;

impl Reply {
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
        self.status = Some(status.ok_or_else(|| format!("{code} is no status of a response"))?);
        Ok(())
    }

    /// Sets a field, in place of one of that name.
    pub(crate) fn set_field(&mut self, name: &str, value: &str) -> Result<(), String> {
        const OTHERS: &[&str] = &[
            "set-cookie",
            "content-length",
            "connection",
            "transfer-encoding",
        ];
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is no name of a field"));
        }
        if OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!("{name} is not for pages"));
        }
        if value
            .bytes()
            .any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f)
        {
            return Err(format!("the value of {name} has control characters"));
        }
        self.fields
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if self.fields.len() == FIELDS_MAX {
            return Err(format!("a page may set {FIELDS_MAX} fields"));
        }
        self.fields.push((name.into(), value.trim().into()));
        Ok(())
    }
}

/// RFC 9110 §5.6.2
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
