//! The mistakes: SQL that is nearly right, each with what it breaks and who has to notice.
//!
//! Most are ones that somebody would make who knows the protocol and is in a hurry; some were made here. What must
//! stay true: a mistake is data, and every part of a statement that it rewrites is one that the store really sends.

use crate::case::Case;
use crate::cases::{
    calendars, changes, dead_letters, deadlines, failures, leases, limits, operators, overlap, pauses,
    schedulers, workers,
};
use crate::own_cases;

/// The name of the mistake that is made in two places.
pub(crate) const TOKEN_OUTSIDE_THE_KEY: &str = "the token outside the unique key";

/// The tenants that have a limit, looked up by somebody who locks none of them.
const NOT_LOCKED: &str = "FROM (SELECT DISTINCT e.tenant FROM execution e JOIN concurrency_limit l \
                          ON l.tenant = e.tenant AND l.max_running IS NOT NULL WHERE e.id = ANY($1)) AS limited";

/// SQL that is nearly right.
pub(crate) struct Mistake {
    /// What was done, in a few words.
    pub(crate) name: &'static str,
    /// What goes wrong because of it.
    pub(crate) breaks: &'static str,
    /// Parts of statements, and what is sent in their place.
    pub(crate) rewrites: Vec<(&'static str, &'static str)>,
    /// What is done to the schema before.
    pub(crate) schema: &'static [&'static str],
    pub(crate) proof: Proof,
    /// How it shows.
    pub(crate) symptom: Symptom,
    /// After how many commands or steps it has to have shown.
    pub(crate) within: usize,
}

/// Who has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Proof 1: generated commands, one after the other, beside the reference semantics.
    Alone,
    /// Proof 2, step by step: this case of two commands that meet.
    Meeting(&'static str),
}

/// How a mistake shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// Another answer, or other rows, than the reference semantics give.
    Differs,
    /// Somebody acted whose authority had passed on.
    TwoAuthorities,
    /// Each waits for the other.
    Deadlock,
    /// The server refuses what it is asked to write, and no answer comes.
    NoAnswer,
}

impl Mistake {
    fn new(
        name: &'static str,
        breaks: &'static str,
        from: &'static str,
        to: &'static str,
        proof: Proof,
    ) -> Self {
        let (symptom, within) = match proof {
            Proof::Alone => (Symptom::Differs, 100),
            Proof::Meeting(_) => (Symptom::TwoAuthorities, 6),
        };
        Self { name, breaks, rewrites: vec![(from, to)], schema: &[], proof, symptom, within }
    }

    fn with_schema(self, schema: &'static [&'static str]) -> Self {
        Self { schema, ..self }
    }

    fn and(mut self, from: &'static str, to: &'static str) -> Self {
        self.rewrites.push((from, to));
        self
    }

    fn shows_as(self, symptom: Symptom) -> Self {
        Self { symptom, ..self }
    }

    fn within(self, within: usize) -> Self {
        Self { within, ..self }
    }

    /// Where it shows only when two meet: the case of that name.
    pub(crate) fn case(&self) -> Option<Case> {
        let Proof::Meeting(name) = self.proof else { return None };
        let all = [
            leases::cases(),
            schedulers::materialising(),
            schedulers::promoting(),
            schedulers::removing(),
            schedulers::repairing(),
            workers::acquiring(),
            workers::holding(),
            operators::cases(),
            changes::cases(),
            changes::met(),
            overlap::cases(),
            limits::cases(),
            calendars::cases(),
            failures::cases(),
            pauses::cases(),
            dead_letters::cases(),
            deadlines::cases(),
            own_cases::cases(),
        ];
        let found = all.into_iter().flatten().find(|case| case.name == name);
        Some(found.unwrap_or_else(|| panic!("there is no case {name:?}")))
    }
}

