//! Receives request bodies, within the limit for each body and within the memory limit for all bodies together.

use crate::budget::Share;
use crate::control::Api;
use crate::endpoints::Action;
use crate::peer::Connection;
use crate::respond::{Failure, message};
use crate::state::App;
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use std::time::Duration;

/// Maximum initial size of the buffer for a body, whatever length the client announces. Small buffers would grow often,
/// and each time the bytes are copied and both buffers exist for a moment. A large buffer costs nothing until it is
/// written, because the kernel allocates pages on first use. A body that exceeds this size makes the buffer grow once,
/// to the announced length.
const FIRST_BUFFER: usize = 64 << 20;

/// Maximum body of a request to the Status API, which needs no authentication.
const STATUS_BODY: usize = 16 << 10;

/// Maximum bytes, and maximum time, for reading and discarding an unwanted body.
const DRAIN_LIMIT: usize = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Returns the whole body of a request, or the response if the body is not accepted. The memory counts as used until
/// the last copy of the bytes is dropped.
pub(crate) async fn whole(
    app: &App,
    action: Action,
    request: &Parts,
    body: Body,
) -> Result<Bytes, Response> {
    if !matches!(request.method, Method::POST | Method::PUT | Method::PATCH) {
        drain(request, body).await;
        return Ok(Bytes::new());
    }
    let announced = announced(request);
    let limit = limit(app, action);
    if announced > limit {
        drain(request, body).await;
        return Err(too_large(limit));
    }
    let connection = Connection::of(&request.extensions);
    let share = connection.map(|connection| connection.permits.bodies.share());
    if let Some(connection) = connection
        && announced > connection.permits.bodies.room()
    {
        drain(request, body).await;
        return Err(no_room(connection, announced));
    }
    let receiving = Receiving {
        request,
        buffer: Vec::with_capacity(announced.min(FIRST_BUFFER)),
        share,
        limit,
        announced,
    };
    receiving.gather(body.into_data_stream()).await
}

/// The announced body length; 0 if there is none.
fn announced(request: &Parts) -> usize {
    let length = request.headers.get(CONTENT_LENGTH);
    length
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}

fn limit(app: &App, action: Action) -> usize {
    let node = app.control().node();
    let limit = match (app.api(), action) {
        (Api::Status, _) => Some(STATUS_BODY),
        (Api::Admin, Action::Config | Action::Changes | Action::Import) => node.max_config_size,
        (Api::Admin, _) => node.max_body_size,
    };
    limit.unwrap_or(usize::MAX)
}

/// A body that is being received.
struct Receiving<'r> {
    request: &'r Parts,
    buffer: Vec<u8>,
    share: Option<Share>,
    limit: usize,
    announced: usize,
}

impl Receiving<'_> {
    async fn gather(mut self, mut stream: BodyDataStream) -> Result<Bytes, Response> {
        let connection = Connection::of(&self.request.extensions);
        let pause = connection.map_or(Duration::MAX, |connection| connection.limits.body);
        loop {
            let next = tokio::time::timeout(pause, stream.next()).await;
            let Some(chunk) = next.map_err(|_| too_slow(pause))? else {
                return Ok(self.finish());
            };
            let chunk = chunk.map_err(|_| unreadable())?;
            let refused = match self.take(&chunk) {
                Ok(()) => continue,
                Err(refused) => refused,
            };
            let request = self.request;
            // Free the memory before the rest of the body is read.
            drop(self);
            drain_stream(request, stream).await;
            return Err(*refused);
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Box<Response>> {
        let size = self.buffer.len() + chunk.len();
        if size > self.limit {
            return Err(too_large(self.limit).into());
        }
        let connection = Connection::of(&self.request.extensions);
        if let (Some(share), Some(connection)) = (&mut self.share, connection)
            && !share.grow(chunk.len())
        {
            return Err(no_room(connection, size).into());
        }
        if size > self.buffer.capacity() && size <= self.announced {
            // A client that has sent this much is trusted to send the rest; a buffer that doubles would take more
            // memory.
            self.buffer
                .reserve_exact(self.announced - self.buffer.len());
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    fn finish(self) -> Bytes {
        Bytes::from_owner(Received {
            buffer: self.buffer,
            _share: self.share,
        })
    }
}

/// A body and its share of the memory budget.
struct Received {
    buffer: Vec<u8>,
    _share: Option<Share>,
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// Reads an unwanted body for a limited time and discards it. Most clients read a response only after they have sent
/// everything, and closing the connection earlier would make the kernel discard the response. A client that waits for
/// permission to send its body gets the response immediately.
pub(crate) async fn drain(request: &Parts, body: Body) {
    if !body.is_end_stream() {
        drain_stream(request, body.into_data_stream()).await;
    }
}

async fn drain_stream(request: &Parts, mut stream: BodyDataStream) {
    if request.headers.contains_key(EXPECT) {
        return;
    }
    let connection = Connection::of(&request.extensions);
    let pause = connection.map_or(DRAIN_TIME, |connection| connection.limits.body);
    let rest = async {
        let mut left = DRAIN_LIMIT;
        while let Ok(Some(Ok(chunk))) = tokio::time::timeout(pause, stream.next()).await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // The response is the same whether or not the body was read completely.
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

fn unreadable() -> Response {
    Failure::bad_request("the request body cannot be read").into_response()
}

fn too_large(limit: usize) -> Response {
    message(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("request body is larger than the limit of {limit} bytes"),
    )
}

/// Response if all bodies together take too much memory. A body that can never fit gets a different response.
fn no_room(connection: &Connection, size: usize) -> Response {
    let largest = connection.permits.bodies.largest();
    if size > largest {
        return too_large(largest);
    }
    let mut response = message(
        StatusCode::SERVICE_UNAVAILABLE,
        "the bodies of other requests take the memory that there is for them (admin_body_memory)",
    );
    let seconds = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// Response to a client whose body has stalled. No other request can follow on the connection.
fn too_slow(pause: Duration) -> Response {
    let text = format!("nothing of the request body arrived for {pause:?}");
    let mut response = message(StatusCode::REQUEST_TIMEOUT, &text);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}
