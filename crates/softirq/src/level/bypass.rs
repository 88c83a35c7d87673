//! Level bypass: writes its state into the control structure, for the programs and for status commands.
//! `learner::bypass` decides on the state.

use std::mem::offset_of;

use super::SoftirqLevel;
use crate::error::LevelError;
use crate::layout::{self, CONNECTION_WAYS, connection, connection_bucket, control};

impl SoftirqLevel {
    /// Leaves new connections to the kernel until the given time (CLOCK_MONOTONIC); live connections stay on the fast
    /// path. `answers` and `requests` are the counts on which the decision was based.
    pub fn begin_bypass(&self, until_ns: u64, answers: u64, requests: u64) {
        // The state is written last, so that status commands that see the bypass also see its counts.
        self.set(offset_of!(control, rest_answers), answers);
        self.set(offset_of!(control, rest_requests), requests);
        self.set(offset_of!(control, rest_until_ns), until_ns);
        self.set(offset_of!(control, resting), layout::RESTING);
    }

    /// Stops the programs from examining frames, and clears the connection table: clients may reuse their ports in the
    /// meantime, so a stale entry could later answer on a kernel connection.
    ///
    /// # Errors
    /// If the grace period can't be waited for.
    pub fn fall_asleep(&self) -> Result<(), LevelError> {
        self.set(offset_of!(control, resting), layout::ASLEEP);
        // Programs that read the old state may still write entries until the grace period is over.
        self.wait_for_programs()?;
        for bucket in 0..self.connections.len() {
            for way in 0..CONNECTION_WAYS as usize {
                let tag = offset_of!(connection_bucket, way)
                    + way * size_of::<connection>()
                    + offset_of!(connection, tag);
                let old_tag: u32 = self.connections.get(bucket, tag);
                if old_tag != 0 {
                    self.connections.set(bucket, tag, 0u32);
                }
            }
        }
        Ok(())
    }

    /// Ends the bypass.
    pub fn wake(&self) {
        self.set(offset_of!(control, resting), layout::AWAKE);
        self.set(offset_of!(control, rest_until_ns), 0u64);
    }

    /// Records the end of the current fetch pause; `None` without a pause.
    pub fn set_pause(&self, until_ns: Option<u64>) {
        self.set(offset_of!(control, pause_until_ns), until_ns.unwrap_or(0));
    }

    /// Sets whether the programs report requests for responses that are not published.
    pub fn set_learning(&self, is_learning: bool) {
        let settings = self.control().settings;
        let bits = match is_learning {
            true => settings | layout::SETTING_LEARN,
            false => settings & !layout::SETTING_LEARN,
        };
        if bits != settings {
            self.set_settings(bits);
        }
    }
}
