-- Occurrences, their attempts, their dispatches and their dead letters.
--
-- The primary key of an execution is derived from its job and occurrence, so it is the uniqueness constraint.
-- Every index but the primary key and the listing by job is partial: a finished row is in none of them.

CREATE TABLE execution (
    id              uuid   PRIMARY KEY,
    tenant          uuid   NOT NULL,
    job             uuid   NOT NULL,
    owner           uuid,
    nonce_node      uuid,
    due_at          int8   NOT NULL,
    made_under      int8   NOT NULL,
    token           int8   NOT NULL CHECK (token >= 0),
    nonce           int8   NOT NULL,
    expires_at      int8   NOT NULL,
    next_try_at     int8,
    dispatched_at   int8,
    materialised_at int8   NOT NULL,
    published_at    int8,
    received_at     int8,
    leased_at       int8,
    started_at      int8,
    finished_at     int8,
    fire            int8,
    job_version     int8   NOT NULL,
    attempts        int4   NOT NULL,
    rescues         int4   NOT NULL,
    lost_starts     int4   NOT NULL,
    waits           int4   NOT NULL,
    dispatch_no     int4   NOT NULL,
    redispatches    int4   NOT NULL,
    partition       int2   NOT NULL,
    lag_clamped     bool   NOT NULL,
    -- Whether the worker gave a sign of a start, and whether an operator asked for a stop.
    start_seen      bool   NOT NULL,
    cancel_requested bool  NOT NULL,
    state           text COLLATE "C" NOT NULL,
    occurrence      text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    waiting         text COLLATE "C",
    skip_reason     text COLLATE "C",
    manual_key      text COLLATE "C",
    origin          uuid,
    replay_number   int8,
    payload         text COLLATE "C",
    error           text COLLATE "C",
    CONSTRAINT the_state_is_known CHECK (state IN ('pending', 'running', 'retry_wait', 'completed',
        'dead_lettered', 'failed', 'cancelled', 'skipped')),
    CONSTRAINT the_occurrence_is_whole CHECK (CASE occurrence
        WHEN 'scheduled' THEN fire IS NOT NULL
        WHEN 'manual' THEN manual_key IS NOT NULL
        WHEN 'replay' THEN origin IS NOT NULL AND replay_number IS NOT NULL
        ELSE false END),
    CONSTRAINT only_running_is_leased CHECK (CASE WHEN state = 'running' THEN owner IS NOT NULL
        ELSE owner IS NULL AND expires_at = 0 END),
    CONSTRAINT waiting_is_pending CHECK (waiting IS NULL OR (state = 'pending' AND next_try_at IS NOT NULL
        AND waiting IN ('no_route', 'unknown_handler', 'unreadable_message', 'unreadable_definition'))),
    CONSTRAINT pending_is_dispatched_or_waits CHECK (state <> 'pending' OR waiting IS NOT NULL
        OR dispatched_at IS NOT NULL),
    CONSTRAINT skipped_says_why CHECK (skip_reason IS NULL OR skip_reason IN ('misfire'))
) WITH (fillfactor = 80);

-- What comes due again: retries, and what waits for a recorded reason.
CREATE INDEX execution_to_promote ON execution (next_try_at, id) INCLUDE (partition)
    WHERE next_try_at IS NOT NULL;
-- Dispatched, not started: what the sweep looks through.
CREATE INDEX execution_dispatched ON execution (dispatched_at, id) WHERE state = 'pending' AND waiting IS NULL;
-- By owner, not by state: a statement that finds its rows by id and asks for `state = 'running'` must not be
-- offered this index, which an optimist of a planner takes for nearly empty.
CREATE INDEX execution_leased ON execution (expires_at, id) WHERE owner IS NOT NULL;
-- Listings of a job's executions, and its live ones when it is deleted. The predicate always holds; it is there
-- so that only a statement that asks for a job is offered this index (see above).
CREATE INDEX execution_of_job ON execution (job, state, due_at, id) WHERE job IS NOT NULL;

CREATE TABLE outbox_event (
    execution   uuid   NOT NULL,
    tenant      uuid   NOT NULL,
    created_by  uuid   NOT NULL,
    created_at  int8   NOT NULL,
    next_try_at int8   NOT NULL,
    dispatch_no int4   NOT NULL,
    tries       int4   NOT NULL,
    partition   int2   NOT NULL,
    PRIMARY KEY (execution, dispatch_no)
);
CREATE INDEX outbox_event_to_publish ON outbox_event (next_try_at, execution, dispatch_no)
    WHERE next_try_at IS NOT NULL;

CREATE TABLE attempt (
    execution uuid   NOT NULL,
    tenant    uuid   NOT NULL,
    node      uuid,
    token     int8   NOT NULL,
    at        int8   NOT NULL,
    attempt   int8   NOT NULL,
    ended     text COLLATE "C" NOT NULL
        CHECK (ended IN ('failed_retryably', 'failed_for_good', 'released', 'cancelled', 'lost')),
    error     text COLLATE "C",
    PRIMARY KEY (execution, token)
);

CREATE TABLE dead_letter (
    execution   uuid   PRIMARY KEY,
    tenant      uuid   NOT NULL,
    job         uuid   NOT NULL,
    at          int8   NOT NULL,
    attempts    int4   NOT NULL,
    rescues     int4   NOT NULL,
    lost_starts int4   NOT NULL,
    reason      text COLLATE "C" NOT NULL
        CHECK (reason IN ('non_retryable', 'exhausted', 'too_old', 'rescues_spent')),
    error       text COLLATE "C"
);
CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, at, execution);
