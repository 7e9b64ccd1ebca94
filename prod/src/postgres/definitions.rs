//! Definitions, decoded once: a job version never changes, so what was read of it stays right.
//!
//! Two generations bound the memory: when the young one is full it becomes the old one, and what is used
//! again moves back. What nobody asked for during a whole generation is forgotten.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use fencepost_core::id::{JobId, JobVersion};
use fencepost_core::job::StoredDefinition;
use sqlx::PgConnection;

use super::fault::Fault;
use super::read;

/// Bytes of definition text in one generation.
const GENERATION_BYTES: usize = 32 * 1_024 * 1_024;
/// What an entry weighs beside its text.
const ENTRY_BYTES: usize = 1_024;

/// Which definition.
pub(super) type VersionKey = (JobId, JobVersion);

/// The definitions read so far.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<VersionKey, Arc<StoredDefinition>>,
    young_bytes: usize,
    old: HashMap<VersionKey, Arc<StoredDefinition>>,
}

impl Generations {
    fn get(&mut self, key: VersionKey) -> Option<Arc<StoredDefinition>> {
        if let Some(found) = self.young.get(&key) {
            return Some(Arc::clone(found));
        }
        let found = self.old.remove(&key)?;
        self.put(key, Arc::clone(&found));
        Some(found)
    }

    fn put(&mut self, key: VersionKey, definition: Arc<StoredDefinition>) {
        let bytes = definition.text().len() + ENTRY_BYTES;
        if self.young_bytes + bytes > GENERATION_BYTES {
            self.old = core::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(key, definition);
    }
}

impl Definitions {
    /// Forgets them all.
    pub(super) fn forget(&self) {
        *self.known.lock().expect("no holder of this lock panics") = Generations::default();
    }

    /// All of these, from memory or from `job_version`.
    pub(super) async fn of(
        &self,
        conn: &mut PgConnection,
        keys: impl IntoIterator<Item = VersionKey>,
    ) -> Result<HashMap<VersionKey, Arc<StoredDefinition>>, Fault> {
        let mut found = HashMap::new();
        let mut missing = BTreeSet::new();
        {
            let mut known = self.known.lock().expect("no holder of this lock panics");
            for key in keys {
                match known.get(key) {
                    Some(definition) => {
                        found.insert(key, definition);
                    }
                    None => {
                        missing.insert(key);
                    }
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let jobs: Vec<_> = missing.iter().map(|(job, _)| job.as_uuid()).collect();
        let versions: Vec<_> = missing.iter().map(|(_, version)| i64::from(version.0)).collect();
        let rows = sqlx::query!(
            "SELECT v.job, v.version, v.definition
             FROM unnest($1::uuid[], $2::int8[]) AS i (job, version)
             JOIN job_version v ON v.job = ANY (ARRAY[i.job]) AND v.version = i.version",
            &jobs,
            &versions,
        )
        .fetch_all(conn)
        .await?;
        for row in rows {
            let key =
                (JobId::from_uuid(row.job), JobVersion(read::count("job_version.version", row.version)?));
            let definition = Arc::new(StoredDefinition::from_text(row.definition.into()));
            self.known.lock().expect("no holder of this lock panics").put(key, Arc::clone(&definition));
            found.insert(key, definition);
        }
        Ok(found)
    }
}

/// One of those that were asked for.
pub(super) fn one_of(
    definitions: &HashMap<VersionKey, Arc<StoredDefinition>>,
    job: JobId,
    version: JobVersion,
) -> Result<Arc<StoredDefinition>, Fault> {
    definitions
        .get(&(job, version))
        .map(Arc::clone)
        .ok_or_else(|| Fault::Unknown { column: "job_version.version", value: format!("{job} {version:?}") })
}
