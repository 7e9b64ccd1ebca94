//! Explanations against their goldens: one case of rows, one file of JSON in `explain/goldens/`.
//!
//! What must stay true: every code is told by some case, and every golden belongs to one. To renew the goldens after
//! a change that is wanted: `RENEW_GOLDENS=1 cargo test -p fencepost-core --test explain`, then read the difference.

#[path = "explain/execution_cases.rs"]
mod execution_cases;
#[path = "explain/job_cases.rs"]
mod job_cases;
#[path = "explain/rows.rs"]
mod rows;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fencepost_core::explain::{Explanation, codes, explain_execution, explain_job};

/// Every case: the name of its golden, and what is explained.
fn cases() -> Vec<(&'static str, Explanation)> {
    let executions = execution_cases::all().into_iter();
    let jobs = job_cases::all().into_iter();
    executions
        .map(|(name, facts)| (name, explain_execution(&facts)))
        .chain(jobs.map(|(name, facts)| (name, explain_job(&facts))))
        .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain/goldens")
}

fn json(explanation: &Explanation) -> String {
    serde_json::to_string_pretty(explanation).expect("an explanation is JSON") + "\n"
}

#[test]
fn what_is_explained_is_what_its_golden_says() {
    let renew = std::env::var_os("RENEW_GOLDENS").is_some();
    let mut differences = Vec::new();
    for (name, explanation) in cases() {
        let path = folder().join(format!("{name}.json"));
        let is = json(&explanation);
        if renew {
            std::fs::write(&path, &is).expect("the goldens can be written");
            continue;
        }
        let was = std::fs::read_to_string(&path).unwrap_or_default();
        if was != is {
            differences.push(format!("{name}:\n{}", difference(&was, &is)));
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nIf that is wanted: RENEW_GOLDENS=1 cargo test -p fencepost-core --test explain",
        differences.join("\n")
    );
}

#[test]
fn every_code_is_explained_by_a_case_and_every_golden_has_one() {
    let cases = cases();
    let mut names = BTreeSet::new();
    let mut told = BTreeSet::new();
    for (name, explanation) in &cases {
        assert!(names.insert(format!("{name}.json")), "two cases are called {name}");
        let Explanation { past, now, future, replay, .. } = explanation;
        told.extend([past, now, future].into_iter().flatten().chain(replay).map(|one| one.code));
    }
    let silent: Vec<&str> = codes().map(|entry| entry.code).filter(|code| !told.contains(code)).collect();
    assert!(silent.is_empty(), "no case tells {silent:?}");
    let files = std::fs::read_dir(folder()).expect("the goldens are there");
    let files: BTreeSet<String> = files
        .map(|file| file.expect("they can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    let orphans: Vec<&String> = files.difference(&names).collect();
    assert!(orphans.is_empty(), "goldens without a case: {orphans:?}");
}

#[test]
fn what_is_explained_has_a_headline_of_one_sentence() {
    for (name, explanation) in cases() {
        let headline = &explanation.headline;
        assert!(headline.ends_with('.') && !headline.contains('\n'), "{name}: {headline:?}");
        let sentences = [&explanation.past, &explanation.now, &explanation.future].into_iter().flatten();
        for statement in sentences {
            assert!(statement.sentence.ends_with('.'), "{name}: {statement:?}");
        }
    }
}

#[test]
fn the_stages_that_explain_a_lag_add_up_to_the_total() {
    for (name, explanation) in cases() {
        let Some(lag) = explanation.lag else { continue };
        let sum: u64 = lag.stages.iter().map(|stage| stage.span.as_millis()).sum();
        assert_eq!(sum, lag.total.as_millis(), "{name}");
    }
}

#[test]
fn the_documented_codes_are_those_that_explain() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/explain.md");
    let document = std::fs::read_to_string(path).expect("docs/explain.md is there");
    for (list, table) in tables() {
        assert!(document.contains(&table), "docs/explain.md must hold this table for {list}:\n\n{table}");
    }
}

/// The tables of codes by list, in the order of the code.
fn tables() -> Vec<(&'static str, String)> {
    let mut tables: Vec<(&'static str, String)> = Vec::new();
    for entry in codes() {
        let fields: Vec<String> = entry.fields().map(|field| format!("`{field}`")).collect();
        let line = format!("| `{}` | {} | {} |\n", entry.code, entry.meaning(), fields.join(" "));
        match tables.iter_mut().find(|(list, _)| *list == entry.list) {
            Some((_, table)) => table.push_str(&line),
            None => {
                let head = "| code | what it says | fields |\n|---|---|---|\n";
                tables.push((entry.list, format!("{head}{line}")));
            }
        }
    }
    tables
}

/// The lines that differ between the first and the last that do, as a diff shows them.
fn difference(was: &str, is: &str) -> String {
    let (was, is): (Vec<&str>, Vec<&str>) = (was.lines().collect(), is.lines().collect());
    let same_from_start = was.iter().zip(&is).take_while(|(was, is)| was == is).count();
    let rest = was.len().min(is.len()) - same_from_start;
    let same_to_end =
        was.iter().rev().zip(is.iter().rev()).take(rest).take_while(|(was, is)| was == is).count();
    let mut lines = vec![format!("  from line {}:", same_from_start + 1)];
    lines.extend(was[same_from_start..was.len() - same_to_end].iter().map(|line| format!("- {line}")));
    lines.extend(is[same_from_start..is.len() - same_to_end].iter().map(|line| format!("+ {line}")));
    lines.join("\n")
}
