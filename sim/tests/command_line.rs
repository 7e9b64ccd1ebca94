//! The command line as users and checks rely on it: exit codes, JSON, and what it says about wrong usage.

use std::process::{Command, Output};

fn fencepost_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fencepost-sim")).args(arguments).output().expect("the binary runs")
}

fn json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let last = text.lines().last().expect("something was printed");
    serde_json::from_str(last).expect("JSON")
}

#[test]
fn wrong_usage_exits_with_64() {
    for arguments in [
        &["no-such-command"][..],
        &["run", "--seeds", "many"],
        &["run", "--seeds", "-1"],
        &["run", "--seeds", "0"],
        &["mutants", "--seeds", "0"],
        &["run", "--threads", "0"],
        &["run", "--profile", "no-such-profile"],
        &["run", "--mutant", "no-such-mutant"],
        &["run", "--start", "18446744073709551615", "--seeds", "2"],
        &["replay"],
        &["replay", "no-such-file.json"],
        &["replay", "99999999999999999999"],
        // Without an end.
        &["replay", "/dev/zero"],
        &[],
    ] {
        let output = fencepost_sim(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_told_and_exits_with_70() {
    for arguments in [&["faults"][..], &["run", "--seeds", "1", "--profile", "small"], &["plan", "1"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = Command::new(env!("CARGO_BIN_EXE_fencepost-sim"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(70), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("stdout"), "{arguments:?}");
    }
}

#[test]
fn help_is_no_mistake() {
    assert_eq!(fencepost_sim(&["--help"]).status.code(), Some(0));
    assert_eq!(fencepost_sim(&["run", "--help"]).status.code(), Some(0));
}

#[test]
fn a_run_ends_with_one_line_of_json() {
    let output = fencepost_sim(&["run", "--seeds", "3", "--start", "7", "--profile", "small", "--json"]);
    let report = json(&output);
    assert_eq!(report["seeds"], 3);
    assert_eq!(report["hash"].as_str().map(str::len), Some(16));
    let threads = fencepost_sim(&[
        "run",
        "--seeds",
        "3",
        "--start",
        "7",
        "--profile",
        "small",
        "--json",
        "--threads",
        "3",
    ]);
    assert_eq!(json(&threads)["hash"], report["hash"]);
}

#[test]
fn a_plan_and_its_seed_replay_to_the_same_hash() {
    let plan = fencepost_sim(&["plan", "11", "--profile", "small"]);
    assert_eq!(plan.status.code(), Some(0));
    let file = std::env::temp_dir().join(format!("fencepost-plan-{}.json", std::process::id()));
    std::fs::write(&file, &plan.stdout).expect("the directory for temporary files can be written to");
    let path = file.to_str().expect("UTF-8");
    let from_seed = json(&fencepost_sim(&["replay", "11", "--profile", "small", "--json"]));
    let from_file = json(&fencepost_sim(&["replay", path, "--json"]));
    std::fs::remove_file(&file).expect("it was just written");
    assert_eq!(from_seed, from_file);
    assert_eq!(from_seed["seed"], 11);
    assert_eq!(from_seed["profile"], "small");
}

#[test]
fn the_catalogues_are_lists_of_names() {
    for catalogue in ["faults", "marks", "profiles"] {
        let output = fencepost_sim(&[catalogue, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{catalogue}");
        let list = json(&output);
        let list = list[catalogue].as_array().cloned().unwrap_or_default();
        assert!(!list.is_empty() && list.iter().all(|item| item["name"].is_string()), "{catalogue}");
        let text = fencepost_sim(&[catalogue]);
        assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), list.len(), "{catalogue}");
    }
}

#[test]
fn a_plan_that_cannot_be_run_is_refused_with_the_place() {
    let plan = fencepost_sim(&["plan", "1", "--profile", "small"]);
    let text = String::from_utf8(plan.stdout).expect("UTF-8");
    let file = std::env::temp_dir().join(format!("fencepost-bad-plan-{}.json", std::process::id()));
    for (from, to, says) in [
        ("\"format\": 1", "\"format\": 2", "format 2"),
        ("\"tenant\": 0", "\"tenant\": 77", "no such tenant"),
        ("\"profile\"", "\"profil\"", "profil"),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).expect("temporary files can be written");
        let output = fencepost_sim(&["replay", file.to_str().expect("UTF-8")]);
        assert_eq!(output.status.code(), Some(64), "{to}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{to}: {said}");
    }
    std::fs::remove_file(&file).expect("it was just written");
}

/// A mutant that the first seeds kill, so that these tests stay short.
const MUTANT: &str = "finish-ignores-token";

fn said(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn a_mutants_report_names_the_seed_that_fails_with_it() {
    let output = fencepost_sim(&["mutants", "--only", MUTANT, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let fate = json(&output)["mutants"][0].clone();
    let seed = fate["seed"].as_u64().expect("it was killed");
    assert_eq!(fate["seeds_to_kill"].as_u64(), Some(seed + 1), "the seeds begin with 0");
    let command = format!("fencepost-sim replay {seed} --mutant {MUTANT}");
    assert!(said(&output).contains(&command), "{}", said(&output));
    let replayed = json(&fencepost_sim(&["replay", &seed.to_string(), "--mutant", MUTANT, "--json"]));
    assert_eq!(replayed["violation"]["invariant"], fate["killed_by"]);
}

#[test]
fn the_help_of_mutants_says_how_many_seeds_each_may_live_through() {
    let help = said(&fencepost_sim(&["mutants", "--help"]));
    assert!(help.contains("[default: 2000]"), "{help}");
}

#[test]
fn the_mutants_are_listed_without_being_run() {
    let listed = json(&fencepost_sim(&["mutants", "--list", "--json"]));
    let listed = listed["mutants"].as_array().expect("a list").clone();
    assert!(listed.iter().all(|mutant| mutant["name"].is_string() && mutant["predicted"].is_string()));
    let text = said(&fencepost_sim(&["mutants", "--list"]));
    assert_eq!(text.lines().count(), listed.len());
}

#[test]
fn a_wrong_mutant_is_answered_with_the_nearest_names_alone() {
    let text = said(&fencepost_sim(&["run", "--mutant", "finish-ignore-token"]));
    assert!(text.contains(MUTANT) && text.contains("mutants --list"), "{text}");
    assert!(text.len() < 500, "{text}");
}

#[test]
fn what_is_neither_a_seed_nor_a_file_is_called_that() {
    let text = said(&fencepost_sim(&["replay", "abc"]));
    assert!(text.contains("abc is neither a seed nor a file that can be read"), "{text}");
    let text = said(&fencepost_sim(&["run", "--seeds", "0"]));
    assert!(text.contains("give at least 1"), "{text}");
}

#[test]
fn a_failed_plans_file_replays_to_the_same_violation_by_the_printed_line() {
    let dir = std::env::temp_dir().join(format!("fencepost-failed-{}", std::process::id()));
    let path = dir.to_str().expect("UTF-8");
    let found = json(&fencepost_sim(&["mutants", "--only", MUTANT, "--json"]));
    let seed = found["mutants"][0]["seed"].as_u64().expect("it was killed").to_string();
    let run =
        fencepost_sim(&["run", "--seeds", "1", "--start", &seed, "--mutant", MUTANT, "--fail-dir", path]);
    assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    let text = said(&run);
    let line = text.lines().find_map(|line| line.trim().strip_prefix("replay: fencepost-sim "));
    let arguments: Vec<&str> = line.expect("a line to replay it by").split(' ').collect();
    assert!(arguments[1].starts_with(path) && arguments[1].contains(MUTANT), "{arguments:?}");
    let replayed = fencepost_sim(&[&arguments[..], &["--json"]].concat());
    std::fs::remove_dir_all(&dir).expect("it was just made");
    assert_eq!(json(&replayed)["violation"]["invariant"], found["mutants"][0]["killed_by"]);
}

#[test]
fn a_replay_that_holds_tells_what_happened_all_the_same() {
    let output = fencepost_sim(&["replay", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = said(&output);
    for part in ["faults", "leaders", "drains", "every invariant held", "hash"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 36, "{text}");
}
