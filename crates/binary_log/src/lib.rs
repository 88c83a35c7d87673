//! The binary access log: records in columns, in compressed blocks with checksums.
//!
//! A worker appends records to a [`batch`]. The log's thread makes blocks of them with a [`BlockEncoder`], and `files`
//! writes and rotates them. A [`LogReader`] finds the blocks again, behind damage too. [`frame`] has the header of a
//! block, [`schema`] the columns. Encoder and reader know no files and no clock; neither do [`filter`], [`export`] and
//! [`report`], of which `lowroad log` consists.

#![forbid(unsafe_code)]

pub mod batch;
pub mod batch_line;
mod context_memory;
mod damage;
mod decoder;
mod dictionaries;
mod encoder;
pub mod export;
pub mod files;
pub mod filter;
pub mod frame;
pub mod limits;
pub mod line;
mod reader;
pub mod report;
pub mod schema;
mod symbols;
mod varint;

pub use damage::{DamageCause, ReadDamage};
pub use decoder::{BlockError, RecordBlock};
pub use encoder::BlockEncoder;
pub use reader::{LogReader, ReadEvent};
