//! A body that is compressed as it comes. Nothing is taken from who makes it while its reader takes nothing.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use lowroad_engine::stream::{Next, Receiver, Sender};
use lowroad_files::compress::flowing::Encoder;
use lowroad_limits::Permit;

/// How much waits on the way to the reader.
pub const WAITING_LEN_MAX: usize = 64 << 10;
/// How much is compressed before others have a turn.
const PIECE_LEN: usize = 32 << 10;
/// So much is given to the reader at a time, unless no more comes.
const GIVEN_LEN: usize = 8 << 10;
/// Once nothing has come for so long, the reader gets all that came before. Flushing at once would take from the
/// compression of a body that comes in small parts, one after the other.
const QUIET: Duration = Duration::from_millis(10);

/// A body on its way.
pub struct Flow {
    from: Receiver,
    /// How much of it is missing, if it was said how long it is.
    missing: Option<u64>,
    to: Sender,
    encoder: Encoder,
    /// The reader can't have all of what has come yet.
    holds: bool,
    _turn: Permit,
}

/// Why it can't go on.
enum Stopped {
    /// Nobody reads it.
    Closed,
    /// The encoder failed: it is cut.
    Failed,
}

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Stopped {
        Stopped::Failed
    }
}

impl Flow {
    /// A body and its length, if that was said; where it goes; and leave for it.
    pub fn new(
        (from, len): (Receiver, Option<u64>),
        to: Sender,
        encoder: Encoder,
        turn: Permit,
    ) -> Flow {
        Flow {
            from,
            missing: len,
            to,
            encoder,
            holds: false,
            _turn: turn,
        }
    }

    /// Lets it come until its end.
    pub async fn run(mut self) {
        loop {
            let step = match self.next().await {
                Some(Next::Bytes(bytes)) => self.take_in(&bytes).await,
                None => self.flush().await,
                Some(Next::Cut) => return drop(self.flush().await),
                Some(Next::End) => return drop(self.end().await),
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// What is next; `None` if the reader waits for what is held. A reader that is gone is one that cuts.
    async fn next(&mut self) -> Option<Next> {
        let next = poll_fn(|context| match self.to.poll_closed(context) {
            Poll::Ready(()) => Poll::Ready(Next::Cut),
            Poll::Pending => self.from.poll_next(context),
        });
        match self.holds {
            true => tokio::time::timeout(QUIET, next).await.ok(),
            false => Some(next.await),
        }
    }

    async fn take_in(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        self.holds = true;
        if let Some(missing) = &mut self.missing {
            *missing = missing.saturating_sub(bytes.len() as u64);
        }
        for piece in bytes.chunks(PIECE_LEN) {
            self.encoder.write(piece)?;
            if self.encoder.output_len() >= GIVEN_LEN {
                self.give().await?;
            }
            if bytes.len() > PIECE_LEN {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Stopped> {
        self.encoder.flush()?;
        self.holds = false;
        self.give().await
    }

    async fn give(&mut self) -> Result<(), Stopped> {
        let given = self.encoder.take();
        let sent = self.to.send(given.into()).await;
        sent.map_err(|_| Stopped::Closed)
    }

    async fn end(self) -> Result<(), Stopped> {
        if self.missing.is_some_and(|missing| missing > 0) {
            // Its maker promised more: what follows must not look whole.
            return Err(Stopped::Failed);
        }
        let last = self.encoder.finish()?;
        let sent = self.to.send(last.into()).await;
        sent.map_err(|_| Stopped::Closed)?;
        self.to.end_with(self.from.take_trailers());
        Ok(())
    }
}
