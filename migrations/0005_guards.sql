-- What no statement may do, whoever sends it: the last line behind the guards of the commands.
--
-- These are AFTER triggers whose WHEN holds only for what is forbidden, so a lawful row costs the evaluation of
-- one expression and calls no function. (BEFORE triggers would lock each row once more.)

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% (%: % to %)', TG_ARGV[0], TG_TABLE_NAME, to_jsonb(OLD), to_jsonb(NEW)
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- The table of legal transitions of the core (execution.rs); a test holds the two together.
CREATE TRIGGER legal_transition AFTER UPDATE OF state ON execution FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT CASE OLD.state
        WHEN 'pending' THEN NEW.state IN ('running', 'cancelled', 'skipped')
        WHEN 'running' THEN NEW.state IN ('completed', 'retry_wait', 'dead_lettered', 'failed', 'cancelled')
        WHEN 'retry_wait' THEN NEW.state IN ('pending', 'cancelled')
        WHEN 'skipped' THEN NEW.state = 'pending'
        ELSE false END)
    EXECUTE FUNCTION refuse_change('no such transition');

CREATE TRIGGER token_monotone AFTER UPDATE OF token ON execution FOR EACH ROW
    WHEN (NEW.token NOT IN (OLD.token, OLD.token + 1))
    EXECUTE FUNCTION refuse_change('a token rises by one with an acquisition and never otherwise changes');

CREATE TRIGGER token_monotone AFTER UPDATE OF token ON lease FOR EACH ROW
    WHEN (NEW.token NOT IN (OLD.token, OLD.token + 1))
    EXECUTE FUNCTION refuse_change('a token rises by one with an acquisition and never otherwise changes');

CREATE TRIGGER tenant_wall AFTER UPDATE OF tenant ON job FOR EACH ROW
    WHEN (NEW.tenant <> OLD.tenant) EXECUTE FUNCTION refuse_change('a row never changes its tenant');

CREATE TRIGGER tenant_wall AFTER UPDATE OF tenant ON execution FOR EACH ROW
    WHEN (NEW.tenant <> OLD.tenant) EXECUTE FUNCTION refuse_change('a row never changes its tenant');

CREATE TRIGGER append_only AFTER UPDATE ON job_version FOR EACH ROW
    EXECUTE FUNCTION refuse_change('a job version is never changed');

-- Dead-lettered means that there is a record. Judged at commit, for the few rows that become so.
CREATE FUNCTION require_dead_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dead_letter WHERE execution = NEW.id) THEN
        RAISE EXCEPTION 'execution % is dead-lettered without a record', NEW.id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER dead_letter_once AFTER UPDATE OF state ON execution
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.state = 'dead_lettered' AND OLD.state <> 'dead_lettered')
    EXECUTE FUNCTION require_dead_letter();
