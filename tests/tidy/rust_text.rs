//! A Rust file with its comments and the insides of its literals blanked out.
//!
//! Rules about code must not trip over prose, and the other way round. What must stay true: lines keep their
//! numbers, and nothing that is code is lost.

/// The code of a source, line for line, with comments, strings and characters replaced by blanks.
pub(crate) fn code(source: &str) -> String {
    let mut scanner = Scanner { rest: source, code: String::with_capacity(source.len()) };
    while scanner.step() {}
    scanner.code
}

/// From where on a file is test code: the line of its first test module, or past the end.
pub(crate) fn first_test_line(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    lines
        .windows(2)
        .position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod "))
        .unwrap_or(lines.len())
}

/// The places where `word` stands as a whole word: (line number from 1, the line).
pub(crate) fn whole_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.lines()
        .enumerate()
        .filter_map(move |(index, line)| has_whole_word(line, word).then_some((index + 1, line)))
}

fn has_whole_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let joins = |neighbour: Option<char>, edge: Option<char>| {
            neighbour.is_some_and(is_name) && edge.is_some_and(is_name)
        };
        !joins(before, word.chars().next()) && !joins(after, word.chars().next_back())
    })
}

struct Scanner<'a> {
    rest: &'a str,
    code: String,
}

impl Scanner<'_> {
    /// Takes one piece: a comment, a literal or a character of code. False at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment_length(self.rest));
        } else if let Some(hashes) = self.raw_string_hashes() {
            self.blank(raw_string_length(self.rest, hashes));
        } else if first == '"' {
            self.blank(string_length(self.rest));
        } else if first == '\'' && is_character_literal(self.rest) {
            self.blank(character_length(self.rest));
        } else {
            self.code.push(first);
            self.rest = &self.rest[first.len_utf8()..];
        }
        true
    }

    fn blank(&mut self, length: usize) {
        let (gone, rest) = self.rest.split_at(length);
        self.code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    /// How many hashes the raw string that begins here has; none where no raw string begins.
    fn raw_string_hashes(&self) -> Option<usize> {
        let inside_a_name = self.code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let body = self.rest.strip_prefix("br").or_else(|| self.rest.strip_prefix('r'))?;
        let hashes = body.chars().take_while(|c| *c == '#').count();
        (!inside_a_name && body[hashes..].starts_with('"')).then_some(hashes)
    }
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn raw_string_length(text: &str, hashes: usize) -> usize {
    let start = text.find('"').map_or(text.len(), |at| at + 1);
    let end = format!("\"{}", "#".repeat(hashes));
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `'a'` and `'\n'` are characters; `'a` alone is a lifetime.
fn is_character_literal(text: &str) -> bool {
    let mut inside = text.chars().skip(1);
    match inside.next() {
        Some('\\') => true,
        Some(_) => inside.next() == Some('\''),
        None => false,
    }
}

fn character_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn comments_and_literals_are_blanked_and_code_stays() {
    let source = "let a = \"x // y\"; // gone\nlet b: &'static str = r#\"\"#; /* a /* b */ c */ let c = '\\'';\nf(b'x');";
    let code = code(source);
    assert_eq!(code.lines().count(), 3);
    assert!(!code.contains("gone") && !code.contains('x') && !code.contains('"'));
    assert!(code.contains("let b: &'static str =") && code.contains("let c =") && code.contains("f(b"));
}

#[test]
fn a_word_is_found_only_where_it_stands_alone() {
    assert!(has_whole_word("use std::collections::HashMap;", "HashMap"));
    assert!(!has_whole_word("struct MyHashMapLike;", "HashMap"));
    assert!(has_whole_word("x.unwrap()", ".unwrap()"));
    assert!(!has_whole_word("x.unwrap_or(1)", ".unwrap()"));
}
