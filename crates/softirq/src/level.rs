//! The level as seen from user space: its maps, mapped into memory. The maps are found by the folder in which they are
//! pinned. Works with and without attached programs, and with and without the daemon.

mod bypass;
pub mod clients;
pub mod connections;
mod counts;
pub mod events;
mod extents;
mod hash;
mod mapped_array;
pub mod parked;
pub mod publisher;
pub mod slot_hits;

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libbpf_rs::{MapCore, MapHandle};
use lowroad_wire::width::{index, long_index, lower, upper};

use crate::clock::now_ns;
use crate::error::LevelError;
use crate::layout;
use crate::programs::loader;
use crate::programs::sizes::MapCapacity;

use self::mapped_array::MappedArray;
use self::slot_hits::FreedHits;

/// The maps of one level.
#[derive(Debug)]
pub struct SoftirqLevel {
    folder: PathBuf,
    control: MappedArray<layout::control>,
    connections: MappedArray<layout::connection_bucket>,
    pub(crate) index: MappedArray<layout::index_bucket>,
    pub(crate) responses: MappedArray<layout::response>,
    /// One counter per response slot and processor.
    response_hits: MappedArray<u64>,
    /// The response store, in words.
    store: MappedArray<u64>,
    /// Bytes of the store, with the margin.
    store_len: u32,
    response_slots: u32,
    /// The hits of responses with slots that this process has freed.
    pub freed_hits: FreedHits,
    request_counts: MappedArray<layout::asked>,
    reasons: MapHandle,
    events: MapHandle,
    denied: MapHandle,
    addresses: MapHandle,
    grace: MapHandle,
    /// Held while a bit of the settings is changed, because threads change different ones.
    settings_lock: Mutex<()>,
}

impl SoftirqLevel {
    /// Opens the maps that are pinned in a folder.
    ///
    /// # Errors
    /// If the folder has no such maps, or the process may not open them.
    pub fn open(folder: &Path) -> Result<Self, LevelError> {
        SoftirqLevel::with_maps(folder, |name| pinned(folder, name))
    }

    /// Opens one of the level's maps.
    ///
    /// # Errors
    /// If the process may not open the map.
    pub(crate) fn pinned(&self, name: &str) -> Result<MapHandle, LevelError> {
        pinned(&self.folder, name)
    }

    /// Opens all maps with `open_map`; all or some of them are pinned in the folder.
    ///
    /// # Errors
    /// If a map can't be opened or mapped.
    pub(crate) fn with_maps(
        folder: &Path,
        open_map: impl Fn(&str) -> Result<MapHandle, LevelError>,
    ) -> Result<Self, LevelError> {
        let (responses, store) = (open_map("responses")?, open_map("response_store")?);
        Ok(Self {
            control: memory(&open_map("control")?)?,
            connections: memory(&open_map("connections")?)?,
            index: memory(&open_map("response_index")?)?,
            responses: memory(&responses)?,
            response_hits: words(&open_map("response_hits")?)?,
            store: words(&store)?,
            store_len: store.value_size(),
            response_slots: responses.max_entries(),
            freed_hits: FreedHits::default(),
            request_counts: memory(&open_map("request_counts")?)?,
            reasons: open_map("reasons")?,
            events: open_map("events")?,
            denied: open_map("denied_clients")?,
            addresses: open_map("addresses")?,
            grace: open_map("admission_grace")?,
            folder: folder.to_owned(),
            settings_lock: Mutex::default(),
        })
    }

    /// The folder in which the level's maps and links are pinned.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A copy of the control structure.
    #[must_use]
    pub fn control(&self) -> layout::control {
        self.control.read(0)
    }

    /// The sizes of the level's maps.
    pub(crate) fn map_capacity(&self) -> MapCapacity {
        MapCapacity {
            connection_buckets: len_of_map(&self.connections),
            index_buckets: len_of_map(&self.index),
            response_slots: self.response_slots,
            store_len: self.store_len,
        }
    }

    /// Copies the control structure of another level for a trial. The copy has the same settings, but is awake, accepts
    /// all clients, and reports misses.
    pub(crate) fn copy_control(&self, other: &SoftirqLevel) {
        let mut control = other.control();
        control.mode = layout::MODE_SERVE;
        control.heartbeat_ns = now_ns();
        control.resting = layout::AWAKE;
        control.handover_broken = layout::HANDOVER_WORKS;
        control.settings |= layout::SETTING_LEARN;
        // The trial has no client addresses to check, and no log.
        let client_settings = layout::SETTING_ADMIT | layout::SETTING_DENY;
        control.settings &= !(client_settings | layout::SETTING_LOG);
        self.control.write(0, control);
    }

