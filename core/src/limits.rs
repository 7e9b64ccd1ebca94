//! Every bound of the core, in one place. Each loop, batch and stored text has one here.

use crate::time::Span;

/// The longest lease that may be asked for. Stored expiries further ahead than this are dead.
pub const LEASE_TTL_MAX: Span = Span::from_secs(120);
/// The shortest lease that may be asked for.
pub const LEASE_TTL_MIN: Span = Span::from_millis(500);
/// The longest time a liveness report may lie ahead of the store's clock before it counts as stale.
pub const LIVENESS_AHEAD_MAX: Span = Span::from_secs(120);
/// The longest stretch by which a re-dispatch is put off.
pub const REDISPATCH_DELAY_MAX: Span = Span::from_secs(3_600);
/// The longest stretch by which an unconfirmed outbox row is put off.
pub const OUTBOX_DELAY_MAX: Span = Span::from_secs(300);
/// The longest stretch for which a waiting execution or an unreadable row is put off.
pub const WAIT_DELAY_MAX: Span = Span::from_secs(300);
/// Items in one store command.
pub const BATCH_MAX: usize = 1_000;
/// Executions that one job may be given in one pass.
pub const FIRES_PER_PASS_MAX: u32 = 100;
/// Bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1_024;
/// Bytes of a broker message that is still read.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1_024;
/// Bytes of an error text that are kept.
pub const ERROR_BYTES_MAX: usize = 2_048;
/// Bytes of a malformed message that are kept.
pub const EXCERPT_BYTES_MAX: usize = 1_024;
/// Characters of a job name, a caller's key or a request id.
pub const NAME_CHARS_MAX: usize = 200;
/// Characters of a handler name.
pub const HANDLER_CHARS_MAX: usize = 64;
/// The longest attempt timeout.
pub const ATTEMPT_TIMEOUT_MAX: Span = Span::from_secs(24 * 3_600);
/// The attempt timeout of a job that sets none.
pub const ATTEMPT_TIMEOUT_DEFAULT: Span = Span::from_secs(60);
/// The most attempts a job may ask for.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// Versions of one job that may have fires which are not recorded yet; changes beyond that wait for the ledger.
pub const UNRECORDED_VERSIONS_MAX: u32 = 16;
/// After how long an execution that a pause holds back is looked at again, should no resume come first.
pub const PAUSE_RECHECK: Span = Span::from_secs(300);
/// After how long an execution that waits for its job's slot is looked at again, should no end lift it first.
pub const OVERLAP_RECHECK: Span = Span::from_secs(300);
/// After how long an execution that a pause of its tenant or queue holds back comes due by itself; and for how long,
/// after a resume that could not let all go at once, partition owners look for what is left.
pub const HELD_RECHECK: Span = Span::from_secs(24 * 3_600);
/// Pauses of one tenant that are in force, at which the API takes no more.
pub const PAUSES_MAX: usize = 100;
/// Pauses of a tenant, or of a queue, that have ended and are still told, the latest.
pub const TOLD_PAUSES_MAX: usize = 20;
/// After how long an execution that waits for a limit is looked at again, should no end lift it first.
pub const LIMIT_RECHECK: Span = Span::from_secs(30);
/// How many that wait for a limit are looked at when one of them may be lifted.
pub const LIMIT_CANDIDATES_MAX: usize = 64;
/// How many are lifted at once when a limit is set.
pub const LIMIT_LIFTS_MAX: usize = 16;
/// Characters of an operator's name.
pub const ACTOR_CHARS_MAX: usize = 200;
/// Characters of an operator's reason.
pub const REASON_CHARS_MAX: usize = 1_000;
/// How old the store's reading of its clock may be when an operator command planned on it arrives.
pub const PLAN_AGE_MAX: Span = Span::from_secs(60);
/// After how long without an answer a store call's outcome is reported as unknown.
pub const STORE_CALL_TIMEOUT: Span = Span::from_secs(5);
/// After how long without an answer a publication's outcome is reported as unknown.
pub const PUBLISH_TIMEOUT: Span = Span::from_secs(5);
/// The longest misfire grace.
pub const MISFIRE_GRACE_MAX: Span = Span::from_secs(7 * 24 * 3_600);
/// The most failures in a row after which a job may ask to be paused.
pub const PAUSE_AFTER_FAILURES_MAX: u32 = 1_000;
/// Failures in a row that a pause for them names one by one; of more, the first and the last.
pub const TOLD_FAILURES_MAX: usize = 8;
/// Characters of the last error that such a pause quotes.
pub const QUOTED_ERROR_CHARS_MAX: usize = 300;
/// The longest deadline of an execution.
pub const DEADLINE_MAX: Span = Span::from_secs(365 * 24 * 3_600);
/// Days of a calendar.
pub const CALENDAR_DAYS_MAX: usize = 1_000;
/// Calendars that a job may name.
pub const CALENDARS_PER_JOB_MAX: usize = 4;
/// The longest flex window.
pub const FLEX_MAX: Span = Span::from_secs(24 * 3_600);
/// The longest cap on the delay between two attempts.
pub const RETRY_CAP_MAX: Span = Span::from_secs(7 * 24 * 3_600);
/// How long a job is put off that cannot be read, before another version might.
pub const UNREADABLE_DELAY: Span = Span::from_secs(30);
/// Publications of one scheduler that are under way at once.
pub const PUBLICATIONS_UNDER_WAY_MAX: usize = 4;
/// Publications of one scheduler that wait for those; what is more is left to be read back from the outbox.
pub const PUBLICATIONS_WAITING_MAX: usize = 32;
/// Ended runs of one execution that an explanation tells, the latest.
pub const EXPLAINED_RUNS_MAX: usize = 50;
/// Refusals of one execution that an explanation tells, those of the latest tokens.
pub const EXPLAINED_REFUSALS_MAX: usize = 50;
/// Outbox rows of one execution that an explanation looks at, the latest.
pub const EXPLAINED_OUTBOX_MAX: usize = 20;
/// Present nodes that an explanation looks at.
pub const EXPLAINED_NODES_MAX: usize = 1_000;
/// Lines of a job's ledger that an explanation tells, the latest.
pub const EXPLAINED_LEDGER_MAX: usize = 10;
/// Fires to come that an explanation tells.
pub const EXPLAINED_FIRES_MAX: usize = 5;
/// Live executions of a job that an explanation counts in each state.
pub const EXPLAINED_LIVE_MAX: usize = 1_000;
/// Due fires of a job that an explanation counts.
pub const EXPLAINED_BACKLOG_MAX: usize = 1_000;
/// Dead letters that one command replays.
pub const REPLAY_PAGE_MAX: u32 = 500;
