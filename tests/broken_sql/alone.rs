//! Proof 1 on SQL that is rewritten on the way: commands drawn from a seed, one after the other.

use fencepost_core::bug::Bugs;
use fencepost_core::store::reference::ReferenceStore;
use fencepost_sim::rng::StreamKey;
use fencepost_tests::pg_proxy::PgProxy;

use crate::arrange::Step;
use crate::contents;
use crate::database::{Database, Store};
use crate::mistakes::Symptom;
use crate::universe::{Draw, START};

/// Commands of one sequence.
const LENGTH: usize = 150;

/// How the first command that shows it shows the mistake, and after how many; at most so many are tried.
pub(crate) async fn first_difference(
    database: &Database,
    proxy: &PgProxy,
    most: usize,
) -> Option<(usize, Symptom)> {
    let mut looking = database.connect().await;
    let mut count = 0;
    for seed in 0.. {
        database.empty().await;
        let store = Store::on(proxy.options(database.options()));
        let mut stream = StreamKey::of(seed, "conformance").open();
        let mut reference = ReferenceStore::new(Bugs::NONE);
        let mut steps: Vec<Step> = Vec::new();
        let mut now = START;
        while steps.len() < LENGTH {
            if count == most {
                return None;
            }
            count += 1;
            let mut draw = Draw { stream: &mut stream, store: &reference, now };
            now = draw.next_now();
            draw.now = now;
            let command = draw.next_command(&steps);
            let expected = reference.apply(now, &command, &mut Vec::new());
            match store.apply(now, &command).await {
                None => return Some((count, Symptom::NoAnswer)),
                Some(seen) if seen != expected => return Some((count, Symptom::Differs)),
                Some(_) if contents::read(&mut looking).await != reference.dump() => {
                    return Some((count, Symptom::Differs));
                }
                Some(_) => steps.push(Step { now, command }),
            }
        }
    }
    None
}
