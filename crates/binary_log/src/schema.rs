//! The columns of a block, and their description in the file. A reader takes name, type and encoding of each column
//! from it, and skips columns that it does not know.

use crate::limits::COLUMNS_MAX;
use crate::varint::{put_number, take_bytes, take_number};

/// A known column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogColumn {
    /// When the response began, ms since 1970.
    Time,
    /// The client's address: 4 or 16 bytes.
    Peer,
    /// The method; empty if the request line does not have three words.
    Method,
    /// The request target; the request line, if it does not have three words.
    Target,
    /// The protocol at the end of the request line.
    Protocol,
    /// The requested host.
    Host,
    /// The authenticated user.
    User,
    /// The Referer.
    Referer,
    /// The User-Agent.
    UserAgent,
    /// The response's status.
    Status,
    /// Bytes of the body that were sent.
    BodyBytes,
    /// 1 if the response was sent completely, 0 otherwise.
    Whole,
    /// Time from the request's last byte to the response's, µs.
    Duration,
    /// The response's source.
    Outcome,
    /// The level that answered.
    Level,
    /// The version of TLS.
    Tls,
}

/// All columns, in the order of a block: numbers first, then texts, so that neighbours have similar bytes.
pub const COLUMNS: [LogColumn; 16] = [
    LogColumn::Time,
    LogColumn::Duration,
    LogColumn::Peer,
    LogColumn::Target,
    LogColumn::BodyBytes,
    LogColumn::Status,
    LogColumn::Whole,
    LogColumn::Outcome,
    LogColumn::Level,
    LogColumn::Method,
    LogColumn::Protocol,
    LogColumn::Host,
    LogColumn::User,
    LogColumn::Referer,
    LogColumn::UserAgent,
    LogColumn::Tls,
];

/// The type of a column's values, for readers that do not know its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ColumnType {
    /// A number without unit.
    Number = 1,
    /// ms since 1970.
    UnixMs = 2,
    /// µs.
    Microseconds = 3,
    /// Bytes.
    ByteCount = 4,
    /// Text of any bytes.
    Text = 5,
    /// An IPv4 or IPv6 address: 4 or 16 bytes.
    Address = 6,
}

/// The encoding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ColumnEncoding {
    /// LEB128 of the difference to the value before, zigzag.
    Delta = 1,
    /// The number of bytes of each value without leading zeros (0 to 8), then the lowest bytes of all values, then the
    /// bytes above them, and so on: bytes of equal weight have similar values.
    Number = 2,
    /// LEB128: 0 for the last value that came with the same value of the context column, otherwise the value plus 1.
    Predicted = 3,
    /// The distinct values, then a symbol for each record (see `table`).
    Table = 4,
}

/// The description of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// The type of values.
    pub value_type: ColumnType,
    /// The encoding.
    pub encoding: ColumnEncoding,
    /// The table column with the value that predicts this one.
    pub context: Option<LogColumn>,
}

