//! The send queue: data that is not acknowledged yet. Offsets are relative to the first unacknowledged byte.

use crate::payload_checksums::{SUM_LEN, sum_of};
use crate::pool::{BufferPool, PoolBuffer};
use crate::stack_api::{SMALL, SendPiece};

/// The largest number of pieces in a queue.
const PIECES_MAX: usize = 4;
/// A longer piece with precomputed checksums starts in a new segment, so that the checksums can be used.
const ALIGNED_PIECE_LEN_MIN: usize = 8 * SUM_LEN;

enum QueuedData {
    Copied {
        buffer: PoolBuffer,
        len: usize,
    },
    Lasting {
        bytes: &'static [u8],
        sums: &'static [u16],
    },
}

struct QueueItem {
    data: QueuedData,
    /// The number of acknowledged bytes of the item.
    done: usize,
}

impl QueueItem {
    fn remaining(&self) -> usize {
        self.len() - self.done
    }

    fn len(&self) -> usize {
        match &self.data {
            QueuedData::Copied { len, .. } => *len,
            QueuedData::Lasting { bytes, .. } => bytes.len(),
        }
    }
}

/// The payload of a segment: `copied`, then `static_bytes`.
#[derive(Clone, Copy)]
pub(crate) struct SegmentPayload<'q> {
    pub copied: &'q [u8],
    pub static_bytes: &'static [u8],
    /// The precomputed checksums of `static_bytes`, or empty.
    sums: &'static [u16],
}

impl SegmentPayload<'_> {
    pub(crate) const EMPTY: SegmentPayload<'static> = SegmentPayload {
        copied: &[],
        static_bytes: &[],
        sums: &[],
    };

    pub(crate) fn len(&self) -> usize {
        self.copied.len() + self.static_bytes.len()
    }

    /// The folded checksum of the payload.
    pub(crate) fn sum(&self) -> u32 {
        let copied = sum_of(self.copied);
        let static_sum = match self.sums {
            [] => sum_of(self.static_bytes),
            sums => crate::bytes::fold(sums.iter().map(|sum| u32::from(*sum)).sum()),
        };
        // A checksum of bytes at an odd offset has its two bytes swapped (RFC 1071 §2 B).
        let static_sum = match self.copied.len() % 2 {
            0 => static_sum,
            _ => static_sum.swap_bytes(),
        };
        u32::from(copied) + u32::from(static_sum)
    }
}

/// Limits of the payload of a segment.
#[derive(Clone, Copy)]
pub(crate) struct PayloadShape {
    /// The largest length in bytes.
    pub len_max: usize,
    /// The largest length of `SegmentPayload::copied`.
    pub copied_max: usize,
    /// Whether to prefer parts with precomputed checksums, since the device computes none.
    pub prefers_sums: bool,
}

/// The send queue: a ring of pieces.
#[derive(Default)]
pub(crate) struct TransmitQueue {
    pieces: [Option<QueueItem>; PIECES_MAX],
    first: usize,
    count: usize,
    len: usize,
}

impl TransmitQueue {
    /// The number of bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue holds buffers of the pool.
    pub(crate) fn has_copied(&self) -> bool {
        let is_copied = |item: &QueueItem| matches!(item.data, QueuedData::Copied { .. });
        self.pieces.iter().flatten().any(is_copied)
    }

    fn piece(&self, number: usize) -> Option<&QueueItem> {
        match number < self.count {
            true => self.pieces[(self.first + number) % PIECES_MAX].as_ref(),
            false => None,
        }
    }

    /// Appends a piece.
    pub(crate) fn push(
        &mut self,
        pool: &mut BufferPool,
        piece: SendPiece<'_>,
    ) -> Result<(), QueueRefusal> {
        let data = match piece {
            SendPiece::Copied(bytes) if self.append(bytes) => {
                self.len += bytes.len();
                return Ok(());
            }
            SendPiece::Lasting { bytes: [], .. } => return Ok(()),
            _ if self.count == PIECES_MAX => return Err(QueueRefusal::Queue),
            SendPiece::Copied(bytes) => {
                let mut buffer = pool.allocate(bytes.len()).ok_or(QueueRefusal::Buffer)?;
                buffer[..bytes.len()].copy_from_slice(bytes);
                QueuedData::Copied {
                    buffer,
                    len: bytes.len(),
                }
            }
            SendPiece::Lasting { bytes, sums } => QueuedData::Lasting { bytes, sums },
        };
        let queued = QueueItem { data, done: 0 };
        self.len += queued.len();
        self.pieces[(self.first + self.count) % PIECES_MAX] = Some(queued);
        self.count += 1;
        Ok(())
    }

