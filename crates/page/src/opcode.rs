//! The operations that a page is compiled to.

use crate::value::MachineValue;

/// A range of the page's texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceSpan {
    pub at: u32,
    pub len: u32,
}

/// An operation. Jump distances are relative to the following operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PageOp {
    /// Writes text.
    Write(SourceSpan),
    /// Pops the top value and writes it, escaped.
    Print,
    /// Writes an attribute of a variable, which is the most frequent output in pages.
    PrintAttribute {
        slot: u16,
        name: SourceSpan,
    },
    /// Pops the top value.
    Drop,
    Push(MachineValue),
    /// Pushes a variable.
    Load(u16),
    /// If the variable is set, pushes it and jumps.
    LoadIfSet {
        slot: u16,
        jump: i32,
    },
    /// Pops the top value into a variable.
    Store(u16),
    /// Clears variables.
    Clear {
        from: u16,
        to: u16,
    },
    Attribute(SourceSpan),
    /// Pushes the value of a container for a key; the key is above the container on the stack.
    Item,
    Binary(BinaryOp),
    Not,
    Negate,
    Jump(i32),
    /// Pops the top value, and jumps if it is false.
    JumpIfNot(i32),
    /// `and`, `or`: if the truth of the top value equals `truth`, jumps and keeps the value, otherwise pops it.
    JumpKeeping {
        truth: bool,
        jump: i32,
    },
    /// Queries the database; the values of the statement's parameters are on the stack.
    Query {
        statement: SourceSpan,
        values: u16,
        is_row: bool,
    },
    /// Pops the top value and starts to iterate over it, or jumps if it is empty.
    For {
        slot: u16,
        jump: i32,
    },
    /// Starts the next iteration, or leaves the loop.
    Next {
        jump: i32,
    },
    Loop(LoopPart),
    List(u16),
    Filter {
        filter: FilterOp,
        arguments: u16,
    },
    /// Tests the type of the top value.
    Test {
        test: TestOp,
        is_negated: bool,
    },
    Call {
        function: BuiltinFunction,
        arguments: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
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
pub enum FilterOp {
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
pub enum TestOp {
    Defined,
    Undefined,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinFunction {
    Status,
    Header,
    Cache,
}
