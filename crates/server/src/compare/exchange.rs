//! One request to a server, on a new connection. `lowroad_http` parses the response.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use lowroad_http::h1::{BodyLen, H1Client, H1ClientEvent};
use lowroad_http::limits::RequestLimits;

use super::request_list::ListedRequest;
use super::server_stream::ServerStream;

/// The time for each wait for bytes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response.
const RESPONSE_LEN_MAX: usize = 256 << 20;
/// The bytes of one read.
const READ_LEN: usize = 64 * 1024;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    /// `HOST` or `HOST:PORT`, as in the URL.
    pub authority: String,
    /// `HOST:PORT`
    address: String,
    is_tls: bool,
}

impl HttpServer {
    /// Reads `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// Another scheme, or a path.
    pub fn parse(url: &str) -> Result<HttpServer, String> {
        let refusal = || {
            format!(
                "{url:?} is not the URL of a server; allowed: http://HOST:PORT and https://HOST:PORT, without a path"
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(refusal)?;
        let (is_tls, port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(refusal()),
        };
        let authority = rest.trim_end_matches('/');
        let is_valid = !authority.is_empty()
            && authority
                .bytes()
                .all(|it| it.is_ascii_graphic() && it != b'/');
        if !is_valid {
            return Err(refusal());
        }
        // The colons of an IPv6 address are in brackets.
        let has_port = authority
            .rsplit(']')
            .next()
            .is_some_and(|end| end.contains(':'));
        let address = if has_port {
            authority.to_string()
        } else {
            format!("{authority}:{port}")
        };
        Ok(HttpServer {
            authority: authority.to_string(),
            address,
            is_tls,
        })
    }

    /// The URL of a host at this server.
    pub fn url_of(&self, host: &str) -> String {
        match self.is_tls {
            true => format!("https://{host}"),
            false => format!("http://{host}"),
        }
    }

    /// Connects; with TLS for a site with the name in `host`.
    fn connect(&self, host: &str) -> io::Result<ServerStream> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        match self.is_tls {
            true => ServerStream::encrypt(socket, host_name(host)),
            false => Ok(ServerStream::Plain(socket)),
        }
    }
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_matches(['[', ']'])
}

/// A response of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerResponse {
    /// The status.
    pub status: u16,
    /// The fields: names in lower case, and values.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends a request and receives the response. `fields` are further field lines.
///
/// # Errors
/// No connection, no complete response in time, or one that is not HTTP.
pub fn exchange(
    server: &HttpServer,
    request: &ListedRequest,
    host: &str,
    fields: &str,
) -> io::Result<ServerResponse> {
    let mut stream = server.connect(host)?;
    let mut client = H1Client::default();
    let mut head = Vec::new();
    // Without persistence, a body of unknown length ends with the connection (RFC 9112 §6.3).
    let lines = format!("Host: {host}\r\nConnection: close\r\n{fields}");
    client
        .request(
            request.method,
            request.target.as_bytes(),
            lines.as_bytes(),
            BodyLen::None,
            &mut head,
        )
        .map_err(|_| invalid("the request could not be written"))?;
    stream.send(&head)?;
    let mut response = ServerResponse::default();
    let mut input = Vec::new();
    let mut chunk = vec![0; READ_LEN];
    loop {
        let len = stream.receive(&mut chunk)?;
        if len == 0 {
            let is_complete = client.handle_eof().unwrap_or(false);
            return match is_complete {
                true => Ok(response),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        input.extend_from_slice(&chunk[..len]);
        if take_events(&mut client, &mut input, &mut response)? {
            return Ok(response);
        }
        if response.body.len() + input.len() > RESPONSE_LEN_MAX {
            return Err(invalid("the response is too long"));
        }
    }
}

/// Consumes complete parts of the input; returns whether the response has ended.
fn take_events(
    client: &mut H1Client,
    input: &mut Vec<u8>,
    response: &mut ServerResponse,
) -> io::Result<bool> {
    let limits = RequestLimits::default();
    let mut used = 0;
    loop {
        let step = client
            .next(&input[used..], &limits)
            .map_err(|_| invalid("the response is not HTTP"))?;
        let is_waiting = step.used == 0 && step.event.is_none();
        used += step.used;
        match step.event {
            Some(H1ClientEvent::Response(head)) => {
                response.status = head.status.code();
                response.fields = head
                    .fields
                    .map(|(name, value)| (text(name).to_ascii_lowercase(), text(value)))
                    .collect();
            }
            Some(H1ClientEvent::Data(data)) => response.body.extend_from_slice(data),
            Some(H1ClientEvent::End { .. }) => return Ok(true),
            Some(H1ClientEvent::Interim(_)) => {}
            Some(_) => return Err(invalid("the response is not a simple one")),
            None if is_waiting => break,
            None => {}
        }
    }
    input.drain(..used);
    Ok(false)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_in_the_handshake_has_no_port() {
        for (host, name) in [
            ("a.example:81", "a.example"),
            ("a", "a"),
            ("[::1]:81", "::1"),
        ] {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn urls_of_servers_are_read() {
        let address = |url: &str| HttpServer::parse(url).map(|it| it.address).ok();
        assert_eq!(
            address("http://127.0.0.1:81/").as_deref(),
            Some("127.0.0.1:81")
        );
        assert_eq!(address("http://a.example").as_deref(), Some("a.example:80"));
        assert_eq!(address("http://[::1]").as_deref(), Some("[::1]:80"));
        assert_eq!(address("https://a/").as_deref(), Some("a:443"));
        for url in ["ftp://a", "a:80", "http://", "http://a/b"] {
            assert_eq!(address(url), None, "{url}");
        }
    }
}
