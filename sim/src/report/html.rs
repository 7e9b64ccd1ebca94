//! The timeline as a page: one lane per node and one for everything else, in one file that loads nothing.

use std::fmt::Write as _;

use crate::plan::{NodeSlot, Plan};
use crate::sim_time::SimTime;
use crate::timeline::{Entry, Moment};
use crate::world::Ended;

const WIDTH: f64 = 1_600.0;
const LANE: f64 = 44.0;
const LEFT: f64 = 120.0;

const STYLE: &str = "body{font:13px system-ui,sans-serif;margin:20px;color:#222}\
svg{background:#fafafa;border:1px solid #ddd}\
text{font-size:11px}.grid{stroke:#e3e3e3}.up{fill:#cfe8cf}.still{fill:#f3d27a}.fault{fill:#d88;opacity:.55}\
.drain{fill:#a9c4ec}.mark{stroke:#333}.leads{stroke:#00c;stroke-width:2}.dead{stroke:#c00;stroke-width:2}.heal{stroke:#080;stroke-width:2}\
.violated{stroke:#c0c;stroke-width:3}";

/// The page.
#[must_use]
pub fn page(plan: &Plan, ended: &Ended) -> String {
    let length = ended.simulated.as_micros().max(1) as f64;
    let x = |at: SimTime| LEFT + at.as_micros() as f64 / length * WIDTH;
    let lanes = plan.node_count() + 1;
    let height = LANE * lanes as f64 + 30.0;
    let mut svg = String::new();
    grid(&mut svg, length, height);
    for index in 0..plan.node_count() {
        let slot = NodeSlot::new(index);
        let label = if plan.is_scheduler(slot) {
            plan.schedulers[index].config.label.to_string()
        } else {
            plan.workers[index - plan.schedulers.len()].config.label.to_string()
        };
        let y = LANE * (index + 1) as f64;
        let _ = write!(svg, "<text x='8' y='{}'>{}</text>", y + 20.0, escaped(&label));
        lives(&mut svg, &ended.timeline, slot, y, &x, SimTime::ZERO.plus(ended.simulated));
    }
    let _ = write!(svg, "<text x='8' y='20'>store, broker, all</text>");
    for entry in &ended.timeline {
        draw(&mut svg, entry, &x, height);
    }
    let verdict = match &ended.violation {
        Some(violation) => escaped(&violation.to_string()),
        None => "every invariant held".to_owned(),
    };
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Fencepost, seed {seed}</title>\
         <style>{STYLE}</style><h1>Seed {seed} of {profile}</h1><p>{verdict}</p><p>hash {hash}, {seconds} simulated \
         seconds. Hover for details.</p><svg width='{width}' height='{height}' \
         xmlns='http://www.w3.org/2000/svg'>{svg}</svg></html>\n",
        seed = plan.seed,
        profile = escaped(&plan.profile),
        hash = ended.hash,
        seconds = ended.simulated.as_millis() / 1_000,
        width = LEFT + WIDTH + 20.0,
    )
}

fn grid(svg: &mut String, length: f64, height: f64) {
    let mut minute = 0.0;
    while minute * 60e6 <= length {
        let x = LEFT + minute * 60e6 / length * WIDTH;
        let _ = write!(
            svg,
            "<line class='grid' x1='{x:.1}' x2='{x:.1}' y1='0' y2='{height:.0}'/>\
             <text x='{x:.1}' y='{:.0}'>{minute:.0} min</text>",
            height - 6.0
        );
        minute += 1.0;
    }
}

/// A bar for each life of a process.
fn lives(
    svg: &mut String,
    timeline: &[Entry],
    slot: NodeSlot,
    y: f64,
    x: &impl Fn(SimTime) -> f64,
    end: SimTime,
) {
    let mut since: Option<SimTime> = None;
    let mut bar = |from: SimTime, to: SimTime| {
        let (left, right) = (x(from), x(to));
        let _ = write!(
            svg,
            "<rect class='up' x='{left:.1}' y='{:.0}' width='{:.1}' height='24'/>",
            y + 4.0,
            right - left
        );
    };
    for entry in timeline.iter().filter(|entry| entry.slot == Some(slot)) {
        match entry.moment {
            Moment::Started => since = Some(entry.at),
            Moment::Died | Moment::Drained => {
                if let Some(from) = since.take() {
                    bar(from, entry.at);
                }
            }
            Moment::StoodStill(_)
            | Moment::DrainRequested
            | Moment::Leads
            | Moment::LeadsNoMore
            | Moment::Fault(_)
            | Moment::Healed
            | Moment::Violated(_) => {}
        }
    }
    if let Some(from) = since {
        bar(from, end);
    }
}

fn draw(svg: &mut String, entry: &Entry, x: &impl Fn(SimTime) -> f64, height: f64) {
    let y = entry.slot.map_or(0.0, |slot| LANE * (slot.index() + 1) as f64);
    let (left, right) = (x(entry.at), x(entry.until));
    let mut shape = |class: &str, top: f64, tall: f64, text: &str| {
        let title = format!("{} s: {}", entry.at, escaped(text));
        let _ = if right - left > 1.0 {
            write!(
                svg,
                "<rect class='{class}' x='{left:.1}' y='{:.0}' width='{:.1}' height='{tall:.0}'>\
                 <title>{title}, until {} s</title></rect>",
                y + top,
                right - left,
                entry.until
            )
        } else {
            write!(
                svg,
                "<line class='mark {class}' x1='{left:.1}' x2='{left:.1}' y1='{:.0}' y2='{:.0}'>\
                 <title>{title}</title></line>",
                y + top,
                y + top + tall
            )
        };
    };
    let text = entry.moment.to_string();
    match &entry.moment {
        Moment::Started => shape("mark", 4.0, 24.0, &text),
        Moment::Died => shape("dead", 2.0, 28.0, &text),
        Moment::StoodStill(_) => shape("still", 8.0, 16.0, &text),
        Moment::DrainRequested | Moment::Drained => shape("drain", 4.0, 24.0, &text),
        Moment::Leads | Moment::LeadsNoMore => shape("leads", 0.0, 32.0, &text),
        Moment::Fault(_) => shape("fault", 30.0, 10.0, &text),
        Moment::Healed => across(svg, "heal", left, height, entry.at, &text),
        Moment::Violated(_) => across(svg, "violated", left, height, entry.at, &text),
    }
}

/// A line across all lanes.
fn across(svg: &mut String, class: &str, x: f64, height: f64, at: SimTime, text: &str) {
    let _ = write!(
        svg,
        "<line class='{class}' x1='{x:.1}' x2='{x:.1}' y1='0' y2='{height:.0}'><title>{at} s: {}</title></line>",
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use fencepost_core::bug::Bugs;

    use super::*;
    use crate::plan::{Profile, generate};
    use crate::run::run;
    use crate::world::Keep;

    #[test]
    fn the_page_has_a_lane_per_node_and_loads_nothing() {
        let plan = generate::generate(3, Profile::Small);
        let run = run(&plan, Bugs::NONE, Keep::Timeline);
        let page = page(&plan, &run.ended);
        for label in ["scheduler-0", "scheduler-1", "worker-0", "worker-1", "store, broker, all"] {
            assert!(page.contains(&format!(">{label}</text>")), "{label}");
        }
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("<script"));
    }
}
