//! A history that has no serial explanation, cut down and printed for a person.

use core::fmt::Write;

use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::tables::Contents;

use crate::atoms::{Atom, atoms_of};
use crate::history::Operation;
use crate::search::Verdict;
use crate::verdict::explain;

/// How many steps are spent on one question while a history is cut down.
const STEPS: u64 = 500;
/// How much of a command or an answer is printed on one line.
const LINE_MAX: usize = 2200;

/// A history without an explanation.
pub(crate) struct Unexplained<'a> {
    pub(crate) operations: &'a [Operation],
    pub(crate) start: &'a ReferenceStore,
    pub(crate) contents: &'a Contents,
}

impl Unexplained<'_> {
    /// What a person needs to see of it: the shortest beginning that has no explanation either, or, where the
    /// answers have one, the rows at the end that it does not lead to.
    pub(crate) fn report(&self) -> String {
        let mut report = String::new();
        let suspects = self.suspects();
        if !suspects.is_empty() {
            say(
                &mut report,
                "it has one without what was heard of any one of `!!`; with them those that they can meet:",
            );
            let near = self.operations_that_meet(&suspects);
            self.draw(&mut report, self.operations, |index| near.contains(&index), &suspects);
        }
        match self.explain(self.operations, None) {
            Verdict::Explained(store) => {
                say(
                    &mut report,
                    "every answer has a place in one order; the rows at the end are not those of",
                );
                say(&mut report, "any such order. One of them ends with other rows than were found:");
                say(&mut report, &rows_that_differ(&store.dump(), self.contents));
                let part = match self.explain(self.operations, Some(self.contents)) {
                    Verdict::Impossible { part, .. } | Verdict::Undecided { part, .. } => part,
                    Verdict::Explained(_) | Verdict::StrangeRows => Vec::new(),
                };
                let part = self.operations_of(self.operations, &part);
                self.draw(&mut report, self.operations, |index| part.contains(&index), &[]);
            }
            Verdict::Impossible { .. } | Verdict::Undecided { .. } => {
                let fewer = self.shortest_beginning();
                let (part, stuck, why) = match self.explain(&fewer, None) {
                    Verdict::Impossible { part, stuck } => {
                        (part, stuck, "the answers have no place in any order")
                    }
                    Verdict::Undecided { part, stuck } => (part, stuck, "the search was given up"),
                    Verdict::Explained(_) | Verdict::StrangeRows => unreachable!("the beginning has none"),
                };
                say(&mut report, &format!("{why}; `!!` could not follow:"));
                let (part, stuck) = (self.operations_of(&fewer, &part), self.operations_of(&fewer, &stuck));
                self.draw(&mut report, &fewer, |index| part.contains(&index), &stuck);
            }
            Verdict::StrangeRows => unreachable!("no rows were asked for"),
        }
        report
    }

    /// The operations without whose answer all the others have an explanation.
    fn suspects(&self) -> Vec<usize> {
        let is_explained_without = |index: usize| {
            let mut operations = self.operations.to_vec();
            operations[index].answered = None;
            let verdict = self.explain(&operations, Some(self.contents));
            matches!(verdict, Verdict::Explained(_))
        };
        (0..self.operations.len()).filter(|index| is_explained_without(*index)).collect()
    }

    /// These, and those that may read or write the same.
    fn operations_that_meet(&self, these: &[usize]) -> Vec<usize> {
        let atoms = self.atoms(self.operations);
        let own: Vec<&Atom> = atoms.iter().filter(|atom| these.contains(&atom.operation)).collect();
        let near = atoms.iter().filter(|atom| own.iter().any(|one| one.meets(atom)));
        near.map(|atom| atom.operation).chain(these.iter().copied()).collect()
    }

    fn operations_of(&self, operations: &[Operation], some: &[usize]) -> Vec<usize> {
        let atoms = self.atoms(operations);
        some.iter().map(|at| atoms[*at].operation).collect()
    }

    fn explain(&self, operations: &[Operation], contents: Option<&Contents>) -> Verdict {
        explain(operations, &self.atoms(operations), self.start, contents, &mut { STEPS })
    }

    fn atoms(&self, operations: &[Operation]) -> Vec<Atom> {
        atoms_of(operations, self.start)
    }

    /// The operations up to some answer; whoever was not answered by then, has no answer.
    fn beginning(&self, until: u64) -> Vec<Operation> {
        let asked = self.operations.iter().filter(|operation| operation.invoked <= until).cloned();
        asked
            .map(|mut operation| {
                operation.answered = operation.answered.filter(|(answered, _)| *answered <= until);
                operation
            })
            .collect()
    }

    /// The beginning up to the first answer with which there is no explanation any more.
    fn shortest_beginning(&self) -> Vec<Operation> {
        let mut answers: Vec<u64> =
            self.operations.iter().filter_map(|operation| Some(operation.answered.as_ref()?.0)).collect();
        answers.sort_unstable();
        let is_unexplained =
            |until: u64| !matches!(self.explain(&self.beginning(until), None), Verdict::Explained(_));
        let first = answers.partition_point(|until| !is_unexplained(*until));
        self.beginning(answers.get(first).copied().unwrap_or(u64::MAX))
    }

    /// Some of the operations as a timeline.
    fn draw(
        &self,
        report: &mut String,
        operations: &[Operation],
        is_shown: impl Fn(usize) -> bool,
        stuck: &[usize],
    ) {
        let last = operations
            .iter()
            .map(|operation| operation.answered.as_ref().map_or(operation.invoked, |(answered, _)| *answered))
            .max()
            .unwrap_or(0);
        say(
            report,
            "  session, from invocation to answer (`~`: nobody knows), what was asked, what was heard",
        );
        for (index, operation) in operations.iter().enumerate() {
            if !is_shown(index) {
                continue;
            }
            let mark = if stuck.contains(&index) { "!!" } else { "  " };
            let bar: String = (0..=last)
                .map(|moment| match &operation.answered {
                    _ if moment < operation.invoked => ' ',
                    Some((answered, _)) if moment > *answered => ' ',
                    Some(_) => '-',
                    None => '~',
                })
                .collect();
            say(report, &format!("{mark} {} |{bar}| at {}", operation.session, operation.now));
            say(report, &format!("        {}", shortened(&format!("{:?}", operation.command))));
            if let Some((_, reply)) = &operation.answered {
                say(report, &format!("        {}", shortened(&format!("{reply:?}"))));
            }
        }
    }
}

fn say(report: &mut String, line: &str) {
    writeln!(report, "{line}").expect("a string takes everything");
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LINE_MAX {
        return text.to_owned();
    }
    text.chars().take(LINE_MAX).chain(['…']).collect()
}

/// The lines of two dumps that only one of them has.
fn rows_that_differ(expected: &Contents, seen: &Contents) -> String {
    let lines = |contents: &Contents| -> Vec<String> {
        format!("{contents:#?}").split("\n        },").map(|row| row.replace(['\n', ' '], "")).collect()
    };
    let (expected, seen) = (lines(expected), lines(seen));
    let mut report = String::new();
    for row in expected.iter().filter(|row| !seen.contains(row)) {
        say(&mut report, &format!("  expected {row}"));
    }
    for row in seen.iter().filter(|row| !expected.contains(row)) {
        say(&mut report, &format!("  found    {row}"));
    }
    report
}
