//! The format of the metadata of a response on disk: head, expiry, selecting fields and purge generation. Times are
//! wall-clock times, and are checked when read, because the clock may have been set. An object with invalid metadata is
//! treated as absent.

use lowroad_cache::freshness::LifetimeSource;
use lowroad_cache::lifetime::{self, ReuseDeadlines as Times};
use lowroad_cache::vary::SelectingFields;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::{EncodedHead, HeadEncoder, StoredSection};

use crate::validity::StoredExpiry;

/// The version of the format; other versions are not read.
const VERSION: u8 = 2;
const RESPONSE: u8 = 0;
const VARIES: u8 = 1;
/// The tolerance for a wall clock that was set back slightly. A response that was received later than now by more than
/// this time is treated as stale.
const CLOCK_SLACK_MS: u64 = 2_000;
/// The sources of a lifetime; the index is the code on disk.
const SOURCES: [LifetimeSource; 7] = [
    LifetimeSource::Targeted,
    LifetimeSource::SMaxage,
    LifetimeSource::MaxAge,
    LifetimeSource::Expires,
    LifetimeSource::Ttl,
    LifetimeSource::Heuristic,
    LifetimeSource::Absent,
];

/// The wall clock and the monotonic clock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Monotonic ms.
    pub monotonic_ms: u64,
}

impl ClockReading {
    /// Reads the clocks.
    pub fn read() -> ClockReading {
        let monotonic_ms = crate::clock::now_ms();
        let ahead_ms = crate::clock::wall_clock_offset_ms();
        ClockReading {
            unix_ms: monotonic_ms.saturating_add_signed(ahead_ms),
            monotonic_ms,
        }
    }

    /// Converts a monotonic time to wall-clock time; `u64::MAX` (never) is unchanged.
    pub fn unix_of(&self, monotonic_ms: u64) -> u64 {
        convert(monotonic_ms, self.monotonic_ms, self.unix_ms)
    }

    /// Converts a wall-clock time to monotonic time; times before the start of the monotonic clock become 0.
    pub fn monotonic_of(&self, unix_ms: u64) -> u64 {
        convert(unix_ms, self.unix_ms, self.monotonic_ms)
    }
}

fn convert(ms: u64, from: u64, to: u64) -> u64 {
    match ms {
        // `u64::MAX` means never.
        u64::MAX => ms,
        _ => (u128::from(ms) + u128::from(to))
            .saturating_sub(from.into())
            .try_into()
            .unwrap_or(u64::MAX),
    }
}

/// The metadata under a key.
pub enum ObjectMeta {
    /// A response.
    Response(Box<StoredMeta>),
    /// The marker of a resource with variants.
    Varies(VaryMeta),
}

/// The marker of a resource with variants.
#[derive(Debug, PartialEq, Eq)]
pub struct VaryMeta {
    /// The purge generation before the fetch.
    pub generation: u64,
    /// The number in the keys of the variants.
    pub family: u64,
    /// The field names in Vary.
    pub names: Vec<Box<[u8]>>,
}

/// A response without its body.
pub struct StoredMeta {
    /// The purge generation before the fetch.
    pub generation: u64,
    /// The number of the body.
    pub id: u64,
    /// The head without Content-Length.
    pub head: EncodedHead,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// The expiry; the caller sets its purge epoch.
    pub lifetime: StoredExpiry,
    /// The selecting fields.
    pub selecting: SelectingFields,
}

impl ObjectMeta {
    /// The purge generation before the fetch.
    pub fn generation(&self) -> u64 {
        match self {
            ObjectMeta::Response(response) => response.generation,
            ObjectMeta::Varies(varies) => varies.generation,
        }
    }

    /// The expiry of a response; `None` for a marker.
    pub fn lifetime(&self) -> Option<&StoredExpiry> {
        match self {
            ObjectMeta::Response(response) => Some(&response.lifetime),
            ObjectMeta::Varies(_) => None,
        }
    }

    /// Decodes the metadata; `None` if it is invalid.
    pub fn decode(bytes: &[u8], now: ClockReading) -> Option<ObjectMeta> {
        let mut reader = MetaReader(bytes);
        // Written by another version of the server: the object is dropped.
        if reader.byte()? != VERSION {
            return None;
        }
        match reader.byte()? {
            RESPONSE => Some(ObjectMeta::Response(Box::new(StoredMeta::decode(
                &mut reader,
                now,
            )?))),
            VARIES => {
                let (generation, family) = (reader.u64()?, reader.u64()?);
                let names = reader.list(|reader| Some(reader.bytes()?.into()))?;
                Some(ObjectMeta::Varies(VaryMeta {
                    generation,
                    family,
                    names,
                }))
            }
            _ => None,
        }
    }
}

impl VaryMeta {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, VARIES];
        put_u64(&mut out, self.generation);
        put_u64(&mut out, self.family);
        put_count(&mut out, self.names.len());
        self.names.iter().for_each(|name| put_bytes(&mut out, name));
        out
    }
}

