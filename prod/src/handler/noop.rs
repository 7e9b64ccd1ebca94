//! The handler that does nothing: for trying things out, and for measuring everything else.

use super::{Handler, HandlerContext, HandlerFuture};

/// The name it goes by.
pub const NAME: &str = "noop";

/// Completes at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Handler for Noop {
    fn call(&self, _context: HandlerContext) -> HandlerFuture {
        Box::pin(core::future::ready(Ok(())))
    }
}
