//! The content of messages that have a structure, in postcard's form.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MESSAGE_LEN_MAX, MessageError};

/// The bytes of a message.
///
/// # Errors
/// [`MessageError::TooLong`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    append(Vec::new(), message)
}

/// Appends the bytes of a message.
pub(super) fn append(to: Vec<u8>, message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let front_len = to.len();
    // Only what can't be counted in advance has no form: this program has no such messages.
    let bytes = postcard::to_extend(message, to).map_err(|_| MessageError::Malformed)?;
    match bytes.len() - front_len {
        0..=MESSAGE_LEN_MAX => Ok(bytes),
        _ => Err(MessageError::TooLong),
    }
}

/// The message that these bytes are.
///
/// # Errors
/// [`MessageError::Malformed`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    postcard::from_bytes(bytes).map_err(|_| MessageError::Malformed)
}