    /// Initializes the control structure: owner, settings, MTU, and the idle time after which a connection's slot may
    /// be reused. Draws keys if there are none.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn prepare(&self, settings: u32, idle_timeout_s: u32, mtu: u32) -> Result<(), LevelError> {
        let control = self.control();
        // Keys of an earlier daemon stay, since the maps' entries are found by them.
        if control.hash_key.mix == [0; 2] {
            let cookie_keys = [[random()?, random()?], [random()?, random()?]];
            self.set(offset_of!(layout::control, cookie_key), cookie_keys);
            let secrets = hash::random_key().map_err(LevelError::system("random numbers"))?;
            self.set(offset_of!(layout::control, hash_key), secrets);
        }
        self.set_settings(settings);
        // An earlier daemon may have left a pause, a migration problem or a bypass.
        self.set_pause(None);
        self.set_mtu(mtu);
        self.set_handover(layout::HANDOVER_WORKS);
        self.wake();
        // Converted to the programs' units of 2^30 ns. The programs compare ages of 16 bits, so only the lower half is
        // usable.
        let idle = (u64::from(idle_timeout_s) * 1_000_000_000) >> 30;
        let idle = lower(idle.clamp(1, 0x7fff));
        self.set(offset_of!(layout::control, idle), idle);
        self.set(offset_of!(layout::control, pid), std::process::id());
        Ok(())
    }

    /// Sets the SETTING_ bits.
    pub fn set_settings(&self, settings: u32) {
        self.set(offset_of!(layout::control, settings), settings);
    }

    /// Sets the smallest MTU of the interfaces.
    pub fn set_mtu(&self, mtu: u32) {
        self.set(offset_of!(layout::control, mtu), mtu);
    }

    /// Draws a new cookie key in the place of the unused one: the programs switch to the other key every 64 minutes. To
    /// be called in the periods that [`idle_key_period`] returns.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn rotate_cookie_key(&self, now_ns: u64) -> Result<(), LevelError> {
        // The programs select the key by bit 6 of the minute.
        let next = (now_ns / 60_000_000_000 / 64 + 1) & 1;
        let at = offset_of!(layout::control, cookie_key) + long_index(next) * 16;
        self.set(at, [random()?, random()?]);
        Ok(())
    }

    /// Writes the heartbeat, and the date if it has changed.
    pub fn write_heartbeat(&self, now_ns: u64, date: &[u8; 29]) {
        let control = self.control();
        let next = (control.date_now & 1) ^ 1;
        let mut new_date = layout::date::default();
        new_date.text[..29].copy_from_slice(date);
        new_date.sum = u32::from(layout::sum_of(date));
        let current = index(next ^ 1);
        if control.dates[current].text != new_date.text {
            // The programs use the other slot until `date_now` changes.
            let offset =
                offset_of!(layout::control, dates) + index(next) * size_of::<layout::date>();
            self.set(offset, new_date);
            self.set(offset_of!(layout::control, date_now), next);
        }
        // The heartbeat is written after the date: from the first heartbeat on, the level answers.
        self.set(offset_of!(layout::control, heartbeat_ns), now_ns);
    }

    /// Sets the level's mode, one of `shared.h`.
    pub fn set_mode(&self, mode: layout::mode) {
        self.set(offset_of!(layout::control, mode), mode);
    }

    /// Sets the ports on which the level answers.
    pub fn set_ports(&self, ports: &[u16]) {
        let mut bits = [0u64; 1024];
        for port in ports {
            bits[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        // A port that was draining is answered again.
        self.set(offset_of!(layout::control, leaving), [0u64; 1024]);
        self.set(offset_of!(layout::control, ports), bits);
    }

    /// Starts to drain a port: new connections go to the kernel, and live ones migrate at their next request.
    pub fn drain_port(&self, port: u16) {
        let leaving = offset_of!(layout::control, leaving);
        self.set_port(leaving, port, true);
    }

    /// Stops answering on a port.
    pub fn stop_port(&self, port: u16) {
        // The bits are cleared in this order: a port in `ports` without its bit in `leaving` would be answered again
        // for a moment.
        self.set_port(offset_of!(layout::control, ports), port, false);
        self.set_port(offset_of!(layout::control, leaving), port, false);
    }

    /// The ports on which the level answers.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let bits = self.control().ports;
        (0..=u16::MAX)
            .filter(|port| bits[usize::from(port >> 6)] >> (port & 63) & 1 == 1)
            .collect()
    }

    /// Sets whether connections from this local port bypass the level.
    pub fn exempt_port(&self, port: u16, exempt: bool) {
        self.set_port(offset_of!(layout::control, exempt), port, exempt);
    }

    /// Sets one bit of a field that has a bit for each port.
    fn set_port(&self, field: usize, port: u16, is_set: bool) {
        let at = field + usize::from(port >> 6) * size_of::<u64>();
        let word: u64 = self.control.get(0, at);
        let bit = 1 << (port & 63);
        let word = if is_set { word | bit } else { word & !bit };
        self.set(at, word);
    }

    /// The number of response slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.responses.len()
    }

    /// The number of response slots, in the type of a map's size.
    pub(crate) fn response_slots(&self) -> u32 {
        self.response_slots
    }

    /// The number of bytes available to published responses.
    #[must_use]
    pub fn store_len(&self) -> u32 {
        self.store_len - layout::STORE_MARGIN
    }

    /// Writes a response's bytes to the store; `at` must be a multiple of a word.
    pub(crate) fn write_store(&self, at: u32, bytes: &[u8]) {
        let first = index(at) / size_of::<u64>();
        for (word, chunk) in (first..).zip(bytes.chunks(size_of::<u64>())) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            self.store.write(word, u64::from_ne_bytes(padded));
        }
    }

    pub(crate) fn set_published(&self, count: u32) {
        self.set(offset_of!(layout::control, published), count);
    }

    /// Records whether, and why, connections are left to the kernel because it does not accept migrated ones.
    pub fn set_handover(&self, problem: layout::handover_problem) {
        self.set(offset_of!(layout::control, handover_broken), problem);
    }

    /// The purge counter. A purge may increment it more than once (`publisher::COUNTS_PER_PURGE`).
    #[must_use]
    pub fn purges(&self) -> u32 {
        self.control().purges
    }

    /// Increments the purge counter: responses fetched before the purge must no longer be published.
    pub fn count_purge(&self) {
        self.set(
            offset_of!(layout::control, purges),
            self.purges().wrapping_add(1),
        );
    }

    /// The hash of a key under this level's secret.
    #[must_use]
    pub fn hash_of(&self, key: &[u8]) -> u64 {
        hash::hash_key(
            key,
            &self.control.get(0, offset_of!(layout::control, hash_key)),
        )
    }

    /// Suppresses reports of this hash until the given time.
    pub fn deny(&self, hash: u64, until_ns: u64) {
        // The programs index their table of requests by the same bits.
        let slot = index(lower(hash) & 0xffff);
        let entry = layout::asked {
            tag: upper(hash),
            not_before: lower(until_ns >> 30),
        };
        self.request_counts.write(slot, entry);
    }

    pub(crate) fn events(&self) -> &MapHandle {
        &self.events
    }

    /// Waits until all program runs that have already begun are over (an RCU grace period).
    ///
    /// # Errors
    /// If the kernel has no memory for this.
    pub fn wait_for_programs(&self) -> Result<(), LevelError> {
        loader::wait_for_programs(&self.grace)
    }

    fn set<W: Copy>(&self, offset: usize, word: W) {
        self.control.set(0, offset, word);
    }
}

