//! The cases of jobs.

use std::sync::Arc;

use fencepost_core::execution::{ExecutionState as S, SkipReason};
use fencepost_core::explain::{JobFacts, RecentExecution, StandingSaid};
use fencepost_core::id::{ExecutionId, JobVersion, Occurrence};
use fencepost_core::job::{Standing, Unreadable};
use fencepost_core::store::reply::EarlierVersion;
use fencepost_core::store::row::{JobState, JobVersionRow, SkippedRangeRow};
use fencepost_core::time::Timestamp;

use crate::rows::{JOB, TENANT, at, definition, standing, token, unreadable, with_calendar, with_policies};

fn recent(occurrence: Occurrence, due_at: Timestamp, state: S) -> RecentExecution {
    RecentExecution {
        id: occurrence.execution_id(JOB),
        occurrence,
        due_at,
        state,
        skip_reason: None,
        job_version: JobVersion::FIRST,
        made_under: token(4),
    }
}

fn fired(time: &str, state: S) -> RecentExecution {
    recent(Occurrence::Scheduled { fire: at(time) }, at(time), state)
}

fn skipped(from: &str, through: &str) -> SkippedRangeRow {
    SkippedRangeRow {
        job: JOB,
        from: at(from),
        through: at(through),
        tenant: TENANT,
        reason: SkipReason::Misfire,
        job_version: JobVersion::FIRST,
        made_under: token(4),
        decided_at: at("08:58:05"),
        zone_data: "2026a".into(),
    }
}

fn with(mut facts: JobFacts, change: impl FnOnce(&mut JobFacts)) -> JobFacts {
    change(&mut facts);
    facts
}

/// Nothing of it fires any more by its own.
fn without_next(facts: JobFacts) -> JobFacts {
    with(facts, |facts| facts.job.next_fire_time = None)
}

/// Every case by the name of its golden.
pub(crate) fn all() -> Vec<(&'static str, JobFacts)> {
    [fires(), changes(), backlogs(), nevers()].concat()
}