/// All of them: guards, then decisions, then identities and times, then the outbox, then dead letters, then pauses.
pub(crate) fn all() -> Vec<Mistake> {
    [guards(), decisions(), identities(), outbox(), replays(), holds()].into_iter().flatten().collect()
}

fn guards() -> Vec<Mistake> {
    use Proof::{Alone, Meeting};
    vec![
        Mistake::new(
            "a guard that is read without a lock",
            "the partition is taken over between guard and write",
            "ORDER BY resource FOR KEY SHARE",
            "ORDER BY resource",
            Meeting("materialising against a takeover of the partition"),
        ),
        Mistake::new(
            "a guard that the write does not reference",
            "what locks is a CTE that nobody asks, so it is never executed",
            r#"store_now($2) AS "now!" FROM held"#,
            r#"store_now($2) AS "now!" FROM lease WHERE resource = ANY($1)"#,
            Meeting("taking a run over against another leader"),
        ),
        Mistake::new(
            TOKEN_OUTSIDE_THE_KEY,
            "a takeover changes no key, and guards that lock the key do not hold it up",
            "ORDER BY resource FOR UPDATE",
            "ORDER BY resource FOR NO KEY UPDATE",
            Meeting("promoting a retry against a takeover of the partition"),
        )
        .with_schema(&["ALTER TABLE lease DROP CONSTRAINT lease_resource_token_key"]),
        Mistake::new(
            "a release that passes guards by",
            "what is written under a partition is committed after it was given back",
            "FROM lease WHERE resource = ANY($1) ORDER BY resource FOR UPDATE",
            "FROM lease WHERE resource = ANY($1) ORDER BY resource FOR NO KEY UPDATE",
            Meeting("materialising against a release of the partition"),
        ),
        Mistake::new(
            "an acquisition of leadership that only looks",
            "two are granted leadership that lapsed once",
            "FROM lease WHERE resource = $1 FOR UPDATE",
            "FROM lease WHERE resource = $1",
            Meeting("two acquisitions of leadership that lapsed"),
        ),
        Mistake::new(
            "a takeover under the same token",
            "whoever lost the lease is let in by its token",
            "UPDATE lease SET token = token + 1,",
            "UPDATE lease SET token = greatest(token, 1),",
            Alone,
        ),
        Mistake::new(
            "a token from a sequence",
            "tokens leap, and those of one resource depend on all the others",
            "UPDATE lease SET token = token + 1,",
            "UPDATE lease SET token = nextval('lease_token'),",
            Alone,
        )
        .with_schema(&["CREATE SEQUENCE lease_token", "DROP TRIGGER token_monotone ON lease"]),
        Mistake::new(
            "a guard on expiry instead of the token",
            "whoever comes late ends the run of somebody else",
            "AND e.state = 'running' AND e.token = i.token",
            "AND e.state = 'running' AND e.expires_at > c.now AND i.token = i.token",
            Alone,
        )
        .within(12_000),
    ]
}

