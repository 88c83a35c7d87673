//! The label of a request in the error log.

use std::fmt;
use std::net::IpAddr;

use crate::request::HandlerRequest;

/// Identifies the request that a message in the error log is about. As text, it is escaped, so that a client cannot forge
/// other parts of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLabel {
    /// The client's address.
    pub client: IpAddr,
    /// The requested host, with a port if there is one.
    pub host: Box<[u8]>,
    /// The identifier of the request (`$request_id`).
    pub request_id: u128,
}

impl From<&HandlerRequest> for RequestLabel {
    fn from(request: &HandlerRequest) -> RequestLabel {
        RequestLabel {
            client: request.peer,
            host: request.host().into(),
            request_id: request.extra.request_id,
        }
    }
}

impl fmt::Display for RequestLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.escape_ascii();
        let (client, id) = (self.client.to_canonical(), self.request_id);
        write!(
            f,
            "client: {client}, host: \"{host}\", request_id: {id:032x}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_escaped() {
        let label = RequestLabel {
            client: "::ffff:192.0.2.1".parse().expect("an address"),
            host: b"a\"\r\n\x1b\xe2\x80\xae".as_slice().into(),
            request_id: 0xab,
        };
        assert_eq!(
            label.to_string(),
            format!(
                "client: 192.0.2.1, host: \"a\\\"\\r\\n\\x1b\\xe2\\x80\\xae\", request_id: {}ab",
                "0".repeat(30)
            )
        );
    }
}
