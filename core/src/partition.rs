//! Partitions: the fixed 128 shares of all jobs, each owned by one scheduler at a time.
//!
//! The hash is specified to the byte, because two versions that disagree would both believe to own a
//! job or neither would: FNV-1a with 64 bits over the sixteen bytes of the job id (most significant
//! first), the upper half folded onto the lower by exclusive or, modulo 128. Goldens hold it.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::JobId;

/// How many partitions there are. Fixed: changing it moves every job.
pub const PARTITION_COUNT: u16 = 128;

/// One of the [`PARTITION_COUNT`] partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(u16);

impl PartitionId {
    /// The partition of a job.
    #[must_use]
    pub fn of(job: JobId) -> Self {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let hash =
            job.as_bytes().iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
        let folded = (hash >> 32) ^ hash;
        Self((folded % u64::from(PARTITION_COUNT)) as u16)
    }

    /// The partition with this number; `None` beyond the last.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < PARTITION_COUNT { Some(Self(number)) } else { None }
    }

    /// All partitions, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..PARTITION_COUNT).map(Self)
    }

    /// The number, 0 to 127.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_golden() {
        let cases: [(u128, u16); 4] = [
            (0, 92),
            (u128::MAX, 93),
            (0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, 127),
            (0x6f3d_2a51_9c0e_4b7a_8e64_f0c1_5d92_7b13, 21),
        ];
        for (job, partition) in cases {
            assert_eq!(PartitionId::of(JobId::from_u128(job)).number(), partition, "{job:032x}");
        }
    }

    #[test]
    fn jobs_spread_evenly() {
        let mut counts = [0_u32; PARTITION_COUNT as usize];
        for raw in 0..128_000_u128 {
            let id = JobId::from_u128(raw.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            counts[usize::from(PartitionId::of(id).number())] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
