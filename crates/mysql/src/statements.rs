//! The prepared statements of a connection, by their texts: a small LRU cache. This module is independent of packets.

use alloc::string::String;
use alloc::vec::Vec;

use crate::column::ColumnInfo;

/// A prepared statement.
pub struct PreparedStatement {
    text: String,
    /// The statement's id in the server.
    pub id: u32,
    /// The number of `?` in the statement.
    pub value_count: usize,
    /// The columns of the statement's result, as last sent by the server.
    pub columns: Vec<ColumnInfo>,
    last_used: u64,
}

/// The cache of prepared statements.
pub struct StatementTable {
    statements: Vec<PreparedStatement>,
    count_max: usize,
    now: u64,
}

impl StatementTable {
    pub fn new(count_max: usize) -> StatementTable {
        StatementTable {
            statements: Vec::new(),
            count_max: count_max.max(1),
            now: 0,
        }
    }

    /// The index of the statement with this text; marks it as used.
    #[inline]
    pub fn find(&mut self, text: &str) -> Option<usize> {
        // The search is linear, which needs no hash of the text.
        let at = self
            .statements
            .iter()
            .position(|statement| statement.text == text)?;
        self.now += 1;
        self.statements[at].last_used = self.now;
        Some(at)
    }

    /// The statement at an index returned by [`find`](StatementTable::find) or [`add`](StatementTable::add).
    pub fn at(&mut self, at: usize) -> Option<&mut PreparedStatement> {
        self.statements.get_mut(at)
    }

    /// Adds a statement. Returns its index, and the id of the statement that was evicted for it.
    pub fn add(&mut self, text: String, id: u32, value_count: usize) -> (usize, Option<u32>) {
        self.now += 1;
        let new = PreparedStatement {
            text,
            id,
            value_count,
            columns: Vec::new(),
            last_used: self.now,
        };
        if self.statements.len() < self.count_max {
            self.statements.push(new);
            return (self.statements.len() - 1, None);
        }
        // The least recently used statement is replaced.
        let oldest = self
            .statements
            .iter()
            .enumerate()
            .min_by_key(|(_, statement)| statement.last_used);
        let at = oldest.map_or(0, |(at, _)| at);
        let old = core::mem::replace(&mut self.statements[at], new);
        (at, Some(old.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_statement_is_evicted() {
        let mut statements = StatementTable::new(2);
        assert_eq!(statements.add("a".into(), 1, 0), (0, None));
        assert_eq!(statements.add("b".into(), 2, 0), (1, None));
        assert_eq!(statements.find("a"), Some(0));
        assert_eq!(statements.add("c".into(), 3, 0), (1, Some(2)));
        assert_eq!(
            (statements.find("b"), statements.find("c")),
            (None, Some(1))
        );
    }
}
