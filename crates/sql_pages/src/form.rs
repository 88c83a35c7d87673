//! Parses name-value pairs sent by clients: queries, forms and cookies. This module is independent of templates.

use lowroad_http::fields::FieldLines;
use lowroad_http::method::Method;

/// The maximum number of pairs of each kind; further pairs are ignored.
const PAIRS_MAX: usize = 1_000;

/// Names with their values.
pub type FormPairs = Vec<(String, FormValue)>;

/// A value: text, or the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormValue {
    /// Text, with invalid UTF-8 replaced.
    Text(String),
    /// The contents of an uploaded file.
    File(Vec<u8>),
}

impl FormValue {
    /// The text, unless the value is a file.
    pub fn text(&self) -> Option<&str> {
        match self {
            FormValue::Text(text) => Some(text),
            FormValue::File(_) => None,
        }
    }
}

/// Parses `a=1&b=2`.
pub fn urlencoded(text: &[u8]) -> FormPairs {
    form_urlencoded::parse(text)
        // The limit bounds the memory and lookup time that hostile requests can cause.
        .take(PAIRS_MAX)
        .map(|(name, value)| (name.into_owned(), FormValue::Text(value.into_owned())))
        .collect()
}

/// Parses Cookie fields. Percent-encoding in values is decoded, since `cookie()` in pages encodes them.
pub fn cookies(lines: &[u8]) -> FormPairs {
    let lines = FieldLines::new(lines).filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"));
    lines
        .flat_map(|(_, line)| line.split(|byte| *byte == b';'))
        .take(PAIRS_MAX)
        .filter_map(cookie)
        .collect()
}

fn cookie(pair: &[u8]) -> Option<(String, FormValue)> {
    let index = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (pair[..index].trim_ascii(), pair[index + 1..].trim_ascii());
    // Other programs can set cookies too, so invalid UTF-8 is replaced instead of refused.
    let value = percent_encoding::percent_decode(value).decode_utf8_lossy();
    let name = String::from_utf8_lossy(name).into_owned();
    Some((name, FormValue::Text(value.into_owned())))
}

/// Whether a method is safe, that is, read-only (RFC 9110 §9.2.1).
pub fn is_safe(method: Method) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Trace
    )
}

/// Parses a form from a request body; returns no pairs if the content type is not that of a form.
///
/// # Errors
/// The reason for which a multipart body is malformed.
pub async fn fields(content_type: &str, body: Vec<u8>) -> Result<FormPairs, String> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Ok(urlencoded(&body));
    }
    if kind.eq_ignore_ascii_case("multipart/form-data") {
        return multipart(content_type, body)
            .await
            .map_err(|error| error.to_string());
    }
    Ok(FormPairs::new())
}

async fn multipart(content_type: &str, body: Vec<u8>) -> Result<FormPairs, multer::Error> {
    let boundary = multer::parse_boundary(content_type)?;
    let body_stream = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
    let mut parts = multer::Multipart::new(body_stream, boundary);
    let mut pairs = FormPairs::new();
    while let Some(part) = parts.next_field().await? {
        // Pages could not access a part without a name.
        let Some(name) = part.name().map(str::to_string) else {
            continue;
        };
        let is_file = part.file_name().is_some();
        let bytes = part.bytes().await?.to_vec();
        // Further parts are ignored, as with the other encodings.
        if pairs.len() == PAIRS_MAX {
            break;
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let value = if is_file {
            FormValue::File(bytes)
        } else {
            FormValue::Text(text(bytes))
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> (String, FormValue) {
        (name.into(), FormValue::Text(value.into()))
    }

    #[test]
    fn urlencoded_pairs_are_decoded() {
        let pairs = urlencoded(b"a=1+2&b=%C3%A9%27&a=&c");
        let expected = [
            text("a", "1 2"),
            text("b", "é'"),
            text("a", ""),
            text("c", ""),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn cookie_name_ends_at_first_equals_sign() {
        assert_eq!(cookie(b" a=b=c "), Some(text("a", "b=c")));
        assert_eq!(cookie(b"a=%3B%20"), Some(text("a", "; ")));
        assert_eq!(cookie(b"nothing"), None);
    }

    #[tokio::test]
    async fn multipart_form_has_text_and_file_parts() {
        let body = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\n\
            Content-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\n2\r\n--x--\r\n";
        let kind = "multipart/form-data; boundary=x";
        let pairs = fields(kind, body.into()).await.unwrap();
        assert_eq!(
            pairs,
            [text("a", "1"), ("f".into(), FormValue::File(b"2".to_vec()))]
        );
        assert!(fields(kind, b"--x\r\nrubbish".to_vec()).await.is_err());
        assert!(fields("multipart/form-data", vec![]).await.is_err());
        assert_eq!(fields("text/plain", b"a=1".to_vec()).await, Ok(vec![]));
    }
}
