//! Where the row of a token is: its bucket and its number there.
//!
//! A bucket holds the rows that end in the same span of time, so that it can be dropped as a whole. The place is written
//! into the first letters of a token that this node issues, and into its id. So finding a token needs no index, and new
//! rows are appended.

use uuid::Uuid;

/// Letters of a token that hold its place. The other 22 are random: 131 bits.
pub(crate) const PLACE_LETTERS: usize = 10;

pub(crate) const ALPHABET: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const NUMBER_BITS: u32 = 37;
const SPAN_BITS: u32 = 20;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// The time from which spans are counted: 2025-01-01.
const EPOCH: i64 = 1_735_689_600;

/// The lengths of spans, with the longest life of a row that ends in one. Together they need at most 100 buckets at a
/// time: 25 hours, 33 days, and 40 times 30 days (`refresh_token_ttl` is at most 100,000,000 seconds).
const SPANS: [(i64, i64); 3] = [(HOUR, DAY), (DAY, 32 * DAY), (30 * DAY, i64::MAX)];

/// The class of rows that never end.
const ENDLESS: u64 = 3;

/// Rows of each of the first [`SMALL_PARTS`] parts of a bucket.
const SMALL_PART: u64 = 1 << 17;
const SMALL_PARTS: u64 = 128;
/// Rows of each of the others.
const LARGE_PART: u64 = 1 << 22;

/// A set of rows that end in the same span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u32);

impl Bucket {
    /// Returns the bucket of a row that is written `now` and ends at `ends`, in seconds since 1970.
    pub(crate) fn of(now: i64, ends: Option<i64>) -> Self {
        let Some(ends) = ends else {
            return Self::new(ENDLESS, 0);
        };
        let life = ends.saturating_sub(now);
        let class = SPANS.iter().position(|(_, longest)| life <= *longest);
        let class = class.unwrap_or(SPANS.len() - 1);
        let number = ends.saturating_sub(EPOCH).max(0) / SPANS[class].0;
        // What ends after the last span of its class (in 119 years, for hours) never ends.
        match u64::try_from(number) {
            Ok(number) if number < 1 << SPAN_BITS => Self::new(class as u64, number),
            _ => Self::new(ENDLESS, 0),
        }
    }

    fn new(class: u64, number: u64) -> Self {
        Self((class << SPAN_BITS | number) as u32)
    }

    /// The time at which all rows have ended, if there is one.
    pub(crate) fn end(self) -> Option<i64> {
        let class = (self.0 >> SPAN_BITS) as usize;
        let (length, _) = SPANS.get(class)?;
        let number = i64::from(self.0 & ((1 << SPAN_BITS) - 1));
        Some(EPOCH + (number + 1) * length)
    }

    pub(crate) fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }
}

/// The bucket and the number of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub bucket: Bucket,
    pub number: u64,
}

impl Place {
    pub(crate) const MAX_NUMBER: u64 = (1 << NUMBER_BITS) - 1;

    /// The part of its bucket. Parts are small, so that one is dropped in a few milliseconds. But the parts of a bucket
    /// with many millions of rows are larger, so that it does not take all tables.
    pub(crate) fn part(self) -> u64 {
        match self.number.checked_sub(SMALL_PARTS * SMALL_PART) {
            None => self.number / SMALL_PART,
            Some(number) => SMALL_PARTS + number / LARGE_PART,
        }
    }

    /// The first number of a part.
    pub(crate) fn first_of(part: u64) -> u64 {
        match part.checked_sub(SMALL_PARTS) {
            None => part * SMALL_PART,
            Some(part) => SMALL_PARTS * SMALL_PART + part * LARGE_PART,
        }
    }

    fn bits(self) -> u64 {
        u64::from(self.bucket.0) << NUMBER_BITS | self.number
    }

    /// The place as a key, in the order of buckets and numbers.
    pub(crate) fn key(self) -> [u8; 8] {
        self.bits().to_be_bytes()
    }

