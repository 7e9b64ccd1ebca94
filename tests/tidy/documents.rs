//! Documents agree with the tree: links lead somewhere, the code map is complete, decisions are whole.
//!
//! Relies on Markdown as this repository writes it: `[text](target)` links, `#` headings, and in
//! docs/ARCHITECTURE.md a section "Code map" with one line `- \`path\` …` per Rust file. What must stay true: a
//! document that lies is a failing test.

use std::collections::BTreeSet;

use crate::tree::{self, SourceFile};

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let documents = documents();
    let mut breaches = Vec::new();
    for document in &documents {
        for target in links(&document.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let full = resolve(&document.path, path);
            if !tree::root().join(&full).exists() {
                breaches.push(format!("{}: {target}: there is no {full}", document.path));
                continue;
            }
            let known = documents.iter().find(|other| other.path == full).map(|other| anchors(&other.text));
            if !anchor.is_empty() && !known.is_some_and(|known| known.contains(anchor)) {
                breaches.push(format!("{}: {target}: {full} has no such heading", document.path));
            }
        }
    }
    tree::assert_none("links lead somewhere", &breaches);
}

#[test]
fn the_code_map_has_one_line_for_every_file() {
    let text = std::fs::read_to_string(tree::root().join("docs/ARCHITECTURE.md"))
        .expect("docs/ARCHITECTURE.md is the newcomer's map");
    let mapped = code_map(&text);
    let files = tree::rust_files();
    let mut breaches = Vec::new();
    for path in &mapped {
        if !tree::root().join(path).exists() {
            breaches.push(format!("{path} is on the map and not in the tree"));
        }
    }
    for (index, path) in mapped.iter().enumerate() {
        if mapped[..index].contains(path) {
            breaches.push(format!("{path} is on the map twice"));
        }
    }
    for file in &files {
        if !mapped.contains(&file.path) {
            breaches.push(format!("add: - `{}`: {}", file.path, first_sentence(file)));
        }
    }
    tree::assert_none("docs/ARCHITECTURE.md, section \"Code map\"", &breaches);
}

#[test]
fn every_decision_record_is_whole_and_numbered_in_order() {
    let mut breaches = Vec::new();
    let records: Vec<SourceFile> =
        documents().into_iter().filter(|document| document.path.starts_with("docs/adr/")).collect();
    for (index, record) in records.iter().enumerate() {
        let number = format!("docs/adr/{:04}-", index + 1);
        if !record.path.starts_with(&number) {
            breaches.push(format!("{}: expected {number}…", record.path));
        }
        let headings = headings(&record.text);
        for part in ["Context", "Decision", "Risks accepted", "Signals that reopen it"] {
            if !headings.contains(&part) {
                breaches.push(format!("{}: no section \"{part}\"", record.path));
            }
        }
    }
    tree::assert_none("a decision has its context, its risks and what would reopen it", &breaches);
}

fn documents() -> Vec<SourceFile> {
    tree::files().into_iter().filter(|file| file.path.ends_with(".md")).collect()
}

/// The targets of a document's links, those in code left out.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in outside_code_blocks(text) {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let mut rest = line_without_code(line, &prose);
        while let Some(at) = rest.find("](") {
            let tail = &rest[at + 2..];
            let Some(end) = tail.find(')') else { break };
            found.push(tail[..end].trim().to_owned());
            rest = &tail[end..];
        }
    }
    found
}

/// A link's text may itself be code, which would split the line at the wrong place: then the whole line counts.
fn line_without_code<'a>(line: &'a str, prose: &'a str) -> &'a str {
    if line.contains("`](") { line } else { prose }
}

fn outside_code_blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        if fence {
            inside = !inside;
        }
        !inside && !fence
    })
}

fn headings(text: &str) -> Vec<&str> {
    outside_code_blocks(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect()
}

/// Headings as they appear in links: lower case, blanks as hyphens, no punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    headings(text)
        .iter()
        .map(|heading| {
            heading
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// A link's target from the repository's root.
fn resolve(document: &str, target: &str) -> String {
    if target.is_empty() {
        return document.to_owned();
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The paths of the lines of the section "Code map", down to the next section of its rank.
fn code_map(text: &str) -> Vec<String> {
    text.lines()
        .skip_while(|line| line.trim_start_matches('#').trim() != "Code map" || !line.starts_with('#'))
        .skip(1)
        .take_while(|line| !line.starts_with("## ") && !line.starts_with("# "))
        .filter_map(|line| line.trim_start().strip_prefix("- `")?.split('`').next())
        .filter(|path| path.ends_with(".rs"))
        .map(str::to_owned)
        .collect()
}

/// What a file says of itself, to be pasted into the map.
fn first_sentence(file: &SourceFile) -> String {
    let header = file
        .text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    header.split_inclusive(". ").next().unwrap_or_default().trim().to_owned()
}

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text = "See [a](b.md#c) and [`d`](e.rs).\nNot `[x](y)`.\n```\n[no](no)\n```\n";
    assert_eq!(links(text), ["b.md#c", "e.rs"]);
    assert_eq!(resolve("docs/adr/0001-x.md", "../guarantees.md"), "docs/guarantees.md");
}
