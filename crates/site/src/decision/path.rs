//! Decodes the path of a request, and checks whether the client may request it.

use lowroad_engine::Exchange;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::target;
use lowroad_site_rules::PathMatches;

use crate::sites::Site;

/// Decodes a path. The flag is true if a file may have the path; a path with an encoded slash is for handlers only.
#[inline]
pub fn decode_path<'p>(
    site: &Site,
    path: &'p [u8],
    scratch: &'p mut [u8],
) -> Result<(&'p [u8], bool), RequestRefusal> {
    let decoded = target::decode(path, scratch).map(<[u8]>::len);
    match decoded {
        Ok(len) => Ok((&scratch[..len], true)),
        // Only handlers get such a path: in the path of a file, the decoded slash would separate folders.
        Err(RequestRefusal::PathSlash) if site.rules.allows_encoded_slashes() => {
            Ok((target::decode_with_slashes(path, scratch)?, false))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Whether the client has the certificate that the path requires, if it requires one.
#[inline]
pub fn has_required_certificate(matches: &PathMatches<'_>, exchange: &Exchange) -> bool {
    let tls = exchange.tls.as_ref();
    !matches.wants_certificate() || tls.is_some_and(|it| it.client.is_some())
}
