//! Random streams: one per concern, keyed by a stable name.
//!
//! A stream is raw ChaCha8 words, which stay the same across releases of `rand_chacha`; ranges, chances and
//! shuffles are made of them here, with integers alone, because `rand`'s differ between its versions. Its
//! key is the seed and a hash of the stream's name, so that one more draw in one place leaves every other
//! stream as it was.

use core::fmt;
use core::str::FromStr;

use fencepost_core::time::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A million: what chances are counted in.
pub const PPM: u32 = 1_000_000;

/// The key of one stream. As text: 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    seed: u64,
    name: u64,
}

impl StreamKey {
    /// The key of the stream `name` of this seed.
    #[must_use]
    pub fn of(seed: u64, name: &str) -> Self {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let name = name.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        Self { seed, name }
    }

    /// The stream of this key, from its beginning.
    #[must_use]
    pub fn open(self) -> Stream {
        let mut key = [0_u8; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&self.name.to_le_bytes());
        Stream(ChaCha8Rng::from_seed(key))
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.seed, self.name)
    }
}

/// A text that is no stream key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no stream key: 32 hexadecimal digits")]
pub struct StreamKeyError(String);

impl FromStr for StreamKey {
    type Err = StreamKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let raw = if hex { u128::from_str_radix(text, 16).ok() } else { None };
        let raw = raw.ok_or_else(|| StreamKeyError(text.to_owned()))?;
        Ok(Self { seed: (raw >> 64) as u64, name: raw as u64 })
    }
}

impl Serialize for StreamKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StreamKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A stream of random draws.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The next 32 random bits.
    pub fn word(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// The next 64 random bits.
    pub fn long(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from 0 to `bound − 1`; 0 where the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire: the high half of a product, with the draws that would favour some results drawn again.
        if bound == 0 {
            return 0;
        }
        let unfair = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.long()) * u128::from(bound);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// Evenly from `least` to `most`, both included; `least` where they are the wrong way round.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.checked_sub(least).and_then(|width| width.checked_add(1)) {
            Some(width) => least + self.below(width),
            None if most < least => least,
            None => self.long(),
        }
    }

    /// Evenly between two spans, both included.
    pub fn span(&mut self, least: Span, most: Span) -> Span {
        Span::from_micros(self.between(least.as_micros(), most.as_micros()))
    }

    /// A span whose logarithm is spread evenly, so that the short ones get their share; both included.
    pub fn long_tailed(&mut self, least: Span, most: Span) -> Span {
        let mut high = most;
        let halvings = (most.as_micros() / least.as_micros().max(1)).max(1).ilog2();
        for _ in 0..self.below(u64::from(halvings) + 1) {
            high = high.divided_by(2);
        }
        self.span(least, high.max(least))
    }

    /// Whether something happens whose chance is this many parts in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(u64::from(PPM)) < u64::from(ppm)
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is none, which is a mistake of the caller's.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        assert!(!from.is_empty(), "something to pick from");
        &from[self.below(from.len() as u64) as usize]
    }

    /// Puts items into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_stream_are_golden() {
        let mut stream = StreamKey::of(42, "tie-break").open();
        let words: Vec<String> = (0..3).map(|_| format!("{:016x}", stream.long())).collect();
        assert_eq!(words, ["1f33a05eb595ae50", "f865342bf4f56a0c", "099b468913fc8056"]);
    }

    #[test]
    fn streams_of_other_names_and_seeds_differ() {
        let first = |seed, name| StreamKey::of(seed, name).open().long();
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn a_key_is_read_back_from_its_text() {
        let key = StreamKey::of(u64::MAX, "store");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("12".parse::<StreamKey>().is_err());
        assert!("+2345678901234567890123456789012".parse::<StreamKey>().is_err());
    }

    #[test]
    fn ranges_are_even_and_include_their_ends() {
        let mut stream = StreamKey::of(7, "range").open();
        let mut counts = [0_u32; 5];
        for _ in 0..50_000 {
            counts[stream.between(10, 14) as usize - 10] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(stream.between(3, 3), 3);
        assert_eq!(stream.between(4, 3), 4);
        assert_eq!(stream.below(0), 0);
        stream.between(0, u64::MAX);
    }

    #[test]
    fn a_chance_comes_true_in_its_share_of_cases() {
        let mut stream = StreamKey::of(7, "chance").open();
        let hits = (0..100_000).filter(|_| stream.chance(PPM / 10)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| stream.chance(PPM) && !stream.chance(0)));
    }

    #[test]
    fn a_long_tail_stays_within_its_bounds() {
        let mut stream = StreamKey::of(7, "tail").open();
        let (least, most) = (Span::from_millis(1), Span::from_secs(3_600));
        let drawn: Vec<Span> = (0..1_000).map(|_| stream.long_tailed(least, most)).collect();
        assert!(drawn.iter().all(|span| (least..=most).contains(span)));
        assert!(drawn.iter().filter(|span| **span < Span::from_secs(60)).count() > 300);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        StreamKey::of(7, "shuffle").open().shuffle(&mut items);
        let mut sorted = items.clone();
        sorted.sort_unstable();
        assert_ne!(items, sorted);
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
