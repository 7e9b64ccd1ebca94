//! Files: one idea each, named for it, headed by a short essay, small enough for a room.
//!
//! Relies on the folder layout. What must stay true: the limits only ever get tighter.

use crate::tree;

/// About 400 lines is a room; past this a file has more than one idea.
const MOST_LINES: usize = 800;

/// Names that say nothing about what is in the file.
const EMPTY_NAMES: &[&str] = &[
    "common",
    "commons",
    "helper",
    "helpers",
    "misc",
    "miscellaneous",
    "shared",
    "stuff",
    "type",
    "types",
    "util",
    "utilities",
    "utils",
];

#[test]
fn every_rust_file_begins_with_its_essay() {
    let breaches: Vec<String> = tree::rust_files()
        .iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path.clone())
        .collect();
    tree::assert_none(
        "a file's `//!` header says what it is for, what it relies on and what must stay true",
        &breaches,
    );
}

#[test]
fn no_rust_file_is_longer_than_a_reader_can_hold() {
    let breaches: Vec<String> = tree::rust_files()
        .iter()
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(file, lines)| format!("{}: {lines} lines, at most {MOST_LINES}", file.path))
        .collect();
    tree::assert_none("a file holds one idea", &breaches);
}

#[test]
fn every_file_is_named_for_what_is_in_it() {
    let mut breaches = Vec::new();
    for file in tree::rust_files() {
        if file.stem() == "mod" {
            breaches.push(format!("{}: a module `foo` lies in foo.rs, its parts in foo/", file.path));
        }
        let folders = file.path.split('/').rev().skip(1);
        if folders.chain([file.stem()]).any(|name| EMPTY_NAMES.contains(&name)) {
            breaches.push(format!("{}: the name says nothing", file.path));
        }
    }
    tree::assert_none("one idea per file, named for it", &breaches);
}