/// The current 64-minute period, if the cookie key that is not in use may be replaced now. `None` in the first two
/// minutes of a period, since cookies of the previous period may still be valid, and in the last two, since the next
/// period could begin before the new key is written.
#[must_use]
pub fn idle_key_period(now_ns: u64) -> Option<u64> {
    let minute = now_ns / 60_000_000_000;
    (2..62).contains(&(minute % 64)).then_some(minute / 64)
}

fn pinned(folder: &Path, name: &str) -> Result<MapHandle, LevelError> {
    MapHandle::from_pinned_path(folder.join(name)).map_err(LevelError::bpf(format!(
        "{}: opening the map {name}",
        folder.display()
    )))
}

fn memory<T: Copy>(map: &MapHandle) -> Result<MappedArray<T>, LevelError> {
    MappedArray::new(map, index(map.max_entries()))
        .map_err(LevelError::system("mapping a map into memory"))
}

/// The number of values, in the type of a map's size.
fn len_of_map<T: Copy>(map: &MappedArray<T>) -> u32 {
    u32::try_from(map.len()).unwrap_or(u32::MAX)
}

/// Maps values that are arrays of words, as one array.
fn words(map: &MapHandle) -> Result<MappedArray<u64>, LevelError> {
    let words = index(map.value_size()) / size_of::<u64>();
    MappedArray::new(map, index(map.max_entries()) * words)
        .map_err(LevelError::system("mapping a map into memory"))
}

fn random() -> Result<u64, LevelError> {
    let mut bytes = [0; 8];
    hash::fill(&mut bytes).map_err(LevelError::system("random numbers"))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_replaced_only_while_no_valid_cookie_depends_on_it() {
        let at = |minute: u64| idle_key_period(minute * 60_000_000_000 + 59_999_999_999);
        assert_eq!([at(0), at(1), at(2)], [None, None, Some(0)]);
        assert_eq!([at(61), at(62), at(63)], [Some(0), None, None]);
        assert_eq!([at(64), at(65), at(66)], [None, None, Some(1)]);
    }
}
