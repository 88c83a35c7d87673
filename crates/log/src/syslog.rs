//! Sends log lines as messages: to syslog (RFC 5424, over TCP with the octet counting of RFC 6587) or to the journal of
//! systemd (its native protocol, a datagram of fields).
//!
//! Only the log's thread connects and sends. While the destination does not accept messages, they are dropped and
//! counted, and the next try follows after a pause that doubles up to a minute.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::civil_date::rfc3339;
use crate::loss_report::RetryPolicy;
use crate::writer::{EntryOutput, OpenOtherwise};

/// The time limit for connecting and for one write.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The severity "informational".
const SEVERITY: u8 = 6;
/// The socket of the journal.
pub const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The receiver of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageTarget {
    /// Syslog, on a Unix datagram socket.
    SyslogUnix(PathBuf),
    /// Syslog, at a host and port.
    SyslogUdp(String, u16),
    /// Syslog, at a host and port.
    SyslogTcp(String, u16),
    /// The journal of systemd.
    Journal,
}

/// As in the configuration: `syslog:udp:127.0.0.1:514`.
impl fmt::Display for MessageTarget {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut address = |kind, host: &str, port| match host.contains(':') {
            true => write!(to, "syslog:{kind}:[{host}]:{port}"),
            false => write!(to, "syslog:{kind}:{host}:{port}"),
        };
        match self {
            MessageTarget::SyslogUnix(path) => write!(to, "syslog:unix:{}", path.display()),
            MessageTarget::SyslogUdp(host, port) => address("udp", host, port),
            MessageTarget::SyslogTcp(host, port) => address("tcp", host, port),
            MessageTarget::Journal => to.write_str("journald"),
        }
    }
}

/// The fields of each message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFields {
    /// The number of the facility.
    pub facility: u8,
    /// The name of the application.
    pub tag: String,
    /// The name of the host.
    pub host: String,
}

/// An event for the error log. [`MessageEvent::Dropping`] is reported once, until [`MessageEvent::SentAgain`]:
/// after some seconds without an error.
#[derive(Debug)]
pub enum MessageEvent {
    /// Messages are dropped, because the destination does not accept them.
    Dropping(io::Error),
    /// Messages are sent again.
    SentAgain {
        /// The number of messages that were lost before.
        lost: u64,
    },
}

/// Receives events, on the log's thread.
pub type OnMessageEvent = Box<dyn FnMut(MessageEvent) + Send>;

/// Sends lines as messages.
pub struct MessageOutput {
    target: MessageTarget,
    fields: MessageFields,
    socket: Option<MessageSocket>,
    message: Vec<u8>,
    retry: RetryPolicy,
    on_event: OnMessageEvent,
}

enum MessageSocket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl MessageOutput {
    /// An output for this target. It connects when the first line is written.
    pub fn new(
        target: MessageTarget,
        fields: MessageFields,
        on_event: OnMessageEvent,
    ) -> MessageOutput {
        MessageOutput {
            target,
            fields,
            socket: None,
            message: Vec::new(),
            retry: RetryPolicy::default(),
            on_event,
        }
    }

    /// Sends a line. A message that is too long for a datagram is lost, but is no failure of the destination.
    fn send(&mut self, line: &[u8], unix_ms: u64) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(connect(&self.target)?),
        };
        self.message.clear();
        match self.target {
            MessageTarget::Journal => journal_message(&self.fields, line, &mut self.message),
            _ => syslog_message(&self.fields, unix_ms, line, &mut self.message),
        }
        socket.send(&self.message)
    }

    /// Sends lines; returns the number of lost ones.
    fn send_lines(&mut self, entries: &[u8], now: Instant, unix_ms: u64) -> u64 {
        let mut lost = 0;
        for line in entries.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            // No attempt during a pause: each could block the thread up to its timeout.
            let result = self.retry.is_due(now).then(|| self.send(line, unix_ms));
            match result {
                Some(Ok(())) => {
                    if let Some(lost) = self.retry.note_success(now) {
                        (self.on_event)(MessageEvent::SentAgain { lost });
                    }
                    continue;
                }
                Some(Err(error)) if is_too_long(&error) => {}
                Some(Err(error)) => {
                    // A part of the message may have been sent, so the connection can't be used any more.
                    self.socket = None;
                    if self.retry.note_failure(now) {
                        (self.on_event)(MessageEvent::Dropping(error));
                    }
                }
                None => {}
            }
            lost += 1;
            self.retry.count_lost(1);
        }
        lost
    }
}

