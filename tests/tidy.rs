//! Style is a test: the rules that a reader relies on without checking them.
//!
//! Relies on the sources, manifests and documents as they lie in the repository, and on nothing that runs. What
//! must stay true: every rule names the file and line that breaks it and says why the rule is there, and every
//! exception is written down here with its reason; one that is no longer needed is a failure as well.

#[path = "tidy/banned_calls.rs"]
mod banned_calls;
#[path = "tidy/catalogues.rs"]
mod catalogues;
#[path = "tidy/dependency_rule.rs"]
mod dependency_rule;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/manners.rs"]
mod manners;
#[path = "tidy/rust_text.rs"]
mod rust_text;
#[path = "tidy/targets.rs"]
mod targets;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;
