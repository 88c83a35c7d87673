//! Response buffering for slow clients: data that a client has not accepted is buffered in memory and then in a file,
//! so that the application need not wait.

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

/// If a client accepts no bytes for this time, its response is spooled. A fast client never stalls that long, and gets
/// its response directly.
pub const STALL: Duration = Duration::from_millis(10);
/// The maximum number of bytes that are buffered between the application and a spool.
const WAITING_LEN_MAX: usize = 64 << 10;

impl SpoolLimits {
    /// Puts a spool in front of a slow client: returns the sender for the rest of the response.
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
    /// The latest bytes.
    buffered: Vec<u8>,
    /// The bytes before `buffered`, from the offset `read_len` on.
    file: Option<TempFile>,
    read_len: u64,
    /// Whether no more bytes are written to the file until the client has accepted everything: the file is full, or a
    /// write failed.
    full: bool,
    /// `None` until the response has ended; then whether it was complete.
    is_complete: Option<bool>,
}

/// The next step of a spool.
enum SpoolStep {
    /// The client accepts more: send the next piece.
    SendNext,
    /// There are enough bytes: write them to the file.
    SpillToFile,
    /// The client has received everything.
    Done,
    /// The client has disconnected.
    ClientClosed,
}

impl ResponseSpool {
    async fn run(mut self) {
        loop {
            match poll_fn(|context| self.poll_step(context)).await {
                // A read error truncates the response.
                SpoolStep::SendNext if self.send_next().await.is_err() => return,
                SpoolStep::SendNext => {}
                SpoolStep::SpillToFile => self.spill_to_file().await,
                SpoolStep::Done => break,
                SpoolStep::ClientClosed => return,
            }
        }
        // If the response was truncated, the sender is dropped without an end, which truncates it for the client, too.
        if self.is_complete == Some(true) {
            self.client.end_with(self.from.take_trailers());
        }
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<SpoolStep> {
        // The client is polled before and after reading: bytes that it accepts immediately must not be spooled.
        if let Poll::Ready(step) = self.poll_client(context) {
            return Poll::Ready(step);
        }
        let is_at_limit = self.poll_more(context);
        // Polled again, since the new bytes may be sent directly.
        match self.poll_client(context) {
            Poll::Pending if is_at_limit && !self.full => Poll::Ready(SpoolStep::SpillToFile),
            step => step,
        }
    }

    fn poll_client(&self, context: &mut Context<'_>) -> Poll<SpoolStep> {
        match (self.is_empty(), self.is_complete) {
            // Nothing is buffered: either the response has ended, or only a disconnect of the client matters now.
            (true, Some(_)) => Poll::Ready(SpoolStep::Done),
            (true, None) => self
                .client
                .poll_closed(context)
                .map(|()| SpoolStep::ClientClosed),
            (false, _) => self.client.poll_room(context).map(|room| match room {
                Ok(()) => SpoolStep::SendNext,
                Err(_) => SpoolStep::ClientClosed,
            }),
        }
    }

    /// Reads available bytes, up to the limit for memory. Returns whether the limit is reached.
    fn poll_more(&mut self, context: &mut Context<'_>) -> bool {
        let len_min = self.spools.response_len();
        // If the file is full, only as many bytes are read as fit into memory.
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
                // When the file has been read completely, it is closed, which releases its bytes in the account.
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
        // An error is detected at the next poll of the client.
        let _ = self.client.push(piece);
        Ok(())
    }

    /// Writes the buffered bytes to the file. If that fails, the application must wait until the client has accepted
    /// everything.
    async fn spill_to_file(&mut self) {
        if let Err(failure) = self.try_spill().await {
            // No more is written until the client has accepted everything, since retrying for each piece would fail
            // each time.
            self.full = true;
            increment(&self.spools.account.program_waits);
            if let Some(failure) = failure {
                self.spools.notify_operator(&failure);
            }
        }
    }

    /// Writes the buffered bytes. The error is `None` if only this file has reached its limit.
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
        // Frees the capacity of the batch, so that a waiting response uses no more memory than configured.
        self.buffered.shrink_to(self.spools.response_len());
        // After a failed first write, the file is empty and not needed.
        self.file = Some(file).filter(|file| file.len() > 0);
        result.map_err(Some)
    }
}
