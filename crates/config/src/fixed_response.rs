//! Reads fixed responses: `respond = 410`, or a table with status, content and fields.

use crate::FixedResponse;
use crate::reader::{ConfigSection, ConfigValue};
use crate::rules::{can_change, field_lines, field_value, is_field_value};
use crate::value;

/// The longest content, in bytes. Longer content belongs in a file.
const TEXT_LEN_MAX: usize = 64 << 10;
/// The media type of the content if none is configured.
const MEDIA_TYPE: &str = "text/plain; charset=utf-8";
/// Statuses that need content or fields that only the server can derive (RFC 9110 §15).
const REFUSED_STATUSES: [u64; 9] = [205, 206, 304, 401, 407, 416, 421, 426, 499];
/// The status of a response without content.
const NO_CONTENT: u16 = 204;

/// Reads the value of `respond`.
pub(crate) fn fixed_response(item: &ConfigValue<'_>) -> Option<FixedResponse> {
    if item.is_table() {
        return from_table(item.section()?);
    }
    Some(FixedResponse {
        status: status(item)?,
        fields: Vec::new(),
        text: None,
        media_type: MEDIA_TYPE.into(),
    })
}

fn from_table(section: ConfigSection<'_>) -> Option<FixedResponse> {
    let status = section.required("status").and_then(|item| status(&item));
    let text = section.item("text");
    let media_type = match text {
        Some(_) => section
            .item("type")
            .map_or_else(|| Some(MEDIA_TYPE.to_string()), |item| media_type(&item)),
        None => {
            section.only_with("type", "text");
            Some(MEDIA_TYPE.to_string())
        }
    };
    let fields = section.section("header").map_or_else(Vec::new, |section| {
        field_lines(section, can_change, field_value)
    });
    let text = text.map(|item| match status {
        Some(NO_CONTENT) => {
            item.refuse("content of a response with status 204", "no text");
            None
        }
        _ => content(&item),
    });
    section.finish();
    // An invalid text was reported; the response must not be sent without it.
    let text = match text {
        Some(content) => Some(content?),
        None => None,
    };
    Some(FixedResponse {
        status: status?,
        fields,
        text,
        media_type: media_type?,
    })
}

fn status(item: &ConfigValue<'_>) -> Option<u16> {
    let status = item.read(value::count)?;
    let is_redirect = (300..400).contains(&status);
    if !(200..600).contains(&status) || is_redirect || REFUSED_STATUSES.contains(&status) {
        item.refuse(
            "a status of a fixed response",
            "200 to 599 but those that forbid content or need other fields; redirects are [[site.redirect]]",
        );
        return None;
    }
    u16::try_from(status).ok()
}

fn content(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.value_text().map(str::to_string);
    if text.as_ref().is_none_or(|text| text.len() > TEXT_LEN_MAX) {
        item.refuse("a content", "at most 64K of text; longer content is a file");
        return None;
    }
    text
}

fn media_type(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.value_text();
    let valid = text.filter(|text| text.contains('/') && is_field_value(text));
    if valid.is_none() {
        item.refuse("a media type", "\"text/html; charset=utf-8\"");
    }
    valid.map(str::to_string)
}