fn fires() -> Vec<(&'static str, JobFacts)> {
    let nightly = definition(r#"{"kind":"cron","expr":"30 2 * * *","zone":"Europe/Berlin"}"#, "");
    vec![
        (
            "job_at_work",
            with(standing(with_policies("")), |facts| {
                let manual = Occurrence::Manual { key: "order-42".into() };
                let replay = Occurrence::Replay { origin: ExecutionId::from_u128(0xdead), number: 1 };
                let passed_over = RecentExecution {
                    skip_reason: Some(SkipReason::Misfire),
                    ..fired("08:56:00", S::Skipped)
                };
                facts.executions = vec![
                    fired("09:00:00", S::Running),
                    fired("08:59:00", S::Completed),
                    fired("08:58:00", S::DeadLettered),
                    passed_over,
                    recent(manual, at("08:59:30"), S::Completed),
                    recent(replay, at("08:59:40"), S::Completed),
                ];
                facts.skipped = vec![skipped("08:40:00", "08:55:00"), skipped("08:57:00", "08:57:00")];
            }),
        ),
        (
            "job_with_more_in_its_ledger_than_is_told",
            with(standing(with_policies("")), |facts| {
                facts.executions =
                    (46..60).map(|minute| fired(&format!("08:{minute}:00"), S::Completed)).collect();
            }),
        ),
        (
            "job_before_the_clocks_change",
            with(standing(nightly), |facts| {
                let instant = |text| Timestamp::parse_rfc3339(text).expect("RFC 3339");
                facts.now = instant("2026-03-27T12:00:00Z");
                facts.partition_lease.expires_at = instant("2026-03-27T12:00:07Z");
                facts.job.recorded_through = instant("2026-03-27T01:30:00Z");
                facts.job.next_fire_time = Some(instant("2026-03-28T01:30:00Z"));
            }),
        ),
        (
            "job_paused_after_failures",
            with(standing(with_policies(r#","pause_after_failures":2"#)), |facts| {
                facts.job.standing = Standing::Paused;
                facts.job.next_fire_time = None;
                facts.standing = StandingSaid {
                    at: at("09:00:31"),
                    actor: Some("fencepost".into()),
                    reason: Some(
                        "2 executions in a row failed: …; the last error: connection refused".into(),
                    ),
                };
                facts.executions =
                    vec![fired("09:00:00", S::DeadLettered), fired("08:59:00", S::DeadLettered)];
            }),
        ),
        (
            "job_within_a_flex_window",
            with(standing(with_policies(r#","flex_ms":60000"#)), |facts| {
                facts.now = at("09:01:00.002");
                facts.partition_lease.expires_at = at("09:01:08");
            }),
        ),
        (
            "job_with_a_calendar",
            with(standing(with_calendar("holidays", 2, &["2026-03-02", "2026-03-03"])), |facts| {
                let skipped = skipped("08:40:00", "08:58:00");
                facts.skipped = vec![SkippedRangeRow { reason: SkipReason::Calendar, ..skipped }];
            }),
        ),
        (
            "job_between_owners",
            with(standing(with_policies("")), |facts| facts.partition_lease.expires_at = at("09:00:20")),
        ),
    ]
}

fn said(time: &str) -> StandingSaid {
    StandingSaid { at: at(time), actor: Some("Zoë".into()), reason: Some("the disk is full".into()) }
}

/// A version that was made of the usual job.
fn version(number: u32, time: &str, standing: Standing, since: u32) -> JobVersionRow {
    let is_edit = since != number;
    JobVersionRow {
        job: JOB,
        version: JobVersion(number),
        tenant: TENANT,
        definition: with_policies(""),
        effective_from: at(time),
        standing,
        standing_since: JobVersion(since),
        actor: (!is_edit).then(|| "Zoë".into()),
        reason: (!is_edit).then(|| "the disk is full".into()),
    }
}

fn changes() -> Vec<(&'static str, JobFacts)> {
    let paused = with(without_next(standing(with_policies(""))), |facts| {
        facts.job.standing = Standing::Paused;
        facts.job.version = JobVersion(3);
        facts.job.standing_since = JobVersion(3);
        facts.job.effective_from = at("09:00:10");
        facts.standing = said("09:00:10");
        facts.changes =
            vec![version(2, "08:30:00", Standing::Active, 1), version(3, "09:00:10", Standing::Paused, 3)];
        facts.executions = vec![fired("08:29:00", S::Completed), fired("08:31:00", S::Completed)];
    });
    vec![
        ("job_paused", paused),
        (
            "job_resumed",
            with(standing(with_policies("")), |facts| {
                facts.job.version = JobVersion(3);
                facts.job.standing_since = JobVersion(3);
                facts.job.effective_from = at("08:50:00");
                facts.standing = said("08:50:00");
                facts.changes = vec![
                    version(2, "08:39:30", Standing::Paused, 2),
                    version(3, "08:50:00", Standing::Active, 3),
                ];
                facts.pauses = vec![(JobVersion(2), said("08:39:30"))];
                facts.skipped = vec![
                    SkippedRangeRow {
                        reason: SkipReason::Paused,
                        job_version: JobVersion(2),
                        ..skipped("08:40:00", "08:49:00")
                    },
                    SkippedRangeRow {
                        reason: SkipReason::Paused,
                        job_version: JobVersion(2),
                        ..skipped("08:20:00", "08:20:00")
                    },
                ];
            }),
        ),
        (
            "job_late_over_an_edit",
            with(standing(definition(r#"{"kind":"cron","expr":"*/5 * * * *"}"#, "")), |facts| {
                facts.now = at("09:14:45");
                facts.partition_lease.expires_at = at("09:14:50");
                facts.job.version = JobVersion(2);
                facts.job.effective_from = at("09:07:30");
                facts.earlier = vec![EarlierVersion {
                    version: JobVersion::FIRST,
                    definition: with_policies(""),
                    standing: Standing::Active,
                    effective_from: at("08:00:00"),
                }];
            }),
        ),
    ]
}

fn backlogs() -> Vec<(&'static str, JobFacts)> {
    let late = |rest: &str| {
        with(standing(with_policies(rest)), |facts| {
            facts.now = at("09:14:45");
            facts.partition_lease.expires_at = at("09:14:50");
        })
    };
    let unreadable_by = |reader: u16| Unreadable {
        reason: format!("written by schema 99, and this reads up to {reader}").into(),
        schema: reader,
        zone_data: "2026a".into(),
    };
    vec![
        ("job_late_without_owner", with(late(""), |facts| facts.partition_lease.expires_at = at("09:00:40"))),
        (
            "job_due_this_very_second",
            with(late(""), |facts| {
                facts.now = at("09:01:00.050");
                facts.partition_lease.expires_at = at("09:01:05");
            }),
        ),
        ("job_late_its_owner_is_behind", late(r#","misfire":{"catch_up":{"cap":3}}"#)),
        ("job_late_by_more_than_is_counted", {
            let every_second = definition(r#"{"kind":"cron","expr":"* * * * * *"}"#, r#","misfire":"skip""#);
            with(late(""), |facts| {
                facts.job.definition = every_second;
                facts.job.recorded_through = at("08:00:00");
                facts.job.next_fire_time = Some(at("08:00:01"));
            })
        }),
        (
            "job_late_unreadable",
            with(late(""), |facts| {
                facts.job.definition = unreadable();
                facts.job.unreadable = Some(unreadable_by(1));
                facts.job.next_try_at = at("09:15:10");
            }),
        ),
        (
            "job_late_unreadable_for_its_owner_alone",
            with(late(""), |facts| {
                facts.job.unreadable = Some(unreadable_by(0));
                facts.job.next_try_at = at("09:15:10");
            }),
        ),
        ("job_late_put_off", with(late(""), |facts| facts.job.next_try_at = at("09:15:10"))),
    ]
}

fn nevers() -> Vec<(&'static str, JobFacts)> {
    let manual = definition(r#"{"kind":"manual"}"#, "");
    let once = definition(r#"{"kind":"one_shot","at":"2026-03-02T09:00:00Z"}"#, "");
    vec![
        (
            "job_deleted",
            with(without_next(standing(with_policies(""))), |facts| {
                facts.job.state = JobState::Deleted;
                facts.job.version = JobVersion(2);
                facts.job.effective_from = at("09:00:20");
            }),
        ),
        ("job_manual_only", without_next(standing(manual))),
        ("job_one_shot_past", without_next(standing(Arc::clone(&once)))),
        ("job_maximum_runs", without_next(standing(with_policies(r#","bounds":{"max_runs":60}"#)))),
        ("job_ended", without_next(standing(with_policies(r#","bounds":{"end":"2026-03-02T09:00:00Z"}"#)))),
        (
            "job_without_further_fires",
            without_next(with(standing(with_policies("")), |facts| {
                let last = Timestamp::parse_rfc3339("9999-12-31T23:59:59Z").expect("RFC 3339");
                facts.job.recorded_through = last;
            })),
        ),
        ("job_unreadable", with(standing(with_policies("")), |facts| facts.job.definition = unreadable())),
    ]
}
