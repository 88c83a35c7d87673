//! The field names used by this server or listed in the static tables of HPACK and QPACK (RFC 7541 appendix A, RFC 9204
//! appendix A), each as a number. The semantics of the fields are implemented elsewhere.
//!
//! The table is sorted by the length of the names, so that a name is compared only with names of equal length; within
//! one length, names that clients send with most requests come first.

macro_rules! known {
    ($($variant:ident = $name:literal,)*) => {
        /// The name of a standard field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is the field of that name")]
        pub enum StandardHeader {
            $($variant,)*
        }

        impl StandardHeader {
            /// All standard names, in the order of the table.
            pub const ALL: &[StandardHeader] = &[$(StandardHeader::$variant,)*];

            /// The name in its registered spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                NAMES[self as usize]
            }
        }

        const NAMES: [&str; COUNT] = [$($name,)*];
    };
}

const COUNT: usize = 78;

known! {
    Te = "TE",
    Age = "Age",
    Via = "Via",
    Host = "Host",
    Date = "Date",
    Etag = "ETag",
    From = "From",
    Link = "Link",
    Vary = "Vary",
    Range = "Range",
    Allow = "Allow",
    Accept = "Accept",
    Cookie = "Cookie",
    Expect = "Expect",
    Origin = "Origin",
    Server = "Server",
    Pragma = "Pragma",
    Referer = "Referer",
    AltSvc = "Alt-Svc",
    Expires = "Expires",
    Purpose = "Purpose",
    Refresh = "Refresh",
    Trailer = "Trailer",
    Upgrade = "Upgrade",
    IfMatch = "If-Match",
    IfRange = "If-Range",
    Location = "Location",
    Priority = "Priority",
    CacheTag = "Cache-Tag",
    ExpectCt = "Expect-CT",
    Forwarded = "Forwarded",
    UserAgent = "User-Agent",
    Connection = "Connection",
    EarlyData = "Early-Data",
    KeepAlive = "Keep-Alive",
    SetCookie = "Set-Cookie",
    RetryAfter = "Retry-After",
    ContentType = "Content-Type",
    MaxForwards = "Max-Forwards",
    IfNoneMatch = "If-None-Match",
    CacheControl = "Cache-Control",
    AcceptRanges = "Accept-Ranges",
    Authorization = "Authorization",
    ContentRange = "Content-Range",
    LastModified = "Last-Modified",
    XHttpMethod = "X-HTTP-Method",
    AcceptCharset = "Accept-Charset",
    ContentLength = "Content-Length",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    XForwardedFor = "X-Forwarded-For",
    XFrameOptions = "X-Frame-Options",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLocation = "Content-Location",
    ProxyConnection = "Proxy-Connection",
    WwwAuthenticate = "WWW-Authenticate",
    XXssProtection = "X-XSS-Protection",
    IfModifiedSince = "If-Modified-Since",
    TransferEncoding = "Transfer-Encoding",
    XMethodOverride = "X-Method-Override",
    ProxyAuthenticate = "Proxy-Authenticate",
    ContentDisposition = "Content-Disposition",
    IfUnmodifiedSince = "If-Unmodified-Since",
    ProxyAuthorization = "Proxy-Authorization",
    TimingAllowOrigin = "Timing-Allow-Origin",
    XContentTypeOptions = "X-Content-Type-Options",
    XHttpMethodOverride = "X-HTTP-Method-Override",
    ContentSecurityPolicy = "Content-Security-Policy",
    StrictTransportSecurity = "Strict-Transport-Security",
    UpgradeInsecureRequests = "Upgrade-Insecure-Requests",
    AccessControlAllowOrigin = "Access-Control-Allow-Origin",
    AccessControlAllowHeaders = "Access-Control-Allow-Headers",
    AccessControlAllowMethods = "Access-Control-Allow-Methods",
    AccessControlExposeHeaders = "Access-Control-Expose-Headers",
    AccessControlRequestMethod = "Access-Control-Request-Method",
    AccessControlRequestHeaders = "Access-Control-Request-Headers",
    AccessControlAllowCredentials = "Access-Control-Allow-Credentials",
}

/// The longest name.
const LEN_MAX: usize = NAMES[COUNT - 1].len();

