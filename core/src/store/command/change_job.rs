//! Changing a job: an edit, a pause or a resume. Each makes the job's next version.

use std::sync::Arc;

use crate::id::{JobId, JobVersion, TenantId};
use crate::job::{Standing, StoredDefinition};
use crate::store::command::OperatorRequest;
use crate::time::{Span, Timestamp};

/// [`Command::ChangeJob`](super::Command::ChangeJob), planned by `job_plan::plan_change` on the job's row and a reading
/// of the store's clock. Checked in this order: the job is this tenant's; the request id; the job is not deleted; it
/// does not stand as asked for already; its version; its watermark and the age of the plan; of an edit, that its calendars have the
/// days that it was planned with; and that no more than
/// [`UNRECORDED_VERSIONS_MAX`](crate::limits::UNRECORDED_VERSIONS_MAX) versions decide about what follows its watermark.
///
/// Applied: the next `job_version` row, and on the job the same with `recorded_through`, `next_fire_time` and
/// `next_try_at` = the next fire + `next_flex` (kept where there is none); an edit clears `unreadable`. A resume has what waits for
/// [`WaitReason::JobPaused`](crate::execution::WaitReason::JobPaused) tried again now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeJob {
    /// Whose it is.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// The caller's request id: the same one gets the same version again.
    pub request: Option<OperatorRequest>,
    /// The version that was planned with.
    pub expected_version: JobVersion,
    /// The watermark that was planned with.
    pub expected_watermark: Timestamp,
    /// The reading it was planned on. Refused where it lies ahead of the store's clock or more than
    /// [`PLAN_AGE_MAX`](crate::limits::PLAN_AGE_MAX) behind.
    pub planned_at: Timestamp,
    /// What is changed.
    pub change: JobChange,
    /// Who changes it.
    pub actor: Option<Arc<str>>,
    /// Why.
    pub reason: Option<Arc<str>>,
    /// From when the new version decides.
    pub effective_from: Timestamp,
    /// The watermark from now on: up to `effective_from`, unless fires before that are still to be recorded.
    pub recorded_through: Timestamp,
    /// The first nominal fire after it.
    pub next_fire_time: Option<Timestamp>,
    /// How long after that it is due.
    pub next_flex: Span,
}

/// What is changed of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobChange {
    /// Its definition.
    Edit(Arc<StoredDefinition>),
    /// It does not fire by itself from now on.
    Pause,
    /// It does again.
    Resume,
}

impl JobChange {
    /// How the job stands then; `None` where it stands as before.
    #[must_use]
    pub const fn standing(&self) -> Option<Standing> {
        match self {
            Self::Edit(_) => None,
            Self::Pause => Some(Standing::Paused),
            Self::Resume => Some(Standing::Active),
        }
    }
}
