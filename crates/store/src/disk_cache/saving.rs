//! Writes down purges, on a thread of its own: whoever purges goes on, and is told when that is done. Of many at a time all
//! are written at once.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lowroad_engine::background;

use super::meta::Now;
use super::tier::{Tier, Told, Unsaved};
use crate::lock::lock;
use crate::purging::{Kind, Purge, Purging};

impl Tier {
    /// A purge has begun. Does not block on the disk.
    pub fn note_purge(&self, generation: u64, purge: &Purge<'_>, kind: Kind) {
        self.purges.note(generation, purge, kind);
        let _ = self.saver.send(None); // without a thread it holds in this process all the same
    }

    /// Tells once all purges that have begun are kept: even a server that is killed does not undo them. Does not block.
    pub fn when_purges_are_kept(&self, told: Box<dyn FnOnce(bool) + Send>) {
        if let Err(unsent) = self.saver.send(Some(told))
            && let Some(told) = unsent.0
        {
            told(false);
        }
    }

    /// Waits for that; for threads that may.
    pub fn keep_purges(&self) -> bool {
        let (tell, told) = channel();
        self.when_purges_are_kept(Box::new(move |are_kept| {
            let _ = tell.send(are_kept); // it waits below
        }));
        told.recv().unwrap_or(false)
    }

    /// Begins where earlier processes ended.
    pub fn replay_purges(&self, purging: &Purging) {
        let now = Now::read();
        for rule in self.purges.rules() {
            purging.replay(rule.generation, &rule.purge(), rule.kind(now));
        }
        purging.begin_at(self.purges.first_generation());
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the machine gives none.
    pub(super) fn start_saving(self: &Arc<Self>, unsaved: Unsaved) -> std::io::Result<()> {
        let (tier, unsaved) = (self.clone(), Mutex::new(unsaved));
        background::start("disk-purges", move || {
            let unsaved = lock(&unsaved);
            while let Ok(first) = unsaved.0.recv() {
                let waiting: Vec<Told> =
                    std::iter::once(first).chain(unsaved.0.try_iter()).collect();
                let are_kept = tier.purges.save().is_ok();
                if !are_kept {
                    tier.failed();
                }
                for told in waiting.into_iter().flatten() {
                    told(are_kept);
                }
            }
        })
    }
}