impl StoredMeta {
    /// The time after which the response can't be used at all, ms since 1970.
    pub fn expires_ms(&self, now: ClockReading) -> u64 {
        let EncodedHead { text, map: head } = &self.head;
        let times = self.lifetime.times();
        match !head.etag(text).is_empty() || self.modified_s.is_some() {
            true => u64::MAX, // it can be validated
            false => {
                let windows = times.swr_until_ms.max(times.sie_until_ms);
                now.unix_of(times.fresh_until_ms.max(windows))
            }
        }
    }

    /// Encodes the metadata for the disk; `now` is used to convert monotonic times to wall-clock times.
    pub fn encode(&self, now: ClockReading) -> Vec<u8> {
        let EncodedHead { text, map: head } = &self.head;
        let mut out = vec![VERSION, RESPONSE];
        put_u64(&mut out, self.generation);
        put_u64(&mut out, self.id);
        out.extend_from_slice(&head.status().code().to_le_bytes());
        put_bytes(&mut out, head.date(text).map_or(&[], |date| &date[..]));
        put_fields(&mut out, head.shared(text));
        put_fields(&mut out, head.content(text));
        put_u64(&mut out, self.modified_s.unwrap_or(u64::MAX));
        put_lifetime(&mut out, &self.lifetime, now);
        put_count(&mut out, self.selecting.iter().count());
        for (name, value) in self.selecting.iter() {
            put_bytes(&mut out, name);
            put_bytes(&mut out, value);
        }
        out
    }

    fn decode(reader: &mut MetaReader<'_>, now: ClockReading) -> Option<StoredMeta> {
        let (generation, id) = (reader.u64()?, reader.u64()?);
        let mut head = HeadEncoder::start(StatusCode::new(reader.u16()?)?);
        if let Ok(date) = reader.bytes()?.try_into() {
            head.set_date(date);
        }
        reader.fields(&mut head)?;
        head.begin_content();
        reader.fields(&mut head)?;
        let modified_s = Some(reader.u64()?).filter(|s| *s != u64::MAX);
        let lifetime = read_lifetime(reader, now)?;
        let pairs = reader.list(|reader| Some((reader.bytes()?, reader.bytes()?)))?;
        let names = pairs.iter().map(|(name, _)| *name);
        Some(StoredMeta {
            generation,
            id,
            head: head.finish_open(),
            modified_s,
            lifetime,
            selecting: SelectingFields::from_vary(names, pairs.iter().copied())?,
        })
    }
}

fn put_lifetime(out: &mut Vec<u8>, lifetime: &StoredExpiry, now: ClockReading) {
    let times = lifetime.times();
    // Wall-clock times, since the monotonic clock starts at each boot.
    put_u64(out, now.unix_ms);
    put_u64(out, times.age_ms(now.monotonic_ms));
    for ms in [times.fresh_until_ms, times.swr_until_ms, times.sie_until_ms] {
        put_u64(out, now.unix_of(ms));
    }
    let flags = [
        times.no_cache,
        times.must_revalidate,
        lifetime.is_shareable(),
    ];
    out.extend(flags.map(u8::from));
    let source = SOURCES
        .iter()
        .position(|candidate| *candidate == lifetime.source);
    out.push(source.unwrap_or(SOURCES.len()) as u8);
    put_bytes(out, lifetime.names());
}

fn read_lifetime(reader: &mut MetaReader<'_>, now: ClockReading) -> Option<StoredExpiry> {
    let (at_unix_ms, age_ms) = (reader.u64()?, reader.u64()?);
    // The age increases with the wall clock, since the host may have been booted after the response was received.
    let age_ms = age_ms.saturating_add(now.unix_ms.saturating_sub(at_unix_ms));
    let mut until = || Some(now.monotonic_of(reader.u64()?));
    let (until_ms, swr_until_ms, sie_until_ms) = (until()?, until()?, until()?);
    let no_cache = reader.byte()? != 0;
    let times = Times {
        generated_ms: lifetime::generated_ms(now.monotonic_ms, age_ms),
        fresh_until_ms: until_ms,
        swr_until_ms,
        sie_until_ms,
        no_cache,
        must_revalidate: reader.byte()? != 0,
        was_reusable_on_arrival: !no_cache && until_ms.max(swr_until_ms) > now.monotonic_ms,
    };
    let is_shareable = reader.byte()? != 0;
    let source = *SOURCES.get(usize::from(reader.byte()?))?;
    // If the response is from the future, the clock was set back: the age is unknown, so the response counts as stale.
    let is_from_future = at_unix_ms > now.unix_ms.saturating_add(CLOCK_SLACK_MS);
    // RFC 9111 §4.2.3: age can't be computed without a sound clock.
    let times = match is_from_future {
        true => times.after_soft_purge(now.monotonic_ms),
        false => times,
    };
    let lifetime = StoredExpiry::new(&times, source).with_shareable(is_shareable);
    Some(lifetime.with_names(reader.bytes()?.to_vec()))
}

fn put_fields(out: &mut Vec<u8>, section: StoredSection<'_>) {
    put_count(out, section.fields().count());
    for (name, value) in section.fields() {
        put_bytes(out, name.as_str().as_bytes());
        put_bytes(out, value);
    }
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    // The cast is exact: heads are far shorter.
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads the encoded metadata; contains the remaining bytes.
struct MetaReader<'b>(&'b [u8]);

