//! State that all handlers share: the interface to the gateway, the endpoints of plugins, and the OpenAPI document.

use crate::control::{Api, Control};
use crate::endpoints::Extensions;
use crate::metrics::Scrapes;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

#[derive(Clone)]
pub(crate) struct App {
    control: Arc<dyn Control>,
    api: Api,
    extensions: Option<Arc<Extensions>>,
    openapi: Arc<OnceLock<Bytes>>,
    scrapes: Arc<Scrapes>,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>, api: Api) -> Self {
        Self {
            extensions: control.extensions().map(Arc::new),
            control,
            api,
            openapi: Arc::default(),
            scrapes: Arc::default(),
        }
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }

    pub(crate) fn shared(&self) -> Arc<dyn Control> {
        Arc::clone(&self.control)
    }

    pub(crate) fn extensions(&self) -> Option<&Extensions> {
        self.extensions.as_deref()
    }

    /// The OpenAPI document, created at the first request for it.
    pub(crate) fn openapi(&self) -> &OnceLock<Bytes> {
        &self.openapi
    }

    pub(crate) fn scrapes(&self) -> &Scrapes {
        &self.scrapes
    }

    pub(crate) fn api(&self) -> Api {
        self.api
    }
}
