//! How code and tests are written: nothing half-done, nothing that panics unexplained, no test that sleeps.
//!
//! Relies on the text of the sources. The patterns are put together from pieces, so that this file does not
//! break its own rules.

use crate::rust_text::{code, first_test_line, whole_word};
use crate::tree::{self, SourceFile};

/// Where a test may let time pass: (file, or folder with a slash at its end, why).
const MAY_SLEEP: &[(&str, &str)] = &[
    ("tests/src/waiting.rs", "waits for a condition, with a limit; everybody else calls it"),
    ("prod/src/driver/tests.rs", "a paused clock: nothing really waits"),
    ("tests/driver_turmoil/", "simulated time: nothing really waits"),
    ("tests/end_to_end/target.rs", "plays a target that takes its time; no test waits for it"),
];

/// Public functions that take a truth value: (file, function, why). Empty is how it should be.
const MAY_TAKE_BOOL: &[(&str, &str, &str)] = &[];

#[test]
fn nothing_is_left_half_done() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")]
        .map(String::from);
    let calls = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")].map(String::from);
    let mut breaches = Vec::new();
    for file in tree::files() {
        if file.path == "Cargo.lock" || file.path.ends_with("/Cargo.lock") {
            continue;
        }
        for mark in &marks {
            breaches.extend(whole_word(&file.text, mark).map(|(line, _)| format!("{}:{line}", file.path)));
        }
        if file.is_rust() {
            let code = code(&file.text);
            for call in &calls {
                breaches.extend(whole_word(&code, call).map(|(line, _)| format!("{}:{line}", file.path)));
            }
        }
    }
    tree::assert_none("what is in the tree is finished; what is missing is said in the docs", &breaches);
}

#[test]
fn a_panic_says_why_it_cannot_happen() {
    let mut breaches = Vec::new();
    for file in tree::rust_files() {
        let code = code(&file.text);
        for call in [".unwrap()", ".unwrap_err()"] {
            for (line, _) in whole_word(&code, call) {
                breaches
                    .push(format!("{}:{line}: {call}: use `expect(\"why it cannot happen\")`", file.path));
            }
        }
    }
    tree::assert_none("no bare unwrap", &breaches);
}

#[test]
fn no_test_sleeps_is_ignored_or_hopes_for_a_panic() {
    let mut breaches = Vec::new();
    for file in tree::rust_files() {
        let code = code(&file.text);
        let tests_begin = if is_test_file(&file) { 0 } else { first_test_line(&code) };
        for (word, why) in [
            ("sleep", "wait for a condition: fencepost_tests::waiting"),
            ("sleep_until", "wait for a condition: fencepost_tests::waiting"),
            ("#[ignore", "a test that is not run proves nothing"),
            ("should_panic", "say what comes back instead"),
        ] {
            let may = MAY_SLEEP.iter().any(|(place, _)| file.lies_in(place));
            for (line, _) in whole_word(&code, word).filter(|(line, _)| *line > tests_begin && !may) {
                breaches.push(format!("{}:{line}: {word}: {why}", file.path));
            }
        }
    }
    for (path, _) in MAY_SLEEP {
        if !tree::root().join(path).exists() {
            breaches.push(format!("{path} may sleep and does not exist"));
        }
    }
    tree::assert_none("tests are quick, all of them run, and they say what they expect", &breaches);
}

#[test]
fn no_public_function_takes_a_truth_value() {
    let mut breaches = Vec::new();
    for file in tree::rust_files().iter().filter(|file| file.path.contains("src/")) {
        for (line, name, parameters) in public_functions(&code(&file.text)) {
            let excepted =
                MAY_TAKE_BOOL.iter().any(|(path, function, _)| *path == file.path && *function == name);
            if !excepted && parameters.split(':').skip(1).any(|kind| kind.trim_start().starts_with("bool")) {
                breaches.push(format!("{}:{line}: {name}", file.path));
            }
        }
    }
    tree::assert_none("at the call, `true` says nothing: use an enum of two", &breaches);
}

fn is_test_file(file: &SourceFile) -> bool {
    file.path.starts_with("tests/") || file.path.contains("/tests/") || file.path.ends_with("/tests.rs")
}

/// Every `pub fn`: (line, name, text between its parentheses).
fn public_functions(code: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub ") {
        let words = &code[at + 4..];
        let words = ["const ", "async ", "unsafe "]
            .iter()
            .fold(words, |w, prefix| w.strip_prefix(prefix).unwrap_or(w));
        let Some(function) = words.strip_prefix("fn ") else { continue };
        let Some(open) = function.find('(') else { continue };
        let name = function[..open].split('<').next().unwrap_or_default().trim().to_owned();
        let line = code[..at].lines().count().max(1);
        found.push((
            line,
            name,
            function[open + 1..].chars().take(parameters_length(&function[open..])).collect(),
        ));
    }
    found
}

/// The length of what stands between the parenthesis at the start and its partner.
fn parameters_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (count, c) in text.chars().enumerate() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return count.saturating_sub(1),
            ')' => depth -= 1,
            _ => {}
        }
    }
    0
}

#[test]
fn a_truth_value_among_parameters_is_seen() {
    let code = "pub fn a(x: u8, y: bool) {}\npub const fn b<T>(f: fn(u8) -> u8, t: T) -> bool {}";
    let functions = public_functions(code);
    assert_eq!(functions[0].1, "a");
    assert_eq!(functions[0].2, "x: u8, y: bool");
    assert_eq!(functions[1].2, "f: fn(u8) -> u8, t: T");
}
