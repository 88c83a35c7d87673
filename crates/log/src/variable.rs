//! The variables of log formats, named as in nginx.

/// A value of an access log entry that a format can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVariable {
    /// `$remote_addr`
    RemoteAddr,
    /// `$remote_port`
    RemotePort,
    /// `$remote_user`
    RemoteUser,
    /// `$time_local`
    TimeLocal,
    /// `$time_iso8601`
    TimeIso8601,
    /// `$msec`
    Msec,
    /// `$request`
    Request,
    /// `$request_method`
    RequestMethod,
    /// `$request_uri`
    RequestUri,
    /// `$uri`
    Uri,
    /// `$args`
    Args,
    /// `$server_protocol`
    ServerProtocol,
    /// `$scheme`
    Scheme,
    /// `$host`
    Host,
    /// `$http_host`
    HttpHost,
    /// `$http_referer`
    Referer,
    /// `$http_user_agent`
    UserAgent,
    /// A value with a name: an index into the [`NamedValue`]s of the format.
    Named(usize),
    /// `$status`
    Status,
    /// `$body_bytes_sent`
    BodyBytesSent,
    /// `$bytes_sent`
    BytesSent,
    /// `$request_time`
    RequestTime,
    /// `$request_time_us`
    RequestTimeUs,
    /// `$request_completion`
    RequestCompletion,
    /// `$site`
    Site,
    /// `$route`
    Route,
    /// `$level`
    Level,
    /// `$outcome`
    Outcome,
    /// `$ssl_protocol`
    SslProtocol,
    /// `$ssl_cipher`
    SslCipher,
    /// `$ssl_server_name`
    SslServerName,
    /// `$ssl_session_reused`
    SslSessionReused,
    /// `$ssl_client_verify`
    SslClientVerify,
    /// `$ssl_client_s_dn`
    SslClientSubject,
    /// `$ssl_client_i_dn`
    SslClientIssuer,
    /// `$ssl_client_serial`
    SslClientSerial,
    /// `$request_id`
    RequestId,
    /// `$trace_id`
    TraceId,
    /// `$span_id`
    SpanId,
    /// `$upstream_addr`
    UpstreamAddr,
    /// `$upstream_status`
    UpstreamStatus,
    /// `$upstream_connect_time`
    UpstreamConnectTime,
    /// `$upstream_header_time`
    UpstreamHeaderTime,
    /// `$upstream_response_time`
    UpstreamResponseTime,
    /// `$connection`
    Connection,
    /// `$connection_requests`
    ConnectionRequests,
    /// `$hostname`
    Hostname,
    /// `$pid`
    Pid,
}

/// A value that a format names, such as `$http_x_forwarded_for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedValue {
    /// The message part that has the value.
    pub source: ValueSource,
    /// The name, as in the variable: of a field in lower case with `_` for `-`.
    pub name: String,
}

/// The message part that has a named value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// `$http_NAME`: a field of the request.
    RequestField,
    /// `$sent_http_NAME`: a field of the response.
    ResponseField,
    /// `$cookie_NAME`: a cookie of the request.
    Cookie,
    /// `$arg_NAME`: an argument of the request's query.
    Argument,
}

/// The prefixes of named values.
const PREFIXES: [(&str, ValueSource); 4] = [
    ("http_", ValueSource::RequestField),
    ("sent_http_", ValueSource::ResponseField),
    ("cookie_", ValueSource::Cookie),
    ("arg_", ValueSource::Argument),
];

