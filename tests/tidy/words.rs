//! Words that do not belong here: the places and habits of whoever wrote it, and hosts that only they reach.
//!
//! What is in the tree must mean something to somebody who has only the tree. The patterns are put together from
//! pieces, so that this file does not contain them.

use crate::tree;

#[test]
fn nothing_names_the_place_where_it_was_written() {
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("../sha", "red"),
        concat!("/tm", "p/target-"),
        concat!("static.cra", "tes.io"),
        concat!("index.cra", "tes.io"),
        concat!("registry.np", "mjs"),
        concat!("pypi", ".org"),
        concat!("deb.deb", "ian.org"),
        concat!("work", "place"),
        concat!("clau", "de"),
        concat!("anth", "ropic"),
        concat!("sub", "agent"),
        concat!("ai ag", "ent"),
        concat!("coding ag", "ent"),
        concat!("language mo", "del"),
        concat!("closing no", "te"),
        concat!("issues sh", "ow"),
        concat!("this iss", "ue asks"),
    ];
    let mut breaches = Vec::new();
    for file in tree::files() {
        for (index, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in forbidden.iter().filter(|word| lower.contains(**word)) {
                breaches.push(format!("{}:{}: {word}", file.path, index + 1));
            }
        }
    }
    tree::assert_none("the tree speaks for itself", &breaches);
}

#[test]
fn nothing_refers_to_a_numbered_issue() {
    let mut breaches = Vec::new();
    for file in tree::files() {
        for (index, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            let numbered = [concat!("iss", "ue #"), concat!("iss", "ue ")].iter().any(|word| {
                lower
                    .match_indices(word)
                    .any(|(at, _)| lower[at + word.len()..].starts_with(|next: char| next.is_ascii_digit()))
            });
            if numbered {
                breaches.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    tree::assert_none("say why, not which number it had", &breaches);
}
