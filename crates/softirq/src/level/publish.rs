//! Publication: responses into their places, and out of the index when they go. Only the daemon has a
//! [`Publisher`]; others who purge clear entries of the index, and say so in the control.
//!
//! The programs also find responses without the index, by requests that they remember (memo.h): what
//! leaves the index expires with that, or is counted as purged.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;

use lowroad_wire::width::{index, long_index, lower};

use crate::error::Error;
use crate::layout::{self, response, sum_of};
use crate::learn::Serial;
use crate::level::Level;
use crate::level::extents::{Extent, Extents};
use lowroad_wire::key::KEY_LEN_MAX;

/// For so long a retired response can be sent again: clients repeat themselves after 0.2 s, 0.6 s, 1.4 s, and
/// so on.
const LINGER_NS: u64 = 60_000_000_000;
/// So many places are given up together before that, where room is needed.
const REUSED_AT_ONCE: usize = 64;

/// A response to publish.
#[derive(Clone, Debug)]
pub struct Publication<'a> {
    /// Its key, at most `KEY_MAX` bytes.
    pub key: &'a [u8],
    /// Head and body, at most [`LEN_MAX`] bytes.
    pub bytes: &'a [u8],
    /// Where the body begins.
    pub head_len: u16,
    /// Where the value of Date begins.
    pub date_at: Option<u16>,
    /// Where the value of Age begins, five digits.
    pub age_at: Option<u16>,
    /// Its status.
    pub status: u16,
    /// CLOCK_MONOTONIC: when its Age was 0.
    pub born_ns: u64,
    /// CLOCK_MONOTONIC: when it is fresh no longer.
    pub expires_ns: u64,
}

/// Why a response is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Key or response are too long, or a position is not within.
    Form,
    /// All places are taken, or all entries of its bucket, or no piece of the store is long enough.
    Full,
}

/// Bytes of a response, head and body.
pub const LEN_MAX: usize = layout::PARTS_MAX as usize * layout::RESPONSE_MAX as usize;

/// Which places are free, and who is where.
#[derive(Debug)]
pub struct Publisher {
    free: Vec<u32>,
    store: Extents,
    /// Out of the index since then, in this order; what is under way may have to be sent again.
    retired: VecDeque<(u32, u64)>,
    by_serial: HashMap<Serial, Slot>,
    next_id: u32,
}

/// Where a response is, and by which hash it is found.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    hash: u64,
}

impl Publisher {
    /// Begins anew: what an earlier daemon has published is taken out of the index.
    ///
    /// # Errors
    /// When the grace period can't be waited for.
    pub fn new(level: &Level) -> Result<Self, Error> {
        for bucket in 0..level.index.len() {
            level.index.write(bucket, layout::index_bucket::default());
        }
        level.set_published(0);
        level.wait_for_programs()?;
        let mut publisher = Self {
            free: Vec::new(),
            store: Extents::new(level.store_len()),
            retired: VecDeque::new(),
            by_serial: HashMap::new(),
            next_id: 1,
        };
        let now_ns = crate::clock::now_ns();
        for place in (0..level.response_places()).rev() {
            let number = index_of(place);
            let id: u32 = level.responses.get(number, offset_of!(response, id));
            // An answer that was sent a moment ago may have to be sent again.
            match id {
                0 => publisher.free.push(place),
                _ if publisher.store.take_at(extent_of(level, place)) => {
                    publisher.retired.push_back((place, now_ns));
                }
                // Its publication was not finished.
                _ => {
                    level.responses.set(number, offset_of!(response, id), 0u32);
                    publisher.free.push(place);
                }
            }
            // Requests that are remembered would find it without the index.
            level
                .responses
                .set(number, offset_of!(response, expires_ns), 0u64);
            publisher.next_id = publisher.next_id.max(id.wrapping_add(1));
        }
        Ok(publisher)
    }

    /// Publishes under a name, in the entry of another with the same key if there is one; that one is
    /// retired later.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed.
    pub fn publish(
        &mut self,
        level: &Level,
        serial: Serial,
        what: &Publication<'_>,
        replaces: Option<Serial>,
    ) -> Result<(), Refused> {
        let hash = level.hash_of(what.key);
        let (mut fresh, bytes) = form(what, hash).ok_or(Refused::Form)?;
        let old = replaces.and_then(|old| self.by_serial.get(&old)).copied();
        let (bucket, way) = old
            .and_then(|old| find_entry(level, old))
            .or_else(|| free_entry(level, hash))
            .ok_or(Refused::Full)?;
        let (number, extent) = self.room(level, bytes.len()).ok_or(Refused::Full)?;
        fresh.id = self.next_id;
        fresh.at = extent.at;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        level.write_store(extent.at, &bytes);
        level.responses.write(index_of(number), fresh);
        level.clear_hits(index_of(number));
        let place = Slot { number, hash };
        // The response is whole before it can be found.
        level.index.publish(bucket, way * 8, place.entry());
        if let Some(old) = old {
            forget(level, old);
        }
        self.by_serial.insert(serial, place);
        self.tell_count(level);
        Ok(())
    }

