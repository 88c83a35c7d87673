//! The body that one end receives, part by part. Knows no head.

use super::Step;
use crate::body::BodyReader;
use crate::fields::Lines;
use crate::refusal::Refusal;

/// What came of a body.
pub(super) enum Part<'b> {
    /// Some of it, not empty.
    Data(&'b [u8]),
    /// Its end, with trailers.
    End(Lines<'b>),
}

/// Why a body can't be taken further.
pub(super) struct BrokenBody {
    /// The bytes before the fault: it is in what follows them.
    pub(super) used: usize,
    pub(super) refusal: Refusal,
}

/// Takes from the start of `input` until there is something to tell.
pub(super) fn take<'b>(
    reader: &mut BodyReader,
    input: &'b [u8],
) -> Result<Step<Part<'b>>, BrokenBody> {
    let mut used = 0;
    loop {
        let fed = reader.feed(input.get(used..).unwrap_or_default());
        let fed = fed.map_err(|refusal| BrokenBody { used, refusal })?;
        used += fed.consumed;
        if !fed.data.is_empty() {
            return Ok(Step::event(used, Part::Data(fed.data)));
        }
        if fed.done {
            return Ok(Step::event(used, Part::End(Lines::of(fed.trailers))));
        }
        if fed.consumed == 0 {
            return Ok(Step::used(used));
        }
    }
}
