//! Publishes responses: writes them into slots, and enters them into the index or removes them from it. Only the daemon
//! has a `ResponsePublisher`; other processes purge by clearing index entries, and count the purge in the control
//! structure.
//!
//! The programs also find responses through memos of requests (memo.h), without the index. A response that leaves the
//! index is therefore made to expire at the same time, or the purge is counted.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;

use lowroad_wire::width::{index, long_index, lower};

use crate::error::LevelError;
use crate::layout::{self, response, sum_of};
use crate::learner::ResponseSerial;
use crate::level::SoftirqLevel;
use crate::level::extents::{FreeExtents, StoreExtent};
use lowroad_wire::key::KEY_LEN_MAX;

/// Time for which a retired response can be retransmitted: clients repeat their requests after 0.2 s, 0.6 s, 1.4 s, and
/// so on.
const LINGER_NS: u64 = 60_000_000_000;
/// If there is no room, this many retired slots are reused together, although `LINGER_NS` is not over for them.
const REUSE_BATCH_MAX: usize = 64;

/// A response to publish.
#[derive(Clone, Debug)]
pub struct PublishRequest<'a> {
    /// Its key, at most `KEY_MAX` bytes.
    pub key: &'a [u8],
    /// Head and body, at most [`LEN_MAX`] bytes.
    pub bytes: &'a [u8],
    /// Offset of the body in `bytes`.
    pub head_len: u16,
    /// Offset of Date's value.
    pub date_at: Option<u16>,
    /// Offset of Age's value, which has five digits.
    pub age_at: Option<u16>,
    /// Its status.
    pub status: u16,
    /// Time at which the response's Age was 0, CLOCK_MONOTONIC.
    pub generated_ns: u64,
    /// End of the response's freshness, CLOCK_MONOTONIC.
    pub expires_ns: u64,
}

/// The reason for which a response is not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishRefusal {
    /// The key or the response is too long, or an offset is out of range.
    Form,
    /// All slots are taken, or all entries of the index bucket are taken, or no free extent of the store is long
    /// enough.
    Full,
}

/// Maximum length of a response, head and body.
pub const LEN_MAX: usize = layout::PARTS_MAX as usize * layout::RESPONSE_MAX as usize;

/// Allocates slots and store extents, and keeps track of the published responses.
#[derive(Debug)]
pub struct ResponsePublisher {
    free: Vec<u32>,
    store: FreeExtents,
    /// Slots removed from the index, with the time of removal, in this order. They are not reused immediately, since a
    /// response in flight may have to be retransmitted.
    retired: VecDeque<(u32, u64)>,
    by_serial: HashMap<ResponseSerial, ResponseSlot>,
    next_id: u32,
}

/// The slot of a response, and the hash by which it is found.
#[derive(Clone, Copy, Debug)]
struct ResponseSlot {
    number: u32,
    hash: u64,
}

impl ResponsePublisher {
    /// Starts with an empty index: responses of an earlier daemon are removed from it.
    ///
    /// # Errors
    /// If the grace period can't be waited for.
    pub fn new(level: &SoftirqLevel) -> Result<Self, LevelError> {
        for bucket in 0..level.index.len() {
            level.index.write(bucket, layout::index_bucket::default());
        }
        level.set_published(0);
        level.wait_for_programs()?;
        let mut publisher = Self {
            free: Vec::new(),
            store: FreeExtents::new(level.store_len()),
            retired: VecDeque::new(),
            by_serial: HashMap::new(),
            next_id: 1,
        };
        let now_ns = crate::clock::now_ns();
        for slot in (0..level.response_slots()).rev() {
            let number = index_of(slot);
            let id: u32 = level.responses.get(number, offset_of!(response, id));
            // Responses sent under the earlier daemon may have to be retransmitted, so their slots count as retired.
            match id {
                0 => publisher.free.push(slot),
                _ if publisher.store.take_at(extent_of(level, slot)) => {
                    publisher.retired.push_back((slot, now_ns));
                }
                // The slot's extent is not free, which means that a publication was interrupted.
                _ => {
                    level.responses.set(number, offset_of!(response, id), 0u32);
                    publisher.free.push(slot);
                }
            }
            // The response is made to expire, since memos would find it without the index.
            level
                .responses
                .set(number, offset_of!(response, expires_ns), 0u64);
            // Ids must not repeat, since memos identify responses by them.
            publisher.next_id = publisher.next_id.max(id.wrapping_add(1));
        }
        Ok(publisher)
    }

