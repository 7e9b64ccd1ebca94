//! Figures: what was measured, against what is required, as a table for people and as JSON.

use serde_json::{Value, json};

/// How a figure and its requirement compare.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Required {
    /// Nothing is.
    Nothing,
    /// At least this, on a machine that has nothing else to do.
    AtLeast(f64),
    /// At most this, on a machine that has nothing else to do.
    AtMost(f64),
    /// At most this, whatever the machine: what `--check` judges.
    NeverMore(f64),
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    part: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    required: Required,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    figures: Vec<Figure>,
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        match self.required {
            Required::Nothing => None,
            Required::AtLeast(least) => Some(self.value >= least),
            Required::AtMost(most) | Required::NeverMore(most) => Some(self.value <= most),
        }
    }

    fn requirement(&self) -> String {
        match self.required {
            Required::Nothing => String::new(),
            Required::AtLeast(least) => format!("at least {}", rounded(least)),
            Required::AtMost(most) | Required::NeverMore(most) => format!("at most {}", rounded(most)),
        }
    }
}

/// With as many digits as tell something.
fn rounded(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

impl Figures {
    pub(crate) fn add(
        &mut self,
        part: &'static str,
        name: &str,
        value: f64,
        unit: &'static str,
        required: Required,
    ) {
        let figure = Figure { part, name: name.to_owned(), value, unit, required };
        eprintln!("{}", line(&figure));
        self.figures.push(figure);
    }

    /// Prints the table, and the JSON as the last line.
    pub(crate) fn print(&self) {
        println!("\n{:<9} {:<36} {:>10} {:<14} required", "part", "figure", "value", "unit");
        for figure in &self.figures {
            println!("{}", line(figure));
        }
        let figures: Vec<Value> = self.figures.iter().map(document).collect();
        println!("{}", json!({ "figures": figures }));
    }

    /// Those that no machine excuses.
    pub(crate) fn missed(&self) -> Vec<String> {
        let inexcusable = |figure: &&Figure| {
            matches!(figure.required, Required::NeverMore(_)) && figure.is_met() == Some(false)
        };
        self.figures.iter().filter(inexcusable).map(line).collect()
    }
}

fn line(figure: &Figure) -> String {
    let met = match figure.is_met() {
        None => "",
        Some(true) => "  met",
        Some(false) => "  MISSED",
    };
    let Figure { part, name, value, unit, .. } = figure;
    let (value, requirement) = (rounded(*value), figure.requirement());
    format!("{part:<9} {name:<36} {value:>10} {unit:<14} {requirement}{met}").trim_end().to_owned()
}

fn document(figure: &Figure) -> Value {
    let bound = match figure.required {
        Required::Nothing => json!(null),
        Required::AtLeast(least) => json!({"at_least": least}),
        Required::AtMost(most) | Required::NeverMore(most) => json!({"at_most": most}),
    };
    json!({
        "part": figure.part,
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "required": bound,
        "met": figure.is_met(),
    })
}
