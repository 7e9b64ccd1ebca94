//! Waiting for something to become true, with a limit and a name for it.
//!
//! The one place in the tests that lets real time pass between two looks. What must stay true: a test waits
//! for a condition and never for a duration, and a wait that fails says what it was for.

use std::time::{Duration, Instant};

/// How long to leave the machine alone between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Looks until `probe` finds something and returns what it found.
///
/// # Panics
/// After `limit`, naming `what` was waited for.
pub async fn until<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(began.elapsed() < limit, "waited {limit:?} in vain: {what}");
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// The same for a test without a runtime.
///
/// # Panics
/// After `limit`, naming `what` was waited for.
pub fn blocking_until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(began.elapsed() < limit, "waited {limit:?} in vain: {what}");
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
