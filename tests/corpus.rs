//! The fuzz bodies over their corpus, on a stable compiler.
//!
//! Relies on `fuzz/corpus/NAME/`, one file per input. Each input is run as it is, cut off at every byte and with
//! every byte left out, so that what the fuzzer once found stays found in the neighbourhood too.

#[path = "../fuzz/src/bodies.rs"]
mod bodies;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bodies::Answer;

/// Past this many bytes an input is only run as it is.
const LONGEST_VARIED: usize = 2_048;

#[test]
fn every_cron_expression_of_the_corpus_is_read_or_refused_with_a_reason() {
    run("cron_expr", bodies::cron_expr);
}

#[test]
fn every_message_of_the_corpus_is_read_or_recorded_as_malformed() {
    run("message_decode", bodies::message_decode);
}

#[test]
fn every_job_of_the_corpus_is_read_or_refused_with_a_pointer() {
    run("job_definition", bodies::job_definition);
}

fn run(name: &str, body: fn(&[u8]) -> Answer) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .expect("every fuzz target has a corpus")
        .map(|entry| entry.expect("the corpus can be read").path())
        .collect();
    inputs.sort();
    let mut answers = BTreeSet::new();
    for path in inputs {
        let input = fs::read(&path).expect("the corpus can be read");
        answers.insert(body(&input));
        if input.len() > LONGEST_VARIED {
            continue;
        }
        for at in 0..input.len() {
            body(&input[..at]);
            body(&[&input[..at], &input[at + 1..]].concat());
        }
    }
    assert_eq!(answers.len(), 2, "{} holds inputs of one kind only: all {answers:?}", folder.display());
}
