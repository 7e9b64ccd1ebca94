-- Edits, pauses and resumes of jobs: every version says how the job stood under it, who made it and why.
--
-- The new columns have defaults for one reason: a process of the version before writes rows without them while the
-- two run side by side. This version names every column. The checks that allow more names than those before them are
-- not validated: every row there is was held to the stricter ones.

ALTER TABLE job
    ADD COLUMN standing       text COLLATE "C" NOT NULL DEFAULT 'active' CHECK (standing IN ('active', 'paused')),
    -- The version that brought this standing: it says who and why.
    ADD COLUMN standing_since int8 NOT NULL DEFAULT 1 CHECK (standing_since > 0);

-- What an acquire looks at: jobs that hold their executions back. Mostly empty.
CREATE INDEX job_paused ON job (id) WHERE standing = 'paused';

ALTER TABLE job_version
    ADD COLUMN standing       text COLLATE "C" NOT NULL DEFAULT 'active' CHECK (standing IN ('active', 'paused')),
    ADD COLUMN standing_since int8 NOT NULL DEFAULT 1 CHECK (standing_since > 0),
    ADD COLUMN actor          text COLLATE "C" CHECK (char_length(actor) <= 200),
    ADD COLUMN reason         text COLLATE "C" CHECK (char_length(reason) <= 1000),
    ADD CONSTRAINT a_pause_says_by_whom_and_why
        CHECK (standing = 'active' OR standing_since < version OR num_nulls(actor, reason) = 0);

-- The version of the job that a request made, beside the job.
ALTER TABLE operator_request ADD COLUMN version int8 CHECK (version > 0);

ALTER TABLE skipped_range
    DROP CONSTRAINT skipped_range_reason_check,
    ADD CONSTRAINT skipped_range_reason_check CHECK (reason IN ('misfire', 'paused')) NOT VALID;

ALTER TABLE execution
    DROP CONSTRAINT skipped_says_why,
    ADD CONSTRAINT skipped_says_why
        CHECK (skip_reason IS NULL OR skip_reason IN ('misfire', 'paused')) NOT VALID,
    DROP CONSTRAINT waiting_is_pending,
    ADD CONSTRAINT waiting_is_pending CHECK (waiting IS NULL OR (state = 'pending' AND next_try_at IS NOT NULL
        AND waiting IN ('no_route', 'unknown_handler', 'unreadable_message', 'unreadable_definition',
            'job_paused'))) NOT VALID;

-- What is held back by a pause of its job, for the resume.
CREATE INDEX execution_held_back ON execution (job, id) WHERE waiting = 'job_paused';

-- The last look of an acquire, taken when it holds its rows and sees what was committed meanwhile: a pause that it
-- did not see before makes it begin anew. One call for a whole batch.
CREATE FUNCTION no_job_is_paused(jobs uuid[]) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM job WHERE id = ANY(jobs) AND standing = 'paused') THEN
        RAISE EXCEPTION 'a job was paused while its executions were being leased'
            USING ERRCODE = 'serialization_failure', HINT = 'the command begins anew';
    END IF;
    RETURN true;
END $$;

CREATE TRIGGER versions_rise_by_one AFTER UPDATE OF version ON job FOR EACH ROW
    WHEN (NEW.version NOT IN (OLD.version, OLD.version + 1))
    EXECUTE FUNCTION refuse_change('a job''s version rises by one with each change');
