//! Messages between the server and the helper with root's rights. A request is a purpose and a path; the response is a
//! descriptor, or the reason for which the helper does not open the file.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode};

/// Maximum length of a reason, in bytes.
const REASON_LEN_MAX: usize = 4096;
const OPENED: u8 = b'o';
const REFUSED: u8 = b'e';

/// The access for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpenPurpose {
    /// For reading.
    Read = b'r',
    /// For appending; a missing file is created.
    Append = b'a',
}

/// Requests a descriptor and waits for the response: a file, or the reason for which it is not opened.
///
/// # Errors
/// If the helper has ended, or does not respond.
pub fn request(
    channel: &PacketChannel,
    purpose: OpenPurpose,
    path: &Path,
) -> Result<Result<File, String>, MessageError> {
    send(channel, purpose as u8, path.as_os_str().as_bytes(), None)?;
    let mut answer = Vec::new();
    let descriptor = channel.receive(&mut answer)?.pop();
    match (&answer[..], descriptor) {
        ([OPENED], Some(file)) => Ok(Ok(file.into())),
        ([REFUSED, reason @ ..], None) => Ok(Err(String::from_utf8_lossy(reason).into_owned())),
        _ => Err(MessageError::Malformed),
    }
}

/// Waits for a request; `None` once the server has ended.
pub fn receive_request(channel: &PacketChannel) -> Option<(OpenPurpose, PathBuf)> {
    let mut request = Vec::new();
    channel.receive(&mut request).ok()?;
    let (purpose, path) = match &request[..] {
        [b'r', path @ ..] => (OpenPurpose::Read, path),
        [b'a', path @ ..] => (OpenPurpose::Append, path),
        _ => return None,
    };
    Some((purpose, PathBuf::from(OsStr::from_bytes(path))))
}

/// Sends a response; `None` once the server has ended.
pub fn answer(channel: &PacketChannel, answer: Result<&File, &str>) -> Option<()> {
    let sent = match answer {
        Ok(file) => send(channel, OPENED, b"", Some(file)),
        Err(reason) => {
            let len = reason.len().min(REASON_LEN_MAX);
            send(channel, REFUSED, &reason.as_bytes()[..len], None)
        }
    };
    sent.ok()
}

fn send(
    channel: &PacketChannel,
    kind: u8,
    bytes: &[u8],
    file: Option<&File>,
) -> Result<(), MessageError> {
    let descriptors = file.map(AsFd::as_fd);
    channel.send(
        &[&[kind], bytes].concat(),
        descriptors.as_slice(),
        SendMode::Wait,
    )
}
