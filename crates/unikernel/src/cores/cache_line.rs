//! Padding for data that one core writes and others read: avoids false sharing.

use core::ops::Deref;

/// Aligned to two lines of 64 bytes, since processors prefetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
pub struct CacheLine<T>(pub T);

impl<T> Deref for CacheLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
