-- Dead letters that operators replay and purge.
--
-- The new columns have defaults for one reason: a process of the version before writes rows without them while the
-- two run side by side. This version names every column.

ALTER TABLE dead_letter
    -- Replays made of it: they are numbered from 1 to this.
    ADD COLUMN replays   int8 NOT NULL DEFAULT 0 CHECK (replays >= 0),
    ADD COLUMN purged_at int8,
    ADD CONSTRAINT a_tombstone_keeps_no_error CHECK (purged_at IS NULL OR error IS NULL);

-- What a bulk replay takes: what nobody replayed or purged yet.
CREATE INDEX dead_letter_untouched ON dead_letter (tenant, at, execution) WHERE replays = 0 AND purged_at IS NULL;

-- The execution that a request made, beside the job.
ALTER TABLE operator_request ADD COLUMN execution uuid;

-- One replay per (dead letter, number), whoever inserts it. It also finds the replays of an origin.
CREATE UNIQUE INDEX one_replay_per_number ON execution (origin, replay_number) WHERE origin IS NOT NULL;

-- The last line: a replay is of a dead letter that is there and was not purged, and its tokens begin no lower than
-- its origin's ended.
CREATE FUNCTION require_replayable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dead_letter d JOIN execution o ON o.id = d.execution
        WHERE d.execution = NEW.origin AND d.purged_at IS NULL AND o.tenant = NEW.tenant AND o.token <= NEW.token)
    THEN
        RAISE EXCEPTION 'execution % replays what cannot be replayed (%)', NEW.id, NEW.origin
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER replays_of_dead_letters AFTER INSERT ON execution FOR EACH ROW
    WHEN (NEW.origin IS NOT NULL) EXECUTE FUNCTION require_replayable();

CREATE TRIGGER replays_are_counted AFTER UPDATE OF replays ON dead_letter FOR EACH ROW
    WHEN (NEW.replays NOT IN (OLD.replays, OLD.replays + 1))
    EXECUTE FUNCTION refuse_change('replays are counted one by one');

CREATE TRIGGER purged_for_good AFTER UPDATE OF purged_at ON dead_letter FOR EACH ROW
    WHEN (OLD.purged_at IS NOT NULL AND NEW.purged_at IS DISTINCT FROM OLD.purged_at)
    EXECUTE FUNCTION refuse_change('what was purged stays purged');

-- A record, or its tombstone, goes only with its execution. Judged at commit.
CREATE FUNCTION require_no_execution() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM execution WHERE id = OLD.execution AND state = 'dead_lettered') THEN
        RAISE EXCEPTION 'the record of dead-lettered execution % is deleted without it', OLD.execution
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER dead_letter_stays AFTER DELETE ON dead_letter
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_no_execution();
