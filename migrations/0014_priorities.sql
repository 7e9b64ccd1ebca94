-- Priorities: in which order what waits for a concurrency limit is let go.
--
-- A priority is its job's, and is part of the definition; the rows of executions do not repeat it. Only what waits for a
-- limit is found by it, and there may be many: the rank is written when an execution first begins to wait for one, whoever
-- writes that, and is null for all others. It never changes, as a version never does, so nobody clears it.

ALTER TABLE execution ADD COLUMN limit_rank int2 CHECK (limit_rank BETWEEN 0 AND 2);

-- A definition that cannot be read has normal priority.
CREATE FUNCTION rank_what_waits_for_a_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    known text;
BEGIN
    BEGIN
        SELECT v.definition::jsonb #>> '{definition,priority}' INTO known
            FROM job_version v WHERE v.job = NEW.job AND v.version = NEW.job_version;
    EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
        known := NULL;
    END;
    NEW.limit_rank := CASE known WHEN 'high' THEN 0 WHEN 'low' THEN 2 ELSE 1 END;
    RETURN NEW;
END $$;

CREATE TRIGGER rank_what_waits_for_a_limit BEFORE UPDATE OF waiting ON execution FOR EACH ROW
    WHEN (NEW.waiting IN ('tenant_limit', 'key_limit') AND NEW.limit_rank IS NULL)
    EXECUTE FUNCTION rank_what_waits_for_a_limit();

UPDATE execution SET waiting = waiting WHERE waiting IN ('tenant_limit', 'key_limit');

DROP INDEX execution_limited;
CREATE INDEX execution_limited ON execution (tenant, limit_rank, due_at, id)
    WHERE waiting IN ('tenant_limit', 'key_limit');
