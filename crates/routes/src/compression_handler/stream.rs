//! Compresses a body as it arrives. Backpressure: nothing is read from the handler while the client does not read.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem};
use lowroad_files::compression::streaming::BodyEncoder;
use lowroad_limits::Permit;

/// The size of the buffer between compression and the client.
pub const BUFFERED_LEN_MAX: usize = 64 << 10;
/// The amount of input after which other tasks can run.
const PIECE_LEN: usize = 32 << 10;
/// Output is passed on in pieces of this length, unless the input pauses.
const OUTPUT_LEN: usize = 8 << 10;
/// After a pause of this length in the input, the output is flushed. Flushing immediately would worsen the compression
/// of a body that arrives in small parts.
const QUIET: Duration = Duration::from_millis(10);

/// A body that is being compressed.
pub struct CompressedStream {
    from: BodyReceiver,
    /// The number of input bytes that are missing, if the length was declared.
    missing: Option<u64>,
    to: BodySender,
    encoder: BodyEncoder,
    /// Whether the encoder contains bytes that were not passed on.
    has_buffered: bool,
    _permit: Permit,
}

/// The reason for which compression stops.
enum CompressionStop {
    /// The client has disconnected.
    Closed,
    /// The encoder failed, or the input was incomplete: the body is truncated.
    Failed,
}

impl From<io::Error> for CompressionStop {
    fn from(_: io::Error) -> CompressionStop {
        CompressionStop::Failed
    }
}

impl CompressedStream {
    /// Creates a stream that compresses `from`, with its declared length, to `to`.
    pub fn new(
        from: BodyReceiver,
        len: Option<u64>,
        to: BodySender,
        encoder: BodyEncoder,
        permit: Permit,
    ) -> CompressedStream {
        CompressedStream {
            from,
            missing: len,
            to,
            encoder,
            has_buffered: false,
            _permit: permit,
        }
    }

    /// Compresses the body to its end.
    pub async fn run(mut self) {
        loop {
            let step = match self.next().await {
                Some(StreamItem::Bytes(bytes)) => self.compress_bytes(&bytes).await,
                None => self.flush().await,
                Some(StreamItem::Cut) => return drop(self.flush().await),
                Some(StreamItem::End) => return drop(self.end().await),
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// The next input; `None` if the output is to be flushed. If the client has disconnected, `StreamItem::Cut`.
    async fn next(&mut self) -> Option<StreamItem> {
        let next = poll_fn(|context| match self.to.poll_closed(context) {
            // The client has disconnected: the handler's body is dropped, which cancels the handler.
            Poll::Ready(()) => Poll::Ready(StreamItem::Cut),
            Poll::Pending => self.from.poll_next(context),
        });
        match self.has_buffered {
            // If the handler pauses, the encoder is flushed, so that the client receives a slow response as it is
            // generated.
            true => tokio::time::timeout(QUIET, next).await.ok(),
            false => Some(next.await),
        }
    }

    async fn compress_bytes(&mut self, bytes: &[u8]) -> Result<(), CompressionStop> {
        self.has_buffered = true;
        if let Some(missing) = &mut self.missing {
            *missing = missing.saturating_sub(bytes.len() as u64);
        }
        for piece in bytes.chunks(PIECE_LEN) {
            self.encoder.write(piece)?;
            // Small pieces are collected, because each one costs the worker a wake-up.
            if self.encoder.output_len() >= OUTPUT_LEN {
                self.send_output().await?;
            }
            if bytes.len() > PIECE_LEN {
                // Compressing a long piece must not delay other tasks of the runtime.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), CompressionStop> {
        self.encoder.flush()?;
        self.has_buffered = false;
        self.send_output().await
    }

    async fn send_output(&mut self) -> Result<(), CompressionStop> {
        let output = self.encoder.take();
        let sent = self.to.send(output.into()).await;
        sent.map_err(|_| CompressionStop::Closed)
    }

    async fn end(self) -> Result<(), CompressionStop> {
        if self.missing.is_some_and(|missing| missing > 0) {
            // The handler declared a longer body: the truncated body must not look complete.
            return Err(CompressionStop::Failed);
        }
        let last = self.encoder.finish()?;
        let sent = self.to.send(last.into()).await;
        sent.map_err(|_| CompressionStop::Closed)?;
        self.to.end_with(self.from.take_trailers());
        Ok(())
    }
}
