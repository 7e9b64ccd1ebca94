-- What is to run and when: jobs, every version they had, and the fires that were passed over.

CREATE TABLE job (
    id               uuid   PRIMARY KEY,
    tenant           uuid   NOT NULL REFERENCES tenant (id),
    effective_from   int8   NOT NULL,
    recorded_through int8   NOT NULL,
    next_fire_time   int8,
    next_try_at      int8   NOT NULL,
    runs             int8   NOT NULL CHECK (runs >= 0),
    created_at       int8   NOT NULL,
    version          int8   NOT NULL CHECK (version > 0),
    partition        int2   NOT NULL CHECK (partition BETWEEN 0 AND 127),
    state            text COLLATE "C" NOT NULL CHECK (state IN ('active', 'deleted')),
    definition       text COLLATE "C" NOT NULL,
    -- Why the version that last looked cannot read the definition: all three or none.
    unreadable_reason    text COLLATE "C",
    unreadable_schema    int4,
    unreadable_zone_data text COLLATE "C",
    CHECK (num_nulls(unreadable_reason, unreadable_schema, unreadable_zone_data) IN (0, 3)),
    CHECK (state = 'active' OR next_fire_time IS NULL)
) WITH (fillfactor = 70);

-- The order of a scan. Finished and deleted jobs are not in it.
CREATE INDEX job_due ON job (next_try_at, id) INCLUDE (partition)
    WHERE next_fire_time IS NOT NULL;
-- The predicate always holds. It is there so that only a statement that asks for a tenant is offered this index:
-- one that finds rows by id might take it, while the table is small, and keep the plan when it is not.
CREATE INDEX job_of_tenant ON job (tenant, id) WHERE tenant IS NOT NULL;

CREATE TABLE job_version (
    job            uuid   NOT NULL REFERENCES job (id),
    tenant         uuid   NOT NULL,
    effective_from int8   NOT NULL,
    version        int8   NOT NULL CHECK (version > 0),
    definition     text COLLATE "C" NOT NULL,
    PRIMARY KEY (job, version)
);

-- A range over uuid, only so that "same job, overlapping fires" is an exclusion constraint of the server's own
-- range operators. The usual way, btree_gist, is an extension: not every database user may create one.
CREATE TYPE uuid_range AS RANGE (subtype = uuid);

CREATE TABLE skipped_range (
    job          uuid   NOT NULL,
    tenant       uuid   NOT NULL,
    from_fire    int8   NOT NULL,
    through_fire int8   NOT NULL,
    made_under   int8   NOT NULL,
    decided_at   int8   NOT NULL,
    job_version  int8   NOT NULL,
    reason       text COLLATE "C" NOT NULL CHECK (reason IN ('misfire')),
    zone_data    text COLLATE "C" NOT NULL,
    PRIMARY KEY (job, from_fire),
    CHECK (from_fire <= through_fire),
    CONSTRAINT skipped_ranges_of_a_job_do_not_overlap EXCLUDE USING gist
        (uuid_range(job, job, '[]') WITH =, int8range(from_fire, through_fire, '[]') WITH &&)
);
