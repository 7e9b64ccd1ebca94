//! The layout of an explanation for people: past, now, future, and the lag as bars.
//!
//! Relies on the shape that the API answers with. A field that is missing leaves its line out; nothing here fails.

use core::fmt::Write;

use serde_json::Value;

/// Columns of the longest bar.
const BAR_WIDTH: u64 = 40;

/// The whole text, without the last line's end.
pub(super) fn lay_out(explanation: &Value) -> String {
    let mut text = explanation["headline"].as_str().unwrap_or_default().to_owned();
    if let Some(at) = explanation["at"].as_str() {
        line(&mut text, &format!("(at {at} by the store's clock)"));
    }
    for (title, list) in [("past", "past"), ("now", "now"), ("future", "future")] {
        let statements = explanation[list].as_array().map(Vec::as_slice).unwrap_or_default();
        if statements.is_empty() {
            continue;
        }
        line(&mut text, &format!("\n{title}"));
        for statement in statements {
            sentence(&mut text, statement);
        }
    }
    lag(&mut text, &explanation["lag"]);
    if explanation["replay"].is_object() {
        line(&mut text, "\nreplay");
        sentence(&mut text, &explanation["replay"]);
    }
    text
}

fn line(text: &mut String, next: &str) {
    write!(text, "\n{next}").expect("writing to a string does not fail");
}

/// One statement, with the code that documents it at the end.
fn sentence(text: &mut String, statement: &Value) {
    let (said, code) = (statement["sentence"].as_str(), statement["code"].as_str());
    line(text, &format!("  - {} [{}]", said.unwrap_or_default(), code.unwrap_or_default()));
}

/// One stage as it is drawn.
struct Bar {
    name: String,
    span_ms: u64,
    /// What stands behind it.
    note: &'static str,
}

fn lag(text: &mut String, lag: &Value) {
    let Some(stages) = lag["stages"].as_array() else { return };
    let name = |from: &Value, to: &str| format!("{} → {to}", from.as_str().unwrap_or_default());
    let mut bars: Vec<Bar> = stages
        .iter()
        .map(|stage| Bar {
            name: name(&stage["from"], stage["to"].as_str().unwrap_or_default()),
            span_ms: stage["span_ms"].as_u64().unwrap_or_default(),
            note: "",
        })
        .collect();
    if lag["open"].is_object() {
        let span_ms = lag["open"]["span_ms"].as_u64().unwrap_or_default();
        bars.push(Bar { name: name(&lag["open"]["from"], "…"), span_ms, note: " so far" });
    }
    let total = lag["total_ms"].as_u64().unwrap_or_default();
    let clamped = if lag["clamped"] == true { "; clocks disagreed, a span was clamped" } else { "" };
    line(text, &format!("\nlag ({total} ms in all{clamped})"));
    let most = bars.iter().map(|bar| bar.span_ms).max().unwrap_or_default();
    let names = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or_default();
    let digits = most.to_string().len();
    for bar in bars {
        let Bar { name, span_ms, note } = bar;
        let drawn = "#".repeat(columns(span_ms, most));
        line(text, format!("  {name:<names$}  {span_ms:>digits$} ms  {drawn}{note}").trim_end());
    }
}

/// In proportion to the longest; something that took time is never drawn as nothing.
fn columns(span_ms: u64, most: u64) -> usize {
    let columns = span_ms.saturating_mul(BAR_WIDTH).checked_div(most).unwrap_or_default();
    let columns = if span_ms > 0 { columns.max(1) } else { 0 };
    usize::try_from(columns).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_execution_is_laid_out_in_past_now_future_lag_and_replay() {
        let explanation = json!({
            "at": "2026-03-02T09:00:12.000000Z",
            "headline": "Runs.",
            "past": [{"code": "materialised", "sentence": "Due.", "late_ms": 12}],
            "now": [{"code": "running", "sentence": "Runs."}, {"code": "lease_renewed", "sentence": "Renewed."}],
            "future": [],
            "lag": {
                "token": 1,
                "stages": [
                    {"from": "due", "to": "materialised", "at": "…", "span_ms": 12},
                    {"from": "materialised", "to": "leased", "at": "…", "span_ms": 0}
                ],
                "total_ms": 12,
                "open": {"from": "leased", "since": "…", "span_ms": 24},
                "clamped": true
            },
            "replay": {"code": "replay_not_ended", "sentence": "Not yet."}
        });
        let text = "\
Runs.
(at 2026-03-02T09:00:12.000000Z by the store's clock)

past
  - Due. [materialised]

now
  - Runs. [running]
  - Renewed. [lease_renewed]

lag (12 ms in all; clocks disagreed, a span was clamped)
  due → materialised     12 ms  ####################
  materialised → leased   0 ms
  leased → …             24 ms  ######################################## so far

replay
  - Not yet. [replay_not_ended]";
        assert_eq!(lay_out(&explanation), text);
    }

    #[test]
    fn a_job_has_neither_lag_nor_replay_and_strange_json_is_no_panic() {
        let explanation = json!({"headline": "Fires.", "past": [], "future": [{"code": "next_fire"}]});
        assert_eq!(lay_out(&explanation), "Fires.\n\nfuture\n  -  [next_fire]");
        assert_eq!(lay_out(&json!(7)), "");
        assert_eq!(columns(1, u64::MAX), 1);
    }
}