    /// Publishes a response under a serial number. If `replaces` has an index entry, the new response takes it over;
    /// the caller retires `replaces` later.
    ///
    /// # Errors
    /// [`PublishRefusal`]; nothing has changed then.
    pub fn publish(
        &mut self,
        level: &SoftirqLevel,
        serial: ResponseSerial,
        request: &PublishRequest<'_>,
        replaces: Option<ResponseSerial>,
    ) -> Result<(), PublishRefusal> {
        let hash = level.hash_of(request.key);
        let (mut record, bytes) = to_map_value(request, hash).ok_or(PublishRefusal::Form)?;
        let old = replaces.and_then(|old| self.by_serial.get(&old)).copied();
        let (bucket, way) = old
            .and_then(|old| find_entry(level, old))
            .or_else(|| free_entry(level, hash))
            .ok_or(PublishRefusal::Full)?;
        // The slot is allocated after all other checks, so that a rejected response takes none.
        let (number, extent) = self
            .allocate(level, bytes.len())
            .ok_or(PublishRefusal::Full)?;
        record.id = self.next_id;
        record.at = extent.at;
        // Id 0 marks a slot without a response.
        self.next_id = self.next_id.wrapping_add(1).max(1);
        level.write_store(extent.at, &bytes);
        // Cleared first, so that a reader does not attribute the hits of the previous response to this one.
        level.clear_hits(index_of(number));
        level.responses.write(index_of(number), record);
        let slot = ResponseSlot { number, hash };
        // The release store makes the complete response visible before its entry.
        level.index.publish(bucket, way * 8, slot.entry());
        if let Some(old) = old {
            // Memos of the old response would hide the new one.
            expire(level, old);
        }
        self.by_serial.insert(serial, slot);
        self.update_published_count(level);
        Ok(())
    }

    /// Allocates a slot and a store extent; reuses retired slots in the order of their retirement if necessary.
    fn allocate(&mut self, level: &SoftirqLevel, len: usize) -> Option<(u32, StoreExtent)> {
        loop {
            if !self.free.is_empty()
                && let Some(extent) = self.store.take(len)
            {
                return self.free.pop().map(|number| (number, extent));
            }
            if self.retired.is_empty() {
                return None;
            }
            // Retired slots are freed in batches, since each batch costs a grace period.
            self.free_retired(level, REUSE_BATCH_MAX).ok()?;
        }
    }

    /// Retires responses: after this call the programs no longer answer with them, except for retransmissions of
    /// earlier answers.
    ///
    /// # Errors
    /// If the grace period can't be waited for; the slots stay taken then.
    pub fn retire(
        &mut self,
        level: &SoftirqLevel,
        serials: impl IntoIterator<Item = ResponseSerial>,
    ) -> Result<(), LevelError> {
        let mut freed = Vec::new();
        for serial in serials {
            if let Some(slot) = self.by_serial.remove(&serial) {
                clear_entry(level, slot);
                expire(level, slot);
                freed.push(slot.number);
            }
        }
        self.update_published_count(level);
        if !freed.is_empty() {
            // Programs that read an index entry before it was cleared may still answer with its response.
            level.wait_for_programs()?;
            let now_ns = crate::clock::now_ns();
            let retired = freed.into_iter().map(|number| (number, now_ns));
            self.retired.extend(retired);
        }
        Ok(())
    }

    /// Frees the slots that were retired long enough ago. To be called every second.
    ///
    /// # Errors
    /// If the grace period can't be waited for; these slots are lost then.
    pub fn recycle(&mut self, level: &SoftirqLevel, now_ns: u64) -> Result<(), LevelError> {
        let before_ns = now_ns.saturating_sub(LINGER_NS);
        let is_old = |(_, since_ns): &(u32, u64)| *since_ns < before_ns;
        self.free_retired(level, self.retired.partition_point(is_old))
    }

