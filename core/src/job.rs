//! Jobs: what is to run, when, and by which policies; parsed at the edge, never half-built.
//!
//! A [`JobDefinition`] has one JSON shape, used by the API and in the store. [`JobDefinition::parse`]
//! refuses what it does not know and names the field. [`StoredDefinition`] is a definition as a row
//! holds it: the text, and what the running version makes of it, which may be [`Unreadable`]; such a
//! row disables its job alone.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::limits;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::schedule::misfire::MisfirePolicy;
use crate::schedule::timeline::Timeline;
use crate::schedule::{Bounds, Excluded, Exclusions, Flex, Schedule};
use crate::time::{Span, Timestamp};

pub mod failures;
mod overlap;
mod parse;
mod payload;
pub mod shape;
pub(crate) mod span_json;

pub use overlap::Overlap;
pub use parse::{DefinitionError, check_text};
pub use payload::{Payload, PayloadError};
pub(crate) use span_json::{optional_span_ms, span_ms};

/// The schema version of stored definitions and messages that this version writes.
pub const SCHEMA_VERSION: u16 = 1;

/// The name of a handler, which is also its queue's: 1 to 64 of `a-z 0-9 . _ -`, starting with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HandlerName(Arc<str>);

/// Which code runs an execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerRef {
    /// The handler.
    pub name: HandlerName,
    /// Its version; workers register which ones they know.
    #[serde(default = "HandlerRef::first_version")]
    pub version: u32,
}

crate::execution::named!(
    /// Whether a job fires by itself.
    Standing {
        /// It does.
        Active = "active",
        /// An operator paused it: its fires are passed over until somebody resumes it. What is triggered by hand runs.
        Paused = "paused",
    }
);

/// Whether executions that fail for good are kept as dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetters {
    /// Kept, to be inspected and replayed.
    #[default]
    On,
    /// Not kept: such executions end as failed.
    Off,
}

/// What is to run, when, and by which policies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDefinition {
    /// For people; not unique and never part of an identity.
    pub name: Arc<str>,
    /// Which code runs.
    pub handler: HandlerRef,
    /// What it is given: JSON text.
    #[serde(default)]
    pub payload: Payload,
    /// When.
    pub schedule: Schedule,
    /// From when, until when, how often at most.
    #[serde(default)]
    pub bounds: Bounds,
    /// What becomes of fires that were missed.
    #[serde(default)]
    pub misfire: MisfirePolicy,
    /// How late a fire may be materialised without counting as missed.
    #[serde(rename = "misfire_grace_ms", with = "span_ms", default = "JobDefinition::default_misfire_grace")]
    pub misfire_grace: Span,
    /// The window after its nominal time in which a fire is due, each at a place of its own; none where it is zero.
    #[serde(rename = "flex_ms", with = "span_ms", default, skip_serializing_if = "JobDefinition::is_rigid")]
    pub flex: Span,
    /// The calendars on whose days its fires are passed over.
    #[serde(default, skip_serializing_if = "Exclusions::is_none")]
    pub exclude: Exclusions,
    /// What follows a failure.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// After how many failures in a row the job is paused; never where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<u32>,
    /// What becomes of an execution while another of the job is under way.
    #[serde(default, skip_serializing_if = "Overlap::is_default")]
    pub overlap: Overlap,
    /// What its executions are counted by, together with those of other jobs of the tenant that have the same key, where
    /// a limit is set for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<Arc<str>>,
    /// Its share of the starts where more waits than can run.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// How long one attempt may take.
    #[serde(
        rename = "attempt_timeout_ms",
        with = "span_ms",
        default = "JobDefinition::default_attempt_timeout"
    )]
    pub attempt_timeout: Span,
    /// How long after it was due the whole execution may take, its attempts and waits together; for ever where nothing
    /// is said.
    #[serde(
        rename = "deadline_ms",
        with = "optional_span_ms",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub deadline: Option<Span>,
    /// Whether failures for good are kept.
    #[serde(default)]
    pub dead_letter: DeadLetters,
    /// Whether a one-shot whose instant has passed is run at once instead of being refused.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub run_if_past: bool,
}

impl JobDefinition {
    /// How late a fire may be without being missed. A one-shot that is to run although its instant has passed
    /// is never missed, unless its own policy runs nothing that is late.
    #[must_use]
    pub fn grace(&self) -> Span {
        match (&self.schedule, self.misfire) {
            (Schedule::OneShot { .. }, MisfirePolicy::FireOnce | MisfirePolicy::CatchUp { .. })
                if self.run_if_past =>
            {
                Span::MAX
            }
            (
                Schedule::Cron { .. }
                | Schedule::Interval { .. }
                | Schedule::OneShot { .. }
                | Schedule::Manual,
                MisfirePolicy::FireOnce | MisfirePolicy::CatchUp { .. } | MisfirePolicy::Skip,
            ) => self.misfire_grace,
        }
    }

