//! Response buffering for slow clients: data that a client has not accepted is buffered in memory and then in a file,
//! so that the response's maker can go on.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lowroad_engine::stream::{BodyReceiver, BodySender, stream};

use super::account::increment;
use super::file::TempFile;
use super::request::{BATCH_LEN_MAX, StreamChunk, poll_take};
use super::{SpoolFailure, SpoolLimits};
use crate::executor::ResponseExecutor;

/// The stall of a client after which its response is spooled. A fast client never stalls that long, and gets its
/// response directly.
pub const STALL: Duration = Duration::from_millis(10);
/// Bytes that are buffered on the way into a spool.
const WAITING_LEN_MAX: usize = 64 << 10;

impl SpoolLimits {
    /// Puts a spool in front of a slow client: returns the sink for the rest of the response.
    #[must_use]
    pub fn spool_for(
        self: &Arc<Self>,
        client: BodySender,
        executor: &ResponseExecutor,
    ) -> BodySender {
        increment(&self.account.responses);
        let (sender, from) = stream(WAITING_LEN_MAX);
        let spool = ResponseSpool {
            spools: self.clone(),
            from,
            client,
            buffered: Vec::new(),
            file: None,
            read_len: 0,
            full: false,
            is_complete: None,
        };
        executor.spawn(spool.run());
        sender
    }
}

/// A response in a spool.
struct ResponseSpool {
    spools: Arc<SpoolLimits>,
    from: BodyReceiver,
    client: BodySender,
    /// The newest bytes.
    buffered: Vec<u8>,
    /// The bytes before them, from `read_len` on.
    file: Option<TempFile>,
    read_len: u64,
    /// Whether the file is full: no more bytes go into it until the client has accepted everything.
    full: bool,
    /// Set at the end of the response: whether it was complete.
    is_complete: Option<bool>,
}

/// The next step of a spool.
enum SpoolStep {
    /// The client accepts more.
    Give,
    /// Enough bytes for a write to the file.
    PutAway,
    /// The client has received everything.
    Over,
    /// The client is gone.
    Gone,
}

impl ResponseSpool {
    async fn run(mut self) {
        loop {
            match poll_fn(|context| self.poll_step(context)).await {
                // A read error truncates the response.
                SpoolStep::Give if self.send_next().await.is_err() => return,
                SpoolStep::Give => {}
                SpoolStep::PutAway => self.spill_to_file().await,
                SpoolStep::Over => break,
                SpoolStep::Gone => return,
            }
        }
        // Not ended for a truncated response: dropping the sink truncates it for the client too.
        if self.is_complete == Some(true) {
            self.client.end_with(self.from.take_trailers());
        }
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<SpoolStep> {
        // The client is tried before and after reading: bytes that it can take at once must not go through the file.
        if let Poll::Ready(step) = self.poll_client(context) {
            return Poll::Ready(step);
        }
        let is_at_limit = self.poll_more(context);
        // Once more, since the new bytes may be sent directly.
        match self.poll_client(context) {
            Poll::Pending if is_at_limit && !self.full => Poll::Ready(SpoolStep::PutAway),
            step => step,
        }
    }

    fn poll_client(&self, context: &mut Context<'_>) -> Poll<SpoolStep> {
        match (self.is_empty(), self.is_complete) {
            // Nothing to send and more to come: only the client's departure is awaited here.
            (true, Some(_)) => Poll::Ready(SpoolStep::Over),
            (true, None) => self.client.poll_closed(context).map(|()| SpoolStep::Gone),
            (false, _) => self.client.poll_room(context).map(|room| match room {
                Ok(()) => SpoolStep::Give,
                Err(_) => SpoolStep::Gone,
            }),
        }
    }

    /// Reads available bytes, up to the limit of memory. Returns whether the limit is reached.
    fn poll_more(&mut self, context: &mut Context<'_>) -> bool {
        let len_min = self.spools.response_len();
        // A full file takes no batch, so memory is the only room.
        let len_max = if self.full { len_min } else { BATCH_LEN_MAX };
        if self.is_complete.is_none() && self.buffered.len() < len_min {
            match poll_take(&self.from, &mut self.buffered, len_min..=len_max, context) {
                Poll::Ready(StreamChunk::End) => self.is_complete = Some(true),
                Poll::Ready(StreamChunk::Cut) => self.is_complete = Some(false),
                Poll::Ready(StreamChunk::Enough) | Poll::Pending => {}
            }
        }
        self.buffered.len() >= len_min
    }

    fn is_empty(&self) -> bool {
        self.buffered.is_empty() && self.file.is_none()
    }

    /// Sends the next piece to the client.
    async fn send_next(&mut self) -> io::Result<()> {
        let piece = match &self.file {
            Some(file) => {
                let piece = file.read(self.read_len).await?;
                self.read_len += piece.len() as u64;
                // All was read: a new file begins at 0, and the old one's bytes return to the account.
                if self.read_len == file.len() {
                    (self.file, self.read_len) = (None, 0);
                }
                piece
            }
            None => std::mem::take(&mut self.buffered).into(),
        };
        if self.is_empty() {
            self.full = false;
        }
        // An error is noticed at the next poll of the client.
        let _ = self.client.push(piece);
        Ok(())
    }

    /// Writes the held bytes to the file. If that is impossible, the program must wait until the client has
    /// accepted everything.
    async fn spill_to_file(&mut self) {
        if let Err(failure) = self.try_spill().await {
            // Until the client has taken everything: retrying the file for each piece would fail each time.
            self.full = true;
            increment(&self.spools.account.program_waits);
            if let Some(failure) = failure {
                self.spools.notify_operator(&failure);
            }
        }
    }

    /// The error is `None` if only this file has reached its limit.
    async fn try_spill(&mut self) -> Result<(), Option<SpoolFailure>> {
        let file_len = self.file.as_ref().map_or(0, TempFile::len);
        let len = file_len + self.buffered.len() as u64;
        if len > self.spools.limits.temp_file_len_max {
            return Err(None);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => TempFile::open(&self.spools).await.map_err(Some)?,
        };
        let result = file.append(&mut self.buffered).await;
        // Frees the batch's capacity: a waiting response holds no more memory than configured.
        self.buffered.shrink_to(self.spools.response_len());
        // After a failed first write the file has no content.
        self.file = Some(file).filter(|file| file.len() > 0);
        result.map_err(Some)
    }
}
