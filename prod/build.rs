//! The migrations are compiled in; a new file among them is a reason to build again.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