    /// By how much a fire of a job with this definition is due after its nominal time, as long as this version of it
    /// decides.
    #[must_use]
    pub fn flex_of(&self, job: JobId, fire: Timestamp) -> Span {
        let flex = Flex::of(job, self.flex);
        if flex.is_none() {
            return Span::ZERO;
        }
        flex.offset(fire, self.bounds.next_fire_after(&self.schedule, fire))
    }

    /// When the whole of an execution that is due then has to be over.
    #[must_use]
    pub fn deadline_of(&self, due_at: Timestamp) -> Option<Timestamp> {
        self.deadline.map(|deadline| due_at.plus(deadline))
    }

    /// The first fire after an instant on a day that no calendar excludes, as long as this version of the job decides.
    #[must_use]
    pub fn next_run_after(&self, after: Timestamp) -> Option<Timestamp> {
        Timeline::of_one(&self.schedule, &self.bounds).excluding(self.excluded()).next_run_after(after)
    }

    /// The days on which its fires are passed over.
    #[must_use]
    pub const fn excluded(&self) -> Excluded<'_> {
        Excluded::of(&self.exclude, &self.schedule)
    }

    /// Whether fires are due at their nominal times, as it is left out of a stored definition.
    const fn is_rigid(flex: &Span) -> bool {
        flex.as_micros() == 0
    }

    const fn default_misfire_grace() -> Span {
        Span::from_secs(30)
    }

    const fn default_attempt_timeout() -> Span {
        limits::ATTEMPT_TIMEOUT_DEFAULT
    }
}

impl HandlerRef {
    const fn first_version() -> u32 {
        1
    }
}

impl HandlerName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HandlerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the running version cannot read a stored definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unreadable {
    /// What is wrong, and where.
    pub reason: Arc<str>,
    /// The schema version of the reader.
    pub schema: u16,
    /// The zone-data version of the reader.
    pub zone_data: Arc<str>,
}

/// A definition as a row holds it, and what the running version makes of it. Equal and hashed by text.
#[derive(Clone, Debug)]
pub struct StoredDefinition {
    text: Arc<str>,
    read: Result<Arc<JobDefinition>, Unreadable>,
}

impl StoredDefinition {
    /// The stored form of a definition.
    #[must_use]
    pub fn of(definition: JobDefinition) -> Self {
        Self { text: parse::to_stored_text(&definition), read: Ok(Arc::new(definition)) }
    }

    /// Reads a row's text.
    #[must_use]
    pub fn from_text(text: Arc<str>) -> Self {
        let read = parse::from_stored_text(&text).map(Arc::new);
        Self { text, read }
    }

    /// The text as stored.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The definition.
    ///
    /// # Errors
    /// [`Unreadable`], where the running version cannot read it.
    pub fn read(&self) -> Result<&Arc<JobDefinition>, &Unreadable> {
        self.read.as_ref()
    }

    /// What becomes of its executions while others of the job are under way. Where this version cannot read the
    /// definition, nothing is passed over on a guess.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.read.as_ref().map_or(Overlap::Allow, |definition| definition.overlap)
    }

    /// What its executions are counted by. Where this version cannot read the definition, nothing.
    #[must_use]
    pub fn concurrency_key(&self) -> Option<&Arc<str>> {
        self.read.as_ref().ok().and_then(|definition| definition.concurrency_key.as_ref())
    }

    /// Its priority. Where this version cannot read the definition, normal.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.read.as_ref().map_or(Priority::Normal, |definition| definition.priority)
    }

    /// After how many failures in a row its job is paused. Where this version cannot read the definition, nothing is
    /// paused on a guess.
    #[must_use]
    pub fn pause_after_failures(&self) -> Option<u32> {
        self.read.as_ref().ok().and_then(|definition| definition.pause_after_failures)
    }

    /// When the whole of an execution that is due then has to be over. Where this version cannot read the definition,
    /// never.
    #[must_use]
    pub fn deadline_of(&self, due_at: Timestamp) -> Option<Timestamp> {
        self.read.as_ref().ok().and_then(|definition| definition.deadline_of(due_at))
    }

    /// How long after it was due an execution may take. Where this version cannot read the definition, for ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Span> {
        self.read.as_ref().ok().and_then(|definition| definition.deadline)
    }

    /// What follows a loss of a worker, and whether what is given up is kept.
    ///
    /// Where this version cannot read the definition, the default budgets apply: nothing may stay running for ever,
    /// and a job that takes its workers with it must come to an end under any version.
    #[must_use]
    pub fn retry_or_default(&self) -> (RetryPolicy, DeadLetters) {
        match &self.read {
            Ok(definition) => (definition.retry.clone(), definition.dead_letter),
            Err(_) => (RetryPolicy::default(), DeadLetters::On),
        }
    }
}

impl PartialEq for StoredDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for StoredDefinition {}

impl Hash for StoredDefinition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}
