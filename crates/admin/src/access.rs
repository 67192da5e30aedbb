//! The access log of the Admin API and the Status API. A response with a known size is logged just before it is sent.
//! Any other response is logged when its body ends or the client disconnects.

use crate::control::{Access, Api, Control};
use crate::peer::{Connection, Peer};
use crate::state::App;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::Version;
use axum::response::Response;
use futures_util::StreamExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The status that is logged if the client disconnects before the response, as in nginx.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// An exchange in progress that will be logged.
pub(crate) struct Exchange {
    control: Arc<dyn Control>,
    api: Api,
    started: Instant,
    access: Access,
}

impl Exchange {
    pub(crate) fn begin(app: &App, request: &Request) -> Option<Self> {
        if !app.control().logs_access(app.api()) {
            return None;
        }
        let peer = match Connection::of(request.extensions()).map(|connection| &connection.peer) {
            Some(Peer::Remote(remote)) => remote.address,
            _ => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        let access = Access {
            peer,
            method: request.method().as_str().to_owned(),
            target: request.uri().to_string(),
            version: match request.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            headers: request.headers().clone(),
            status: CLIENT_CLOSED_REQUEST,
            body_size: 0,
            took: Duration::ZERO,
        };
        Some(Self {
            control: app.shared(),
            api: app.api(),
            started: Instant::now(),
            access,
        })
    }

    /// Logs the exchange with its response: immediately if the body's size is known, otherwise at the end of the body.
    pub(crate) fn end_with(mut self, response: Response) -> Response {
        self.access.status = response.status().as_u16();
        if let Some(size) = response.body().size_hint().exact() {
            self.access.body_size = size;
            return response;
        }
        let (parts, body) = response.into_parts();
        let mut exchange = self;
        let counted = body.into_data_stream().inspect(move |piece| {
            // Makes the closure own the whole exchange, not only the field that it changes. The exchange is then logged
            // when the stream is dropped.
            let exchange = &mut exchange;
            if let Ok(piece) = piece {
                exchange.access.body_size += piece.len() as u64;
            }
        });
        Response::from_parts(parts, Body::from_stream(counted))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.access.took = self.started.elapsed();
        self.control.log_access(self.api, &self.access);
    }
}
