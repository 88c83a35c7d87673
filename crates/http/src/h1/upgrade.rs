//! Detects requests for an upgrade to another protocol (RFC 9110 §7.8).

use crate::ascii_case::equals_lower;
use crate::fields::FieldLines;
use crate::list_values;

/// The value of Upgrade, if the field lines of an HTTP/1.1 request ask for an upgrade: Connection has the option
/// `upgrade`, and there is exactly one Upgrade line.
#[must_use]
pub fn requested_upgrade<'b>(lines: FieldLines<'b>) -> Option<&'b [u8]> {
    let mut protocols = (None, 0);
    let mut is_upgrade_option_present = false;
    for (name, value) in lines {
        if equals_lower(name, b"upgrade") {
            protocols = (Some(value), protocols.1 + 1);
        } else if equals_lower(name, b"connection") {
            is_upgrade_option_present |=
                list_values::members(value).any(|it| equals_lower(it, b"upgrade"));
        }
    }
    match protocols {
        // RFC 9110 §7.8: without the Connection option, Upgrade was not meant for this hop.
        (Some(protocol), 1) if is_upgrade_option_present && !protocol.is_empty() => Some(protocol),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(lines: &str) -> Option<&[u8]> {
        requested_upgrade(FieldLines::new(lines.as_bytes()))
    }

    #[test]
    fn both_fields_are_needed() {
        let both = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
        assert_eq!(requested(both), Some(&b"websocket"[..]));
        assert_eq!(
            requested("upgrade: a\r\nconnection: x\r\nConnection: upgrade\r\n"),
            Some(&b"a"[..])
        );
        assert_eq!(
            requested("Upgrade: websocket\r\nConnection: close\r\n"),
            None
        );
        assert_eq!(requested("Connection: upgrade\r\n"), None);
        assert_eq!(requested("Connection: upgrade\r\nUpgrade:\r\n"), None);
        let two = "Connection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n";
        assert_eq!(requested(two), None, "which one?");
    }
}
