//! What handlers share: the gateway they administer.

use crate::control::{Api, Control};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct App {
    control: Arc<dyn Control>,
    api: Api,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>, api: Api) -> Self {
        Self { control, api }
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }

    pub(crate) fn shared(&self) -> Arc<dyn Control> {
        Arc::clone(&self.control)
    }

    pub(crate) fn api(&self) -> Api {
        self.api
    }
}
