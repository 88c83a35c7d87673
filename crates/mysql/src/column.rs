//! Columns of a result: names and types (protocol: column definition 4.1).

use alloc::string::String;

use crate::error::MySqlError;
use crate::packet_reader::PacketReader;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The column's name in the statement.
    pub name: String,
    /// The type of the values.
    pub kind: ColumnType,
    pub(crate) is_unsigned: bool,
    /// The number of decimals of seconds; more than 6 means none.
    pub(crate) decimals: u8,
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// TINYINT, BOOLEAN
    Tiny,
    /// SMALLINT, YEAR
    Short,
    /// INT, MEDIUMINT
    Long,
    /// BIGINT
    LongLong,
    /// FLOAT
    Float,
    /// DOUBLE
    Double,
    /// DATE
    Date,
    /// TIME
    Time,
    /// DATETIME, TIMESTAMP
    DateTime,
    /// BIT
    Bit,
    /// Text, DECIMAL, ENUM, SET, JSON
    Text,
    /// BLOB, BINARY, and text with a binary collation
    Bytes,
    /// A column that contains only NULL
    Null,
}

/// The collation number of binary strings.
const BINARY: u16 = 63;
const UNSIGNED: u16 = 1 << 5;

/// The maximum length of a name in bytes: servers allow 256 characters.
const NAME_LEN_MAX: usize = 1_024;

impl ColumnInfo {
    /// An empty column definition, to be filled by [`read`](ColumnInfo::read).
    pub fn empty() -> ColumnInfo {
        ColumnInfo {
            name: String::new(),
            kind: ColumnType::Null,
            is_unsigned: false,
            decimals: 0,
        }
    }

    /// Parses a column definition, reusing the allocation of the name.
    pub fn read(&mut self, payload: &[u8]) -> Result<(), MySqlError> {
        let mut from = PacketReader(payload);
        // Catalog, schema, table and original table are not used.
        for _ in 0..4 {
            from.text()?;
        }
        let name = from.text()?;
        // The next text is the original column name, which is not used.
        from.text()?;
        if name.len() > NAME_LEN_MAX {
            return Err(MySqlError::Protocol("a column's name is too long"));
        }
        // The next number is the length of the fixed fields that follow.
        from.lenenc()?;
        let collation = from.u16()?;
        from.u32()?;
        let kind = from.u8()?;
        let flags = from.u16()?;
        let decimals = from.u8()?;
        // Servers send names in UTF-8; invalid parts are removed.
        self.name.clear();
        for chunk in name.utf8_chunks() {
            self.name.push_str(chunk.valid());
        }
        self.kind = ColumnType::from_number(kind, collation)?;
        self.is_unsigned = flags & UNSIGNED != 0;
        self.decimals = decimals;
        Ok(())
    }
}

impl ColumnType {
    fn from_number(number: u8, collation: u16) -> Result<ColumnType, MySqlError> {
        Ok(match number {
            1 => ColumnType::Tiny,
            2 | 13 => ColumnType::Short,
            3 | 9 => ColumnType::Long,
            8 => ColumnType::LongLong,
            4 => ColumnType::Float,
            5 => ColumnType::Double,
            6 => ColumnType::Null,
            10 | 14 => ColumnType::Date,
            11 => ColumnType::Time,
            7 | 12 => ColumnType::DateTime,
            16 => ColumnType::Bit,
            // DECIMAL and JSON are sent as text, but with the collation of binary strings.
            0 | 246 | 245 => ColumnType::Text,
            15 | 247..=254 if collation != BINARY => ColumnType::Text,
            15 | 247..=255 => ColumnType::Bytes,
            _ => return Err(MySqlError::Protocol("a column has an unknown type")),
        })
    }
}
