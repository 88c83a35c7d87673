//! Making room: segments leave oldest first, and what was asked for in them stays.
//!
//! First in, first out needs no writes of its own and frees whole files. A second chance by writing anew keeps the little
//! that is hot; keeping the segment instead would keep all its cold objects and holes as well. At most a quarter of a
//! segment is written anew, so that each one that goes frees three quarters. A sole segment gets a new age instead, since
//! it has nothing else in it.

use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::counters::count;
use crate::files::Files;
use crate::index::Entry;
use crate::record::Head;
use crate::segments::{Place, State};
use crate::store::{Shared, lock, place_entry};

/// What is written anew of a segment that goes is at most this share of it.
const SPARED_SHARE: u64 = 4;

impl<F: Files> Shared<F> {
    /// What is kept free, to write anew what was asked for of a segment that goes.
    fn spared_bytes(&self) -> u64 {
        self.options.segment_bytes / SPARED_SHARE
    }

    pub fn has_room(&self, state: &State<F::File>, len: u64) -> bool {
        state.used_bytes() + len + self.spared_bytes() <= self.options.capacity_bytes
    }

    /// Drops the oldest segments until so many bytes are free.
    pub fn make_room(&self, len: u64) -> io::Result<()> {
        // Each sole segment gets a second chance at most once.
        let mut chances = lock(&self.state).segments();
        loop {
            let oldest = {
                let state = lock(&self.state);
                if self.has_room(&state, len) {
                    return Ok(());
                }
                state.oldest()
            };
            let Some(id) = oldest else {
                return Err(io::ErrorKind::StorageFull.into());
            };
            if chances == 0 || !self.renew_sole(id) {
                self.spare(id);
                self.drop_segment(id);
            }
            chances = chances.saturating_sub(1);
        }
    }

    /// Gives a sole segment whose object was asked for another life. Copying it would cost more.
    fn renew_sole(&self, id: u32) -> bool {
        let mut state = lock(&self.state);
        let is_sole = state.segment(id).is_some_and(|segment| segment.is_sole);
        let asked = is_sole && state.objects_in(id).iter().any(|entry| entry.hits() > 0);
        if asked {
            state.renew(id);
        }
        asked
    }

    /// Writes anew what was asked for in a shared segment, those first that were asked for most.
    fn spare(&self, id: u32) {
        let (file, mut hot) = {
            let state = lock(&self.state);
            let Some(segment) = state.segment(id).filter(|segment| !segment.is_sole) else {
                return;
            };
            (Arc::clone(&segment.file), state.objects_in(id))
        };
        hot.retain(|entry| entry.hits() > 0);
        hot.sort_by_key(|entry| std::cmp::Reverse(entry.hits()));
        let mut left = self.spared_bytes();
        for entry in hot {
            let len = entry.end() - entry.offset();
            if len > left {
                continue;
            }
            left -= len;
            if self.rewrite(&entry, &file) == Some(true) {
                count(&self.counting.rewritten);
            }
        }
    }

    fn rewrite(&self, entry: &Entry, file: &F::File) -> Option<bool> {
        let mut bytes = Vec::new();
        let head = self.read_head(entry, file, &mut bytes)?;
        let (head_len, body_len) = (u64::from(entry.head_len()), entry.body_len);
        let taken = lock(&self.state).take(head_len, body_len, self.options.segment_bytes);
        let place = match taken {
            Some(place) => place,
            None => self.new_place(head_len, body_len, false).ok()?,
        };
        let put = self.copy(entry, file, head, &place);
        self.release(&place, matches!(put, Ok(true)));
        put.ok()
    }

    /// Copies a record to another place, and makes it visible there.
    fn copy(
        &self,
        entry: &Entry,
        file: &F::File,
        head: Head<'_>,
        place: &Place<F::File>,
    ) -> io::Result<bool> {
        let mut new = Entry::new(entry.hash, entry.head_len(), entry.body_len)
            .ok_or(io::ErrorKind::InvalidInput)?;
        new.expires_s = entry.expires_s;
        place_entry(&mut new, place)?;
        let mut sum = Xxh3::new();
        self.each_block(entry, file, |at, bytes| {
            sum.update(bytes);
            self.write(place, bytes, new.body_at() + at)
        })?;
        if sum.digest() != head.body_check {
            self.damaged(entry);
            return Ok(false);
        }
        let mut bytes = Vec::new();
        head.encode(self.origin(place.segment, place.offset), &mut bytes);
        self.write(place, &bytes, place.offset)?;
        self.put(new, Some(entry))
    }
}
