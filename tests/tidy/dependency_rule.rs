//! Dependencies run one way: `sim → core`, `prod → core`, `tests → all three`.
//!
//! The core's worth is that it can be driven by a seed as well as by a database. That ends the day it depends on
//! one. Relies on the manifests for what is asked for and on `cargo tree` for what that brings along.

use std::collections::BTreeSet;
use std::process::Command;

use crate::tree;

/// What the core may ask for: calendars, text formats, ids and errors. A new line here is a decision.
const CORE_MAY_USE: &[&str] =
    &["chrono", "chrono-tz", "cron", "serde", "serde_json", "serde_path_to_error", "thiserror", "uuid"];

/// What neither the core nor the simulator may bring along, however indirectly: databases, brokers, HTTP, async
/// runtimes, TLS, clouds and containers. A name stands for everything that begins with it.
const OUTSIDE_WORLD: &[&str] = &[
    "actix",
    "amq-protocol",
    "async-std",
    "aws-",
    "axum",
    "bollard",
    "diesel",
    "futures-executor",
    "h2",
    "http",
    "hyper",
    "k8s-openapi",
    "kube",
    "lapin",
    "mio",
    "openssl",
    "opentelemetry",
    "postgres",
    "rdkafka",
    "redb",
    "redis",
    "reqwest",
    "ring",
    "rusqlite",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tokio",
    "tonic",
    "tower",
    "turmoil",
];

#[test]
fn the_core_asks_only_for_what_it_may_use() {
    let allowed: BTreeSet<&str> = CORE_MAY_USE.iter().copied().collect();
    let asked = direct_dependencies("core");
    let breaches: Vec<String> = asked
        .iter()
        .filter(|name| !allowed.contains(name.as_str()))
        .map(|name| format!("core/Cargo.toml: {name}"))
        .chain(
            allowed
                .iter()
                .filter(|name| !asked.contains(**name))
                .map(|name| format!("{name} is allowed here and asked for no more")),
        )
        .collect();
    tree::assert_none("the core depends on no more than calendars, formats, ids and errors", &breaches);
}

#[test]
fn core_and_sim_bring_no_outside_world_along() {
    let mut breaches = Vec::new();
    for package in ["fencepost-core", "fencepost-sim"] {
        for name in everything_brought_along(package) {
            let outside = OUTSIDE_WORLD.iter().any(|prefix| {
                name.strip_prefix(prefix).is_some_and(|rest| {
                    rest.is_empty() || prefix.ends_with('-') || rest.starts_with(['-', '_'])
                })
            });
            if outside {
                breaches.push(format!("{package} brings {name} along"));
            }
        }
    }
    tree::assert_none("no database, broker, HTTP, runtime or cloud below the seam", &breaches);
}

#[test]
fn the_packages_depend_on_each_other_one_way_only() {
    let ours = ["fencepost-core", "fencepost-sim", "fencepost", "fencepost-tests", "fencepost-fuzz"];
    let among_us = |folder: &str| -> BTreeSet<String> {
        let mut all = direct_dependencies(folder);
        all.extend(development_dependencies(folder));
        all.into_iter().filter(|name| ours.contains(&name.as_str())).collect()
    };
    let only_core = BTreeSet::from([String::from("fencepost-core")]);
    assert_eq!(among_us("core"), BTreeSet::new(), "the core stands alone");
    assert_eq!(among_us("sim"), only_core, "the simulator never depends on the production shell");
    assert_eq!(among_us("prod"), only_core, "the production shell never depends on the simulator");
}

fn direct_dependencies(folder: &str) -> BTreeSet<String> {
    dependency_table(folder, "dependencies")
}

fn development_dependencies(folder: &str) -> BTreeSet<String> {
    dependency_table(folder, "dev-dependencies")
}

fn dependency_table(folder: &str, table: &str) -> BTreeSet<String> {
    let path = tree::root().join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).expect("every package has a manifest");
    let manifest: toml::Table = toml::from_str(&text).expect("cargo has read this manifest before us");
    assert!(
        !manifest.contains_key("target"),
        "{folder}/Cargo.toml: dependencies of one platform only would escape this test"
    );
    manifest
        .get(table)
        .and_then(toml::Value::as_table)
        .map(|dependencies| dependencies.keys().cloned().collect())
        .unwrap_or_default()
}

/// The names of all packages that `package` is built from, development dependencies left out.
fn everything_brought_along(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(tree::root())
        .args(["tree", "--offline", "--package", package, "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}", "--all-features"])
        .output()
        .expect("cargo started this test");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let names: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(names.contains(package), "cargo tree names {package} itself");
    names
}
