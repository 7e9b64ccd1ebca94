-- Who may act: tenants and their keys, leases, and the nodes' own reports.
--
-- Times are microseconds since 1970 UTC, ids and tokens are made by callers or by acquisition: nothing here
-- is defaulted by the server, so that this store and the reference semantics can be compared row by row.
-- Text that is compared or ordered is COLLATE "C".

-- The one `now` of a command: the server's clock, or what a test or the simulator passes in.
CREATE FUNCTION store_now(given int8) RETURNS int8 LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)
$$;

-- A delay that grows: `base` doubled `times` times, at most `longest`. Exact: doubling a float changes no digit.
CREATE FUNCTION grown_delay(base int8, times int4, longest int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$
    SELECT least(longest::float8, base::float8 * 2::float8 ^ least(times, 62))::int8
$$;

CREATE TABLE tenant (
    id         uuid   PRIMARY KEY,
    created_at int8   NOT NULL,
    name       text COLLATE "C" NOT NULL UNIQUE
);

-- Keys of the API, hashed. The core knows nothing of them.
CREATE TABLE api_key (
    digest     bytea  PRIMARY KEY CHECK (octet_length(digest) = 32),
    tenant     uuid   NOT NULL REFERENCES tenant (id),
    created_at int8   NOT NULL
);
CREATE INDEX api_key_of_tenant ON api_key (tenant);

-- One row per partition (0 to 127) and one for leadership (128), there from the start.
--
-- UNIQUE (resource, token) is what makes a new token a key update: a takeover then waits for the guards that
-- read the row FOR KEY SHARE, and they wait for it, while renewals neither wait nor are waited for.
CREATE TABLE lease (
    owner      uuid,
    token      int8   NOT NULL CHECK (token >= 0),
    nonce      int8   NOT NULL,
    expires_at int8   NOT NULL,
    resource   int2   PRIMARY KEY CHECK (resource BETWEEN 0 AND 128),
    UNIQUE (resource, token),
    CHECK (owner IS NOT NULL OR expires_at = 0)
) WITH (fillfactor = 20);

INSERT INTO lease (resource, token, owner, nonce, expires_at)
SELECT resource, 0, NULL, 0, 0 FROM generate_series(0, 128) AS resource;

-- Liveness reports. They inform and grant nothing.
CREATE TABLE node (
    id         uuid   PRIMARY KEY,
    started_at int8   NOT NULL,
    seen_at    int8   NOT NULL,
    capacity   int8   NOT NULL CHECK (capacity >= 0),
    schema     int4   NOT NULL CHECK (schema >= 0),
    role       text COLLATE "C" NOT NULL CHECK (role IN ('scheduler', 'worker', 'api')),
    state      text COLLATE "C" NOT NULL CHECK (state IN ('active', 'draining', 'offline')),
    label      text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
-- The present ones: reports change no column of this index, so they stay within their page.
CREATE INDEX node_present ON node (id) WHERE state <> 'offline';
