//! Catalogues agree: invariants, faults, marks, mutants and commands say the same as data, in code and in docs.
//!
//! Relies on the catalogues that the simulator prints. What must stay true: nothing is listed that no code uses,
//! nothing is promised in a document that is not listed.

use std::collections::BTreeSet;
use std::fmt::Debug;

use fencepost_core::bug::Bug;
use fencepost_core::mark::Mark;
use fencepost_core::verify::Check;
use fencepost_sim::fault::FaultKind;
use fencepost_sim::mutants;
use fencepost_sim::oracle::invariant::{CheckedBy, Invariant};
use fencepost_sim::plan::Profile;
use fencepost_sim::violation::Property;

use crate::rust_text::{code, whole_word};
use crate::tree;

#[test]
fn the_document_lists_the_invariants_as_they_are() {
    let text = read("docs/invariants.md");
    for (heading, property) in [("Safety", Property::Safety), ("Liveness", Property::Liveness)] {
        let listed = rows(&text, heading);
        let known: Vec<Vec<String>> = Invariant::ALL
            .iter()
            .filter(|invariant| invariant.property() == property)
            .map(|invariant| {
                let letters: Vec<String> =
                    invariant.checked().iter().map(|by| by.letter().to_string()).collect();
                vec![invariant.id().to_owned(), invariant.statement().to_owned(), letters.join(" ")]
            })
            .collect();
        let breaches: Vec<String> = known
            .iter()
            .filter(|row| !listed.contains(row))
            .map(|row| format!("add or correct: | {} |", row.join(" | ")))
            .chain(
                listed
                    .iter()
                    .filter(|row| !known.contains(row))
                    .map(|row| format!("not in the catalogue: | {} |", row.join(" | "))),
            )
            .collect();
        tree::assert_none(&format!("docs/invariants.md, section \"{heading}\""), &breaches);
    }
}

