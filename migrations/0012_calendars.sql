-- Calendars: named sets of days on which the jobs that name them do not run.
--
-- A job's days are part of its definition, so nothing that fires looks at these tables. Whoever makes or edits a job that
-- names calendars shares their keys; whoever sets a calendar locks it against them, and then the jobs that name it.

CREATE TABLE calendar (
    tenant  uuid NOT NULL REFERENCES tenant (id),
    version int8 NOT NULL CHECK (version > 0),
    set_at  int8 NOT NULL,
    name    text COLLATE "C" NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    -- Days since 1970-01-01, ascending. Null: it was taken away; its version goes on where it is set again.
    days    int4[] CHECK (cardinality(days) <= 1000),
    actor   text COLLATE "C" NOT NULL CHECK (char_length(actor) <= 200),
    reason  text COLLATE "C" NOT NULL CHECK (char_length(reason) <= 1000),
    PRIMARY KEY (tenant, name)
);

-- The column says again what the definition says, for whoever sets a calendar. Null for nearly every job.
ALTER TABLE job ADD COLUMN calendars text[] COLLATE "C" CHECK (cardinality(calendars) BETWEEN 1 AND 4);
CREATE INDEX job_names_calendars ON job (tenant, id) WHERE calendars IS NOT NULL;

ALTER TABLE skipped_range
    DROP CONSTRAINT skipped_range_reason_check,
    ADD CONSTRAINT skipped_range_reason_check CHECK (reason IN ('misfire', 'paused', 'calendar')) NOT VALID;
