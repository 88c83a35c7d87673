//! Receives the body of a request or response part by part.

use super::InputStep;
use crate::body::BodyReader;
use crate::fields::FieldLines;
use crate::refusal::RequestRefusal;

/// A part of a received body.
pub(super) enum IncomingPart<'b> {
    /// A piece of content, not empty.
    Data(&'b [u8]),
    /// The end, with trailers.
    End(FieldLines<'b>),
}

/// A framing fault in a body.
pub(super) struct BrokenBody {
    /// The valid bytes; the fault is in the bytes after them.
    pub(super) used: usize,
    pub(super) refusal: RequestRefusal,
}

/// Consumes `input` from its start until a part is complete.
pub(super) fn take<'b>(
    reader: &mut BodyReader,
    input: &'b [u8],
) -> Result<InputStep<IncomingPart<'b>>, BrokenBody> {
    let mut used = 0;
    loop {
        let progress = reader.feed(input.get(used..).unwrap_or_default());
        let progress = progress.map_err(|refusal| BrokenBody { used, refusal })?;
        used += progress.consumed;
        if !progress.data.is_empty() {
            return Ok(InputStep::event(used, IncomingPart::Data(progress.data)));
        }
        if progress.done {
            return Ok(InputStep::event(
                used,
                IncomingPart::End(FieldLines::new(progress.trailers)),
            ));
        }
        // The reader needs a whole trailer section, or more input.
        if progress.consumed == 0 {
            return Ok(InputStep::used(used));
        }
    }
}