    /// Reads what [`key`](Self::key) has written.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        Self::of_bits(u64::from_be_bytes(key.try_into().ok()?))
    }

    fn of_bits(bits: u64) -> Option<Self> {
        let bucket = u32::try_from(bits >> NUMBER_BITS).ok()?;
        (bucket < 4 << SPAN_BITS).then_some(Self {
            bucket: Bucket(bucket),
            number: bits & Self::MAX_NUMBER,
        })
    }

    /// Writes the place as the first letters of a token.
    pub(crate) fn write(self, letters: &mut [u8; PLACE_LETTERS]) {
        let mut bits = self.bits();
        for letter in letters.iter_mut().rev() {
            *letter = ALPHABET[(bits % 62) as usize];
            bits /= 62;
        }
    }

    /// Reads the place from a token. A token that was not issued here may have one by chance.
    pub(crate) fn read(token: &[u8]) -> Option<Self> {
        if token.len() != crate::secret::TOKEN_LETTERS {
            return None;
        }
        let mut bits: u64 = 0;
        for letter in &token[..PLACE_LETTERS] {
            let digit = match letter {
                b'0'..=b'9' => letter - b'0',
                b'A'..=b'Z' => letter - b'A' + 10,
                b'a'..=b'z' => letter - b'a' + 36,
                _ => return None,
            };
            bits = bits * 62 + u64::from(digit);
        }
        Self::of_bits(bits)
    }

    /// Makes an id that holds the place: a UUID of version 8 (RFC 9562 section 5.8) with 62 random bits.
    pub(crate) fn id(self, random: u64) -> Uuid {
        let bits = self.bits();
        let high = (bits >> 12) << 16 | bits & 0xfff;
        let bits = u128::from(high) << 64 | u128::from(random);
        uuid::Builder::from_custom_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// Reads the place from an id. An id that was not made here may have one by chance.
    pub(crate) fn of_id(id: Uuid) -> Option<Self> {
        if id.get_version_num() != 8 {
            return None;
        }
        let high = (id.as_u128() >> 64) as u64;
        Self::of_bits((high >> 16) << 12 | high & 0xfff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_a_token_and_an_id() {
        for ends in [
            None,
            Some(EPOCH + 5),
            Some(EPOCH + 40 * DAY),
            Some(EPOCH + 4000 * DAY),
        ] {
            for number in [0, 1, 4095, 4096, Place::MAX_NUMBER] {
                let bucket = Bucket::of(EPOCH, ends);
                let place = Place { bucket, number };
                let mut token = [b'x'; crate::secret::TOKEN_LETTERS];
                let letters = token.first_chunk_mut().expect("it is longer");
                place.write(letters);
                assert_eq!(Place::read(&token), Some(place));
                assert_eq!(Place::of_key(&place.key()), Some(place));
                assert_eq!(Place::of_id(place.id(u64::MAX)), Some(place));
                assert_eq!(Place::of_id(place.id(0)), Some(place));
            }
        }
    }

    #[test]
    fn parts_follow_each_other() {
        let bucket = Bucket::of(EPOCH, None);
        let part = |number| Place { bucket, number }.part();
        assert_eq!((part(0), Place::first_of(0)), (0, 0));
        for expected in 1..300 {
            let first = Place::first_of(expected);
            assert_eq!((part(first - 1), part(first)), (expected - 1, expected));
        }
        assert_eq!(Place::first_of(128), 1 << 24);
    }

    #[test]
    fn texts_without_a_place() {
        assert_eq!(Place::read(b"short"), None);
        assert_eq!(Place::read(&[b'-'; 32]), None);
        // The largest number of ten letters has more bits than a place.
        assert_eq!(Place::read(&[b'z'; 32]), None);
        assert_eq!(Place::of_id(Uuid::new_v4()), None);
    }

    #[test]
    fn rows_end_before_their_bucket() {
        for life in [0, 1, HOUR, DAY, DAY + 1, 14 * DAY, 33 * DAY, 100_000_000] {
            let now = EPOCH + 1_234_567;
            let end = Bucket::of(now, Some(now + life)).end().expect("it ends");
            assert!(end > now + life, "a life of {life}");
        }
        assert_eq!(Bucket::of(EPOCH, None).end(), None);
        assert_eq!(Bucket::of(EPOCH, Some(i64::MAX)).end(), None);
    }

    #[test]
    fn at_most_a_hundred_buckets_are_in_use() {
        let now = EPOCH + 777_777;
        let lives = (0..100_000_000).step_by(1800);
        let buckets: std::collections::BTreeSet<_> = lives
            .map(|life| Bucket::of(now, Some(now + life)))
            .collect();
        assert!(buckets.len() < 100, "{}", buckets.len());
    }
}
