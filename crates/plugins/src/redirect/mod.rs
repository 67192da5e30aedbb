//! redirect: leads clients to another URL. Source of the behaviour: kong/plugins/redirect/handler.lua.

mod config;

use config::Config;
use model::schema::PluginSource;
use model::uri::{Slashes, normalize};
use plugin::{
    BuildCx, BuildError, HeaderValue, Phases, Plugin, PluginDef, PluginError, Request, RequestCx,
    Response, Scopes, Step, args,
};
use std::fmt::Write;
use url::Url;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("redirect", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Redirect>("redirect", 779, Phases::ACCESS, Scopes::ALL)
}

struct Redirect {
    status: u16,
    location: Location,
}

enum Location {
    Fixed(HeaderValue),
    /// A URL that gets path and query of the request.
    Keeping(Box<Url>),
}

impl Plugin for Redirect {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let location = match config.keep_incoming_path {
            Some(true) => {
                let url = Url::parse(&config.location);
                let url = url.map_err(|error| BuildError::field("location", error))?;
                if url.cannot_be_a_base() {
                    return Err(BuildError::field("location", "the URL can have no path"));
                }
                Location::Keeping(Box::new(url))
            }
            Some(false) | None => Location::Fixed(HeaderValue::from_text(&config.location)),
        };
        Ok(Self {
            status: config.status_code,
            location,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let location = match &self.location {
            Location::Fixed(location) => location.clone(),
            Location::Keeping(url) => with_path(url, cx.request),
        };
        let response = Response::new(self.status, "redirecting");
        Ok(Step::Respond(response.with_header("Location", location)))
    }
}

/// Returns the URL with path and query of the request.
fn with_path(url: &Url, request: &Request<'_>) -> HeaderValue {
    let mut url = url.clone();
    let path = normalize(request.head.path_bytes(), Slashes::Merge);
    url.set_path(&args::escape_path(&path));
    let query = request.query();
    url.set_query((!query.is_empty()).then(|| ascii(query)).as_deref());
    HeaderValue::from_text(url.as_str())
}

/// Percent-encodes bytes that are not ASCII, because a URL consists of characters.
fn ascii(text: &[u8]) -> String {
    let mut ascii = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii() {
            ascii.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(ascii, "%{byte:02X}");
        }
    }
    ascii
}

#[cfg(test)]
mod tests;