fn decisions() -> Vec<Mistake> {
    use Proof::Meeting;
    vec![
        Mistake::new(
            "decision and lock in one statement",
            "who waited for the lock writes the row as it was: a request to stop is lost",
            "JOIN execution e ON e.id = ANY (ARRAY[i.id]) ORDER BY i.place FOR NO KEY UPDATE OF e",
            "JOIN execution l ON l.id = ANY (ARRAY[i.id]) JOIN execution e ON e.id = l.id \
             ORDER BY i.place FOR NO KEY UPDATE OF l",
            Meeting("renewing a run against a cancel"),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "a row that is read, decided about and written without a lock",
            "a request to stop is overwritten by the end of an attempt",
            "JOIN execution e ON e.id = ANY (ARRAY[i.id]) ORDER BY i.place FOR NO KEY UPDATE OF e",
            "JOIN execution e ON e.id = ANY (ARRAY[i.id]) ORDER BY i.place",
            Meeting("failing against a cancel"),
        ),
        Mistake::new(
            "a set that is not locked before it is written",
            "a run that ends between two statements of a deletion is neither called off nor asked to stop",
            "ORDER BY id::text FOR NO KEY UPDATE) AS live",
            "ORDER BY id::text) AS live",
            Meeting("deleting a job against a failure"),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "overlap counted without the set's lock",
            "two executions of a job get its slot, each seeing that nobody has it",
            "SELECT id, standing FROM job WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE",
            "SELECT id, standing FROM job WHERE id = ANY($1) ORDER BY id",
            Meeting("acquiring under skip against another of the job"),
        )
        .within(10),
        Mistake::new(
            "a calendar that is not shared by the job that names it",
            "a job is made with the days of before, and no version of it has those that were set meanwhile",
            "ORDER BY name FOR KEY SHARE",
            "ORDER BY name",
            Meeting(calendars::MADE),
        ),
        Mistake::new(
            "limits counted without the limit's lock",
            "two executions are granted one place, each seeing that nobody has it",
            "FROM lock_limits($1) AS tenant",
            NOT_LOCKED,
            Meeting(limits::TWO_ASK),
        )
        .within(16),
        Mistake::new(
            "a limit that is locked and counted in one statement",
            "who waited for the lock counts what ran before it waited",
            "FROM lock_limits($1) AS tenant",
            NOT_LOCKED,
            Meeting(limits::TWO_ASK),
        )
        .and(
            "(SELECT tenant FROM job WHERE id = ANY($1))) ORDER BY id FOR SHARE",
            "(SELECT tenant FROM job WHERE id = ANY($1))) ORDER BY id",
        )
        .and(
            "WHERE e.tenant = ANY($1) AND num_nulls(e.owner) = 0 GROUP BY 1, 2",
            "WHERE e.tenant = ANY (ARRAY(SELECT t.id FROM tenant t WHERE t.id = ANY($1) ORDER BY t.id \
             FOR NO KEY UPDATE)) AND num_nulls(e.owner) = 0 GROUP BY 1, 2",
        )
        .shows_as(Symptom::Differs)
        .within(16),
        Mistake::new(
            "failures in a row counted without the job's lock",
            "two failures that are the last of a row each miss the other, and the job is not paused",
            "ORDER BY j.id FOR NO KEY UPDATE OF j",
            "ORDER BY j.id",
            Meeting("the first of two failures against the second"),
        )
        .shows_as(Symptom::Differs)
        .within(10),
        Mistake::new(
            "granted past its deadline",
            "an attempt starts although nobody waits for its result any more",
            "AND (e.deadline_at > c.now) IS NOT FALSE",
            "",
            Proof::Alone,
        )
        .within(3_000),
        Mistake::new(
            "the version predicate dropped",
            "a plan made from a definition that has ended is carried out",
            "AND j.state = 'active' AND j.version = i.version",
            "AND j.state = 'active'",
            Meeting("materialising against an edit of the job"),
        ),
        Mistake::new(
            "a change that reads its job without a lock",
            "a fire is recorded between look and write, and the watermark moves back over it",
            "FROM job WHERE id = $1 AND tenant = $2 FOR NO KEY UPDATE",
            "FROM job WHERE id = $1 AND tenant = $2",
            Meeting("editing a job against its fire"),
        ),
        Mistake::new(
            "the watermark not compared",
            "a late resend moves it back",
            "AND j.next_fire_time IS NOT DISTINCT FROM i.expected_fire",
            "",
            Meeting("materialising against the same fire materialised"),
        ),
        Mistake::new(
            "picked without a lock",
            "two promote the same retry, and it is dispatched twice",
            "ORDER BY e.next_try_at, e.id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED",
            "ORDER BY e.next_try_at, e.id LIMIT $3",
            Meeting("promoting a retry against its promotion"),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "granted whatever its state",
            "two workers run one execution",
            "AND e.state = 'pending' AND e.token < 9223372036854775807",
            "AND e.token < 9223372036854775807",
            Meeting("acquiring against another worker"),
        ),
        Mistake::new(
            "ended whatever its state",
            "an end that is sent again is written again",
            "AND e.state = 'running' AND e.token = i.token",
            "AND e.token = i.token",
            Meeting("completing against its resend"),
        ),
        Mistake::new(
            "a report that is read without a lock",
            "a node is retired that has just reported",
            "AND n.state <> 'offline' ORDER BY n.id FOR NO KEY UPDATE",
            "AND n.state <> 'offline' ORDER BY n.id",
            Meeting("retiring a node against its report"),
        ),
        Mistake::new(
            "a job that is read without a lock",
            "a job that was deleted is triggered",
            "FROM job WHERE id = $1 AND tenant = $2 FOR KEY SHARE",
            "FROM job WHERE id = $1 AND tenant = $2",
            Meeting("triggering a job against its deletion"),
        ),
    ]
}

