//! The content of structured messages, encoded by postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MESSAGE_LEN_MAX, MessageError};

/// Encodes a message.
///
/// # Errors
/// [`MessageError::TooLong`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    append(Vec::new(), message)
}

/// Encodes a message, and appends it to `buffer`.
pub(super) fn append(buffer: Vec<u8>, message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let prefix_len = buffer.len();
    // Postcard fails only for sequences of unknown length, which no message of this program contains.
    let bytes = postcard::to_extend(message, buffer).map_err(|_| MessageError::Malformed)?;
    match bytes.len() - prefix_len {
        0..=MESSAGE_LEN_MAX => Ok(bytes),
        _ => Err(MessageError::TooLong),
    }
}

/// Decodes a message.
///
/// # Errors
/// [`MessageError::Malformed`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    postcard::from_bytes(bytes).map_err(|_| MessageError::Malformed)
}
