-- A database of any size: so many jobs that fire every minute from 2026-03-02 on, each with so many completed fires.
--
-- Ids and keys are derived as the core derives them, so that a verification has nothing to say. `SELECT make(10000, 100)`
-- makes a million executions; `ANALYZE` is up to the caller.

CREATE EXTENSION pgcrypto;

CREATE FUNCTION execution_id(job uuid, fire int8) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(set_byte(set_byte(h, 6, get_byte(h, 6) & 15 | 80), 8, get_byte(h, 8) & 63 | 128), 'hex')::uuid
    FROM (SELECT substr(digest(decode('6f3d2a519c0e4b7a8e64f0c15d927b13', 'hex') || '\x01'::bytea
        || uuid_send(job) || int8send(fire), 'sha1'), 1, 16) AS h) AS hashed
$$;

-- FNV-1a with 64 bits, its upper half folded onto the lower; in numeric, since no integer of SQL wraps around.
CREATE FUNCTION partition_of(job uuid) RETURNS int2 LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    hash numeric := 14695981039346656037;
    low int8;
BEGIN
    FOR i IN 0..15 LOOP
        low := mod(hash, 256)::int8;
        hash := mod((hash - low + (low # get_byte(uuid_send(job), i))) * 1099511628211, 18446744073709551616);
    END LOOP;
    RETURN mod(mod(div(hash, 4294967296), 128)::int8 # mod(hash, 128)::int8, 128);
END $$;

CREATE FUNCTION make(jobs int, fires int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    start int8 := (extract(epoch FROM '2026-03-02T00:00:00Z'::timestamptz) * 1000000)::int8;
    minute int8 := 60000000;
    definition text;
BEGIN
    INSERT INTO tenant (id, created_at, name) VALUES ('00000000-0000-0000-0000-0000000000aa', start, 'many');
    definition := '{"schema":1,"definition":{"name":"many","handler":{"name":"noop","version":1},"payload":null,'
        || '"schedule":{"kind":"cron","expr":"* * * * *","zone":"UTC"}}}';
    UPDATE lease SET token = 1;
    INSERT INTO job (id, tenant, partition, version, state, definition, effective_from, recorded_through,
                     next_fire_time, next_try_at, runs, created_at)
    SELECT id, '00000000-0000-0000-0000-0000000000aa', partition_of(id), 1, 'active', definition, start,
           start + fires * minute, start + (fires + 1) * minute, start + (fires + 1) * minute, fires, start
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, jobs)) AS made;
    INSERT INTO job_version (job, tenant, version, definition, effective_from)
    SELECT j.id, j.tenant, 1, j.definition, start FROM job j;
    INSERT INTO execution (id, tenant, job, job_version, partition, occurrence, fire, key, state, due_at, made_under,
                           token, nonce, expires_at, start_seen, cancel_requested, attempts, rescues, lost_starts,
                           waits, dispatch_no, dispatched_at, redispatches, materialised_at, published_at, received_at,
                           leased_at, started_at, finished_at, lag_clamped)
    SELECT execution_id(j.id, f.fire), j.tenant, j.id, 1, j.partition, 'scheduled', f.fire,
           j.id || '/' || to_char(to_timestamp(f.fire / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
               || '.000000Z',
           'completed', f.fire, 1, 1, 1, 0, true, false, 0, 0, 0, 0, 1, f.fire + 1000, 0, f.fire + 1000, f.fire + 2000,
           f.fire + 3000, f.fire + 4000, f.fire + 5000, f.fire + 6000, false
    FROM job j CROSS JOIN (SELECT start + nth * minute AS fire FROM generate_series(1, fires) AS nth) AS f;
END $$;
