//! What core and sim must not say: clocks, randomness, hash order, floats, threads, waiting.
//!
//! A run is a function of its seed only as long as nothing in it looks at the machine. The lints in `clippy.toml`
//! see calls; this sees words, also where a lint was switched off. Exceptions are by file and word, each with its
//! reason: the command line around the runs may look at a clock, the runs may not.

use crate::rust_text::{code, whole_word};
use crate::tree::{self, SourceFile};

/// Words that stand for the machine, in both crates.
const MACHINE: &[(&str, &str)] = &[
    ("Instant::now", "time is an argument: use Monotonic"),
    ("time::Instant", "time is an argument: use Monotonic"),
    ("SystemTime", "time is an argument: use Timestamp"),
    ("Utc::now", "time is an argument"),
    ("Local::now", "time is an argument"),
    ("HashMap", "iteration order must be defined: BTreeMap"),
    ("HashSet", "iteration order must be defined: BTreeSet"),
    ("RandomState", "iteration order must be defined"),
    ("DefaultHasher", "its result may change with the compiler"),
    ("thread_rng", "randomness comes from the plan"),
    ("rand::rng", "randomness comes from the plan"),
    ("from_entropy", "randomness comes from the plan"),
    ("from_os_rng", "randomness comes from the plan"),
    ("getrandom", "randomness comes from the plan"),
    ("new_v4", "ids are derived or drawn from the plan"),
    ("now_v7", "ids are derived or drawn from the plan"),
    ("thread", "nothing runs beside the run"),
    ("async", "nothing waits"),
    ("await", "nothing waits"),
    ("std::env", "settings are arguments"),
    ("std::fs", "files are the command line's"),
    ("std::net", "the outside is the interpreter's"),
    ("std::process", "the outside is the interpreter's"),
    ("f32", "decisions are made in integers"),
    ("f64", "decisions are made in integers"),
];

/// Who may say one of them all the same: (file, or folder with a slash at its end, word, why).
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("sim/src/main.rs", "std::env", "the command line's arguments"),
    ("sim/src/main.rs", "std::process", "the command's exit code"),
    ("sim/src/cli.rs", "std::fs", "plans and reports are files"),
    ("sim/src/cli/", "std::fs", "plans and reports are files"),
    ("sim/src/cli/", "thread", "how many cores there are"),
    ("sim/src/campaign.rs", "thread", "seeds run beside each other; nothing inside a seed does"),
    ("sim/src/stopwatch.rs", "time::Instant", "how long the runs took, for the summary alone"),
    ("sim/src/stopwatch.rs", "Instant::now", "how long the runs took, for the summary alone"),
    ("sim/src/report.rs", "f64", "rates and seconds, for people"),
    ("sim/src/report/", "f64", "rates and seconds, for people"),
];

#[test]
fn core_and_sim_do_not_look_at_the_machine() {
    let mut breaches = Vec::new();
    let mut needed = vec![false; EXCEPTIONS.len()];
    for file in tree::rust_files().iter().filter(|file| is_bound(file)) {
        let code = code(&file.text);
        for (word, why) in MACHINE {
            for (line, _) in whole_word(&code, word) {
                match exception(file, word) {
                    Some(index) => needed[index] = true,
                    None => breaches.push(format!("{}:{line}: {word}: {why}", file.path)),
                }
            }
        }
    }
    for (index, (path, word, _)) in EXCEPTIONS.iter().enumerate() {
        if !needed[index] {
            breaches.push(format!("{path} may say {word} and does not: take the exception out"));
        }
    }
    tree::assert_none("core and sim are functions of their inputs", &breaches);
}

#[test]
fn core_and_sim_have_no_float_literals() {
    let mut breaches = Vec::new();
    for file in tree::rust_files().iter().filter(|file| is_bound(file)) {
        if exception(file, "f64").is_some() {
            continue;
        }
        for (index, line) in code(&file.text).lines().enumerate() {
            if has_float_literal(line) {
                breaches.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    tree::assert_none("decisions are made in integers", &breaches);
}

#[test]
fn a_float_literal_is_told_from_a_tuple_index_and_a_range() {
    assert!(has_float_literal("let a = 0.5;"));
    assert!(has_float_literal("f(1e-3, 2.0)"));
    assert!(!has_float_literal("pair.0.1 + list[0].1"));
    assert!(!has_float_literal("for i in 0..10 {}"));
}

fn is_bound(file: &SourceFile) -> bool {
    file.path.starts_with("core/src/") || file.path.starts_with("sim/src/")
}

/// The exception that allows `word` in the file.
fn exception(file: &SourceFile, word: &str) -> Option<usize> {
    EXCEPTIONS.iter().position(|(place, allowed, _)| *allowed == word && file.lies_in(place))
}

/// Digits, a point and digits, unless the digits before the point belong to something longer.
fn has_float_literal(line: &str) -> bool {
    let bytes = line.as_bytes();
    (1..bytes.len().saturating_sub(1)).any(|at| {
        if bytes[at] != b'.' || !bytes[at - 1].is_ascii_digit() || !bytes[at + 1].is_ascii_digit() {
            return false;
        }
        let digits = bytes[..at].iter().rev().take_while(|b| b.is_ascii_digit() || **b == b'_').count();
        let before = (at - digits).checked_sub(1).map(|index| bytes[index]);
        !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
    })
}
