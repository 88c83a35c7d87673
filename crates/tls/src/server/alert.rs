//! Replaces alerts of `rustls` with those that RFC 8446 requires. Only unencrypted alerts can be replaced.

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};

use crate::failure::NO_CERTIFICATE;

/// A fatal alert in plaintext, without the description byte.
const PLAIN_ALERT: [u8; 6] = [21, 3, 3, 0, 2, 2];

/// protocol_version, for a client that supports at most SSL 3.0 (RFC 8446, appendix D.5).
pub(super) const PROTOCOL_VERSION: [u8; 7] = [21, 3, 0, 0, 2, 2, 70];

/// Corrects the alert at the end of `to_send` after an error.
pub(super) fn correct_alert(error: &Error, is_tls13: bool, to_send: &mut [u8]) {
    let Some(alert) = expected_alert(error, is_tls13) else {
        return;
    };
    // The alert is the last record that `rustls` writes; an encrypted one does not match.
    let start = to_send.len().checked_sub(PLAIN_ALERT.len() + 1);
    let last = start.and_then(|start| to_send.get_mut(start..));
    if let Some([head @ .., description]) = last
        && *head == PLAIN_ALERT
    {
        *description = u8::from(alert);
    }
}

/// The alert that RFC 8446 requires for an error, if `rustls` has another one.
pub(crate) fn expected_alert(error: &Error, is_tls13: bool) -> Option<AlertDescription> {
    use PeerIncompatible::{
        KeyShareExtensionRequired, NamedGroupsExtensionRequired,
        SignatureAlgorithmsExtensionRequired,
    };
    match error {
        // RFC 8446, section 9.2.
        Error::PeerIncompatible(KeyShareExtensionRequired) => {
            Some(AlertDescription::MissingExtension)
        }
        Error::PeerIncompatible(
            NamedGroupsExtensionRequired | SignatureAlgorithmsExtensionRequired,
        ) if is_tls13 => Some(AlertDescription::MissingExtension),
        // RFC 8446, sections 5 and 5.1: such a record is unexpected.
        Error::InvalidMessage(
            InvalidMessage::InvalidEmptyPayload | InvalidMessage::InvalidContentType,
        ) => Some(AlertDescription::UnexpectedMessage),
        Error::InvalidMessage(InvalidMessage::MessageTooLarge) => {
            Some(AlertDescription::RecordOverflow)
        }
        // RFC 6066, section 3. `rustls` sends access_denied, which browsers show as a fault of the user.
        Error::General(text) if text == NO_CERTIFICATE => Some(AlertDescription::UnrecognisedName),
        _ => None,
    }
}