/// The names of all variables, except of named values in general.
pub const NAMES: [(&str, LogVariable); 49] = [
    ("args", LogVariable::Args),
    ("body_bytes_sent", LogVariable::BodyBytesSent),
    ("bytes_sent", LogVariable::BytesSent),
    ("connection", LogVariable::Connection),
    ("connection_requests", LogVariable::ConnectionRequests),
    ("host", LogVariable::Host),
    ("hostname", LogVariable::Hostname),
    ("http_host", LogVariable::HttpHost),
    ("http_referer", LogVariable::Referer),
    ("http_user_agent", LogVariable::UserAgent),
    ("level", LogVariable::Level),
    ("msec", LogVariable::Msec),
    ("outcome", LogVariable::Outcome),
    ("pid", LogVariable::Pid),
    ("query_string", LogVariable::Args),
    ("remote_addr", LogVariable::RemoteAddr),
    ("remote_port", LogVariable::RemotePort),
    ("remote_user", LogVariable::RemoteUser),
    ("request", LogVariable::Request),
    ("request_completion", LogVariable::RequestCompletion),
    ("request_id", LogVariable::RequestId),
    ("request_method", LogVariable::RequestMethod),
    ("request_time", LogVariable::RequestTime),
    ("request_time_us", LogVariable::RequestTimeUs),
    ("request_uri", LogVariable::RequestUri),
    ("route", LogVariable::Route),
    ("scheme", LogVariable::Scheme),
    ("server_name", LogVariable::Site),
    ("server_protocol", LogVariable::ServerProtocol),
    ("site", LogVariable::Site),
    ("span_id", LogVariable::SpanId),
    ("ssl_cipher", LogVariable::SslCipher),
    ("ssl_client_i_dn", LogVariable::SslClientIssuer),
    ("ssl_client_s_dn", LogVariable::SslClientSubject),
    ("ssl_client_serial", LogVariable::SslClientSerial),
    ("ssl_client_verify", LogVariable::SslClientVerify),
    ("ssl_protocol", LogVariable::SslProtocol),
    ("ssl_server_name", LogVariable::SslServerName),
    ("ssl_session_reused", LogVariable::SslSessionReused),
    ("status", LogVariable::Status),
    ("time_iso8601", LogVariable::TimeIso8601),
    ("time_local", LogVariable::TimeLocal),
    ("trace_id", LogVariable::TraceId),
    ("upstream_addr", LogVariable::UpstreamAddr),
    ("upstream_connect_time", LogVariable::UpstreamConnectTime),
    ("upstream_header_time", LogVariable::UpstreamHeaderTime),
    ("upstream_response_time", LogVariable::UpstreamResponseTime),
    ("upstream_status", LogVariable::UpstreamStatus),
    ("uri", LogVariable::Uri),
];

impl LogVariable {
    /// Whether the value is a number in JSON.
    pub(crate) fn is_number(self) -> bool {
        matches!(
            self,
            LogVariable::RemotePort
                | LogVariable::Msec
                | LogVariable::Status
                | LogVariable::BodyBytesSent
                | LogVariable::BytesSent
                | LogVariable::RequestTime
                | LogVariable::RequestTimeUs
                | LogVariable::Connection
                | LogVariable::ConnectionRequests
                | LogVariable::Pid
        )
    }

    /// Whether the value needs the precise clocks.
    pub(crate) fn is_precise(self) -> bool {
        matches!(
            self,
            LogVariable::Msec | LogVariable::RequestTime | LogVariable::RequestTimeUs
        )
    }

    /// Whether the value is of the attempts at upstream servers.
    pub(crate) fn is_upstream(self) -> bool {
        matches!(
            self,
            LogVariable::UpstreamAddr
                | LogVariable::UpstreamStatus
                | LogVariable::UpstreamConnectTime
                | LogVariable::UpstreamHeaderTime
                | LogVariable::UpstreamResponseTime
        )
    }

    /// Whether the value is of the TLS session, besides its version.
    pub(crate) fn is_tls(self) -> bool {
        matches!(
            self,
            LogVariable::SslCipher
                | LogVariable::SslServerName
                | LogVariable::SslSessionReused
                | LogVariable::SslClientVerify
                | LogVariable::SslClientSubject
                | LogVariable::SslClientIssuer
                | LogVariable::SslClientSerial
        )
    }

