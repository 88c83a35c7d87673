//! Mutexes with data that stays valid when a thread that held them panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
