//! The names nearest to one that does not exist: a long catalogue in an error message helps nobody.
//!
//! A name that holds what was typed comes first, then those that share most words with it, then those that
//! merely resemble it; among equals the order is the catalogue's.

use core::cmp::Reverse;

/// The `most` names that are nearest to `wanted`, the nearest first.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let rank = |name: &str| {
        (Reverse(name.contains(wanted)), Reverse(shared_words(wanted, name)), distance(wanted, name))
    };
    let mut ranked: Vec<&str> = names.collect();
    ranked.sort_by_cached_key(|name| rank(name));
    ranked.truncate(most);
    ranked
}

/// How many words of one name are in the other, in whatever form: `token` is `tokens`.
fn shared_words(one: &str, other: &str) -> usize {
    let alike =
        |a: &str, b: &str| a == b || (a.len().min(b.len()) > 3 && (a.starts_with(b) || b.starts_with(a)));
    one.split('-').filter(|word| other.split('-').any(|theirs| alike(word, theirs))).count()
}

/// How many letters must be put in, left out or exchanged to make one text the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (index, theirs) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(letter != *theirs);
            diagonal = row[index + 1];
            row[index + 1] = exchanged.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_name_and_a_part_finds_the_names_that_hold_it() {
        let names = ["finish-ignores-token", "retries-for-ever", "drain-never-ends", "retries-too-soon"];
        let find = |wanted| nearest(wanted, names.into_iter(), 2);
        assert_eq!(find("finish-ignore-tokens")[0], "finish-ignores-token");
        assert_eq!(find("retries"), ["retries-for-ever", "retries-too-soon"]);
        assert_eq!(find("lease-token")[0], "finish-ignores-token");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
