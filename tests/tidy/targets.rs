//! Every test target is run by `./test`, in the step where it belongs.
//!
//! Relies on the manifests and on `./test` naming targets: those that need no server in a list, the others as a step
//! each. What must stay true: a test that is added and named nowhere is a failure here, not a test that never runs.

use std::collections::BTreeSet;

use crate::tree;

/// The targets of all packages: those that need no server, and those that do.
fn targets() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut plain, mut with_servers) = (BTreeSet::new(), BTreeSet::new());
    for file in tree::rust_files() {
        // Found by Cargo itself.
        let found = ["core/tests/", "sim/tests/", "prod/tests/"]
            .iter()
            .any(|place| file.path.strip_prefix(place).is_some_and(|rest| !rest.contains('/')));
        if found {
            plain.insert(file.stem().to_owned());
        }
    }
    let manifest =
        std::fs::read_to_string(tree::root().join("tests/Cargo.toml")).expect("the manifest is there");
    let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
    let tests = manifest["test"].as_array().expect("a package without tests found by Cargo names them");
    for test in tests {
        let name = test["name"].as_str().expect("a target has a name").to_owned();
        if test.get("required-features").is_some() {
            with_servers.insert(name);
        } else {
            plain.insert(name);
        }
    }
    (plain, with_servers)
}

fn script() -> String {
    std::fs::read_to_string(tree::root().join("test")).expect("./test is there")
}

#[test]
fn what_needs_no_server_is_in_the_list_of_the_test_script() {
    let script = script();
    let (_, list) = script.split_once("plain_tests=(").expect("there is a list");
    let (list, _) = list.split_once(')').expect("it ends");
    let listed: BTreeSet<String> = list.split_whitespace().map(str::to_owned).collect();
    let (plain, _) = targets();
    let breaches: Vec<String> = plain
        .symmetric_difference(&listed)
        .map(|name| format!("{name}: a target that is not listed, or listed and no target"))
        .collect();
    tree::assert_none("./test, plain_tests", &breaches);
}

#[test]
fn what_needs_servers_has_a_step_of_its_own() {
    let steps: BTreeSet<String> = script()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("server_step '"))
        .map(|line| {
            let (name, rest) = line.split_once('\'').expect("a step's name is quoted");
            let target = if rest.trim().is_empty() { name } else { rest.trim() };
            target.to_lowercase().replace([' ', '-'], "_")
        })
        .collect();
    let (_, with_servers) = targets();
    let breaches: Vec<String> = with_servers
        .symmetric_difference(&steps)
        .map(|name| format!("{name}: a target without a step, or a step without a target"))
        .collect();
    tree::assert_none("./test, server steps", &breaches);
}