fn identities() -> Vec<Mistake> {
    use Proof::{Alone, Meeting};
    vec![
        Mistake::new(
            "a look-up before the insert instead of the constraint",
            "two triggers with one key make two executions",
            "VALUES ($1, $2, $3, $4, $5, 'manual', $6, $7, $8, 'pending', $9, 0, 0, 0, 0, false, false, 0, 0, 0, 0, 1, \
             $9, 0, $9, false, $9 + (SELECT v.deadline FROM job_version v WHERE v.job = $3 AND v.version = $4)) \
             ON CONFLICT (id) DO NOTHING",
            "SELECT $1, $2, $3, $4, $5, 'manual', $6, $7, $8, 'pending', $9, 0, 0, 0, 0, false, false, 0, 0, 0, 0, 1, \
             $9, 0, $9, false, $9 + (SELECT v.deadline FROM job_version v WHERE v.job = $3 AND v.version = $4) \
             WHERE NOT EXISTS (SELECT FROM execution WHERE id = $1)",
            Meeting("triggering a job against the same trigger"),
        )
        .with_schema(&["ALTER TABLE execution DROP CONSTRAINT execution_pkey"])
        .shows_as(Symptom::NoAnswer),
        Mistake::new(
            "the last request wins",
            "a request id that was used makes another job",
            "ON CONFLICT (tenant, request) DO NOTHING",
            "ON CONFLICT (tenant, request) DO UPDATE SET job = excluded.job",
            Meeting("creating a job against the same request for another"),
        ),
        Mistake::new(
            "an acquisition without its nonce",
            "one that is sent again after its lease ended is granted anew",
            "AND (e.nonce_node IS DISTINCT FROM $2 OR e.nonce <> i.nonce)",
            "",
            Meeting(own_cases::RESENT_AFTER_ITS_END),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "an acquisition that forgets its nonce",
            "one that is sent again is refused by its own grant",
            "owner = $2, nonce = i.nonce, nonce_node = $2, expires_at",
            "owner = $2, nonce_node = $2, expires_at",
            Meeting("acquiring against its own resend"),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "the clock in a row expression",
            "rows carry other times than the command was judged by",
            "leased_at = greatest(c.now, e.materialised_at)",
            "leased_at = greatest(store_now(NULL), e.materialised_at)",
            Alone,
        )
        .within(1_000),
        Mistake::new(
            "a refusal that overwrites the one before",
            "how often somebody was refused is lost",
            "count = r.count + excluded.count",
            "count = excluded.count",
            Alone,
        ),
    ]
}