impl LogColumn {
    /// The name in files, in JSON and in CSV.
    pub fn name(self) -> &'static str {
        match self {
            LogColumn::Time => "time",
            LogColumn::Peer => "peer",
            LogColumn::Method => "method",
            LogColumn::Target => "target",
            LogColumn::Protocol => "protocol",
            LogColumn::Host => "host",
            LogColumn::User => "user",
            LogColumn::Referer => "referer",
            LogColumn::UserAgent => "user_agent",
            LogColumn::Status => "status",
            LogColumn::BodyBytes => "bytes",
            LogColumn::Whole => "whole",
            LogColumn::Duration => "duration_us",
            LogColumn::Outcome => "outcome",
            LogColumn::Level => "level",
            LogColumn::Tls => "tls",
        }
    }

    /// Type and encoding.
    pub fn layout(self) -> ColumnLayout {
        use ColumnEncoding::{Delta, Number, Predicted, Table};
        let (value_type, encoding, context) = match self {
            LogColumn::Time => (ColumnType::UnixMs, Delta, None),
            LogColumn::Duration => (ColumnType::Microseconds, Number, None),
            LogColumn::Peer => (ColumnType::Address, Table, None),
            LogColumn::Target => (ColumnType::Text, Table, None),
            LogColumn::BodyBytes => (ColumnType::ByteCount, Predicted, Some(LogColumn::Target)),
            LogColumn::Status | LogColumn::Whole => {
                (ColumnType::Number, Predicted, Some(LogColumn::Target))
            }
            LogColumn::Outcome => (ColumnType::Text, Table, Some(LogColumn::Target)),
            LogColumn::Level => (ColumnType::Text, Table, Some(LogColumn::Outcome)),
            // A client sends mostly the same values with each request.
            LogColumn::Method
            | LogColumn::Protocol
            | LogColumn::Host
            | LogColumn::User
            | LogColumn::Referer
            | LogColumn::UserAgent
            | LogColumn::Tls => (ColumnType::Text, Table, Some(LogColumn::Peer)),
        };
        ColumnLayout {
            value_type,
            encoding,
            context,
        }
    }

    /// The index in [`COLUMNS`].
    pub fn place(self) -> usize {
        let place = COLUMNS.iter().position(|column| *column == self);
        place.expect("it has all columns")
    }
}

/// The columns of the blocks that name this schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSchema {
    /// For each column of a block: the known column, or None if it is skipped.
    pub columns: Vec<Option<LogColumn>>,
}

impl BlockSchema {
    /// The schema of this version's encoder.
    pub fn current() -> BlockSchema {
        BlockSchema {
            columns: COLUMNS.into_iter().map(Some).collect(),
        }
    }

    /// The description of [`COLUMNS`]: their count; for each its type, its encoding, one more than the place of its
    /// context or 0, and its name behind a length.
    pub fn encode_current() -> Vec<u8> {
        let mut out = Vec::new();
        put_number(COLUMNS.len() as u64, &mut out);
        for column in COLUMNS {
            let layout = column.layout();
            out.push(layout.value_type as u8);
            out.push(layout.encoding as u8);
            put_number(
                layout.context.map_or(0, |context| context.place() + 1) as u64,
                &mut out,
            );
            put_number(column.name().len() as u64, &mut out);
            out.extend_from_slice(column.name().as_bytes());
        }
        out
    }

    /// Reads a description. A column counts as known if name, type, encoding and context are.
    pub fn decode(mut bytes: &[u8]) -> Option<BlockSchema> {
        let count = usize::try_from(take_number(&mut bytes)?).ok()?;
        // Checked before memory for this many columns is allocated.
        if count > COLUMNS_MAX {
            return None;
        }
        let mut read = Vec::with_capacity(count);
        for _ in 0..count {
            let types = take_bytes(&mut bytes, 2)?;
            let context = usize::try_from(take_number(&mut bytes)?).ok()?;
            let name_len = usize::try_from(take_number(&mut bytes)?).ok()?;
            read.push((types, context, take_bytes(&mut bytes, name_len)?));
        }
        let mut columns: Vec<Option<LogColumn>> = Vec::with_capacity(count);
        for (types, context, name) in &read {
            let named = |column: &LogColumn| column.name().as_bytes() == *name;
            let known = COLUMNS.into_iter().find(named).filter(|column| {
                let layout = column.layout();
                // A context comes before the columns that it predicts.
                let context = match context.checked_sub(1).map(|place| columns.get(place)) {
                    None => None,
                    Some(Some(Some(context))) => Some(*context),
                    // A context that is unknown, or not yet read, can't be decoded, so neither can its column.
                    Some(_) => return false,
                };
                // The name alone is not enough: a later version may encode the column in another way.
                *types == [layout.value_type as u8, layout.encoding as u8]
                    && context == layout.context
            });
            // A column that appears again is not decoded twice.
            let known = known.filter(|column| !columns.contains(&Some(*column)));
            columns.push(known);
        }
        Some(BlockSchema { columns })
    }
}
