-- Pauses of tenants and of handler queues: what they hold back waits, on record, for the resume.
--
-- A row per pause; those that have ended are its history. Of each scope of a tenant at most one is in force. As before,
-- checks that allow more than those before them are not validated.

CREATE TABLE pause (
    id              uuid   PRIMARY KEY,
    tenant          uuid   NOT NULL REFERENCES tenant (id),
    since           int8   NOT NULL,
    ended_at        int8,
    -- Until when partition owners look for what it held back: the resume did not let all go itself.
    lift_until      int8,
    handler_version int8   CHECK (handler_version > 0),
    scope           text COLLATE "C" NOT NULL CHECK (scope IN ('tenant', 'queue')),
    handler         text COLLATE "C",
    actor           text COLLATE "C" NOT NULL CHECK (char_length(actor) <= 200),
    reason          text COLLATE "C" NOT NULL CHECK (char_length(reason) <= 1000),
    ended_by        text COLLATE "C" CHECK (char_length(ended_by) <= 200),
    ended_reason    text COLLATE "C" CHECK (char_length(ended_reason) <= 1000),
    CONSTRAINT a_queue_is_a_handlers
        CHECK (num_nulls(handler, handler_version) = CASE scope WHEN 'tenant' THEN 2 ELSE 0 END),
    CONSTRAINT an_end_says_by_whom_and_why CHECK (num_nulls(ended_at, ended_by, ended_reason) IN (0, 3)),
    CONSTRAINT only_an_end_lifts CHECK (lift_until IS NULL OR ended_at IS NOT NULL)
);

-- What an acquire looks at. Mostly empty.
CREATE UNIQUE INDEX pause_in_force ON pause (tenant, scope, coalesce(handler, ''), coalesce(handler_version, 0))
    WHERE ended_at IS NULL;
-- What is told of pauses that have ended.
CREATE INDEX pause_ended ON pause (tenant, ended_at, id) WHERE ended_at IS NOT NULL;
-- What partition owners look at. Mostly empty.
CREATE INDEX pause_lifting ON pause (lift_until, id) WHERE lift_until IS NOT NULL;

CREATE TRIGGER an_end_is_final AFTER UPDATE ON pause FOR EACH ROW
    WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change('a pause that has ended is never changed');

ALTER TABLE execution
    -- The pause that it waits for.
    ADD COLUMN held_by uuid,
    ADD CONSTRAINT held_back_waits
        CHECK (held_by IS NULL OR waiting IN ('tenant_paused', 'queue_paused')) NOT VALID;

-- Two more names beside those that may stand there, whichever these are.
DO $$
DECLARE
    known text := pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = 'execution'::regclass AND conname = 'waiting_is_pending';
    wider text := replace(known, '''job_paused''::text',
        '''job_paused''::text, ''tenant_paused''::text, ''queue_paused''::text');
BEGIN
    IF wider IS NULL OR wider = known THEN
        RAISE EXCEPTION 'the check of waiting reasons is not as expected: %', known;
    END IF;
    IF wider NOT LIKE '%NOT VALID' THEN
        wider := wider || ' NOT VALID';
    END IF;
    ALTER TABLE execution DROP CONSTRAINT waiting_is_pending;
    EXECUTE 'ALTER TABLE execution ADD CONSTRAINT waiting_is_pending ' || wider;
END $$;

-- What a pause holds back, for the resume.
CREATE INDEX execution_held_by ON execution (held_by, id) INCLUDE (partition) WHERE held_by IS NOT NULL;

-- A request may stand for a pause, which is of no job.
ALTER TABLE operator_request
    ALTER COLUMN job DROP NOT NULL,
    ADD COLUMN pause uuid;

-- Whose queue a stored definition's executions go through, as NAME/VERSION; NULL where not even that can be read.
CREATE FUNCTION queue_of(definition text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (definition::json #>> '{definition,handler,name}') || '/'
        || coalesce(definition::json #>> '{definition,handler,version}', '1');
EXCEPTION WHEN invalid_text_representation THEN
    RETURN NULL;
END $$;

-- The last look of an acquire at pauses of tenants and queues, when it holds its rows: see `no_job_is_paused`.
CREATE FUNCTION no_pause_is_over(executions uuid[]) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM pause WHERE ended_at IS NULL) AND EXISTS (
        SELECT FROM execution e JOIN pause p ON p.tenant = e.tenant
        WHERE e.id = ANY(executions) AND p.ended_at IS NULL AND (p.scope = 'tenant' OR
            p.handler || '/' || p.handler_version = (
                SELECT queue_of(v.definition) FROM job_version v WHERE v.job = e.job AND v.version = e.job_version)))
    THEN
        RAISE EXCEPTION 'a tenant or a queue was paused while its executions were being leased'
            USING ERRCODE = 'serialization_failure', HINT = 'the command begins anew';
    END IF;
    RETURN true;
END $$;
