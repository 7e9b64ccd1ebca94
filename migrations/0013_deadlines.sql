-- Deadlines of whole executions: when what has not completed is given up.
--
-- Rows without a deadline, which are nearly all, are in no index of this, and no statement looks at more than that their
-- column is null. The columns are nullable for the rows of processes before this version, which know no deadlines.

-- Says again what the definition says, in microseconds, for the statements that make executions; a version never changes.
ALTER TABLE job_version ADD COLUMN deadline int8 CHECK (deadline > 0);

ALTER TABLE execution ADD COLUMN deadline_at int8;

-- What waits with a deadline: what the sweep looks through.
CREATE INDEX execution_bounded ON execution (deadline_at, id)
    WHERE deadline_at IS NOT NULL AND state IN ('pending', 'retry_wait');

-- One more reason beside those that may stand there, whichever these are.
DO $$
DECLARE
    name text;
    known text;
    wider text;
BEGIN
    SELECT conname, pg_get_constraintdef(oid) INTO name, known FROM pg_constraint
        WHERE conrelid = 'dead_letter'::regclass AND pg_get_constraintdef(oid) LIKE '%rescues_spent%';
    wider := replace(known, '''rescues_spent''::text', '''rescues_spent''::text, ''deadline''::text');
    IF wider IS NULL OR wider = known THEN
        RAISE EXCEPTION 'the check of reasons of dead letters is not as expected: %', known;
    END IF;
    IF wider NOT LIKE '%NOT VALID' THEN
        wider := wider || ' NOT VALID';
    END IF;
    EXECUTE format('ALTER TABLE dead_letter DROP CONSTRAINT %I', name);
    EXECUTE format('ALTER TABLE dead_letter ADD CONSTRAINT %I %s', name, wider);
END $$;

-- The table of legal transitions of the core (execution.rs), with what a deadline ends: only where there is one that
-- has passed by the end's own stamp. A test holds the two together.
DROP TRIGGER legal_transition ON execution;
CREATE TRIGGER legal_transition AFTER UPDATE OF state ON execution FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT CASE OLD.state
        WHEN 'pending' THEN NEW.state IN ('running', 'cancelled', 'skipped')
            OR (NEW.state IN ('dead_lettered', 'failed') AND NEW.deadline_at <= NEW.finished_at) IS TRUE
        WHEN 'running' THEN NEW.state IN ('completed', 'retry_wait', 'dead_lettered', 'failed', 'cancelled')
        WHEN 'retry_wait' THEN NEW.state IN ('pending', 'cancelled')
            OR (NEW.state IN ('dead_lettered', 'failed') AND NEW.deadline_at <= NEW.finished_at) IS TRUE
        WHEN 'skipped' THEN NEW.state = 'pending'
        ELSE false END)
    EXECUTE FUNCTION refuse_change('no such transition');

CREATE TRIGGER deadline_stays AFTER UPDATE OF deadline_at ON execution FOR EACH ROW
    WHEN (NEW.deadline_at IS DISTINCT FROM OLD.deadline_at)
    EXECUTE FUNCTION refuse_change('a deadline is that of the version, and never changes');
