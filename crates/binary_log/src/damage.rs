//! Damage that a reader reports.

use std::fmt;

use lowroad_log::quantity::quantity;

use crate::decoder::BlockError;
use crate::frame::{BlockHeader, BlockKind};

/// Bytes of a file that can't be read, or records that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDamage {
    /// The offset in the file.
    pub offset: u64,
    /// The cause.
    pub cause: DamageCause,
}

/// The cause of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageCause {
    /// Bytes that are not part of a block.
    Foreign {
        /// Their number.
        len: u64,
    },
    /// A block that can't be read.
    Block {
        /// The reason.
        error: BlockError,
        /// The block's header.
        header: BlockHeader,
    },
    /// The file ends within a block, or another block begins within it: the writer was killed.
    Cut {
        /// The number of its bytes that are present.
        len: u64,
        /// The block's header, if it is complete.
        header: Option<BlockHeader>,
    },
    /// The next block does not continue the one before: records were dropped, or their blocks are missing.
    Gap {
        /// The number of missing records.
        records: u64,
    },
}

impl fmt::Display for ReadDamage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match &self.cause {
            DamageCause::Foreign { len } => {
                write!(
                    to,
                    "offset {offset}: {len} bytes are no part of a binary log"
                )
            }
            DamageCause::Block { error, header } => {
                let (kind, len) = (Description(header), header.block_len());
                write!(to, "offset {offset}: {kind} of {len} bytes: {error}")
            }
            DamageCause::Cut { len, header: None } => {
                write!(
                    to,
                    "offset {offset}: only {len} bytes of a block's header are there"
                )
            }
            DamageCause::Cut {
                len,
                header: Some(header),
            } => {
                let (kind, whole) = (Description(header), header.block_len());
                write!(
                    to,
                    "offset {offset}: {kind} of {whole} bytes: only {len} are there"
                )
            }
            DamageCause::Gap { records } => {
                let missing = quantity(
                    *records,
                    "record before is missing",
                    "records before are missing",
                );
                write!(to, "offset {offset}: {missing}")
            }
        }
    }
}

impl ReadDamage {
    /// The records that are known to be lost. Those of bytes without a header appear as a gap before the next block.
    pub fn lost_records(&self) -> u64 {
        match &self.cause {
            DamageCause::Block { header, .. }
            | DamageCause::Cut {
                header: Some(header),
                ..
            } => {
                // The records of a dictionary are no records of the log.
                let is_lost = header.kind == BlockKind::Records;
                if is_lost {
                    header.record_count.into()
                } else {
                    0
                }
            }
            DamageCause::Gap { records } => *records,
            // No header names their records; the next block's first record number reveals them.
            DamageCause::Foreign { .. } | DamageCause::Cut { header: None, .. } => 0,
        }
    }
}

/// Formats a block for a message.
struct Description<'a>(&'a BlockHeader);

impl fmt::Display for Description<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            BlockKind::Schema => to.write_str("a description of columns"),
            BlockKind::Dictionary => to.write_str("a dictionary"),
            BlockKind::Records => {
                let count = u64::from(self.0.record_count);
                write!(to, "a block with {}", quantity(count, "record", "records"))
            }
            BlockKind::Unknown(kind) => write!(to, "a block of the unknown kind {kind}"),
        }
    }
}