    /// Whether the value is of the trace.
    pub(crate) fn is_trace(self) -> bool {
        matches!(self, LogVariable::TraceId | LogVariable::SpanId)
    }
}

/// The value that a variable with a prefix names. Names of fields are in lower case, with `_` for `-`.
pub(crate) fn named_value(variable: &str) -> Option<NamedValue> {
    let (source, name) = PREFIXES
        .iter()
        .find_map(|(prefix, source)| Some((*source, variable.strip_prefix(prefix)?)))?;
    let is_field = matches!(
        source,
        ValueSource::RequestField | ValueSource::ResponseField
    );
    let is_name = |byte: u8| match byte {
        // Field names are compared in lower case, so an upper-case letter would never match.
        b'A'..=b'Z' => !is_field,
        byte => byte.is_ascii_alphanumeric() || byte == b'_',
    };
    (!name.is_empty() && name.bytes().all(is_name)).then(|| NamedValue {
        source,
        name: name.to_owned(),
    })
}

/// The value of an argument of a query, not decoded: the first one with this name, compared without case as in nginx.
pub fn argument<'q>(query: &'q [u8], name: &str) -> &'q [u8] {
    value_of(query.split(|byte| *byte == b'&'), name).unwrap_or_default()
}

/// The value of a cookie in a Cookie field, with this name, compared without case as in nginx.
pub fn cookie<'f>(field: &'f [u8], name: &str) -> Option<&'f [u8]> {
    let pairs = field.split(|byte| *byte == b';');
    value_of(pairs.map(<[u8]>::trim_ascii), name)
}

fn value_of<'p>(mut pairs: impl Iterator<Item = &'p [u8]>, name: &str) -> Option<&'p [u8]> {
    pairs.find_map(|pair| {
        let (found, value) = pair.split_at_checked(name.len())?;
        let value = value.strip_prefix(b"=")?;
        found.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
    })
}

/// Whether a received field is the one that a variable names: `X-Forwarded-For` is `x_forwarded_for`. A received name
/// with underscores matches no variable, as by default in nginx: a client could otherwise forge a field that a proxy in
/// front sets.
pub fn is_field(received: &[u8], name: &str) -> bool {
    let lower = |byte: &u8| match byte {
        b'-' => b'_',
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    received.len() == name.len() && received.iter().map(lower).eq(name.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn fields_are_named_as_in_nginx() {
        assert!(is_field(b"X-Forwarded-For", "x_forwarded_for"));
        assert!(!is_field(b"x_forwarded_for", "x_forwarded_for"));
        assert!(!is_field(b"X-Forwarded_For", "x_forwarded_for"));
        assert!(!is_field(b"X-Forwarded-Fo", "x_forwarded_for"));
        for (variable, source, name) in [
            ("http_x_a1", ValueSource::RequestField, "x_a1"),
            ("sent_http_etag", ValueSource::ResponseField, "etag"),
            ("cookie_SID", ValueSource::Cookie, "SID"),
            ("arg_utm_source", ValueSource::Argument, "utm_source"),
        ] {
            let name = name.to_owned();
            let expected = NamedValue { source, name };
            assert_eq!(named_value(variable), Some(expected), "{variable}");
        }
        for name in ["http_", "http_X", "sent_http_X", "http_a-b", "arg_", "uri"] {
            assert_eq!(named_value(name), None, "{name}");
        }
    }

    #[test]
    fn arguments_and_cookies_are_found_by_their_whole_name() {
        let query = b"aa=1&a&A=2%20&a=3&b=&c=d=e";
        for (name, expected) in [
            ("a", "2%20"),
            ("aa", "1"),
            ("b", ""),
            ("c", "d=e"),
            ("x", ""),
        ] {
            assert_eq!(argument(query, name), expected.as_bytes(), "{name}");
        }
        assert_eq!(cookie(b"a=1;  sid=x=y ; b", "SID"), Some(&b"x=y"[..]));
        assert_eq!(cookie(b"xsid=1; sidx=2; sid", "sid"), None);
    }
}
