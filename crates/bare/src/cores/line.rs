//! What one core writes and others read, on cache lines of its own. Knows nothing of what that is.

use core::ops::Deref;

/// Two lines of 64 bytes: processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
pub struct Line<T>(pub T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