    /// Appends to the last piece's buffer if it has room.
    fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let Some(last) = self.count.checked_sub(1) else {
            return false;
        };
        let last = &mut self.pieces[(self.first + last) % PIECES_MAX];
        let Some(QueueItem {
            data: QueuedData::Copied { buffer, len },
            ..
        }) = last
        else {
            return false;
        };
        let Some(room) = buffer.get_mut(*len..*len + bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        *len += bytes.len();
        true
    }

    /// Removes `count` acknowledged bytes from the front.
    pub(crate) fn consume(&mut self, pool: &mut BufferPool, mut count: usize) {
        count = count.min(self.len);
        self.len -= count;
        while self.count > 0 {
            let slot = &mut self.pieces[self.first];
            let Some(piece) = slot else { return };
            let remaining = piece.remaining();
            if count < remaining {
                piece.done += count;
                return;
            }
            count -= remaining;
            if let Some(QueueItem {
                data: QueuedData::Copied { buffer, .. },
                ..
            }) = slot.take()
            {
                pool.release(buffer);
            }
            self.first = (self.first + 1) % PIECES_MAX;
            self.count -= 1;
        }
    }

    /// The payload of a segment that starts at this offset.
    pub(crate) fn part(&self, mut at: usize, shape: PayloadShape) -> SegmentPayload<'_> {
        let mut number = 0;
        while let Some(piece) = self.piece(number) {
            if at < piece.remaining() {
                return self.part_of(number, piece, piece.done + at, shape);
            }
            at -= piece.remaining();
            number += 1;
        }
        SegmentPayload::EMPTY
    }

    fn part_of<'q>(
        &'q self,
        number: usize,
        piece: &'q QueueItem,
        from: usize,
        shape: PayloadShape,
    ) -> SegmentPayload<'q> {
        match &piece.data {
            QueuedData::Lasting { bytes, sums } => {
                let sums = if shape.prefers_sums { sums } else { &[][..] };
                static_payload(bytes, sums, from, shape.len_max)
            }
            QueuedData::Copied { buffer, len } => {
                let to = (*len).min(from + shape.len_max.min(shape.copied_max));
                let copied = &buffer[from..to];
                let room = shape.len_max - copied.len();
                let next = match to == *len && room > 0 {
                    true => self.piece(number + 1),
                    false => None,
                };
                let following = match next {
                    Some(next) => following_payload(next, room, shape.prefers_sums),
                    None => SegmentPayload::EMPTY,
                };
                SegmentPayload {
                    copied,
                    ..following
                }
            }
        }
    }

    /// Returns all buffers to the pool.
    pub(crate) fn clear(&mut self, pool: &mut BufferPool) {
        self.consume(pool, self.len);
    }
}

/// The part of the next piece that fits into the segment after the end of a copied piece.
fn following_payload(next: &QueueItem, room: usize, prefers_sums: bool) -> SegmentPayload<'static> {
    match &next.data {
        QueuedData::Lasting { bytes, sums } => {
            if !prefers_sums {
                return static_payload(bytes, &[], next.done, room);
            }
            // Segments that start at another offset could not use the precomputed checksums of a long piece.
            match !sums.is_empty() && bytes.len() > ALIGNED_PIECE_LEN_MIN {
                true => SegmentPayload::EMPTY,
                false => static_payload(bytes, sums, next.done, room),
            }
        }
        // A frame has at most one copied part.
        QueuedData::Copied { .. } => SegmentPayload::EMPTY,
    }
}

fn static_payload(
    bytes: &'static [u8],
    sums: &'static [u16],
    from: usize,
    len_max: usize,
) -> SegmentPayload<'static> {
    let to = bytes.len().min(from + len_max);
    SegmentPayload {
        copied: &[],
        static_bytes: &bytes[from..to],
        sums: match sums {
            [] => &[],
            sums => sums_of_range(sums, bytes.len(), from, to),
        },
    }
}

