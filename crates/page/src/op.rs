//! The steps of a page. Knows nothing of how they come about or what they do.

use crate::value::Val;

/// A part of the page's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub at: u32,
    pub len: u32,
}

/// One step. Distances of jumps are from the step after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Writes text.
    Write(Span),
    /// Writes the top value, escaped.
    Print,
    /// Writes what a name's value has under another one, as most of what pages show.
    PrintAttribute {
        slot: u16,
        name: Span,
    },
    /// Drops the top value.
    Drop,
    Push(Val),
    /// Pushes what a name means.
    Load(u16),
    /// The same and jumps, if it is set.
    LoadIfSet {
        slot: u16,
        jump: i32,
    },
    /// Gives the top value a name.
    Store(u16),
    /// Forgets names.
    Clear {
        from: u16,
        to: u16,
    },
    Attribute(Span),
    /// A key is above what it is looked up in.
    Item,
    Binary(Binary),
    Not,
    Negate,
    Jump(i32),
    /// Takes the top value, and jumps if it is false.
    JumpIfNot(i32),
    /// `and`, `or`: jumps with the top value if its truth is this one, else takes it.
    JumpKeeping {
        truth: bool,
        jump: i32,
    },
    /// Asks the database; the values are above each other.
    Query {
        statement: Span,
        values: u16,
        is_row: bool,
    },
    /// Takes the top value, and begins to go through it, or jumps if it is empty.
    For {
        slot: u16,
        jump: i32,
    },
    /// The next round, or out.
    Next {
        jump: i32,
    },
    Loop(LoopPart),
    List(u16),
    Filter {
        filter: Filter,
        arguments: u16,
    },
    /// Whether the top value is of a kind.
    Test {
        test: Test,
        is_negated: bool,
    },
    Call {
        function: Function,
        arguments: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Concat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopPart {
    Index,
    Index0,
    RevIndex,
    RevIndex0,
    First,
    Last,
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    Safe,
    Escape,
    Upper,
    Lower,
    Trim,
    Length,
    Default,
    Join,
    Round,
    ToJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Defined,
    Undefined,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Status,
    Header,
    Cache,
}
