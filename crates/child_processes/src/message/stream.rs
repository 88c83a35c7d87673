//! Messages on a stream: a length prefix of 4 bytes, little-endian, and the content.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::content::{append, decode};
use super::{MESSAGE_LEN_MAX, MessageError};

/// The length of the prefix in bytes.
pub const PREFIX_LEN: usize = 4;

/// Encodes a message with its length prefix.
///
/// # Errors
/// [`MessageError::TooLong`].
pub fn frame(message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let mut frame = append(vec![0; PREFIX_LEN], message)?;
    let len = u32::try_from(frame.len() - PREFIX_LEN).map_err(|_| MessageError::TooLong)?;
    frame[..PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
    Ok(frame)
}

/// Decodes a length prefix.
///
/// # Errors
/// [`MessageError::TooLong`].
pub fn announced_len(prefix: [u8; PREFIX_LEN]) -> Result<usize, MessageError> {
    match u32::from_le_bytes(prefix) as usize {
        len @ 0..=MESSAGE_LEN_MAX => Ok(len),
        _ => Err(MessageError::TooLong),
    }
}

/// Reads one message, blocking.
///
/// # Errors
/// Those of the stream, and [`MessageError`].
pub fn read<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<T> {
    let mut prefix = [0; PREFIX_LEN];
    reader.read_exact(&mut prefix)?;
    // The length is checked before memory is allocated.
    let mut content = vec![0; announced_len(prefix)?];
    reader.read_exact(&mut content)?;
    Ok(decode(&content)?)
}

/// Writes one message, blocking.
///
/// # Errors
/// Those of the stream, and [`MessageError`].
pub fn write(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    writer.write_all(&frame(message)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_unchanged() {
        let messages = [("one".to_owned(), vec![1_u64, 2]), (String::new(), vec![])];
        let mut stream = Vec::new();
        for message in &messages {
            write(&mut stream, message).expect("it is short");
        }
        let mut stream = &stream[..];
        for message in messages {
            let read: (String, Vec<u64>) = read(&mut stream).expect("a message");
            assert_eq!(read, message);
        }
        let end = read::<u8>(&mut stream).expect_err("the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn message_over_the_limit_is_rejected_by_both_sides() {
        let long = "x".repeat(MESSAGE_LEN_MAX);
        // The length of the string is encoded in addition to its bytes.
        assert_eq!(frame(&long), Err(MessageError::TooLong));
        let prefix = (MESSAGE_LEN_MAX as u32 + 1).to_le_bytes();
        assert_eq!(announced_len(prefix), Err(MessageError::TooLong));
        assert_eq!(announced_len([0, 0, 0, 4]), Ok(MESSAGE_LEN_MAX));
    }
}
