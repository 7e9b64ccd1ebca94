//! The trace: a rolling hash over every event, effect and change, and on demand its lines as text.
//!
//! The hash is what two runs are compared by, so it must be the same on any machine and in any build: the
//! hasher is our own and feeds every number as 64 little-endian bits, whatever the width of `usize`. The
//! changes of one command are summed instead of chained, since a store may report them in an order of its
//! own.

use core::fmt;
use core::hash::{Hash, Hasher};

use fencepost_core::store::change::Change;

use crate::sim_time::SimTime;

/// The hash of a whole run. As text: 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceHash(pub u64);

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A 64-bit hasher that gives the same result everywhere: each word is mixed in by a folded multiplication.
#[derive(Clone, Debug)]
pub struct TraceHasher(u64);

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

impl Default for TraceHasher {
    fn default() -> Self {
        Self(SEED)
    }
}

impl TraceHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ SEED.rotate_left(17)) * u128::from(MULTIPLIER);
        self.0 = (product as u64) ^ ((product >> 64) as u64).rotate_left(23);
    }
}

impl Hasher for TraceHasher {
    fn finish(&self) -> u64 {
        let mut last = self.clone();
        last.mix(MULTIPLIER);
        last.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0_u8; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.mix(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.mix(number as u64);
        self.mix((number >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    #[inline]
    fn write_i8(&mut self, number: i8) {
        self.mix(i64::from(number) as u64);
    }

    #[inline]
    fn write_i16(&mut self, number: i16) {
        self.mix(i64::from(number) as u64);
    }

    #[inline]
    fn write_i32(&mut self, number: i32) {
        self.mix(i64::from(number) as u64);
    }

    #[inline]
    fn write_i64(&mut self, number: i64) {
        self.mix(number as u64);
    }

    #[inline]
    fn write_i128(&mut self, number: i128) {
        self.write_u128(number as u128);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.mix(number as i64 as u64);
    }
}

/// Whether a trace keeps its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The hash alone.
    Hash,
    /// Every event, effect and change as a line of text.
    Lines,
}

/// What a line of a trace is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An event given to a role.
    Event,
    /// An effect taken from a role.
    Effect,
    /// A row changed by a command.
    Change,
    /// Something that the world did.
    World,
}

/// The trace of a run, while it grows.
#[derive(Debug)]
pub struct Trace {
    hasher: TraceHasher,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(detail: Detail) -> Self {
        let lines = match detail {
            Detail::Hash => None,
            Detail::Lines => Some(Vec::new()),
        };
        Self { hasher: TraceHasher::default(), lines }
    }

    /// Takes something in.
    pub fn absorb(&mut self, at: SimTime, lane: u8, line: Line, what: &(impl Hash + fmt::Debug)) {
        self.hasher.mix(at.as_micros());
        self.hasher.mix(u64::from(lane) << 8 | line as u64);
        what.hash(&mut self.hasher);
        if self.lines.is_some() {
            self.write(at, lane, line, what);
        }
    }

    #[cold]
    #[inline(never)]
    fn write(&mut self, at: SimTime, lane: u8, line: Line, what: &dyn fmt::Debug) {
        let mark = match line {
            Line::Event => "->",
            Line::Effect => "<-",
            Line::Change => "  =",
            Line::World => "**",
        };
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at} {lane:>3} {mark} {what:?}"));
        }
    }

    /// Takes in the changes of one command, in whatever order they were reported.
    pub fn absorb_changes(&mut self, at: SimTime, lane: u8, changes: &[Change]) {
        let sum = changes.iter().fold(0_u64, |sum, change| {
            let mut hasher = TraceHasher::default();
            change.hash(&mut hasher);
            sum.wrapping_add(hasher.finish())
        });
        self.hasher.mix(changes.len() as u64);
        self.hasher.mix(sum);
        if self.lines.is_some() {
            changes.iter().for_each(|change| self.write(at, lane, Line::Change, change));
        }
    }

    /// The hash so far.
    #[must_use]
    pub fn hash(&self) -> TraceHash {
        TraceHash(self.hasher.finish())
    }

    /// The lines, if they were kept.
    #[must_use]
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(what: &impl Hash) -> u64 {
        let mut hasher = TraceHasher::default();
        what.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn hashes_are_golden() {
        assert_eq!(format!("{:016x}", hash_of(&(1_u8, "text", Some(-1_i64), [7_u8; 9]))), "4e2140739ffe01c1");
    }

    #[test]
    fn what_differs_hashes_differently() {
        assert_ne!(hash_of(&"ab"), hash_of(&"ba"));
        assert_ne!(hash_of(&(1_u64, 0_u64)), hash_of(&(0_u64, 1_u64)));
        assert_ne!(hash_of(&Some(0_u8)), hash_of(&None::<u8>));
    }
}
