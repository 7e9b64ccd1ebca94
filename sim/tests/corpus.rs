//! Plans that once broke something, in `sim/tests/corpus/`: each must hold for ever.
//!
//! A seed expands to another plan whenever the generator changes; a plan in a file stays the plan that it was.
//! Each is named for what it showed. Relies on the plan format: a plan that can no longer be read fails here.

use std::fs;
use std::path::Path;

use fencepost_core::bug::Bugs;
use fencepost_sim::plan::Plan;
use fencepost_sim::run::run;
use fencepost_sim::world::Keep;

#[test]
fn what_was_once_broken_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("the corpus can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let text = fs::read_to_string(&file).expect("the corpus can be read");
        let plan = Plan::from_json(&text).expect("a plan of the corpus can be read");
        let violation = run(&plan, Bugs::NONE, Keep::Hash).ended.violation;
        assert!(violation.is_none(), "{}: {violation:?}", file.display());
    }
}
