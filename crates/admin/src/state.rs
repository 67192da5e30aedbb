//! What handlers share: the gateway they administer.

use crate::control::Control;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct App {
    control: Arc<dyn Control>,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }
}
