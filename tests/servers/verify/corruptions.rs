//! Corruptions, one at a time: which check is to find it, what it is, and the SQL that does it.
//!
//! `t('08:02')` is that instant of the stage's day. Executions are named by their fire.

use fencepost_core::verify::Check;

/// Takes every constraint and trigger off, and makes `t`.
pub(crate) const UNGUARDED: &str = "
    DO $$ DECLARE r record; BEGIN
      FOR r IN SELECT conrelid::regclass AS t, conname FROM pg_constraint
               WHERE contype IN ('c', 'x', 'f') AND connamespace = current_schema()::regnamespace AND conrelid <> 0
      LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', r.t, r.conname); END LOOP;
      FOR r IN SELECT oid::regclass AS t FROM pg_class
               WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
      LOOP EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', r.t); END LOOP;
    END $$;
    DROP INDEX one_replay_per_number;
    CREATE FUNCTION t(text) RETURNS int8 LANGUAGE sql AS $$
      SELECT (extract(epoch FROM ('2026-03-02T' || $1 || 'Z')::timestamptz) * 1000000)::int8 $$;";

type Corruption = (Check, &'static str, &'static str);

pub(crate) const CORRUPTIONS: &[Corruption] = &[
    (
        Check::UniqueOccurrence,
        "a second execution of a fire",
        "CREATE TEMP TABLE twin AS SELECT * FROM execution WHERE fire = t('08:03') AND job::text LIKE '%0b';
         UPDATE twin SET id = gen_random_uuid();
         INSERT INTO execution SELECT * FROM twin;
         UPDATE job SET runs = runs + 1 WHERE id::text LIKE '%0b'",
    ),
    (
        Check::UniqueOccurrence,
        "a fire that is an execution and inside a range",
        "UPDATE skipped_range SET through_fire = t('08:14')",
    ),
    (
        Check::UniqueOccurrence,
        "two ranges over the same fires",
        "INSERT INTO skipped_range SELECT job, tenant, t('08:06'), t('08:08'), made_under, decided_at, job_version,
           reason, zone_data FROM skipped_range",
    ),
    (Check::UniqueOccurrence, "another's key", "UPDATE execution SET key = 'x' WHERE fire = t('08:14')"),
    (
        Check::NoPhantomFire,
        "an execution of no fire",
        "UPDATE execution SET fire = t('08:02:30'), due_at = t('08:02:30') WHERE fire = t('08:03')",
    ),
    (
        Check::NoPhantomFire,
        "an execution that was made before it was due",
        "UPDATE execution SET materialised_at = t('08:02:59') WHERE fire = t('08:03')",
    ),
    (
        Check::NoPhantomFire,
        "more missed fires than one",
        "UPDATE execution SET fire = t('08:13'), due_at = t('08:13'), materialised_at = t('08:14:40')
         WHERE fire = t('08:03')",
    ),
    (Check::NoLostFire, "a fire that is gone", "DELETE FROM execution WHERE fire = t('08:02')"),
    (Check::NoLostFire, "a range that is gone", "DELETE FROM skipped_range"),
    (Check::NoLostFire, "a range that is too short", "UPDATE skipped_range SET through_fire = t('08:12')"),
    (
        Check::NoLostFire,
        "a next fire that is not the next",
        "UPDATE job SET next_fire_time = t('08:17') WHERE state = 'active'",
    ),
    (
        Check::NoLostFire,
        "a watermark that ran ahead",
        "UPDATE job SET recorded_through = t('09:00'), next_fire_time = t('09:01') WHERE state = 'active'",
    ),
    (
        Check::NoLostFire,
        "fires that were passed over in time",
        "UPDATE skipped_range SET decided_at = t('08:13:10')",
    ),
    (Check::TokenMonotone, "a token that jumped", "UPDATE execution SET token = token + 5 WHERE fire = t('08:15')"),
    (Check::TokenMonotone, "a lease that was set back", "UPDATE lease SET token = 0, owner = NULL, expires_at = 0"),
    (
        Check::TokenMonotone,
        "a replay under its origin's old token",
        "UPDATE execution SET token = 1 WHERE origin IS NOT NULL",
    ),
    (
        Check::TokenMonotone,
        "a run whose token is missing",
        "DELETE FROM attempt a USING execution e WHERE e.id = a.execution AND e.fire = t('08:02') AND a.token = 1",
    ),
    (
        Check::TerminalAbsorbs,
        "a completed execution that runs again",
        "UPDATE execution SET owner = gen_random_uuid(), expires_at = t('09:00') WHERE state = 'completed'",
    ),
    (
        Check::AtomicDispatch,
        "a cancelled execution that is dispatched",
        "INSERT INTO outbox_event (execution, tenant, created_by, created_at, next_try_at, dispatch_no, tries,
           partition)
         SELECT id, tenant, id, t('08:20'), t('08:20'), 1, 0, partition FROM execution WHERE fire = t('08:03')",
    ),
    (
        Check::TerminalAbsorbs,
        "an ended execution that is pending again",
        "UPDATE execution SET state = 'pending' WHERE fire = t('08:03')",
    ),
    (
        Check::LegalTransition,
        "a pending execution that completed",
        "UPDATE execution SET state = 'completed', finished_at = t('08:15:10') WHERE fire = t('08:15')",
    ),
    (
        Check::LegalTransition,
        "a run that went on after it had failed for good",
        "UPDATE attempt SET ended = 'failed_for_good' WHERE ended = 'failed_retryably'",
    ),
    (
        Check::AtomicDispatch,
        "a pending execution that nobody dispatched",
        "UPDATE execution SET dispatched_at = NULL WHERE fire = t('08:15')",
    ),
    (
        Check::AtomicDispatch,
        "an outbox row of no execution",
        "UPDATE outbox_event SET execution = gen_random_uuid()",
    ),
    (Check::AttemptBounds, "attempts without end", "UPDATE execution SET attempts = 7 WHERE fire = t('08:01')"),
    (Check::AttemptBounds, "a failure that was forgotten", "UPDATE execution SET attempts = 0 WHERE attempts = 1"),
    (Check::AttemptBounds, "a loss that is not on record", "DELETE FROM attempt WHERE ended = 'lost'"),
    (Check::DeadLetterOnce, "a dead letter that is gone", "DELETE FROM dead_letter"),
    (
        Check::DeadLetterOnce,
        "a dead letter of what completed",
        "INSERT INTO dead_letter (execution, tenant, job, at, attempts, rescues, lost_starts, reason)
         SELECT id, tenant, job, finished_at, attempts, rescues, lost_starts, 'exhausted' FROM execution
         WHERE state = 'completed'",
    ),
    (Check::DeadLetterOnce, "a replay that is not counted", "UPDATE dead_letter SET replays = 0"),
    (
        Check::DeadLetterOnce,
        "a dead letter of no execution",
        "INSERT INTO dead_letter SELECT gen_random_uuid(), tenant, job, at, attempts, rescues, lost_starts, reason
         FROM dead_letter",
    ),
    (
        Check::PausedIsSilent,
        "a run that began after the delete",
        "UPDATE execution SET leased_at = t('08:01:40'), started_at = NULL WHERE job::text LIKE '%0c'",
    ),
    (
        Check::PausedIsSilent,
        "an execution that waits behind the delete",
        "UPDATE execution SET state = 'pending', owner = NULL, expires_at = 0, leased_at = NULL, published_at = NULL,
           received_at = NULL, token = 0 WHERE job::text LIKE '%0c'",
    ),
    (
        Check::PausedIsSilent,
        "a deleted job that fires",
        "UPDATE job SET next_fire_time = t('08:16') WHERE state = 'deleted'",
    ),
    (Check::Conservation, "an execution that is gone", "DELETE FROM execution WHERE fire = t('08:15')"),
    (Check::Conservation, "a job that is gone", "DELETE FROM job WHERE state = 'deleted'"),
    (Check::Conservation, "a version that is gone", "DELETE FROM job_version WHERE job::text LIKE '%0b'"),
    (
        Check::Conservation,
        "an ended run of no execution",
        "UPDATE attempt SET execution = gen_random_uuid() WHERE ended = 'lost'",
    ),
    (
        Check::Conservation,
        "what a request had made",
        "UPDATE operator_request SET execution = gen_random_uuid() WHERE job::text LIKE '%0b'",
    ),
    (
        Check::LedgerOfRefusals,
        "a refusal under a token that nobody had",
        "UPDATE refusal SET token = 9 WHERE resource LIKE 'lease/%'",
    ),
    (
        Check::LedgerOfRefusals,
        "a refusal that never happened",
        "UPDATE refusal SET count = 0 WHERE resource LIKE 'execution/%'",
    ),
    (
        Check::LedgerOfRefusals,
        "a refusal about no execution",
        "UPDATE refusal SET resource = 'execution/' || gen_random_uuid() WHERE resource LIKE 'execution/%'",
    ),
    (
        Check::LagAddsUp,
        "a start before the lease",
        "UPDATE execution SET started_at = t('08:01:01') WHERE state = 'completed'",
    ),
    (Check::LagAddsUp, "a start that is gone", "UPDATE execution SET started_at = NULL WHERE state = 'completed'"),
];
