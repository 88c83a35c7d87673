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
    /// Any other request field, `$http_NAME`: an index into the names of the format.
    Field(usize),
    /// `$status`
    Status,
    /// `$body_bytes_sent`
    BodyBytesSent,
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
}

/// The prefix of variables that are request fields.
pub(crate) const FIELD_PREFIX: &str = "http_";

/// The names of all variables, except of request fields in general.
pub const NAMES: [(&str, LogVariable); 29] = [
    ("args", LogVariable::Args),
    ("body_bytes_sent", LogVariable::BodyBytesSent),
    ("host", LogVariable::Host),
    ("http_host", LogVariable::HttpHost),
    ("http_referer", LogVariable::Referer),
    ("http_user_agent", LogVariable::UserAgent),
    ("level", LogVariable::Level),
    ("msec", LogVariable::Msec),
    ("outcome", LogVariable::Outcome),
    ("query_string", LogVariable::Args),
    ("remote_addr", LogVariable::RemoteAddr),
    ("remote_port", LogVariable::RemotePort),
    ("remote_user", LogVariable::RemoteUser),
    ("request", LogVariable::Request),
    ("request_completion", LogVariable::RequestCompletion),
    ("request_method", LogVariable::RequestMethod),
    ("request_time", LogVariable::RequestTime),
    ("request_time_us", LogVariable::RequestTimeUs),
    ("request_uri", LogVariable::RequestUri),
    ("route", LogVariable::Route),
    ("scheme", LogVariable::Scheme),
    ("server_name", LogVariable::Site),
    ("server_protocol", LogVariable::ServerProtocol),
    ("site", LogVariable::Site),
    ("ssl_protocol", LogVariable::SslProtocol),
    ("status", LogVariable::Status),
    ("time_iso8601", LogVariable::TimeIso8601),
    ("time_local", LogVariable::TimeLocal),
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
                | LogVariable::RequestTime
                | LogVariable::RequestTimeUs
        )
    }

    /// Whether the value needs the precise clocks.
    pub(crate) fn is_precise(self) -> bool {
        matches!(
            self,
            LogVariable::Msec | LogVariable::RequestTime | LogVariable::RequestTimeUs
        )
    }
}

/// Whether a variable with this name exists as a request field: `http_` and a name in lower case, with `_` for `-`.
pub(crate) fn field_name(name: &str) -> Option<&str> {
    let field = name.strip_prefix(FIELD_PREFIX)?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (!field.is_empty() && field.bytes().all(is_name)).then_some(field)
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
        assert_eq!(field_name("http_x_a1"), Some("x_a1"));
        for name in ["http_", "http_X", "http_a-b", "uri"] {
            assert_eq!(field_name(name), None, "{name}");
        }
    }
}
