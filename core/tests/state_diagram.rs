//! The diagram in the documentation is the transition table, drawn. This test draws it and compares.

use fencepost_core::execution::{ExecutionState, TRANSITIONS};

fn drawn() -> String {
    let mut diagram = String::from("```mermaid\nstateDiagram-v2\n");
    for (from, cause, to) in TRANSITIONS {
        let from = from.map_or("[*]", ExecutionState::name);
        diagram.push_str(&format!("    {from} --> {to}: {}\n", cause_in_words(&format!("{cause:?}"))));
    }
    for state in ExecutionState::ALL.into_iter().filter(|state| state.is_terminal()) {
        diagram.push_str(&format!("    {state} --> [*]\n"));
    }
    diagram.push_str("```\n");
    diagram
}

/// `FailForGood` as `fail for good`.
fn cause_in_words(name: &str) -> String {
    let mut words = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

#[test]
fn the_documented_diagram_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/state-machine.md");
    let document = std::fs::read_to_string(path).expect("docs/state-machine.md is there");
    let drawn = drawn();
    assert!(document.contains(&drawn), "docs/state-machine.md must hold this diagram:\n\n{drawn}");
}
