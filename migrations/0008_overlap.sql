-- Overlap policies: what becomes of an execution that asks for its first lease while another of its job is under way.
--
-- The column says again what the definition says, for the statements that decide by it; a version never changes, so the
-- two never part. The default is for versions made by processes before this one, which know no other policy.

ALTER TABLE job_version
    ADD COLUMN overlap text COLLATE "C" NOT NULL DEFAULT 'allow'
        CHECK (overlap IN ('allow', 'skip', 'buffer_one', 'cancel_running'));

-- Jobs with a version that judges: what an acquire and a finish look at. Mostly empty.
CREATE INDEX job_version_judges ON job_version (job) WHERE overlap <> 'allow';

ALTER TABLE execution
    DROP CONSTRAINT skipped_says_why,
    ADD CONSTRAINT skipped_says_why
        CHECK (skip_reason IS NULL OR skip_reason IN ('misfire', 'paused', 'overlap')) NOT VALID,
    DROP CONSTRAINT waiting_is_pending,
    ADD CONSTRAINT waiting_is_pending CHECK (waiting IS NULL OR (state = 'pending' AND next_try_at IS NOT NULL
        AND waiting IN ('no_route', 'unknown_handler', 'unreadable_message', 'unreadable_definition',
            'job_paused', 'buffered'))) NOT VALID;

-- What waits for its job's slot, for whoever ends what holds it.
CREATE INDEX execution_buffered ON execution (job, due_at, id) WHERE waiting = 'buffered';
