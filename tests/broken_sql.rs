//! Broken SQL on purpose: whether the proofs would notice.
//!
//! A proof that cannot fail shows nothing. So the store's statements are rewritten on their way to the server, and
//! the schema with them, each time with one mistake that is easily made; and the proof that was predicted has to
//! notice it, in the way that was predicted, after as many commands or steps as the table says at the most. A mistake
//! that changes no statement proves nothing and fails, and so does one that is noticed in another way: it may be
//! SQL that the server does not even accept.
//!
//! What needs two commands at once is stepped, so that it is noticed every time and not by luck. The table is in
//! `docs/broken-sql.md`, and a test compares it with the mistakes.

#[path = "broken_sql/alone.rs"]
mod alone;
#[allow(dead_code, reason = "a file of the conformance test, of which this one needs a part")]
#[path = "conformance/arrange.rs"]
mod arrange;
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
#[path = "linearizability/atoms.rs"]
mod atoms;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/authority.rs"]
mod authority;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/case.rs"]
mod case;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/cases.rs"]
mod cases;
#[path = "conformance/contents.rs"]
mod contents;
#[allow(dead_code, reason = "a file of the conformance test, of which this one needs a part")]
#[path = "conformance/database.rs"]
mod database;
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
#[path = "linearizability/history.rs"]
mod history;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/judgement.rs"]
mod judgement;
#[path = "broken_sql/mistakes.rs"]
mod mistakes;
#[path = "conformance/operators.rs"]
mod operators;
#[path = "broken_sql/own_cases.rs"]
mod own_cases;
#[path = "conformance/schedulers.rs"]
mod schedulers;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/stage.rs"]
mod stage;
#[allow(dead_code, reason = "a file of the linearizability test, of which this one needs a part")]
#[path = "linearizability/touches.rs"]
mod touches;
#[path = "conformance/universe.rs"]
mod universe;
#[path = "conformance/workers.rs"]
mod workers;
#[allow(dead_code, reason = "a file of the stepped test, of which this one needs a part")]
#[path = "stepped/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use database::Database;
use fencepost_tests::pg_proxy::PgProxy;
use judgement::{Tally, Wrong};
use mistakes::{Mistake, Proof, Symptom, all};
use sqlx::AssertSqlSafe;
use stage::Stage;

/// A mistake that was noticed.
struct Noticed {
    after: usize,
    symptom: Symptom,
    rewritten: Vec<u64>,
    told: String,
}

/// Plays the case of a mistake: what was noticed, if anything.
async fn meet(database: &Database, mistake: &Mistake) -> Result<Noticed, String> {
    let case = mistake.case().expect("it shows when two meet");
    let mut stage = Stage::open(database, &mistake.rewrites).await;
    let mut tally = Tally::default();
    let played = stage.play_counting(&case, &mut tally).await;
    let rewritten = stage.rewritten();
    let Err(violation) = played else { return Err(format!("{} steps showed nothing", tally.steps)) };
    let told = violation.to_string();
    let symptom = match violation.wrong {
        Wrong::NoAnswer(_) => Symptom::NoAnswer,
        Wrong::Deadlock => Symptom::Deadlock,
        Wrong::TwoAuthorities(_) => Symptom::TwoAuthorities,
        Wrong::NotRecorded | Wrong::NoExplanation(_) => Symptom::Differs,
    };
    Ok(Noticed { after: tally.steps, symptom, rewritten, told })
}

/// Runs commands one after the other: what was noticed, if anything.
async fn alone(database: &Database, mistake: &Mistake) -> Result<Noticed, String> {
    let proxy = PgProxy::start(database.options(), &mistake.rewrites).await.expect("a loopback port is free");
    match alone::first_difference(database, &proxy, mistake.within).await {
        Some((after, symptom)) => {
            let told = String::from("the stores differ");
            Ok(Noticed { after, symptom, rewritten: proxy.rewritten(), told })
        }
        None => Err(format!("{} commands showed nothing", mistake.within)),
    }
}

