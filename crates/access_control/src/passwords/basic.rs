//! The credentials of a request: Authorization with the scheme Basic (RFC 7617 §2).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use lowroad_http::request::Request;

/// Longer credentials are refused.
const LEN_MAX: usize = 1024;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The credentials of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct BasicCredentials {
    /// The user.
    pub user: String,
    /// The password.
    pub password: Vec<u8>,
}

impl BasicCredentials {
    /// The credentials of a request, if it has exactly one Authorization field and that is valid.
    pub fn from_request(request: &Request<'_>) -> Option<BasicCredentials> {
        let fields = request.fields();
        let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
        // Authorization is not a list field: with a second line, the request would be ambiguous (RFC 9110 §5.3).
        let (value, None) = (found.next()?.1, found.next()) else {
            return None;
        };
        let (scheme, encoded) = value.split_at_checked(b"basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"basic ") || encoded.len() > LEN_MAX {
            return None;
        }
        let pair = BASE64.decode(encoded.trim_ascii()).ok()?;
        // The first colon separates: a user name has none, a password may have some (RFC 7617 §2).
        let colon = pair.iter().position(|byte| *byte == b':')?;
        Some(BasicCredentials {
            user: String::from_utf8(pair[..colon].to_vec()).ok()?,
            password: pair[colon + 1..].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    fn read(lines: &str) -> Option<(String, String)> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let Ok(Some(head)) = parse(head.as_bytes(), &RequestLimits::default()) else {
            panic!("it is a request: {lines}");
        };
        let found = BasicCredentials::from_request(&head.request)?;
        Some((found.user, String::from_utf8_lossy(&found.password).into()))
    }

    #[test]
    fn basic_user_ends_at_first_colon() {
        let want = Some(("ann".to_string(), "a:b".to_string()));
        assert_eq!(read("Authorization: Basic YW5uOmE6Yg==\r\n"), want);
        assert_eq!(read("authorization: bAsIc  YW5uOmE6Yg\r\n"), want);
    }

    #[test]
    fn invalid_or_repeated_authorization_has_no_credentials() {
        for lines in [
            "",
            "Authorization: Basic\r\n",
            "Authorization: Basic YW5u\r\n",
            "Authorization: Basic YW5uOmE6Yg=!\r\n",
            "Authorization: Bearer YW5uOmE6Yg==\r\n",
            "Authorization: Basic YW5uOmE6Yg==\r\nAuthorization: Basic YW5uOmE6Yg==\r\n",
        ] {
            assert_eq!(read(lines), None, "{lines}");
        }
    }
}
