//! Values: those of the crate's interface, and those of the stack machine.

/// A value passed between pages and databases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PageValue<'v> {
    /// NULL; `none` in pages.
    Null,
    /// A boolean; databases receive it as 1 or 0.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above the range of `Int`; smaller integers are accepted, too.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(&'v str),
    /// Bytes, which pages show as text; invalid UTF-8 becomes U+FFFD.
    Bytes(&'v [u8]),
}

/// A text in one of two buffers: the page's or the run's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextRef {
    pub at: u32,
    pub len: u32,
    /// The text is in the page's buffer.
    pub in_page: bool,
    /// The text is HTML, and must not be escaped.
    pub is_safe: bool,
}

/// A group of name-value pairs of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPairs {
    Params,
    Cookies,
    Fields,
}

/// A value of the stack machine. Texts and containers are stored elsewhere and referred to by position, so that values
/// can be copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MachineValue {
    /// A variable that is not set.
    Unset,
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    Float(f64),
    Text(TextRef),
    /// A list of cells.
    List {
        at: u32,
        len: u32,
    },
    /// The rows of a query.
    Rows(u32),
    /// A row of a query.
    Row {
        result: u32,
        row: u32,
    },
    Request,
    Pairs(RequestPairs),
}

impl MachineValue {
    /// The rank of texts; values of higher ranks are containers.
    pub const TEXT_RANK: u8 = 4;

    /// An integer; `None` if it does not fit into 64 bits.
    pub fn from_integer(number: i128) -> Option<MachineValue> {
        i64::try_from(number)
            .map(MachineValue::Int)
            .or_else(|_| u64::try_from(number).map(MachineValue::UInt))
            .ok()
    }

    /// The name of the type, for messages.
    pub fn kind(self) -> &'static str {
        match self {
            MachineValue::Unset | MachineValue::Undefined => "undefined",
            MachineValue::None => "none",
            MachineValue::Bool(_) => "a boolean",
            MachineValue::Int(_) | MachineValue::UInt(_) | MachineValue::Float(_) => "a number",
            MachineValue::Text(_) => "a text",
            MachineValue::List { .. } => "a list",
            MachineValue::Rows(_) => "a list of rows",
            MachineValue::Row { .. } => "a row",
            MachineValue::Request | MachineValue::Pairs(_) => "a part of the request",
        }
    }

    /// Whether the value is a scalar.
    pub fn is_single(self) -> bool {
        matches!(
            self,
            MachineValue::None
                | MachineValue::Bool(_)
                | MachineValue::Int(_)
                | MachineValue::UInt(_)
                | MachineValue::Float(_)
                | MachineValue::Text(_)
        )
    }

    /// The rank of the type, by which values of different types are ordered.
    pub fn rank(self) -> u8 {
        match self {
            MachineValue::Unset | MachineValue::Undefined => 0,
            MachineValue::None => 1,
            MachineValue::Bool(_) => 2,
            MachineValue::Int(_) | MachineValue::UInt(_) | MachineValue::Float(_) => 3,
            MachineValue::Text(_) => MachineValue::TEXT_RANK,
            MachineValue::List { .. } | MachineValue::Rows(_) => 5,
            MachineValue::Row { .. } | MachineValue::Request | MachineValue::Pairs(_) => 6,
        }
    }

    pub fn is_undefined(self) -> bool {
        matches!(self, MachineValue::Unset | MachineValue::Undefined)
    }
}