    /// Frees this many retired slots, in the order of their retirement.
    fn free_retired(&mut self, level: &SoftirqLevel, count: usize) -> Result<(), LevelError> {
        let count = count.min(self.retired.len());
        let slots: Vec<u32> = self.retired.drain(..count).map(|entry| entry.0).collect();
        if slots.is_empty() {
            return Ok(());
        }
        // Without its id, a response is not retransmitted any more. After the grace period, no program reads its bytes.
        for number in &slots {
            if let Some(hits) = level.hits_of_slot(*number) {
                level.freed_hits.record(hits);
            }
            let id = offset_of!(response, id);
            level.responses.set(index_of(*number), id, 0u32);
        }
        level.wait_for_programs()?;
        for number in &slots {
            self.store.free(extent_of(level, *number));
        }
        self.free.extend(slots);
        Ok(())
    }

    /// Changes the times of a published response.
    pub fn extend(
        &self,
        level: &SoftirqLevel,
        serial: ResponseSerial,
        generated_ns: u64,
        expires_ns: u64,
    ) {
        if let Some(slot) = self.by_serial.get(&serial) {
            let set =
                |offset, value: u64| level.responses.set(index_of(slot.number), offset, value);
            set(offset_of!(response, born_ns), generated_ns);
            set(offset_of!(response, expires_ns), expires_ns);
        }
    }

    /// The number of hits of a response.
    #[must_use]
    pub fn hits(&self, level: &SoftirqLevel, serial: ResponseSerial) -> u64 {
        self.by_serial
            .get(&serial)
            .map_or(0, |slot| level.hits(index_of(slot.number)))
    }

    fn update_published_count(&self, level: &SoftirqLevel) {
        // The conversion can't fail: the count is bounded by the number of slots.
        let count = u32::try_from(self.by_serial.len());
        level.set_published(count.unwrap_or(u32::MAX));
    }
}

/// A published response as listed for status commands and purges.
#[derive(Clone, Debug)]
pub struct PublishedResponse {
    /// Its key.
    pub key: Vec<u8>,
    /// The number of its hits.
    pub hits: u64,
    /// Its status.
    pub status: u16,
    /// Length of head and body.
    pub len: u16,
    /// End of its freshness, CLOCK_MONOTONIC.
    pub expires_ns: u64,
    slot: ResponseSlot,
}

/// Lists all responses in the index.
#[must_use]
pub fn published(level: &SoftirqLevel) -> Vec<PublishedResponse> {
    let mut responses = Vec::new();
    for bucket in 0..level.index.len() {
        for entry in level.index.read(bucket).entry {
            // 0 marks a free entry.
            let Some(number) = lower(entry).checked_sub(1) else {
                continue;
            };
            let stored = level.responses.read(index_of(number));
            responses.push(PublishedResponse {
                key: stored.key[..usize::from(stored.key_len)].to_vec(),
                hits: level.hits(index_of(number)),
                status: stored.status,
                len: stored.len,
                expires_ns: stored.expires_ns,
                slot: ResponseSlot {
                    number,
                    hash: stored.hash,
                },
            });
        }
    }
    responses
}

/// By how much one purge increments the purge counter.
pub const COUNTS_PER_PURGE: u32 = 2;

/// Purges responses from a process other than the daemon: after this call the programs no longer answer with them, and
/// the daemon publishes nothing that it fetched before.
///
/// # Errors
/// If the grace period can't be waited for.
pub fn purge(level: &SoftirqLevel, targets: &[PublishedResponse]) -> Result<(), LevelError> {
    // Counted first, so that the daemon publishes no older response while the entries are cleared.
    level.count_purge();
    for target in targets {
        clear_entry(level, target.slot);
    }
    // Counted again, since a program may have made a memo after the first count. The response can't be made to expire
    // instead: the daemon, which does not know of the purge yet, might extend it.
    level.count_purge();
    level.wait_for_programs()
}

impl ResponseSlot {
    /// The index entry that refers to this slot.
    fn entry(self) -> u64 {
        (self.hash & 0xffff_ffff_0000_0000) | u64::from(self.number + 1)
    }
}

