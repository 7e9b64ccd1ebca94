-- Failures in a row: after how many a job is paused.
--
-- The column says again what the definition says, for the statements that decide by it; a version never changes, so the
-- two never part. The default is for versions made by processes before this one, which know no such policy.

ALTER TABLE job_version
    ADD COLUMN pause_after int4 CHECK (pause_after BETWEEN 1 AND 1000);

-- Jobs with a version that judges what ends: what a finish and a takeover look at. Mostly empty.
CREATE INDEX job_version_judges_ends ON job_version (job) WHERE overlap <> 'allow' OR pause_after IS NOT NULL;