#[test]
fn the_readme_counts_the_invariants() {
    let text = read("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let told = format!("[{} invariants](docs/invariants.md)", Invariant::ALL.len());
    assert!(text.contains(&told), "README.md is to say {told:?}");
}

#[test]
fn the_document_names_what_holds_each_invariant_in_postgresql() {
    let listed = rows(&read("docs/invariants.md"), "Held by PostgreSQL");
    let ids: Vec<&str> = listed.iter().map(|row| row[0].as_str()).collect();
    let known: Vec<&str> = Invariant::ALL
        .iter()
        .filter(|invariant| invariant.checked().contains(&CheckedBy::Constraint))
        .map(|invariant| invariant.id())
        .collect();
    assert_eq!(
        ids, known,
        "docs/invariants.md, section \"Held by PostgreSQL\": one row for each that is marked C"
    );
    let migrations: String = tree::files()
        .into_iter()
        .filter(|file| file.path.starts_with("migrations/"))
        .map(|file| file.text)
        .collect();
    let shown = read("tests/servers/last_line.rs");
    let mut breaches = Vec::new();
    for row in &listed {
        let named = row[1].split('`').skip(1).step_by(2);
        for name in named.filter(|name| !migrations.contains(name)) {
            breaches.push(format!("{}: no migration has `{name}`", row[0]));
        }
        if !shown.contains(&format!("\"{}\"", row[0])) {
            breaches.push(format!("{}: tests/servers/last_line.rs breaks nothing of it", row[0]));
        }
    }
    tree::assert_none("what holds an invariant in PostgreSQL is there, and is seen to refuse", &breaches);
}

#[test]
fn what_a_verification_looks_at_and_cannot_see_is_documented_in_its_own_words() {
    let listed = rows(&read("docs/verify.md"), "What is checked");
    let known: Vec<Vec<String>> = Check::ALL
        .iter()
        .map(|check| [check.id(), check.unit(), check.sees(), check.cannot_see()].map(str::to_owned).to_vec())
        .collect();
    let differs = |row: &&Vec<String>| !listed.contains(row);
    let breaches: Vec<String> =
        known.iter().filter(differs).map(|row| format!("add or correct: | {} |", row.join(" | "))).collect();
    tree::assert_none("docs/verify.md, section \"What is checked\"", &breaches);
    assert_eq!(listed.len(), known.len(), "docs/verify.md lists a check that there is not");
}

#[test]
fn the_invariants_that_are_marked_as_verified_are_those_that_have_a_check() {
    let marked: BTreeSet<&str> = Invariant::ALL
        .iter()
        .filter(|invariant| invariant.checked().contains(&CheckedBy::Verification))
        .map(|invariant| invariant.id())
        .collect();
    let checks: BTreeSet<&str> = Check::ALL.iter().map(|check| check.id()).collect();
    assert_eq!(marked, checks);
}

#[test]
fn every_invariant_that_the_simulator_checks_has_a_mutant_that_it_is_to_catch() {
    let caught: BTreeSet<Invariant> = Bug::ALL.iter().map(|bug| mutants::predicted(*bug)).collect();
    let breaches: Vec<String> = Invariant::ALL
        .iter()
        .filter(|invariant| invariant.property() == Property::Safety)
        .filter(|invariant| invariant.checked().contains(&CheckedBy::Simulator))
        .filter(|invariant| !caught.contains(invariant))
        .map(|invariant| invariant.id().to_owned())
        .collect();
    tree::assert_none("an oracle that has never failed may be one that cannot", &breaches);
}

#[test]
fn names_are_lower_case_words_with_hyphens_and_each_stands_once() {
    let catalogues: [(&str, Vec<&str>); 5] = [
        ("invariants", Invariant::ALL.iter().map(|invariant| invariant.id()).collect()),
        ("faults", FaultKind::ALL.iter().map(|kind| kind.name()).collect()),
        ("marks", Mark::ALL.iter().map(|mark| mark.name()).collect()),
        ("mutants", Bug::ALL.iter().map(|bug| bug.name()).collect()),
        ("profiles", Profile::ALL.iter().map(|profile| profile.name()).collect()),
    ];
    let mut breaches = Vec::new();
    for (catalogue, names) in catalogues {
        let mut seen = BTreeSet::new();
        for name in names {
            let words_with_hyphens = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            if !words_with_hyphens || !seen.insert(name) {
                breaches.push(format!("{catalogue}: {name}"));
            }
        }
    }
    tree::assert_none("a name is typed on the command line", &breaches);
}

#[test]
fn every_mark_is_passed_and_every_mutant_switched_somewhere() {
    let sources: Vec<String> = tree::rust_files()
        .iter()
        .filter(|file| file.path.starts_with("core/src/") || file.path.starts_with("sim/src/"))
        .filter(|file| {
            !["core/src/mark.rs", "core/src/bug.rs", "sim/src/mutants.rs"].contains(&file.path.as_str())
        })
        .map(|file| code(&file.text))
        .collect();
    let is_used = |name: &str| sources.iter().any(|source| whole_word(source, name).next().is_some());
    let breaches: Vec<String> = qualified("Mark", Mark::ALL)
        .into_iter()
        .chain(qualified("Bug", Bug::ALL))
        .filter(|name| !is_used(name))
        .collect();
    tree::assert_none("what is listed is used", &breaches);
}

#[test]
fn every_command_that_a_document_names_exists() {
    let programs =
        [("fencepost-sim", commands("sim/src/cli.rs")), ("fencepost", commands("prod/src/cli.rs"))];
    let mut breaches = Vec::new();
    for file in tree::files().iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '`' || c == '/').collect();
            for (program, commands) in &programs {
                for at in words.iter().enumerate().filter(|(_, word)| *word == program).map(|(at, _)| at) {
                    // After `cargo run -p NAME` come two hyphens.
                    let next = words[at + 1..].iter().copied().find(|word| !word.is_empty() && *word != "--");
                    let in_code =
                        line.contains(&format!("`{program} ")) || line.contains(&format!("{program} -- "));
                    if let Some(next) = next.filter(|next| in_code && !commands.contains(*next)) {
                        breaches.push(format!("{}:{}: {program} {next}", file.path, index + 1));
                    }
                }
            }
        }
    }
    tree::assert_none("a command in a document is one that can be typed", &breaches);
}

fn qualified<T: Debug>(kind: &str, all: &[T]) -> Vec<String> {
    all.iter().map(|one| format!("{kind}::{one:?}")).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(tree::root().join(path)).expect("the document is there")
}

/// The cells of the table rows below a heading, down to the next; the table's own head left out.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let title = format!("## {heading}");
    text.lines()
        .skip_while(|line| *line != title)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with("| ") && !line.starts_with("| id ") && !line.starts_with("| check "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The subcommands that a command line has: the variants of its `enum Command`.
fn commands(path: &str) -> BTreeSet<String> {
    let source = code(&read(path));
    let found: BTreeSet<String> = source
        .lines()
        .skip_while(|line| *line != "enum Command {")
        .skip(1)
        .take_while(|line| *line != "}")
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|line| typed(&line.chars().take_while(char::is_ascii_alphanumeric).collect::<String>()))
        .collect();
    assert!(found.contains("run") || found.contains("serve"), "{path}: its commands are an `enum Command`");
    found
}

/// A variant's name as it is typed: words in lower case, with hyphens between them.
fn typed(variant: &str) -> String {
    let mut typed = String::new();
    for (at, letter) in variant.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            typed.push('-');
        }
        typed.push(letter.to_ascii_lowercase());
    }
    typed
}
