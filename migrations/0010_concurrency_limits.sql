-- Concurrency limits: how many executions of a tenant, or of one of its concurrency keys, run at once.
--
-- A tenant's row in `tenant`, which always exists, is what its limits are locked by: whoever decides by them, or ends what
-- counts, locks it; whoever grants or completes where none is set shares its key; and setting one excludes them all. So
-- there need not be a row here for every tenant and key.

CREATE TABLE concurrency_limit (
    tenant      uuid NOT NULL REFERENCES tenant (id),
    set_at      int8 NOT NULL,
    max_running int4 CHECK (max_running > 0),
    -- Empty: all that the tenant runs.
    key         text COLLATE "C" NOT NULL CHECK (char_length(key) <= 200),
    actor       text COLLATE "C" NOT NULL CHECK (char_length(actor) <= 200),
    reason      text COLLATE "C" NOT NULL CHECK (char_length(reason) <= 1000),
    PRIMARY KEY (tenant, key)
);

-- Tenants with a limit: what an acquire and a finish look at. Mostly empty.
CREATE INDEX concurrency_limit_set ON concurrency_limit (tenant) WHERE max_running IS NOT NULL;

ALTER TABLE job_version ADD COLUMN concurrency_key text COLLATE "C" CHECK (char_length(concurrency_key) <= 200);

-- Two more names beside those that may stand there, whichever these are.
DO $$
DECLARE
    known text := pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = 'execution'::regclass AND conname = 'waiting_is_pending';
    wider text := replace(known, '''job_paused''::text',
        '''job_paused''::text, ''tenant_limit''::text, ''key_limit''::text');
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

-- What waits for a limit, for whoever ends what counts.
CREATE INDEX execution_limited ON execution (tenant, due_at, id) WHERE waiting IN ('tenant_limit', 'key_limit');
-- What runs, to be counted. In words of its own: the index of leases is not offered for it.
CREATE INDEX execution_running_of_tenant ON execution (tenant, job, job_version) WHERE num_nulls(owner) = 0;

-- The last look of an acquire or a finish that found no limit set: shared with others like it, and taken once its rows
-- are held. A limit that was set meanwhile makes it begin anew. One call for a whole batch.
CREATE FUNCTION tenants_are_unlimited(tenants uuid[]) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM tenant WHERE id = ANY(tenants) ORDER BY id FOR KEY SHARE;
    IF EXISTS (SELECT FROM concurrency_limit WHERE tenant = ANY(tenants) AND max_running IS NOT NULL) THEN
        RAISE EXCEPTION 'a limit was set while its tenant''s executions were being leased or completed'
            USING ERRCODE = 'serialization_failure', HINT = 'the command begins anew';
    END IF;
    RETURN true;
END $$;

-- The first lock of whatever decides by limits or ends what counts: the tenants of these executions. Returned are those
-- that have a limit, locked against each other; the others share their key, and have none until the transaction ends.
CREATE FUNCTION lock_limits(executions uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    concerned uuid[] := ARRAY(SELECT DISTINCT e.tenant FROM execution e WHERE e.id = ANY(executions));
    limited uuid[] := ARRAY(SELECT DISTINCT l.tenant FROM concurrency_limit l
        WHERE l.tenant = ANY(concerned) AND l.max_running IS NOT NULL);
BEGIN
    PERFORM FROM tenant t WHERE t.id = ANY(limited) ORDER BY t.id FOR NO KEY UPDATE;
    PERFORM FROM tenant t WHERE t.id = ANY(concerned) ORDER BY t.id FOR KEY SHARE;
    IF EXISTS (SELECT FROM concurrency_limit l
        WHERE l.tenant = ANY(concerned) AND l.max_running IS NOT NULL AND l.tenant <> ALL(limited)) THEN
        RAISE EXCEPTION 'a limit was set while its tenant was about to be locked'
            USING ERRCODE = 'serialization_failure', HINT = 'the command begins anew';
    END IF;
    RETURN QUERY SELECT unnest(limited);
END $$;
