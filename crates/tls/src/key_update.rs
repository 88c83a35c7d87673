//! Handshake messages that a client sends after the handshake: only KeyUpdate (RFC 8446, section 4.6.3), in one record
//! or split over several.

use rustls::{Error, HandshakeType, InvalidMessage, PeerMisbehaved};

/// The handshake type of KeyUpdate.
pub(crate) const KEY_UPDATE: u8 = 24;
/// The message's header: type and content length.
const HEADER: [u8; 4] = [KEY_UPDATE, 0, 0, 1];

/// Reads a KeyUpdate that may span records. Kept small, since every connection has one.
#[derive(Default)]
pub(crate) struct KeyUpdateReader {
    start: [u8; HEADER.len()],
    start_len: u8,
}

impl KeyUpdateReader {
    /// Whether the next record must continue a message.
    pub fn has_started(&self) -> bool {
        self.start_len > 0
    }

    /// Reads a record's content. Once the message is complete, returns whether the client requests that the server
    /// updates its keys, too.
    ///
    /// # Errors
    /// [`InvalidMessage::InvalidKeyUpdate`]: invalid value; another [`InvalidMessage`]: wrong length; otherwise the
    /// message is not allowed.
    pub fn read(&mut self, content: &[u8]) -> Result<Option<bool>, Error> {
        // RFC 8446, section 5.1: handshake fragments must not be empty.
        if content.is_empty() {
            return Err(PeerMisbehaved::IllegalTlsInnerPlaintext.into());
        }
        let start_len = usize::from(self.start_len);
        // The header may be split over several records.
        let (header, value) = content.split_at(content.len().min(HEADER.len() - start_len));
        let header_len = start_len + header.len();
        self.start[start_len..header_len].copy_from_slice(header);
        check_header(&self.start[..header_len])?;
        match value {
            [] => {
                self.start_len = header_len as u8;
                return Ok(None);
            }
            [0 | 1] => {}
            [_] => return Err(InvalidMessage::InvalidKeyUpdate.into()),
            // RFC 8446, section 5.1: a message before a key change must end its record; later data uses the next key.
            _ => return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into()),
        }
        // The message is complete; another may follow.
        self.start_len = 0;
        Ok(Some(value == [1]))
    }
}

/// Checks the start of a message: the type as soon as it is present, the length once the header is complete.
fn check_header(start: &[u8]) -> Result<(), Error> {
    match *start {
        [KEY_UPDATE, ..] if start.len() < HEADER.len() || start == HEADER => Ok(()),
        [KEY_UPDATE, 0, 0, 0] => Err(InvalidMessage::MissingData("KeyUpdate").into()),
        [KEY_UPDATE, ..] => Err(InvalidMessage::TrailingData("KeyUpdate").into()),
        _ => Err(Error::InappropriateHandshakeMessage {
            expect_types: vec![HandshakeType::KeyUpdate],
            got_type: HandshakeType::from(start[0]),
        }),
    }
}
