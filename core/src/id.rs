//! Identities: one type per thing, and the derivation of execution ids.
//!
//! Job, tenant and node ids are random and made outside the core. Execution ids are derived, so that
//! anyone can compute the one of an occurrence and the primary key is what makes it unique: UUIDv5 in
//! [`EXECUTION_NAMESPACE`] over a kind byte, the job id (16 bytes) and what names the occurrence.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// The UUIDv5 namespace of execution ids. Changing it would make every fire run once more.
pub const EXECUTION_NAMESPACE: Uuid = Uuid::from_u128(0x6f3d_2a51_9c0e_4b7a_8e64_f0c1_5d92_7b13);

/// The UUIDv5 namespace under which broker messages that cannot be read are told apart.
pub const MALFORMED_NAMESPACE: Uuid = Uuid::from_u128(0x0b9e_4c77_21d8_4f0c_9a35_7e60_c4d1_88a2);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        // As numbers: the order of their bytes, and one comparison instead of a loop over them.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.as_u128().cmp(&other.0.as_u128())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_u128(self.0.as_u128());
            }
        }

        impl $name {
            /// Wraps an id that was made elsewhere.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// From the 128-bit number, for tests and the simulator.
            #[must_use]
            pub const fn from_u128(raw: u128) -> Self {
                Self(Uuid::from_u128(raw))
            }

            /// The id as the store keeps it.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }

            /// The sixteen bytes, most significant first.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(
    /// Who owns jobs, keys and quotas.
    TenantId
);
uuid_id!(
    /// A job, for good: never derived from a name, never used again after a delete.
    JobId
);
uuid_id!(
    /// One occurrence of a job.
    ExecutionId
);
uuid_id!(
    /// One pause of a tenant or of a handler queue, from its beginning to its end.
    PauseId
);
uuid_id!(
    /// One process, from its start to its end. A restart is another node.
    NodeId
);

/// Names one effect of one role; its outcome comes back under it. Unique within a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(pub u64);

/// A job's definition version: 1 when created, one more with each edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobVersion(pub u32);

impl JobVersion {
    /// What a job is created with.
    pub const FIRST: Self = Self(1);

    /// The version after this one; stays at the edge.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Which dispatch of an execution an outbox row or a message belongs to: 1 for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DispatchNo(pub u32);

impl DispatchNo {
    /// The number of the next dispatch; stays at the edge.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What an execution is an occurrence of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occurrence {
    /// A nominal fire of the schedule.
    Scheduled {
        /// The nominal fire time.
        fire: Timestamp,
    },
    /// Triggered by hand under the caller's key.
    Manual {
        /// The caller's key, unique within the job.
        key: Arc<str>,
    },
    /// A replay of a dead letter.
    Replay {
        /// The execution that was dead-lettered.
        origin: ExecutionId,
        /// Which replay of it: 1 for the first.
        number: u32,
    },
}

impl Occurrence {
    /// The execution id of this occurrence of `job`.
    #[must_use]
    pub fn execution_id(&self, job: JobId) -> ExecutionId {
        let mut name = Vec::with_capacity(48);
        let kind = match self {
            Self::Scheduled { .. } => 1,
            Self::Manual { .. } => 2,
            Self::Replay { .. } => 3,
        };
        name.push(kind);
        name.extend_from_slice(job.as_bytes());
        match self {
            Self::Scheduled { fire } => name.extend_from_slice(&fire.as_micros().to_be_bytes()),
            Self::Manual { key } => name.extend_from_slice(key.as_bytes()),
            Self::Replay { origin, number } => {
                name.extend_from_slice(origin.as_bytes());
                name.extend_from_slice(&number.to_be_bytes());
            }
        }
        ExecutionId::from_uuid(Uuid::new_v5(&EXECUTION_NAMESPACE, &name))
    }

    /// The idempotency key handed to the handler. A replay keeps its origin's, so it has none of its own.
    #[must_use]
    pub fn idempotency_key(&self, job: JobId) -> Option<Arc<str>> {
        match self {
            Self::Scheduled { fire } => Some(format!("{job}/{fire}").into()),
            Self::Manual { key } => Some(format!("{job}/key/{key}").into()),
            Self::Replay { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

    #[test]
    fn execution_ids_are_golden() {
        let fire = Timestamp::from_micros(1_767_225_600_000_000);
        let scheduled = Occurrence::Scheduled { fire };
        let manual = Occurrence::Manual { key: "order-42".into() };
        let replay = Occurrence::Replay { origin: scheduled.execution_id(JOB), number: 1 };
        assert_eq!(scheduled.execution_id(JOB).to_string(), "7d8778e3-b5ce-5d9f-ba2c-b8ba9a9c1c64");
        assert_eq!(manual.execution_id(JOB).to_string(), "bc3c14a4-7cc8-5c39-8e45-089f4016b07f");
        assert_eq!(replay.execution_id(JOB).to_string(), "f086a00f-88ad-577f-b785-b47b2172ad20");
    }

    #[test]
    fn idempotency_keys_are_text_of_the_same_identity() {
        let fire = Timestamp::from_micros(1_767_225_600_000_000);
        assert_eq!(
            Occurrence::Scheduled { fire }.idempotency_key(JOB).as_deref(),
            Some("00112233-4455-6677-8899-aabbccddeeff/2026-01-01T00:00:00.000000Z")
        );
        assert_eq!(
            Occurrence::Manual { key: "order-42".into() }.idempotency_key(JOB).as_deref(),
            Some("00112233-4455-6677-8899-aabbccddeeff/key/order-42")
        );
    }
}
