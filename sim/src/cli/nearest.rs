//! The names nearest to one that does not exist: a long catalogue in an error message helps nobody.
//!
//! A name that holds what was typed comes before one that merely resembles it; among equals the order is the
//! catalogue's.

/// The `most` names that are nearest to `wanted`, the nearest first.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut ranked: Vec<(bool, usize, &str)> =
        names.map(|name| (!name.contains(wanted), distance(wanted, name), name)).collect();
    ranked.sort_by_key(|&(elsewhere, far, _)| (elsewhere, far));
    ranked.into_iter().take(most).map(|(_, _, name)| name).collect()
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
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
