//! Values: those of the crate's interface, and those of the machine.

/// A value between pages and databases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// NULL, none
    Null,
    /// A boolean; for a database it is 1 or 0.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above the range of `Int`; smaller ones are accepted too.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(&'v str),
    /// Bytes: text if they are UTF-8, otherwise text with U+FFFD.
    Bytes(&'v [u8]),
}

/// A text in one of two buffers: the page's, or the run's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Text {
    pub at: u32,
    pub len: u32,
    /// It is in the page.
    pub in_page: bool,
    /// It is not escaped.
    pub is_safe: bool,
}

/// A list of pairs of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    Params,
    Cookies,
    Fields,
}

/// A value of the machine. Large data are referred to by position, so that values can be copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Val {
    /// A variable that is not set.
    Unset,
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX` only.
    UInt(u64),
    Float(f64),
    Text(Text),
    /// A list of cells.
    List {
        at: u32,
        len: u32,
    },
    /// A result.
    Rows(u32),
    /// A row of a result.
    Row {
        result: u32,
        row: u32,
    },
    Request,
    Pairs(Pairs),
}

impl Val {
    /// The rank of texts; values of higher ranks contain other values.
    pub const TEXT_RANK: u8 = 4;

    /// An integer; `None` if it has more than 64 bits.
    pub fn whole(number: i128) -> Option<Val> {
        i64::try_from(number)
            .map(Val::Int)
            .or_else(|_| u64::try_from(number).map(Val::UInt))
            .ok()
    }

    /// The type's name for messages.
    pub fn kind(self) -> &'static str {
        match self {
            Val::Unset | Val::Undefined => "undefined",
            Val::None => "none",
            Val::Bool(_) => "a truth value",
            Val::Int(_) | Val::UInt(_) | Val::Float(_) => "a number",
            Val::Text(_) => "a text",
            Val::List { .. } => "a list",
            Val::Rows(_) => "a list of rows",
            Val::Row { .. } => "a row",
            Val::Request | Val::Pairs(_) => "a part of the request",
        }
    }

    /// Whether it is a scalar.
    pub fn is_single(self) -> bool {
        matches!(
            self,
            Val::None | Val::Bool(_) | Val::Int(_) | Val::UInt(_) | Val::Float(_) | Val::Text(_)
        )
    }

    /// The order of values of different types.
    pub fn rank(self) -> u8 {
        match self {
            Val::Unset | Val::Undefined => 0,
            Val::None => 1,
            Val::Bool(_) => 2,
            Val::Int(_) | Val::UInt(_) | Val::Float(_) => 3,
            Val::Text(_) => Val::TEXT_RANK,
            Val::List { .. } | Val::Rows(_) => 5,
            Val::Row { .. } | Val::Request | Val::Pairs(_) => 6,
        }
    }

    pub fn is_undefined(self) -> bool {
        matches!(self, Val::Unset | Val::Undefined)
    }
}