    /// A place, and so many bytes of the store; what was retired last gives up its room last.
    fn room(&mut self, level: &Level, len: usize) -> Option<(u32, Extent)> {
        loop {
            if !self.free.is_empty()
                && let Some(extent) = self.store.take(len)
            {
                return self.free.pop().map(|number| (number, extent));
            }
            if self.retired.is_empty() {
                return None;
            }
            self.reuse(level, REUSED_AT_ONCE).ok()?;
        }
    }

    /// Takes these out; when it returns, no program answers with them, but for copies of what it has
    /// answered already.
    ///
    /// # Errors
    /// When the grace period can't be waited for; then their places stay taken.
    pub fn retire(
        &mut self,
        level: &Level,
        serials: impl IntoIterator<Item = Serial>,
    ) -> Result<(), Error> {
        let mut gone = Vec::new();
        for serial in serials {
            if let Some(place) = self.by_serial.remove(&serial) {
                clear_entry(level, place);
                forget(level, place);
                gone.push(place.number);
            }
        }
        self.tell_count(level);
        if !gone.is_empty() {
            level.wait_for_programs()?;
            let now_ns = crate::clock::now_ns();
            let retired = gone.into_iter().map(|number| (number, now_ns));
            self.retired.extend(retired);
        }
        Ok(())
    }

    /// Lets the places of what was retired long enough ago be taken again. Call it each second.
    ///
    /// # Errors
    /// When the grace period can't be waited for; then these places are lost.
    pub fn recycle(&mut self, level: &Level, now_ns: u64) -> Result<(), Error> {
        let before_ns = now_ns.saturating_sub(LINGER_NS);
        let is_old = |(_, since_ns): &(u32, u64)| *since_ns < before_ns;
        self.reuse(level, self.retired.partition_point(is_old))
    }

    /// So many of the places that were retired first.
    fn reuse(&mut self, level: &Level, count: usize) -> Result<(), Error> {
        let count = count.min(self.retired.len());
        let places: Vec<u32> = self.retired.drain(..count).map(|one| one.0).collect();
        if places.is_empty() {
            return Ok(());
        }
        for number in &places {
            let id = offset_of!(response, id);
            level.responses.set(index_of(*number), id, 0u32);
        }
        level.wait_for_programs()?;
        for number in &places {
            self.store.give_back(extent_of(level, *number));
        }
        self.free.extend(places);
        Ok(())
    }

    /// Other times of a response.
    pub fn extend(&self, level: &Level, serial: Serial, born_ns: u64, expires_ns: u64) {
        if let Some(place) = self.by_serial.get(&serial) {
            let set =
                |offset, value: u64| level.responses.set(index_of(place.number), offset, value);
            set(offset_of!(response, born_ns), born_ns);
            set(offset_of!(response, expires_ns), expires_ns);
        }
    }

    /// How often it was answered.
    #[must_use]
    pub fn hits(&self, level: &Level, serial: Serial) -> u64 {
        self.by_serial
            .get(&serial)
            .map_or(0, |place| level.hits(index_of(place.number)))
    }

    fn tell_count(&self, level: &Level) {
        // Never more than there are places.
        let count = u32::try_from(self.by_serial.len());
        level.set_published(count.unwrap_or(u32::MAX));
    }
}

/// A published response, for those who look.
#[derive(Clone, Debug)]
pub struct Published {
    /// Its key.
    pub key: Vec<u8>,
    /// How often it was answered.
    pub hits: u64,
    /// Its status.
    pub status: u16,
    /// Head and body.
    pub len: u16,
    /// CLOCK_MONOTONIC.
    pub expires_ns: u64,
    place: Slot,
}

/// Everything that the index names.
#[must_use]
pub fn published(level: &Level) -> Vec<Published> {
    let mut found = Vec::new();
    for bucket in 0..level.index.len() {
        for entry in level.index.read(bucket).entry {
            let Some(number) = lower(entry).checked_sub(1) else {
                continue;
            };
            let place = level.responses.read(index_of(number));
            found.push(Published {
                key: place.key[..usize::from(place.key_len)].to_vec(),
                hits: level.hits(index_of(number)),
                status: place.status,
                len: place.len,
                expires_ns: place.expires_ns,
                place: Slot {
                    number,
                    hash: place.hash,
                },
            });
        }
    }
    found
}