/// The precomputed checksums of a range, if it consists of whole parts.
fn sums_of_range(sums: &'static [u16], len: usize, from: usize, to: usize) -> &'static [u16] {
    let is_aligned = from.is_multiple_of(SUM_LEN) && (to.is_multiple_of(SUM_LEN) || to == len);
    match is_aligned {
        true => sums
            .get(from / SUM_LEN..to.div_ceil(SUM_LEN))
            .unwrap_or_default(),
        false => &[],
    }
}

/// Why a piece was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    /// There is no free place in the queue.
    Queue,
    /// There is no free buffer of this length.
    Buffer,
}

const _: () = assert!(SMALL > SUM_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    static BODY: [u8; 20_000] = {
        let mut bytes = [0; 20_000];
        let mut i = 0;
        while i < bytes.len() {
            bytes[i] = (i % 251) as u8;
            i += 1;
        }
        bytes
    };

    fn sums() -> &'static [u16] {
        Vec::leak(crate::payload_checksums::sums(&BODY))
    }

    const SHAPE: PayloadShape = PayloadShape {
        len_max: 1460,
        copied_max: 1460,
        prefers_sums: true,
    };

    #[test]
    fn small_pieces_are_merged_and_acknowledged_ones_removed() {
        let mut pool = BufferPool::new(4, 1);
        let mut queue = TransmitQueue::default();
        let lasting = SendPiece::Lasting {
            bytes: &BODY[..3000],
            sums: &[],
        };
        queue
            .push(&mut pool, SendPiece::Copied(b"he"))
            .expect("room");
        queue
            .push(&mut pool, SendPiece::Copied(b"ad!"))
            .expect("room");
        queue.push(&mut pool, lasting).expect("room");
        let part = queue.part(1, SHAPE);
        assert_eq!(
            (part.copied, part.static_bytes),
            (&b"ead!"[..], &BODY[..1456])
        );
        let whole: Vec<u8> = [part.copied, part.static_bytes].concat();
        assert_eq!(crate::bytes::fold(part.sum()), sum_of(&whole));
        let odd = queue.part(0, SHAPE);
        let whole: Vec<u8> = [odd.copied, odd.static_bytes].concat();
        assert_eq!(crate::bytes::fold(odd.sum()), sum_of(&whole));
        queue.consume(&mut pool, 7);
        assert_eq!(pool.free(), (4, 1));
        assert_eq!(queue.part(0, SHAPE).static_bytes, &BODY[2..1462]);
        assert_eq!((queue.len(), queue.part(2998, SHAPE).len()), (2998, 0));
        queue.clear(&mut pool);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn precomputed_checksums_match_the_payload() {
        let mut pool = BufferPool::new(1, 0);
        let mut queue = TransmitQueue::default();
        let lasting = SendPiece::Lasting {
            bytes: &BODY,
            sums: sums(),
        };
        queue
            .push(&mut pool, SendPiece::Copied(b"head"))
            .expect("room");
        queue.push(&mut pool, lasting).expect("room");
        assert_eq!(queue.part(0, SHAPE).len(), 4);
        let mut at = 4;
        while at < queue.len() {
            let part = queue.part(at, SHAPE);
            assert_eq!(part.sums.len(), 1);
            assert_eq!(crate::bytes::fold(part.sum()), sum_of(part.static_bytes));
            at += part.len();
        }
        let shape = PayloadShape {
            len_max: 10 * SUM_LEN,
            ..SHAPE
        };
        assert_eq!(queue.part(4, shape).sums.len(), 10);
    }

    #[test]
    fn push_without_room_accepts_no_byte() {
        let mut pool = BufferPool::new(1, 1);
        let mut queue = TransmitQueue::default();
        let long = [0; 60_000];
        queue
            .push(&mut pool, SendPiece::Copied(&long))
            .expect("room");
        assert_eq!(
            queue.push(&mut pool, SendPiece::Copied(&long)),
            Err(QueueRefusal::Buffer)
        );
        for _ in 0..3 {
            let lasting = SendPiece::Lasting {
                bytes: &BODY,
                sums: &[],
            };
            queue.push(&mut pool, lasting).expect("room");
        }
        assert_eq!(
            queue.push(&mut pool, SendPiece::Copied(b"x")),
            Err(QueueRefusal::Queue)
        );
        assert_eq!(queue.len(), 120_000);
        queue.clear(&mut pool);
        assert_eq!(pool.free(), (1, 1));
    }
}
