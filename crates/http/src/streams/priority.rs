//! The priority of a response as requested by the client. Read RFC 9218 §4.

use alloc::vec::Vec;

use crate::structured_fields::{StructuredItem, dictionary};

/// A priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The urgency, from 0 (highest) to 7.
    pub urgency: u8,
    /// The client can process the response in parts, so its DATA may be interleaved with that of other responses.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority {
            urgency: 3,
            is_incremental: false,
        }
    }
}

impl Priority {
    /// Parses a Priority field value; missing and invalid parameters get their default values.
    #[must_use]
    pub fn parse(value: &[u8]) -> Priority {
        let with_urgency = |urgency: u8, is_incremental| Priority {
            urgency: urgency.wrapping_sub(b'0'),
            is_incremental,
        };
        match value {
            // The values that browsers send need no structured-field parser.
            [b'u', b'=', urgency @ b'0'..=b'7'] => with_urgency(*urgency, false),
            [b'u', b'=', urgency @ b'0'..=b'7', b',', b' ', b'i'] => with_urgency(*urgency, true),
            b"i" => with_urgency(b'3', true),
            b"" => Priority::default(),
            other => Priority::parse_any(other),
        }
    }

    #[cold]
    fn parse_any(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for (key, item) in dictionary([value]).unwrap_or_default() {
            match (&key[..], item) {
                // RFC 9218 §4: values out of range are ignored.
                (b"u", StructuredItem::Integer(urgency @ 0..=7)) => {
                    priority.urgency = urgency as u8
                }
                (b"i", StructuredItem::Boolean(is_incremental)) => {
                    priority.is_incremental = is_incremental
                }
                _ => {}
            }
        }
        priority
    }

    /// The number of the priority's class, see `super::queue`.
    pub(crate) fn class(self) -> u8 {
        self.urgency.min(7) * 2 + u8::from(self.is_incremental)
    }
}

/// The number of priorities that are kept for streams that have not begun.
const EARLY_MAX: usize = 16;

/// Priorities of streams that have not begun. The peer may send any number of them (RFC 9218 §7), hence the bound.
#[derive(Debug, Default)]
pub(crate) struct EarlyPriorities(Vec<(u32, Priority)>);

impl EarlyPriorities {
    /// Keeps the priority of a stream, in place of the oldest one if there are too many.
    pub(crate) fn add(&mut self, id: u32, priority: Priority) {
        self.0.retain(|(early_id, _)| *early_id != id);
        // The oldest one may belong to a stream that never gets a request.
        if self.0.len() == EARLY_MAX {
            self.0.remove(0);
        }
        self.0.push((id, priority));
    }

    /// Removes the priority of a stream that begins.
    #[inline]
    pub(crate) fn take(&mut self, id: u32) -> Option<Priority> {
        let at = self.0.iter().position(|(early_id, _)| *early_id == id)?;
        Some(self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_priorities_of_streams_without_requests_make_room() {
        let urgent = Priority {
            urgency: 0,
            ..Priority::default()
        };
        let mut early = EarlyPriorities::default();
        for id in 0..=EARLY_MAX as u32 {
            early.add(id, urgent);
        }
        assert_eq!(early.take(0), None);
        assert_eq!(early.take(1), Some(urgent));
        assert_eq!(early.take(EARLY_MAX as u32), Some(urgent));
        assert_eq!(early.0.len(), EARLY_MAX - 2);
    }

    #[test]
    fn priority_values_and_defaults() {
        // RFC 9218 §4: unknown and invalid parameters are ignored.
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("u=5,i", 5, true),
            ("i, u=1", 1, true),
            ("i", 3, true),
            ("i=?0", 3, false),
            ("i=?1, u=2, x=y", 2, true),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=a, i", 3, true),
            ("u=1;x, i;y=2", 1, true),
            ("=", 3, false),
        ] {
            let wanted = Priority {
                urgency,
                is_incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), wanted, "{value}");
        }
    }
}
