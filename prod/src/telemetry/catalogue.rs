//! The catalogue: every metric there is, with its labels and what it says. The one table of their names.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Spreads over buckets.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! catalogue {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        /// The names, for whoever measures.
        pub(super) mod names {
            $(pub(crate) const $id: &str = $name;)+
        }

        /// Every metric.
        pub const METRICS: &[Metric] = &[
            $(Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help },)+
        ];
    };
}

catalogue! {
    DUE_TO_MATERIALISED = Histogram "fencepost_due_to_materialised_seconds" []
        "From due to materialised, the latest fire of each pass.";
    MATERIALISED_TO_CONFIRMED = Histogram "fencepost_materialised_to_confirmed_seconds" []
        "From the commit to the broker's confirm, the latest message of each publication.";
    PUBLISHED_TO_RECEIVED = Histogram "fencepost_published_to_received_seconds" []
        "From the publication of a message to its delivery, of messages that led to a run.";
    RECEIVED_TO_STARTED = Histogram "fencepost_received_to_started_seconds" []
        "From the delivery of a message to the start of its handler.";
    DUE_TO_STARTED = Histogram "fencepost_due_to_started_seconds" []
        "From due to the start of the handler.";
    HANDLER = Histogram "fencepost_handler_seconds" []
        "How long handlers ran.";
    STORE_CALL = Histogram "fencepost_store_call_seconds" ["command"]
        "How long store calls took, waiting for their turn included.";
    LEADERSHIP = Gauge "fencepost_leadership" []
        "1 where this process leads.";
    PARTITIONS_OWNED = Gauge "fencepost_partitions_owned" []
        "Partitions that this process owns; over all processes 128.";
    OUTBOX_ROWS = Gauge "fencepost_outbox_rows" []
        "Dispatches that the broker has not confirmed.";
    OUTBOX_OLDEST = Gauge "fencepost_outbox_oldest_seconds" []
        "Age of the oldest dispatch that the broker has not confirmed.";
    LEASES_GAINED = Counter "fencepost_leases_gained_total" ["domain"]
        "Leases granted to this process: of leadership or a partition.";
    LEASES_ENDED = Counter "fencepost_leases_ended_total" ["domain", "how"]
        "Leases that ended: released, refused on renewal, or no longer trusted.";
    EXECUTIONS_MATERIALISED = Counter "fencepost_executions_materialised_total" []
        "Executions made.";
    RANGES_SKIPPED = Counter "fencepost_ranges_skipped_total" []
        "Ranges of fires passed over.";
    MESSAGES_CONFIRMED = Counter "fencepost_messages_confirmed_total" []
        "Messages that the broker confirmed.";
    MESSAGES_UNCONFIRMED = Counter "fencepost_messages_unconfirmed_total" ["why"]
        "Messages that it did not: returned without a queue, refused, or unknown.";
    OUTBOX_READ_BACK = Counter "fencepost_outbox_read_back_total" []
        "Outbox rows read back to be published again.";
    DISPATCHES_PROMOTED = Counter "fencepost_dispatches_promoted_total" []
        "Retries that came due and waiting executions, dispatched again.";
    RUNS_STARTED = Counter "fencepost_runs_started_total" ["priority"]
        "Handlers started, by priority.";
    RUNS_ENDED = Counter "fencepost_runs_ended_total" ["state"]
        "Runs whose outcome is durable, by what became of their execution.";
    DEAD_LETTERS = Counter "fencepost_dead_letters_total" ["reason"]
        "Executions given up after a run of this process.";
    MESSAGES_DROPPED = Counter "fencepost_messages_dropped_total" []
        "Messages whose execution had ended, ran elsewhere, or was not there.";
    MESSAGES_DEFERRED = Counter "fencepost_messages_deferred_total" ["reason"]
        "Messages whose execution cannot run here and waits.";
    MESSAGES_MALFORMED = Counter "fencepost_messages_malformed_total" []
        "Messages that could not be read.";
    WRITES_REFUSED = Counter "fencepost_writes_refused_total" ["resource", "action"]
        "Writes refused because their authority had passed on.";
    CONFLICTS = Counter "fencepost_conflicts_total" ["action"]
        "Writes that found somebody else had been first, lawfully.";
    JOBS_UNREADABLE = Counter "fencepost_jobs_unreadable_total" []
        "Times that a job was put off because its definition cannot be read here.";
    REPAIRS = Counter "fencepost_repairs_total" ["kind"]
        "Repairs of the sweep.";
    STORE_UNKNOWN = Counter "fencepost_store_unknown_total" []
        "Store calls that a role took for unknown and will send again.";
    STORE_CALLS_FAILED = Counter "fencepost_store_calls_failed_total" ["command", "how"]
        "Store calls without an answer: the connection broke, or time was up.";
}

/// Tells the recorder what each metric says.
pub(super) fn describe() {
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// The catalogue as a table for the documentation.
#[must_use]
pub fn as_markdown() -> String {
    let mut table = String::from("| metric | kind | labels | what it says |\n|---|---|---|---|\n");
    for Metric { name, kind, labels, help } in METRICS {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        table.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    table
}
