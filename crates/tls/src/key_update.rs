//! Handshake messages of a client after the handshake: KeyUpdate alone (RFC 8446, section 4.6.3), in one record or in parts.

use rustls::{Error, HandshakeType, InvalidMessage, PeerMisbehaved};

/// The type of the message.
pub(crate) const KEY_UPDATE: u8 = 24;
/// The header of each: the type and the length of the content.
const HEADER: [u8; 4] = [KEY_UPDATE, 0, 0, 1];

/// The start of a message that goes on in the next record. Small, since each connection has one.
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

    /// Reads the content of a record. Gives whether the client wants our keys to change, too, once the message is whole.
    ///
    /// # Errors
    /// [`InvalidMessage::InvalidKeyUpdate`]: the value; another [`InvalidMessage`]: the length; else it should not be there.
    pub fn read(&mut self, content: &[u8]) -> Result<Option<bool>, Error> {
        if content.is_empty() {
            return Err(PeerMisbehaved::IllegalTlsInnerPlaintext.into());
        }
        let start_len = usize::from(self.start_len);
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
            // What follows would be encrypted with the next key.
            _ => return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into()),
        }
        self.start_len = 0;
        Ok(Some(value == [1]))
    }
}

/// Checks the start of a message: its type at once, its length when that is whole.
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