/// The index in the table of the first name of each length.
const STARTS: [u8; LEN_MAX + 2] = {
    let mut starts = [0; LEN_MAX + 2];
    let (mut len, mut at) = (0, 0);
    while len < starts.len() {
        while at < COUNT && NAMES[at].len() < len {
            at += 1;
        }
        starts[len] = at as u8;
        len += 1;
    }
    starts
};

/// A name as two numbers, see [`pack_ends`].
#[derive(Clone, Copy)]
struct NameEnds {
    /// The ends in lower case.
    lower: (u64, u64),
    /// 0x20 at each letter of the name and 0 at other bytes, so that no other byte compares equal by setting the case
    /// bit.
    case: (u64, u64),
}

const ENDS: [NameEnds; COUNT] = {
    let none = NameEnds {
        lower: (0, 0),
        case: (0, 0),
    };
    let mut ends = [none; COUNT];
    let mut at = 0;
    while at < COUNT {
        let name = NAMES[at].as_bytes();
        let (mut lower, mut case) = ([0; LEN_MAX], [0; LEN_MAX]);
        let mut byte = 0;
        while byte < name.len() {
            lower[byte] = name[byte].to_ascii_lowercase();
            case[byte] = if name[byte].is_ascii_alphabetic() {
                0x20
            } else {
                0
            };
            byte += 1;
        }
        ends[at] = NameEnds {
            lower: pack_ends(lower.split_at(name.len()).0),
            case: pack_ends(case.split_at(name.len()).0),
        };
        at += 1;
    }
    ends
};

/// The first and the last eight bytes of a name; a shorter name is returned whole, twice.
#[inline(always)]
const fn pack_ends(name: &[u8]) -> (u64, u64) {
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => {
            let all = pack_short(name);
            (all, all)
        }
    }
}

/// Packs at most seven bytes into one number.
#[inline(always)]
const fn pack_short(name: &[u8]) -> u64 {
    match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            (u32::from_le_bytes(*first) as u64) << 32 | u32::from_le_bytes(*last) as u64
        }
        _ => {
            let (mut all, mut at) = (0, 0);
            while at < name.len() {
                all = all << 8 | name[at] as u64;
                at += 1;
            }
            all
        }
    }
}

impl StandardHeader {
    /// Looks a name up, ignoring case. A name that is found is a token, since all its bytes were compared.
    #[must_use]
    #[inline]
    pub fn find(name: &[u8]) -> Option<StandardHeader> {
        // `STARTS` has one entry more than there are lengths: each range ends where the next one begins.
        let start = usize::from(*STARTS.get(name.len())?);
        let end = usize::from(*STARTS.get(name.len() + 1)?);
        let (first, last) = pack_ends(name);
        let has_ends =
            |it: &NameEnds| (first | it.case.0) == it.lower.0 && (last | it.case.1) == it.lower.1;
        let at = start + ENDS.get(start..end)?.iter().position(has_ends)?;
        // The two ends cover at most 16 bytes; the middle of a longer name is compared separately.
        let is_same = name.len() <= 16 || NAMES[at].as_bytes().eq_ignore_ascii_case(name);
        match is_same {
            true => StandardHeader::ALL.get(at).copied(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn standard_names_are_found_case_insensitively() {
        for (at, known) in StandardHeader::ALL.iter().enumerate() {
            let name = known.as_str();
            assert_eq!(*known as usize, at);
            for name in [
                name.into(),
                name.to_ascii_lowercase(),
                name.to_ascii_uppercase(),
            ] {
                assert_eq!(
                    StandardHeader::find(name.as_bytes()),
                    Some(*known),
                    "{name}"
                );
            }
        }
        assert!(NAMES.is_sorted_by_key(|name| name.len()));
    }

    #[test]
    fn name_with_one_changed_byte_is_not_found() {
        // Setting the case bit must not make other bytes equal to letters.
        for known in StandardHeader::ALL {
            for at in 0..known.as_str().len() {
                for byte in 0..=255 {
                    let mut other = Vec::from(known.as_str());
                    other[at] = byte;
                    if let Some(found) = StandardHeader::find(&other) {
                        assert!(found.as_str().as_bytes().eq_ignore_ascii_case(&other));
                    }
                }
            }
            let short = known.as_str().as_bytes();
            assert_ne!(StandardHeader::find(&short[1..]), Some(*known));
        }
        assert_eq!(StandardHeader::find(b""), None);
        assert_eq!(StandardHeader::find(&[b'a'; 100]), None);
    }
}