impl<'b> MetaReader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.array().map(u32::from_le_bytes)?).ok()
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count()?;
        let mut list = Vec::new(); // no capacity is reserved, since the count is not trusted
        for _ in 0..count {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn fields(&mut self, head: &mut HeadEncoder) -> Option<()> {
        for _ in 0..self.count()? {
            let name = str::from_utf8(self.bytes()?).ok()?;
            head.field(name, self.bytes()?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: ClockReading = ClockReading {
        unix_ms: 1_000_000,
        monotonic_ms: 5_000,
    };

    #[test]
    fn monotonic_times_survive_conversion_to_wall_clock_time() {
        for _ in 0..100_000 {
            let (written, read_back) = (ClockReading::read(), ClockReading::read());
            let came = read_back.monotonic_of(written.unix_of(7_000));
            // The clocks' difference may be near a rounding boundary.
            assert!(
                came.abs_diff(7_000) <= 1,
                "{came}: {written:?}, {read_back:?}"
            );
        }
    }

    fn response() -> StoredMeta {
        let mut head = HeadEncoder::start(StatusCode::OK);
        head.set_date(b"Sun, 06 Nov 1994 08:49:37 GMT");
        head.field("ETag", b"\"e\"");
        head.field("X-Own", b"1");
        head.begin_content();
        head.field("Content-Type", b"text/css");
        let times = Times {
            generated_ms: 4_900,
            must_revalidate: true,
            ..StoredExpiry::fresh_until(65_000).times()
        };
        StoredMeta {
            generation: 7,
            id: 8,
            head: head.finish_open(),
            modified_s: Some(12),
            lifetime: StoredExpiry::new(&times, LifetimeSource::MaxAge)
                .with_names(b"a,b\nc".to_vec()),
            selecting: SelectingFields::from_vary(
                [&b"x"[..]],
                [(&b"X"[..], &b"1"[..])].into_iter(),
            )
            .expect("it can be compared"),
        }
    }

    fn read(bytes: &[u8], now: ClockReading) -> Option<StoredMeta> {
        match ObjectMeta::decode(bytes, now)? {
            ObjectMeta::Response(response) => Some(*response),
            ObjectMeta::Varies(_) => None,
        }
    }

    #[test]
    fn encoded_metadata_is_decoded() {
        // Ten seconds later, on a rebooted host.
        let now = ClockReading {
            unix_ms: 1_010_000,
            monotonic_ms: 50,
        };
        let (original, decoded) = (response(), read(&response().encode(MADE), now));
        let decoded = decoded.expect("it is whole");
        assert_eq!(decoded.head.text, original.head.text);
        let (text, head) = (&decoded.head.text, decoded.head.map);
        assert_eq!(head.etag(text), b"\"e\"");
        assert_eq!(head.content_type(text), b"text/css");
        assert_eq!(head.date(text), Some(b"Sun, 06 Nov 1994 08:49:37 GMT"));
        let times = decoded.lifetime.times();
        assert_eq!((times.fresh_until_ms, times.age_ms(50)), (50_050, 10_100));
        assert!(times.must_revalidate && !times.no_cache);
        assert_eq!(
            (decoded.generation, decoded.id, decoded.modified_s),
            (7, 8, Some(12))
        );
        assert!(decoded.selecting == original.selecting && decoded.lifetime.names() == b"a,b\nc");
    }

    #[test]
    fn decoded_response_is_stale_after_its_lifetime() {
        let later = |unix_ms| ClockReading {
            unix_ms,
            monotonic_ms: 70,
        };
        let until_of = |now| {
            read(&response().encode(MADE), now).map(|decoded| decoded.lifetime.fresh_until_ms())
        };
        assert_eq!(until_of(later(1_060_001)), Some(69));
        assert_eq!(until_of(later(1_000_000_000)), Some(0));
        // The clock was set back.
        assert_eq!(until_of(later(900_000)), Some(70));
    }

    #[test]
    fn response_without_validator_expires_with_its_stale_windows() {
        let mut response = response();
        assert_eq!(response.expires_ms(MADE), u64::MAX);
        response.modified_s = None;
        response.head = HeadEncoder::start(StatusCode::OK).finish_open();
        assert_eq!(response.expires_ms(MADE), 1_060_000);
    }

    #[test]
    fn truncated_or_foreign_metadata_is_rejected() {
        let bytes = response().encode(MADE);
        for len in 0..bytes.len() {
            assert!(ObjectMeta::decode(&bytes[..len], MADE).is_none(), "{len}");
        }
        let mut other = bytes.clone();
        other[0] += 1;
        assert!(ObjectMeta::decode(&other, MADE).is_none());
    }

    #[test]
    fn vary_marker_is_decoded() {
        let varies = VaryMeta {
            generation: 3,
            family: 9,
            names: vec![(*b"accept").into()],
        };
        match ObjectMeta::decode(&varies.encode(), MADE) {
            Some(ObjectMeta::Varies(decoded)) => assert_eq!(decoded, varies),
            _ => panic!("it is none"),
        }
    }
}
