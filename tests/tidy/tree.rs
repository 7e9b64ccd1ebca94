//! The repository as the rules see it: every file that belongs to it, with its text.
//!
//! Relies on the folder layout alone, not on git, so that it holds in an unpacked archive too. What must stay
//! true: nothing that a build leaves behind is read.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that builds and tools leave behind.
const NOT_OURS: &[&str] = &[".git", "target", "artifacts", "coverage", "node_modules"];

/// One file of the repository.
pub(crate) struct SourceFile {
    /// From the repository's root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is the named file, or lies in the named folder: one whose name ends with a slash.
    pub(crate) fn lies_in(&self, place: &str) -> bool {
        self.path == place || (place.ends_with('/') && self.path.starts_with(place))
    }

    /// The file's name without folder and ending.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.').next().unwrap_or(name)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests lie one folder below the root")
        .to_owned()
}

/// Every text file, sorted by path.
pub(crate) fn files() -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Every Rust file, sorted by path.
pub(crate) fn rust_files() -> Vec<SourceFile> {
    files().into_iter().filter(SourceFile::is_rust).collect()
}

/// Fails with all breaches at once, so that one run shows what there is to do.
pub(crate) fn assert_none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n  {}\n", breaches.join("\n  "));
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<SourceFile>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository can be read");
    for entry in entries {
        let path = entry.expect("a folder of the repository can be read").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            // Cargo marks its target folders, wherever they were asked for.
            if !NOT_OURS.contains(&name.as_str()) && !path.join("CACHEDIR.TAG").exists() {
                walk(root, &path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("the walk began at the root");
            found.push(SourceFile { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
