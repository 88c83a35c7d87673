//! The head of a response, and what it says about the body. It knows no connection.

use super::FetchError;
use lowroad_http::Framing;

/// Fields that a response may have.
const FIELDS_MAX: usize = 100;

/// A head that has been checked.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) reason: Vec<u8>,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// `None` if the body would end with the connection.
    pub(super) framing: Option<Framing>,
    /// The connection may be used again after the body.
    pub(super) keeps_alive: bool,
}

/// Reads the head at the start of `bytes` and says how long it is; `None` if more must come.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Head, usize)>, FetchError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::Version) => return Err(FetchError::Version),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(FetchError::Malformed("it has more than 100 fields"));
        }
        Err(_) => return Err(FetchError::Malformed("its head")),
    };
    if response.version != Some(1) {
        return Err(FetchError::Version);
    }
    let status = response.code.unwrap_or_default();
    if status < 100 {
        return Err(FetchError::Malformed("its status"));
    }
    let owned = |f: &httparse::Header<'_>| {
        let value = f.value.trim_ascii();
        (f.name.as_bytes().to_vec(), value.to_vec())
    };
    let fields: Vec<(Vec<u8>, Vec<u8>)> = response.headers.iter().map(owned).collect();
    let head = Head {
        status,
        reason: response.reason.unwrap_or_default().as_bytes().to_vec(),
        framing: framing(status, &fields)?,
        keeps_alive: !lists(&fields, "connection", b"close"),
        fields,
    };
    Ok(Some((head, len)))
}

/// How the body is delimited (RFC 9112 §6.3), without any leniency.
fn framing(status: u16, fields: &[(Vec<u8>, Vec<u8>)]) -> Result<Option<Framing>, FetchError> {
    let codings: Vec<&[u8]> = values(fields, "transfer-encoding").collect();
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    let length = match lengths.as_slice() {
        [] => None,
        [first, rest @ ..] if rest.iter().all(|l| l == first) => Some(decimal(first)?),
        _ => return Err(FetchError::Malformed("two values of Content-Length")),
    };
    if matches!(status, ..200 | 204 | 304) {
        return Ok(Some(Framing::None));
    }
    match (codings.as_slice(), length) {
        ([], Some(len)) => Ok(Some(Framing::Length(len))),
        ([], None) => Ok(None),
        ([coding], None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
        (_, Some(_)) => Err(FetchError::Malformed(
            "it has both Transfer-Encoding and Content-Length",
        )),
        _ => Err(FetchError::Malformed(
            "a Transfer-Encoding other than chunked",
        )),
    }
}

fn values<'f>(fields: &'f [(Vec<u8>, Vec<u8>)], name: &'f str) -> impl Iterator<Item = &'f [u8]> {
    fields
        .iter()
        .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value.as_slice())
}

fn lists(fields: &[(Vec<u8>, Vec<u8>)], name: &str, member: &[u8]) -> bool {
    let is = |m: &[u8]| m.trim_ascii().eq_ignore_ascii_case(member);
    values(fields, name).any(|value| value.split(|b| *b == b',').any(is))
}

fn decimal(digits: &[u8]) -> Result<u64, FetchError> {
    let wrong = FetchError::Malformed("its Content-Length");
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(wrong);
    }
    let text = std::str::from_utf8(digits).map_err(|_| wrong)?;
    text.parse().map_err(|_| wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a head, broken at random: each is read, refused or waited for, and never read past.
    #[test]
    fn any_bytes_can_be_read_without_harm() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\
                      Transfer-Encoding: chunked\r\nX: y\r\n\r\nbody";
        let mut state = 88_172_645_463_325_252_u64;
        let (mut complete, mut refused) = (0, 0);
        for _ in 0..50_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..2 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [at, value, what, ..] = state.to_le_bytes();
                let at = usize::from(at) % bytes.len();
                match what % 4 {
                    0 => bytes[at] = value,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"\r\n :,"[usize::from(value) % 5]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            match read(&bytes) {
                Ok(Some((head, len))) => {
                    complete += 1;
                    assert!(len <= bytes.len() && (100..1000).contains(&head.status));
                }
                Ok(None) => {}
                Err(_) => refused += 1,
            }
        }
        assert!(complete > 100 && refused > 100, "{complete} {refused}");
    }
}