impl EntryOutput for MessageOutput {
    const IS_GATHERING: bool = false;

    fn part_len(&self, entries: &[u8]) -> usize {
        entries.len()
    }

    fn write(&mut self, entries: &[u8]) -> u64 {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = unix_ms.map_or(0, |since| since.as_millis() as u64); // far below 2^64
        self.send_lines(entries, Instant::now(), unix_ms)
    }

    fn end_round(&mut self) -> u64 {
        0
    }

    fn reopen(&mut self, _: OpenOtherwise) -> io::Result<()> {
        // The name of the host may have another address, and the socket may have been replaced.
        self.socket = None;
        self.retry.end_pause();
        Ok(())
    }
}

impl MessageSocket {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            MessageSocket::Unix(socket) => socket.send(message).map(drop),
            MessageSocket::Udp(socket) => socket.send(message).map(drop),
            MessageSocket::Tcp(stream) => {
                // Octet counting (RFC 6587 §3.4.1), in one buffer, so that one write sends the whole message.
                let framed = [message.len().to_string().as_bytes(), b" ", message].concat();
                stream.write_all(&framed)
            }
        }
    }
}

fn is_too_long(error: &io::Error) -> bool {
    // EMSGSIZE; std has no kind for it.
    const MESSAGE_TOO_LONG: i32 = 90;
    error.raw_os_error() == Some(MESSAGE_TOO_LONG)
}

fn connect(target: &MessageTarget) -> io::Result<MessageSocket> {
    let addresses = |host: &String, port: &u16| (host.as_str(), *port).to_socket_addrs();
    let no_address = || io::Error::new(ErrorKind::NotFound, "the host has no address");
    match target {
        MessageTarget::SyslogUnix(path) => connect_unix(path.as_os_str()),
        MessageTarget::Journal => connect_unix(JOURNAL_SOCKET.as_ref()),
        MessageTarget::SyslogUdp(host, port) => {
            let address = addresses(host, port)?.next().ok_or_else(no_address)?;
            // A socket reaches only addresses of the family it was created for.
            let local = if address.is_ipv4() { "0.0.0.0" } else { "::" };
            let socket = UdpSocket::bind((local, 0))?;
            // Only a connected socket reports that the port is closed (ICMP), with the next send.
            socket.connect(address)?;
            socket.set_write_timeout(Some(TIMEOUT))?;
            Ok(MessageSocket::Udp(socket))
        }
        MessageTarget::SyslogTcp(host, port) => {
            let mut error = no_address();
            // Of the IPv6 and IPv4 addresses of a host, only some may be reachable.
            for address in addresses(host, port)? {
                match TcpStream::connect_timeout(&address, TIMEOUT) {
                    Ok(stream) => {
                        stream.set_write_timeout(Some(TIMEOUT))?;
                        return Ok(MessageSocket::Tcp(stream));
                    }
                    Err(refused) => error = refused,
                }
            }
            Err(error)
        }
    }
}

fn connect_unix(path: &std::ffi::OsStr) -> io::Result<MessageSocket> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A receiver that does not read makes the send fail, instead of blocking the thread for ever.
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(MessageSocket::Unix(socket))
}

/// Appends a message of RFC 5424 §6.
fn syslog_message(fields: &MessageFields, unix_ms: u64, line: &[u8], out: &mut Vec<u8>) {
    // The priority combines facility and severity (RFC 5424 §6.2.1).
    let priority = u16::from(fields.facility) * 8 + u16::from(SEVERITY);
    let header = format!(
        "<{priority}>1 {} {} {} {} access - ",
        rfc3339(unix_ms),
        fields.host,
        fields.tag,
        std::process::id()
    );
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(line);
}

/// Appends a message of the journal's native protocol. A line has no line feed, so its simple form is sufficient.
fn journal_message(fields: &MessageFields, line: &[u8], out: &mut Vec<u8>) {
    let header = format!(
        "PRIORITY={SEVERITY}\nSYSLOG_FACILITY={}\nSYSLOG_IDENTIFIER={}\nMESSAGE=",
        fields.facility, fields.tag
    );
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(line);
    out.push(b'\n');
}

#[cfg(test)]
mod tests;
