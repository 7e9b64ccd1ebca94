//! A crontab as one finds them, read the way an import would.
//!
//! What must stay true: every line that schedules something is returned, in order; comments and settings are
//! not. `@reboot` is returned too: it is for the program under test to refuse.

/// A line that schedules something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The five fields, or the word that begins with `@`.
    pub(crate) schedule: String,
    /// What it would run.
    pub(crate) command: String,
}

/// What no scheduler of ours can know about.
pub(crate) const AT_BOOT: &str = "@reboot";

/// The lines of the file beside this one.
pub(crate) fn lines() -> Vec<Line> {
    include_str!("crontab").lines().filter_map(read).collect()
}

fn read(line: &str) -> Option<Line> {
    let line = line.trim();
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let first = line.split_whitespace().next()?;
    if first.starts_with('#') || is_setting(line) {
        return None;
    }
    let mut words = line.split_whitespace();
    let schedule: Vec<&str> = words.by_ref().take(fields).collect();
    let command: Vec<&str> = words.collect();
    Some(Line { schedule: schedule.join(" "), command: command.join(" ") })
}

/// `NAME=value`.
fn is_setting(line: &str) -> bool {
    let name = line.split('=').next().unwrap_or_default().trim_end();
    line.contains('=') && !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[test]
fn comments_and_settings_schedule_nothing() {
    for line in ["", "   ", "# 0 0 * * * nothing", "SHELL=/bin/sh", "MAILTO = ops@example.org"] {
        assert_eq!(read(line), None, "{line}");
    }
    let read = |line| read(line).map(|line| (line.schedule, line.command));
    let expected = |schedule: &str, command: &str| Some((schedule.to_owned(), command.to_owned()));
    assert_eq!(read("*/5 * * * *   poll feeds"), expected("*/5 * * * *", "poll feeds"));
    assert_eq!(read("@daily tick A=b"), expected("@daily", "tick A=b"));
    assert_eq!(read("0 1 * * * run A=b"), expected("0 1 * * *", "run A=b"));
}
