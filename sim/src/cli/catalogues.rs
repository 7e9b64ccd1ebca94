//! The catalogues: what there is, as text or JSON.

use clap::Args;
use fencepost_core::mark::Mark;
use serde::Serialize;

use super::print;
use crate::fault::FaultKind;
use crate::oracle::invariant::Invariant;
use crate::plan::Profile;
use crate::violation::Property;

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ListArgs {
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'static str>,
}

#[derive(Serialize)]
struct Catalogue<'a> {
    #[serde(flatten)]
    lists: std::collections::BTreeMap<&'a str, &'a [Line]>,
}

fn list(args: ListArgs, kind: &str, lines: &[Line]) -> u8 {
    if args.json {
        let catalogue = Catalogue { lists: [(kind, lines)].into() };
        let json = serde_json::to_string(&catalogue).expect("the keys are text");
        print(&format!("{json}\n"));
        return 0;
    }
    let widest = |field: fn(&Line) -> &str| lines.iter().map(|line| field(line).len()).max().unwrap_or(0);
    let (names, groups) = (widest(|line| line.name), widest(|line| line.group.unwrap_or("")));
    for line in lines {
        let group = line.group.unwrap_or("");
        let about = line.about.unwrap_or("");
        let text = format!("{:names$}  {group:groups$}  {about}", line.name);
        print(&format!("{}\n", text.trim_end()));
    }
    0
}

pub(super) fn faults(args: ListArgs) -> u8 {
    let lines: Vec<Line> = FaultKind::ALL
        .iter()
        .map(|kind| Line { name: kind.name(), group: Some(kind.group().name()), about: Some(kind.about()) })
        .collect();
    list(args, "faults", &lines)
}

pub(super) fn marks(args: ListArgs) -> u8 {
    let lines: Vec<Line> =
        Mark::ALL.iter().map(|mark| Line { name: mark.name(), group: None, about: None }).collect();
    list(args, "marks", &lines)
}

pub(super) fn profiles(args: ListArgs) -> u8 {
    let lines: Vec<Line> = Profile::ALL
        .iter()
        .map(|profile| Line { name: profile.name(), group: None, about: Some(profile.about()) })
        .collect();
    list(args, "profiles", &lines)
}

pub(super) fn invariants(args: ListArgs) -> u8 {
    let lines: Vec<Line> = Invariant::ALL
        .iter()
        .map(|invariant| {
            let group = match invariant.property() {
                Property::Liveness => "liveness",
                Property::Safety | Property::Determinism | Property::Internal => "safety",
            };
            Line { name: invariant.id(), group: Some(group), about: Some(invariant.statement()) }
        })
        .collect();
    list(args, "invariants", &lines)
}
