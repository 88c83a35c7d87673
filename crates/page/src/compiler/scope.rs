//! Scopes: the variable names that are visible, and the slots of their values. The body of a loop is a scope: its
//! variables are cleared in each iteration, and shadow outer variables.

use alloc::vec::Vec;

/// The scopes that enclose a position in the page, the innermost last.
pub struct ScopeStack<'s> {
    open: Vec<VariableScope<'s>>,
    slots: u16,
    loops: usize,
}

struct VariableScope<'s> {
    names: Vec<(&'s str, u16)>,
}

impl Default for ScopeStack<'_> {
    fn default() -> Self {
        ScopeStack {
            open: alloc::vec![VariableScope { names: Vec::new() }],
            slots: 0,
            loops: 0,
        }
    }
}

impl<'s> ScopeStack<'s> {
    pub fn slot_count(&self) -> usize {
        usize::from(self.slots)
    }

    /// Enters the scope of a loop's body; returns the first slot that it may use.
    pub fn enter(&mut self) -> u16 {
        self.loops += 1;
        self.open.push(VariableScope { names: Vec::new() });
        self.slots
    }

    /// Leaves the scope of a loop's body; returns the first slot that it has not used.
    pub fn leave(&mut self) -> u16 {
        self.loops -= 1;
        self.open.pop();
        self.slots
    }

    pub fn is_in_loop(&self) -> bool {
        self.loops > 0
    }

    /// The slot of a name that is assigned here; `None` if there are too many slots.
    pub fn set(&mut self, name: &'s str) -> Option<u16> {
        let scope = self.open.last_mut()?;
        // A second assignment in the same scope uses the same slot.
        if let Some((_, slot)) = scope.names.iter().find(|(candidate, _)| *candidate == name) {
            return Some(*slot);
        }
        let slot = self.slots;
        // Slots are not reused after their scope has ended.
        self.slots = slot.checked_add(1)?;
        scope.names.push((name, slot));
        Some(slot)
    }

    /// The slots that may contain the value of a name, the innermost first.
    pub fn find(&self, name: &str) -> Vec<u16> {
        let slot_in = |scope: &VariableScope<'s>| {
            let entry = scope.names.iter().find(|(candidate, _)| *candidate == name);
            entry.map(|(_, slot)| *slot)
        };
        self.open.iter().rev().filter_map(slot_in).collect()
    }
}
