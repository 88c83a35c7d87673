//! How a level rests, falls asleep and wakes up, as the programs and those who look are told. It does not
//! know when.

use std::mem::offset_of;

use super::Level;
use crate::error::Error;
use crate::layout::{self, CONNECTION_WAYS, connection, connection_bucket, control};

impl Level {
    /// From now on connections are left to the kernel, those of ours go on; until that time (CLOCK_MONOTONIC),
    /// since so few of so many requests were answered here.
    pub fn rest(&self, until_ns: u64, answers: u64, requests: u64) {
        self.set(offset_of!(control, rest_answers), answers);
        self.set(offset_of!(control, rest_requests), requests);
        self.set(offset_of!(control, rest_until_ns), until_ns);
        self.set(offset_of!(control, resting), layout::RESTING);
    }

    /// The programs look at nothing any more. The kernel gives ports again meanwhile, so what is left in the
    /// table goes: it would answer for connections of the kernel afterwards.
    ///
    /// # Errors
    /// When the grace period can't be waited for.
    pub fn fall_asleep(&self) -> Result<(), Error> {
        self.set(offset_of!(control, resting), layout::ASLEEP);
        self.wait_for_programs()?;
        for bucket in 0..self.connections.len() {
            for way in 0..CONNECTION_WAYS as usize {
                let tag = offset_of!(connection_bucket, way)
                    + way * size_of::<connection>()
                    + offset_of!(connection, tag);
                let known: u32 = self.connections.get(bucket, tag);
                if known != 0 {
                    self.connections.set(bucket, tag, 0u32);
                }
            }
        }
        Ok(())
    }

    /// It answers again.
    pub fn wake(&self) {
        self.set(offset_of!(control, resting), layout::AWAKE);
        self.set(offset_of!(control, rest_until_ns), 0u64);
    }

    /// Until when nothing new is fetched; `None`: it is.
    pub fn set_pause(&self, until_ns: Option<u64>) {
        self.set(offset_of!(control, pause_until_ns), until_ns.unwrap_or(0));
    }

    /// Whether programs report what is asked for.
    pub fn set_learning(&self, wanted: bool) {
        let settings = self.control().settings;
        let bits = match wanted {
            true => settings | layout::SETTING_LEARN,
            false => settings & !layout::SETTING_LEARN,
        };
        if bits != settings {
            self.set_settings(bits);
        }
    }
}
