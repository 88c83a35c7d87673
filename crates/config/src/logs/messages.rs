//! Reads targets of messages: syslog and the journal of systemd.

use lowroad_log::syslog::MessageTarget;

use crate::LogTarget;
use crate::reader::ConfigSection;
use crate::value::InvalidValue;

const SYSLOG_SOCKET: &str = "/dev/log";
const SYSLOG_PORT: u16 = 514;
/// The maximum length of an application name (RFC 5424 §6.2.5).
const TAG_LEN_MAX: usize = 48;

/// The facilities of RFC 5424 §6.2.1 with their usual names.
const FACILITIES: [(&str, u8); 20] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// The target that a text names, if it is one of messages.
pub(super) fn target(text: &str) -> Option<MessageTarget> {
    if text == "journald" {
        return Some(MessageTarget::Journal);
    }
    if text == "syslog" {
        return Some(MessageTarget::SyslogUnix(SYSLOG_SOCKET.into()));
    }
    let (kind, address) = text.strip_prefix("syslog:")?.split_once(':')?;
    match kind {
        "unix" if address.starts_with('/') => Some(MessageTarget::SyslogUnix(address.into())),
        "udp" => host_and_port(address).map(|(host, port)| MessageTarget::SyslogUdp(host, port)),
        "tcp" => host_and_port(address).map(|(host, port)| MessageTarget::SyslogTcp(host, port)),
        _ => None,
    }
}

/// `log.example.com`, `192.0.2.1:514`, `[2001:db8::1]:514`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if rest.is_empty() => SYSLOG_PORT,
        None => return None,
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:_".contains(c);
    (!host.is_empty() && host.chars().all(is_host)).then(|| (host.to_string(), port))
}

/// Reads `facility` and `tag`.
pub(super) fn fields(
    section: &ConfigSection<'_>,
    target: Option<&LogTarget>,
) -> (Option<u8>, Option<String>) {
    let (facility, tag) = (section.item("facility"), section.item("tag"));
    if !matches!(target, Some(LogTarget::Messages(_))) {
        for item in facility.iter().chain(&tag) {
            item.report(
                "has no effect here",
                "only with to = \"syslog…\" or \"journald\"",
            );
        }
    }
    (
        facility.and_then(|item| item.choice(&FACILITIES)),
        tag.and_then(|item| item.read(application_name)),
    )
}

fn application_name(text: &str) -> Result<String, InvalidValue> {
    let is_name =
        (1..=TAG_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.to_string()).ok_or(InvalidValue {
        expected: "the name of an application",
        allowed: "1 to 48 printable characters of ASCII, without spaces",
    })
}
