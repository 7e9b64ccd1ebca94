//! Runs of registered handlers to each of their ends: done, failed, panicked, stopped, dropped.

use core::future::pending;

use fencepost_core::effect::StopReason;
use fencepost_core::event::ErrorClass;
use fencepost_core::limits::ERROR_BYTES_MAX;
use fencepost_core::time::Span;
use tokio::time::Instant;

use super::*;
use crate::handler::samples;

fn registry(handler: impl Handler) -> HandlerRegistry {
    let mut registry = HandlerRegistry::new();
    registry.register("ours", 1, handler).expect("the name is free");
    registry
}

async fn run(registry: &HandlerRegistry) -> HandlerResult {
    let (_handle, stop) = StopSignal::new();
    registry.run(samples::invocation("ours", "\"world\""), stop).await
}

fn failed(class: ErrorClass, error: &str) -> HandlerResult {
    HandlerResult::Failed { class, error: error.into(), retry_after: None }
}

#[tokio::test]
async fn a_closure_reads_its_payload_and_completes() {
    let registry = registry(|context: HandlerContext| async move {
        let name: String = context.payload()?;
        assert_eq!((name.as_str(), context.attempt, context.token.as_i64()), ("world", 2, 5));
        Ok::<(), HandlerError>(())
    });
    assert_eq!(run(&registry).await, HandlerResult::Completed);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_not_tried_again() {
    let registry = registry(|context: HandlerContext| async move {
        let _number: u32 = context.payload()?;
        Ok::<(), HandlerError>(())
    });
    let HandlerResult::Failed { class, error, .. } = run(&registry).await else {
        panic!("it cannot complete")
    };
    assert_eq!(class, ErrorClass::NonRetryable);
    assert!(error.contains("does not fit"), "{error}");
}

#[tokio::test]
async fn a_panic_is_a_retryable_failure() {
    let in_the_future = registry(|_context| async { panic!("on the way") });
    let error = "the handler panicked: on the way";
    assert_eq!(run(&in_the_future).await, failed(ErrorClass::Retryable, error));

    struct Before;
    impl Handler for Before {
        fn call(&self, _context: HandlerContext) -> crate::handler::HandlerFuture {
            panic!("at {}", "once");
        }
    }
    let error = "the handler panicked: at once";
    assert_eq!(run(&registry(Before)).await, failed(ErrorClass::Retryable, error));
}

#[tokio::test]
async fn a_failure_says_when_it_wants_to_be_tried_again() {
    let registry = registry(|_context| async {
        let retry_after = Some(Duration::from_secs(90));
        Err(HandlerError::Retryable { message: "busy".to_owned(), retry_after })
    });
    let retry_after = Some(Span::from_secs(90));
    let busy = HandlerResult::Failed { class: ErrorClass::Retryable, error: "busy".into(), retry_after };
    assert_eq!(run(&registry).await, busy);
}

#[tokio::test]
async fn an_error_text_is_cut_to_what_is_kept() {
    let registry = registry(|_context| async { Err(HandlerError::non_retryable("é".repeat(5_000))) });
    let HandlerResult::Failed { error, .. } = run(&registry).await else { panic!("it cannot complete") };
    assert_eq!(error.len(), ERROR_BYTES_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_heed_a_stop_is_dropped_after_the_grace() {
    let registry = registry(|_context| pending::<Result<(), HandlerError>>());
    let (handle, stop) = StopSignal::new();
    handle.stop(StopReason::Timeout);
    let began = Instant::now();
    assert_eq!(registry.run(samples::invocation("ours", "null"), stop).await, HandlerResult::Stopped);
    assert_eq!(began.elapsed(), STOP_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_finish_its_work_when_told_to_stop() {
    let registry = registry(|context: HandlerContext| async move {
        context.stop.stopped().await;
        Ok::<(), HandlerError>(())
    });
    let (handle, stop) = StopSignal::new();
    handle.stop(StopReason::Drain);
    assert_eq!(registry.run(samples::invocation("ours", "null"), stop).await, HandlerResult::Completed);
}

#[tokio::test]
async fn an_unknown_handler_is_a_retryable_failure() {
    let (_handle, stop) = StopSignal::new();
    let result = HandlerRegistry::new().run(samples::invocation("ours", "null"), stop).await;
    assert_eq!(result, failed(ErrorClass::Retryable, "no handler `ours` in version 1 here"));
}

#[test]
fn names_and_versions_are_checked_and_taken_once() {
    let mut registry = HandlerRegistry::new();
    registry.register("ours", 1, Noop).expect("the name is free");
    registry.register("ours", 2, Noop).expect("the version is free");
    let ours = HandlerName::parse("ours").expect("it is a name");
    let taken = registry.register("ours", 2, Noop).err();
    assert_eq!(taken, Some(RegistryError::Taken { name: ours.clone(), version: 2 }));
    assert_eq!(registry.register("ours", 0, Noop).err(), Some(RegistryError::Version { name: ours.clone() }));
    assert!(matches!(registry.register("Not A Name", 1, Noop), Err(RegistryError::Name(_))));
    assert_eq!(registry.versions(), HandlerVersions::from([(ours, [1, 2].into())]));
}
