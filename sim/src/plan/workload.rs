//! The workload: jobs, what their handlers do, and the systems that those call.

use std::sync::Arc;

use fencepost_core::id::JobId;
use fencepost_core::job::{JobDefinition, StoredDefinition};
use fencepost_core::time::Span;
use serde::{Deserialize, Serialize};

/// A job's place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobIndex(pub u16);

impl JobIndex {
    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The place in the plan of a system that handlers call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutsideIndex(pub u8);

impl OutsideIndex {
    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Its id.
    pub id: JobId,
    /// Whose it is: a place in the plan's tenants.
    pub tenant: u8,
    /// When it comes to be.
    pub created: Creation,
    /// What is stored.
    pub definition: Definition,
    /// What its handler does.
    pub behaviour: Behaviour,
}

/// When a job comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Creation {
    /// It is there when the run begins.
    AtStart,
    /// An operator creates it.
    ByOperator,
}

/// A job's definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a plan has few jobs, and nearly all can be read")]
pub enum Definition {
    /// One that can be read.
    Readable(JobDefinition),
    /// A stored text that nobody here can read.
    Text(Arc<str>),
}

impl Definition {
    /// As it is stored.
    #[must_use]
    pub fn stored(&self) -> StoredDefinition {
        match self {
            Self::Readable(definition) => StoredDefinition::of(definition.clone()),
            Self::Text(text) => StoredDefinition::from_text(Arc::clone(text)),
        }
    }
}

/// What a job's handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behaviour {
    /// What goes wrong, if anything.
    pub kind: BehaviourKind,
    /// In how many of an execution's first runs that goes wrong; later ones succeed.
    pub times: u32,
    /// The shortest run.
    pub least: Span,
    /// The longest run.
    pub most: Span,
    /// What it calls half-way.
    pub calls: OutsideIndex,
}

/// What goes wrong in a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BehaviourKind {
    /// Nothing.
    Succeeds,
    /// It takes longer than a lease lasts, and succeeds.
    Slow,
    /// An error after which trying again makes sense.
    FailsRetryably,
    /// The same, with the target's wish for when.
    FailsWithWish,
    /// An error after which it does not.
    FailsForGood,
    /// An error with a text longer than what is kept.
    FailsAtLength,
    /// It does not end until it is told to.
    Hangs,
    /// It takes far longer than its attempt may, told to stop or not.
    Deaf,
    /// It takes its process with it.
    CrashesWorker,
    /// Its effect is done, but it reports an error.
    AnswerLost,
}

/// A system that handlers call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideSpec {
    /// What it enforces.
    pub enforces: Enforcement,
}

/// What a system that handlers call does about repeated and late calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// It does each idempotency key's effect once.
    Key,
    /// It refuses a fencing token lower than one it has seen for the idempotency key.
    Token,
    /// Whatever comes, it does.
    Nothing,
}
