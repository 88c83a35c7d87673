//! Reads the event stream of a server's admin socket on its own thread, and connects again when it ends.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::admin::http_client::EventReader;
use crate::admin::server_search::only_socket;

/// Maximum time between two events; the server sends one each second.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the next attempt to connect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An event for the screen.
#[derive(Debug)]
pub enum FeedEvent {
    /// A snapshot of the server.
    Snapshot(Box<Value>),
    /// The server can't be read: the reason. The feed tries again.
    Lost(String),
}

/// Starts the feed of the server at `admin`, or of the only running server. It ends when the receiver is dropped.
///
/// # Errors
/// No thread can be started.
pub fn start(admin: Option<PathBuf>) -> io::Result<Receiver<FeedEvent>> {
    let (events, receiver) = channel();
    let thread = thread::Builder::new().name("top-feed".into());
    thread.spawn(move || {
        loop {
            let reason = match follow(&admin, &events) {
                Ok(()) => return,
                Err(reason) => reason,
            };
            if events.send(FeedEvent::Lost(reason)).is_err() {
                return;
            }
            thread::sleep(RETRY_INTERVAL);
        }
    })?;
    Ok(receiver)
}

/// Forwards events until the receiver is dropped.
fn follow(admin: &Option<PathBuf>, events: &Sender<FeedEvent>) -> Result<(), String> {
    // Chosen for each connection, since a restarted server may have another socket.
    let socket = only_socket(admin.as_deref())?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => format!("no events for {} s", EVENT_TIMEOUT.as_secs()),
        io::ErrorKind::UnexpectedEof => "the server has ended the connection".into(),
        _ => format!("{}: {error}", socket.display()),
    };
    let mut reader = EventReader::open(&socket, "/v1/events", EVENT_TIMEOUT).map_err(failed)?;
    loop {
        let event = reader.next_event().map_err(failed)?;
        let snapshot = serde_json::from_str(&event)
            .map_err(|error| format!("the server's events are of another version: {error}"))?;
        if events.send(FeedEvent::Snapshot(snapshot)).is_err() {
            return Ok(());
        }
    }
}
