//! Rows in the words of a violation: their beginning alone, since a whole row is longer than a screen.
//!
//! What differs is said first, by the oracle that compares; the row is there to be recognised. The trace
//! has all of it.

use core::fmt::{self, Debug, Display, Write};

/// How many characters of a row are shown.
const SHOWN: usize = 300;

/// Shows the beginning of a value's `Debug`.
pub(super) struct Brief<'a, T: ?Sized>(pub(super) &'a T);

impl<T: Debug + ?Sized> Display for Brief<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut beginning = Beginning { out: f, left: SHOWN, cut: false };
        // An error that is the cut's own is none; one of the formatter comes again with the next write.
        let written = write!(beginning, "{:?}", self.0);
        if beginning.cut { f.write_str("…") } else { written }
    }
}

/// Lets so many characters through and then stops the writer.
struct Beginning<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
    cut: bool,
}

impl Write for Beginning<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match text.char_indices().nth(self.left) {
            Some((end, _)) => {
                self.out.write_str(&text[..end])?;
                self.cut = true;
                Err(fmt::Error)
            }
            None => {
                self.left -= text.chars().count();
                self.out.write_str(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_is_whole_and_a_long_one_ends_in_an_ellipsis() {
        assert_eq!(Brief(&[1, 2]).to_string(), "[1, 2]");
        let exact = "ü".repeat(SHOWN - 2);
        assert_eq!(Brief(&exact).to_string(), format!("\"{exact}\""));
        let long = Brief(&vec!["ü"; 200]).to_string();
        assert_eq!(long.chars().count(), SHOWN + 1);
        assert!(long.starts_with("[\"ü\", ") && long.ends_with('…'), "{long}");
    }
}