/// How often a purge counts itself.
pub const COUNTS_PER_PURGE: u32 = 2;

/// Takes responses out of the index, for somebody who is not the daemon: when it returns, no program
/// answers with them, and the daemon publishes nothing that it fetched before.
///
/// # Errors
/// When the grace period can't be waited for.
pub fn purge(level: &Level, which: &[Published]) -> Result<(), Error> {
    level.count_purge();
    for one in which {
        clear_entry(level, one.place);
    }
    // Once more: a program may have remembered one since the first. Not by their expiry, since the
    // daemon may extend what it does not know to be purged yet.
    level.count_purge();
    level.wait_for_programs()
}

impl Slot {
    /// As it stands in the index.
    fn entry(self) -> u64 {
        (self.hash & 0xffff_ffff_0000_0000) | u64::from(self.number + 1)
    }
}

/// Its bytes in the store.
fn extent_of(level: &Level, number: u32) -> Extent {
    let place = index_of(number);
    let len: u16 = level.responses.get(place, offset_of!(response, len));
    Extent {
        at: level.responses.get(place, offset_of!(response, at)),
        len: Extents::rounded(usize::from(len)),
    }
}

fn index_of(number: u32) -> usize {
    index(number)
}

fn bucket_of(level: &Level, hash: u64) -> usize {
    long_index(hash) & (level.index.len() - 1)
}

fn free_entry(level: &Level, hash: u64) -> Option<(usize, usize)> {
    let bucket = bucket_of(level, hash);
    let entries = level.index.read(bucket).entry;
    // Of two with the same upper half in one bucket only the first would be found.
    if entries
        .iter()
        .any(|entry| *entry != 0 && entry >> 32 == hash >> 32)
    {
        return None;
    }
    let way = entries.iter().position(|entry| *entry == 0)?;
    Some((bucket, way))
}

fn find_entry(level: &Level, place: Slot) -> Option<(usize, usize)> {
    let bucket = bucket_of(level, place.hash);
    let entries = level.index.read(bucket).entry;
    let way = entries.iter().position(|entry| *entry == place.entry())?;
    Some((bucket, way))
}

fn clear_entry(level: &Level, place: Slot) {
    if let Some((bucket, way)) = find_entry(level, place) {
        level.index.set(bucket, way * 8, 0u64);
    }
}

/// What is remembered of requests for it does not hold any more.
fn forget(level: &Level, place: Slot) {
    let expires_ns = offset_of!(response, expires_ns);
    level
        .responses
        .set(index_of(place.number), expires_ns, 0u64);
}

/// As it is in the map, and the bytes for the store.
fn form(what: &Publication<'_>, hash: u64) -> Option<(response, Vec<u8>)> {
    let (len, head_len) = (what.bytes.len(), usize::from(what.head_len));
    if len == 0
        || len > LEN_MAX
        || head_len > len
        || what.key.is_empty()
        || what.key.len() > KEY_LEN_MAX
    {
        return None;
    }
    let mut fresh = response {
        expires_ns: what.expires_ns,
        born_ns: what.born_ns,
        hash,
        len: u16::try_from(len).ok()?,
        head_len: what.head_len,
        date_at: what.date_at.unwrap_or(0),
        age_at: what.age_at.unwrap_or(0),
        key_len: u16::try_from(what.key.len()).ok()?,
        status: what.status,
        ..response::default()
    };
    fresh.key[..what.key.len()].copy_from_slice(what.key);
    let mut bytes = what.bytes.to_vec();
    // What is written over is in the first part. Where that is shorter, the programs look.
    let within = match len > PART_LENS[0] {
        true => head_len.min(PART_LENS[0]),
        false => head_len,
    };
    for (at, len_there) in [
        (what.date_at, layout::DATE_LEN),
        (what.age_at, layout::AGE_LEN),
    ] {
        let Some(at) = at else { continue };
        let (at, len_there) = (usize::from(at), index(len_there));
        if at == 0 || at + len_there > within {
            return None;
        }
        bytes[at..at + len_there].fill(0);
    }
    for (sums, part_len) in fresh.sums.iter_mut().zip(PART_LENS) {
        for (sum, part) in sums.iter_mut().zip(bytes.chunks(part_len)) {
            *sum = sum_of(part);
        }
    }
    fresh.head_sum = sum_of(&bytes[..head_len]);
    Some((fresh, bytes))
}

/// Into parts of what length an answer may be cut.
const PART_LENS: [usize; 2] = [
    layout::RESPONSE_MAX as usize,
    layout::RESPONSE_MAX_V6 as usize,
];