async fn notice(database: &Database, mistake: &Mistake) -> Result<usize, String> {
    let noticed = match mistake.proof {
        Proof::Alone => alone(database, mistake).await?,
        Proof::Meeting(_) => meet(database, mistake).await?,
    };
    for ((from, _), hits) in mistake.rewrites.iter().zip(&noticed.rewritten) {
        if *hits == 0 {
            return Err(format!("no statement was sent with {from:?} in it"));
        }
    }
    if noticed.symptom != mistake.symptom {
        let (seen, told) = (noticed.symptom, noticed.told);
        return Err(format!("it shows as {seen:?}, and not as {:?}: {told}", mistake.symptom));
    }
    if noticed.after > mistake.within {
        return Err(format!("it shows after {}, and not within {}", noticed.after, mistake.within));
    }
    Ok(noticed.after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mistake_is_noticed_by_the_proof_that_was_predicted() {
    let untouched = Database::create("broken_sql").await;
    let mut wrong = Vec::new();
    for mistake in all() {
        let noticed = if mistake.schema.is_empty() {
            notice(&untouched, &mistake).await
        } else {
            let altered = Database::create("broken_schema").await;
            for statement in mistake.schema {
                sqlx::query(AssertSqlSafe(*statement))
                    .execute(altered.pool())
                    .await
                    .expect("it may be altered");
            }
            let noticed = notice(&altered, &mistake).await;
            altered.remove().await;
            noticed
        };
        match noticed {
            Ok(after) => eprintln!("{:<64} {:>4} {}", mistake.name, after, mistake.proof.unit()),
            Err(why) => {
                eprintln!("{:<64} NOT NOTICED: {why}", mistake.name);
                wrong.push(format!("{}: {why}", mistake.name));
            }
        }
    }
    untouched.remove().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The mistake with the token outside the unique key is two: either of them alone is harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unique_key_and_the_lock_each_hold_a_takeover_up() {
    let mistakes = all();
    let both = mistakes.iter().find(|mistake| mistake.name == mistakes::TOKEN_OUTSIDE_THE_KEY);
    let both = both.expect("it is one of them");
    let case = both.case().expect("it shows when two meet");
    let database = Database::create("broken_key").await;
    let mut stage = Stage::open(&database, &both.rewrites).await;
    if let Err(violation) = stage.play(&case).await {
        panic!("the lock alone was taken away: {violation}");
    }
    assert!(stage.rewritten().iter().all(|hits| *hits > 0), "it was");
    for statement in both.schema {
        sqlx::query(AssertSqlSafe(*statement)).execute(database.pool()).await.expect("it may be altered");
    }
    let mut stage = Stage::open(&database, &[]).await;
    if let Err(violation) = stage.play(&case).await {
        panic!("the key alone was taken away: {violation}");
    }
    drop(stage);
    database.remove().await;
}

impl Proof {
    const fn unit(self) -> &'static str {
        match self {
            Self::Alone => "commands",
            Self::Meeting(_) => "steps",
        }
    }
}

/// The table as it has to stand in the document.
fn table() -> String {
    let mut table =
        String::from("| mistake | what it breaks | noticed by | as | within |\n|---|---|---|---|---|\n");
    for mistake in all() {
        let by = match mistake.proof {
            Proof::Alone => "conformance".to_owned(),
            Proof::Meeting(case) => format!("stepped: {case}"),
        };
        let symptom = match mistake.symptom {
            Symptom::Differs => "other answers or rows",
            Symptom::TwoAuthorities => "two authorities",
            Symptom::Deadlock => "a deadlock",
            Symptom::NoAnswer => "no answer",
        };
        let (name, breaks) = (mistake.name, mistake.breaks);
        let (within, unit) = (mistake.within, mistake.proof.unit());
        writeln!(table, "| {name} | {breaks} | {by} | {symptom} | {within} {unit} |")
            .expect("a string takes everything");
    }
    table
}

#[test]
fn the_document_has_the_table_of_mistakes() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broken-sql.md");
    let document = std::fs::read_to_string(document).expect("the document is there");
    let table = table();
    assert!(document.contains(&table), "docs/broken-sql.md is to have this table:\n\n{table}");
    assert!(all().len() >= 15, "fifteen at the least");
    let names: BTreeSet<&str> = all().iter().map(|mistake| mistake.name).collect();
    assert_eq!(names.len(), all().len(), "two mistakes have one name");
}
