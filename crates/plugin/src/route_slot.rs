//! A place in the configuration that the data plane serves: what a plugin has prepared for a route.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The place of a route. The plugin prometheus keeps the route's series here, so that requests find them without a
/// look-up. The place is empty again after a change of the route, or of the name or host of its service.
#[derive(Clone, Default)]
pub struct RouteSlot(OnceLock<Arc<dyn Any + Send + Sync>>);

impl RouteSlot {
    /// Returns what is here. If the place is empty, fills it. `None` if it has a value of another type.
    #[inline]
    pub fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Option<&T> {
        self.0.get_or_init(|| make()).downcast_ref()
    }
}

impl fmt::Debug for RouteSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_filled = self.0.get().is_some();
        formatter
            .debug_tuple("RouteSlot")
            .field(&is_filled)
            .finish()
    }
}
