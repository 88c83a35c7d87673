//! The facts about a request on which conditions depend.

use std::net::IpAddr;

use lowroad_http::host;
use lowroad_http::request::Request;

/// The facts about a request on which conditions depend.
#[derive(Clone, Copy)]
pub struct ConditionInput<'r> {
    /// The request, as the client sent it.
    pub request: &'r Request<'r>,
    /// The client's address, which a trusted proxy may have reported.
    pub client: IpAddr,
    /// Whether the client used TLS.
    pub is_https: bool,
    /// Whether the client has sent a valid certificate.
    pub has_certificate: bool,
    /// Seconds since 1970.
    pub unix_s: u64,
}

impl ConditionInput<'_> {
    /// The normalized host name.
    pub fn host<'h>(&self, buffer: &'h mut [u8; 256]) -> Option<&'h [u8]> {
        host::normalize(self.request.authority?, buffer)
    }
}

/// The cookies of a request (RFC 6265 §4.2.1), as names and values.
pub fn request_cookies<'b>(
    request: &Request<'b>,
) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
    let fields = request.fields();
    let cookies = fields.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let pairs = cookies.flat_map(|(_, pairs)| pairs.split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let pair = pair.trim_ascii();
        let end = pair.iter().position(|byte| *byte == b'=')?;
        Some((&pair[..end], &pair[end + 1..]))
    })
}
