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
        &["run", "--threads", "0"],
        &["run", "--profile", "no-such-profile"],
        &["run", "--mutant", "no-such-mutant"],
        &["run", "--start", "18446744073709551615", "--seeds", "2"],
        &["replay"],
        &["replay", "no-such-file.json"],
        &["replay", "99999999999999999999"],
        &[],
    ] {
        let output = fencepost_sim(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
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