/// The response's extent in the store.
fn extent_of(level: &SoftirqLevel, number: u32) -> StoreExtent {
    let slot = index_of(number);
    let len: u16 = level.responses.get(slot, offset_of!(response, len));
    StoreExtent {
        at: level.responses.get(slot, offset_of!(response, at)),
        len: FreeExtents::rounded(usize::from(len)),
    }
}

fn index_of(number: u32) -> usize {
    index(number)
}

fn bucket_of(level: &SoftirqLevel, hash: u64) -> usize {
    long_index(hash) & (level.index.len() - 1)
}

fn free_entry(level: &SoftirqLevel, hash: u64) -> Option<(usize, usize)> {
    let bucket = bucket_of(level, hash);
    let entries = level.index.read(bucket).entry;
    // If the hashes of two entries in a bucket have the same upper half, a lookup finds only the first.
    if entries
        .iter()
        .any(|entry| *entry != 0 && entry >> 32 == hash >> 32)
    {
        return None;
    }
    let way = entries.iter().position(|entry| *entry == 0)?;
    Some((bucket, way))
}

fn find_entry(level: &SoftirqLevel, slot: ResponseSlot) -> Option<(usize, usize)> {
    let bucket = bucket_of(level, slot.hash);
    let entries = level.index.read(bucket).entry;
    let way = entries.iter().position(|entry| *entry == slot.entry())?;
    Some((bucket, way))
}

fn clear_entry(level: &SoftirqLevel, slot: ResponseSlot) {
    if let Some((bucket, way)) = find_entry(level, slot) {
        level.index.set(bucket, way * 8, 0u64);
    }
}

/// Makes a response expire, which invalidates the memos that refer to it.
fn expire(level: &SoftirqLevel, slot: ResponseSlot) {
    let expires_ns = offset_of!(response, expires_ns);
    level.responses.set(index_of(slot.number), expires_ns, 0u64);
}

/// Converts a response into the map's structure, and into its bytes for the store. `None` if it is invalid.
fn to_map_value(request: &PublishRequest<'_>, hash: u64) -> Option<(response, Vec<u8>)> {
    let (len, head_len) = (request.bytes.len(), usize::from(request.head_len));
    if len == 0
        || len > LEN_MAX
        || head_len > len
        || request.key.is_empty()
        || request.key.len() > KEY_LEN_MAX
    {
        return None;
    }
    let mut record = response {
        expires_ns: request.expires_ns,
        born_ns: request.generated_ns,
        hash,
        len: u16::try_from(len).ok()?,
        head_len: request.head_len,
        date_at: request.date_at.unwrap_or(0),
        age_at: request.age_at.unwrap_or(0),
        key_len: u16::try_from(request.key.len()).ok()?,
        status: request.status,
        ..response::default()
    };
    record.key[..request.key.len()].copy_from_slice(request.key);
    let mut bytes = request.bytes.to_vec();
    // Date and Age must be in the first segment. For shorter segments, the programs check this themselves.
    let limit = match len > PART_LENS[0] {
        true => head_len.min(PART_LENS[0]),
        false => head_len,
    };
    for (at, value_len) in [
        (request.date_at, layout::DATE_LEN),
        (request.age_at, layout::AGE_LEN),
    ] {
        let Some(at) = at else { continue };
        let (at, value_len) = (usize::from(at), index(value_len));
        if at == 0 || at + value_len > limit {
            return None;
        }
        // The checksums are computed over zeros here; the programs add those of the actual values.
        bytes[at..at + value_len].fill(0);
    }
    for (sums, part_len) in record.sums.iter_mut().zip(PART_LENS) {
        for (sum, part) in sums.iter_mut().zip(bytes.chunks(part_len)) {
            *sum = sum_of(part);
        }
    }
    record.head_sum = sum_of(&bytes[..head_len]);
    Some((record, bytes))
}

/// The lengths of segments into which a response may be split.
const PART_LENS: [usize; 2] = [
    layout::RESPONSE_MAX as usize,
    layout::RESPONSE_MAX_V6 as usize,
];
