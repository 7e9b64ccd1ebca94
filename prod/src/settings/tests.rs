//! What settings are made of, and what is refused.

use super::*;

fn from_environment(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::read(None, variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
}

#[test]
fn nothing_listens_beyond_loopback_unless_asked() {
    assert!(Settings::default().http.listen.ip().is_loopback());
}

#[test]
fn a_variable_nests_by_two_underscores() {
    let settings = from_environment(&[
        ("FENCEPOST_WORKER__SLOTS", "7"),
        ("FENCEPOST_HTTP__LISTEN", "127.0.0.1:9000"),
        ("FENCEPOST_ROLES", "worker, api"),
        ("UNRELATED", "x"),
    ])
    .expect("valid settings");
    let config = settings.worker(WorkerConfig::new(NodeId::from_u128(1), "w".into(), Default::default()));
    assert_eq!(config.slots, 7);
    assert_eq!(settings.http.listen.port(), 9000);
    assert_eq!(settings.roles, BTreeSet::from([RoleName::Worker, RoleName::Api]));
}

#[test]
fn our_own_variable_wins_over_the_well_known_one() {
    let both = [("DATABASE_URL", "postgres://a"), ("FENCEPOST_DATABASE__URL", "postgres://b")];
    assert_eq!(from_environment(&both).expect("valid").database_url().expect("given"), "postgres://b");
    assert_eq!(from_environment(&both[..1]).expect("valid").database_url().expect("given"), "postgres://a");
    assert!(from_environment(&[]).expect("valid").database_url().is_err());
}

#[test]
fn what_is_unknown_or_out_of_bounds_is_refused_by_name() {
    for (name, text, words) in [
        ("FENCEPOST_WORKER__SLOT", "7", "slot"),
        ("FENCEPOST_WORKER__SLOTS", "-7", "environment"),
        ("FENCEPOST_WORKER__SLOTS", "many", "environment"),
        ("FENCEPOST_WORKER__SLOTS", "0", "worker.slots"),
        ("FENCEPOST_SCHEDULER__BATCH", "100000", "scheduler.batch"),
        ("FENCEPOST_SCHEDULER__LEASE_TTL_MS", "1", "scheduler.lease_ttl_ms"),
        ("FENCEPOST_SCHEDULER__CYCLE_EVERY_MS", "9000", "scheduler.cycle_every_ms"),
        ("FENCEPOST_SCHEDULER__REDISPATCH_AFTER_MS", "0", "scheduler.redispatch_after_ms"),
        ("FENCEPOST_SCHEDULER__LIVE_WITHIN_MS", "3000", "scheduler.live_within_ms"),
        ("FENCEPOST_ROLES", "captain", "captain"),
        ("FENCEPOST_DATABASE__URL__X", "1", "url"),
    ] {
        let error = from_environment(&[(name, text)]).expect_err(name).to_string();
        assert!(error.contains(words), "{name}={text}: {error}");
    }
}

#[test]
fn a_lease_that_is_set_brings_its_margin_with_it() {
    let settings = from_environment(&[
        ("FENCEPOST_SCHEDULER__LEASE_TTL_MS", "3000"),
        ("FENCEPOST_SCHEDULER__CYCLE_EVERY_MS", "500"),
    ])
    .expect("valid");
    let config = settings.scheduler(SchedulerConfig::new(NodeId::from_u128(1), "s".into()));
    assert_eq!(config.trust, TrustWindow::Margin(Span::from_millis(600)));
}

#[test]
fn the_trust_window_is_switched_off_only_by_the_testing_section() {
    let settings = from_environment(&[("FENCEPOST_TESTING__TRUST_WINDOW", "off")]).expect("valid");
    let config = settings.scheduler(SchedulerConfig::new(NodeId::from_u128(1), "s".into()));
    assert_eq!(config.trust, TrustWindow::Off);
}

#[test]
fn a_password_is_never_printed() {
    let settings = from_environment(&[("DATABASE_URL", "postgres://me:secret@host/db")]).expect("valid");
    assert!(!format!("{settings:?}").contains("secret"));
}
