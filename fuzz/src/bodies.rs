//! What must hold for every input, however strange: plain functions that panic where it does not.
//!
//! libFuzzer calls them through `fuzz_targets/`, the tests call them over `fuzz/corpus/` with a stable compiler.
//! Relies on the core alone. What must stay true: a body says nothing about which inputs are accepted, only what
//! follows from either answer, so that no corpus ever goes stale.
#![allow(unreachable_pub, reason = "a library for the fuzzer, a module for the tests")]

use std::sync::Arc;

use fencepost_core::job::{JobDefinition, StoredDefinition};
use fencepost_core::limits::{EXCERPT_BYTES_MAX, MESSAGE_BYTES_MAX};
use fencepost_core::message::{ExecutionMessage, MessageError};
use fencepost_core::schedule::{Schedule, ScheduleError};
use fencepost_core::time::Timestamp;

/// 2026-01-01T00:00:00Z: walks begin here.
const NEW_YEAR: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// How many fires to look at.
const FIRES: usize = 8;

/// What a body made of an input. A corpus in which one of the two is missing tests half of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It was read.
    Accepted,
    /// It was refused, with a reason.
    Refused,
}

/// The input's first line is an expression, its second a zone; UTC where there is none.
pub fn cron_expr(input: &[u8]) -> Answer {
    let Ok(text) = std::str::from_utf8(input) else { return Answer::Refused };
    let (expr, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    match Schedule::cron(expr, zone) {
        Ok(schedule) => {
            fires_rise_and_walk_back(&schedule);
            let json = serde_json::to_string(&schedule).expect("a schedule is text and numbers");
            let read: Schedule = serde_json::from_str(&json).expect("what was written can be read");
            assert_eq!(read, schedule, "{json}");
            Answer::Accepted
        }
        Err(ScheduleError::Expr(error)) => refused_because(&error.to_string()),
        Err(ScheduleError::Zone(error)) => refused_because(&error.to_string()),
        Err(error) => panic!("a cron schedule is refused for its expression or its zone, not: {error}"),
    }
}

/// The input is the body of a message.
pub fn message_decode(input: &[u8]) -> Answer {
    match ExecutionMessage::decode(input) {
        Ok(message) => {
            assert!(input.len() <= MESSAGE_BYTES_MAX);
            let again = ExecutionMessage::decode(&message.encode()).expect("what was written can be read");
            assert_eq!(again, message);
            Answer::Accepted
        }
        Err(malformed) => {
            assert!(malformed.excerpt.len() <= EXCERPT_BYTES_MAX && input.starts_with(&malformed.excerpt));
            if let MessageError::TooLarge { bytes } = malformed.error {
                assert_eq!(bytes, input.len());
            }
            let same = ExecutionMessage::decode(input).expect_err("it was malformed a moment ago");
            assert_eq!(same.digest, malformed.digest, "repeats of one message are counted in one row");
            refused_because(&malformed.error.to_string())
        }
    }
}

/// The input is the JSON of a job as the API takes it.
pub fn job_definition(input: &[u8]) -> Answer {
    let Ok(json) = std::str::from_utf8(input) else { return Answer::Refused };
    match JobDefinition::parse(json) {
        Ok(definition) => {
            fires_rise_and_walk_back(&definition.schedule);
            let stored = StoredDefinition::of(definition.clone());
            let read = StoredDefinition::from_text(Arc::clone(stored.text()));
            assert_eq!(read.read().map(|read| &**read), Ok(&definition), "{}", stored.text());
            Answer::Accepted
        }
        Err(error) => {
            assert!(error.pointer.is_empty() || error.pointer.starts_with('/'), "{}", error.pointer);
            refused_because(&error.detail)
        }
    }
}

fn fires_rise_and_walk_back(schedule: &Schedule) {
    let mut fires: Vec<Timestamp> = Vec::new();
    let mut after = NEW_YEAR;
    while fires.len() < FIRES {
        let Some(fire) = schedule.next_fire_after(after) else { break };
        assert!(fire > after, "fires rise strictly: {fire:?} came after {after:?}");
        fires.push(fire);
        after = fire;
    }
    for pair in fires.windows(2) {
        assert_eq!(schedule.last_fire_before(pair[1]), Some(pair[0]), "backwards is forwards reversed");
    }
    if let Some(last) = fires.last() {
        assert_eq!(schedule.fires_between(NEW_YEAR, *last, FIRES), fires, "a list is the same walk");
        assert_eq!(schedule.latest_fires(NEW_YEAR, *last, FIRES), fires, "so is a list from its end");
    }
}

fn refused_because(error: &str) -> Answer {
    assert!(!error.trim().is_empty(), "a refusal says why");
    assert!(error.len() < 4_096, "a refusal does not repeat the whole input: {} bytes", error.len());
    Answer::Refused
}
