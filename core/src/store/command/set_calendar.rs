//! Setting a calendar: on which days the jobs that name it do not run; or taking it away.

use std::sync::Arc;

use crate::id::TenantId;
use crate::schedule::Days;
use crate::store::command::{ChangeJob, OperatorRequest};

/// [`Command::SetCalendar`](super::Command::SetCalendar), planned by `calendar_plan::plan_calendar` on the calendar's row,
/// the rows of the jobs that name it and a reading of the store's clock. Checked in this order: the tenant; the request
/// id; the calendar's version; that exactly the tenant's jobs that name it, and are not deleted, are planned for; and of
/// each, by id, what is checked of a [`ChangeJob`]. A calendar that a job names is not taken away.
///
/// Applied, all of it or nothing: the calendar's row under its next version, and each job's next version with the new
/// days. So which days decide about a fire is what its job's version says, and whoever planned with the old ones is told
/// that the version changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetCalendar {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: Arc<str>,
    /// The version that was planned with; zero where there never was one.
    pub expected_version: u64,
    /// Its days from now on; `None`: it is taken away.
    pub days: Option<Days>,
    /// What that makes of the jobs that name it, ascending; each an edit.
    pub jobs: Vec<ChangeJob>,
    /// The caller's request id, with a digest of what was asked: the same one again changes nothing.
    pub request: Option<OperatorRequest>,
    /// Who sets it.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}