fn outbox() -> Vec<Mistake> {
    use Proof::{Alone, Meeting};
    vec![
        Mistake::new(
            "the outbox row in a second transaction",
            "who dies between the two leaves an execution that nobody dispatches; the second never comes here",
            "INSERT INTO outbox_event (execution, dispatch_no, tenant, partition, created_by, created_at, next_try_at, \
             tries) SELECT id, 1, tenant, partition, $2, $1, $1, 0 FROM made",
            "SELECT id, 1, tenant, partition, $2, $1, $1, 0 FROM made",
            Alone,
        )
        .within(1_000),
        Mistake::new(
            "an outbox row for what was there already",
            "the insert does not reference the CTE that says what is new",
            "SELECT id, 1, tenant, partition, $2, $1, $1, 0 FROM made",
            "SELECT i.id, 1, i.tenant, i.partition, $2, $1, $1, 0 FROM unnest($3::uuid[], $4::uuid[], $7::int2[]) \
             AS i (id, tenant, partition) ON CONFLICT DO NOTHING",
            Alone,
        )
        .within(12_000),
        Mistake::new(
            "removed by execution instead of dispatch number",
            "the confirmation of one dispatch removes the next one",
            "WHERE o.execution = ANY (ARRAY[i.execution]) AND o.dispatch_no = i.dispatch_no AND o.created_at",
            "WHERE o.execution = ANY (ARRAY[i.execution]) AND o.created_at",
            Meeting(own_cases::ONE_OF_TWO_ROWS),
        )
        .shows_as(Symptom::Differs),
        Mistake::new(
            "lock order reversed",
            "one takes execution and outbox row, the other outbox row and execution",
            "ORDER BY i.place FOR NO KEY UPDATE OF e) AS locked",
            "ORDER BY i.place) AS locked",
            Meeting(own_cases::OLD_ROW_AGAINST_ITS_RETURN),
        )
        .shows_as(Symptom::Deadlock),
        Mistake::new(
            "read back without a new time",
            "an outbox row that nobody confirms is sent again without a pause",
            "SET tries = o.tries + 1, next_try_at = greatest($1 + grown_delay($6, o.tries, $7), o.created_at)",
            "SET tries = o.tries + 1, next_try_at = greatest($1, o.created_at)",
            Alone,
        )
        .within(1_000),
    ]
}

fn holds() -> Vec<Mistake> {
    use Proof::{Alone, Meeting};
    vec![
        Mistake::new(
            "held back under a pause that nobody holds on to",
            "the resume is committed between look and record, and what waits for it is found by nobody",
            "AND ended_at IS NULL ORDER BY id FOR SHARE",
            "AND ended_at IS NULL ORDER BY id",
            Meeting(pauses::HELD_AGAINST_RESUME),
        )
        .within(12),
        Mistake::new(
            "held back without a name",
            "what waits does not say for which pause, and the resume lets nothing go",
            "_paused', held_by = p.id, next_try_at",
            "_paused', next_try_at",
            Alone,
        )
        .within(12_000),
    ]
}

fn replays() -> Vec<Mistake> {
    use Proof::Meeting;
    vec![
        Mistake::new(
            "a replay that only looks at its dead letter",
            "a purge is committed between look and insert, and what is purged is replayed",
            "SELECT replays, purged_at FROM dead_letter WHERE execution = $1 FOR NO KEY UPDATE",
            "SELECT replays, purged_at FROM dead_letter WHERE execution = $1",
            Meeting("replaying a dead letter against its purge"),
        )
        .shows_as(Symptom::NoAnswer),
        Mistake::new(
            "a page that keeps nobody out",
            "a dead letter is purged after it was listed, and is replayed",
            "FROM tenant WHERE id = $1 FOR NO KEY UPDATE",
            "FROM tenant WHERE id = $1",
            Meeting("replaying a page against a purge"),
        )
        .shows_as(Symptom::NoAnswer),
        Mistake::new(
            "a page of what was replayed before",
            "it is for ever about to make first replays that are there",
            "WHERE tenant = $1 AND replays = 0 AND purged_at IS NULL",
            "WHERE tenant = $1 AND purged_at IS NULL",
            Meeting("replaying a page against a replay"),
        )
        .shows_as(Symptom::NoAnswer),
    ]
}
