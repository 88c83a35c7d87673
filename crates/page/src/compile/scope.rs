//! Which names are known where, and in which places their values are kept. A loop's body is a scope: what is set
//! there is forgotten with each round, and hides what has the same name outside.

use alloc::vec::Vec;

/// The scopes around a place in the page, the innermost last.
pub struct Scopes<'s> {
    open: Vec<Scope<'s>>,
    slots: u16,
    loops: usize,
}

struct Scope<'s> {
    names: Vec<(&'s str, u16)>,
}

impl Default for Scopes<'_> {
    fn default() -> Self {
        Scopes {
            open: alloc::vec![Scope { names: Vec::new() }],
            slots: 0,
            loops: 0,
        }
    }
}

impl<'s> Scopes<'s> {
    pub fn slot_count(&self) -> usize {
        usize::from(self.slots)
    }

    /// Begins a loop's body; gives the first place that it may use.
    pub fn enter(&mut self) -> u16 {
        self.loops += 1;
        self.open.push(Scope { names: Vec::new() });
        self.slots
    }

    /// Ends a loop's body; gives the first place that it has not used.
    pub fn leave(&mut self) -> u16 {
        self.loops -= 1;
        self.open.pop();
        self.slots
    }

    pub fn is_in_loop(&self) -> bool {
        self.loops > 0
    }

    /// The place for a name that is set here; none if there are too many.
    pub fn set(&mut self, name: &'s str) -> Option<u16> {
        let scope = self.open.last_mut()?;
        if let Some((_, slot)) = scope.names.iter().find(|(known, _)| *known == name) {
            return Some(*slot);
        }
        let slot = self.slots;
        self.slots = slot.checked_add(1)?;
        scope.names.push((name, slot));
        Some(slot)
    }

    /// The places where a name may have its value, the innermost first.
    pub fn find(&self, name: &str) -> Vec<u16> {
        let of = |scope: &Scope<'s>| {
            let found = scope.names.iter().find(|(known, _)| *known == name);
            found.map(|(_, slot)| *slot)
        };
        self.open.iter().rev().filter_map(of).collect()
    }
}
