-- What is kept for people: refused writes, request ids, and messages nobody could read.

-- `resource` is 'lease/NUMBER' or 'execution/UUID'. Repeats of one refusal are counted in one row.
CREATE TABLE refusal (
    node       uuid   NOT NULL,
    token      int8   NOT NULL,
    current    int8   NOT NULL,
    first_at   int8   NOT NULL,
    last_at    int8   NOT NULL,
    count      int8   NOT NULL CHECK (count > 0),
    resource   text COLLATE "C" NOT NULL CHECK (resource LIKE 'lease/%' OR resource LIKE 'execution/%'),
    action     text COLLATE "C" NOT NULL CHECK (action IN ('renew_lease', 'materialise', 'promote', 'repair',
        'renew_execution', 'finish')),
    PRIMARY KEY (resource, token, node, action)
);

CREATE TABLE operator_request (
    tenant      uuid   NOT NULL,
    fingerprint uuid   NOT NULL,
    job         uuid   NOT NULL,
    at          int8   NOT NULL,
    request     text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, request)
);

CREATE TABLE malformed_message (
    digest   uuid   PRIMARY KEY,
    node     uuid   NOT NULL,
    first_at int8   NOT NULL,
    last_at  int8   NOT NULL,
    count    int8   NOT NULL CHECK (count > 0),
    reason   text COLLATE "C" NOT NULL,
    excerpt  bytea  NOT NULL
);
