//! nginx's pages for statuses, which it sends under Kong in place of an empty body. Kong omits nginx's name at their end.
//! Sources: nginx ngx_http_special_response.c; kong/templates/nginx_kong.lua error_page.

use super::status;

pub const TYPE: &str = "text/html";

/// Whether Kong replaces nginx's page with an error body in the format that the client accepts.
pub fn is_kongs(status: u16) -> bool {
    matches!(
        status,
        400 | 404 | 405 | 408 | 411 | 412 | 413 | 414 | 417 | 494 | 500 | 502 | 503 | 504
    )
}

/// Returns nginx's page for a status that Kong has no error body for. `None` if nginx sends an empty body.
pub fn of(status: u16) -> Option<String> {
    let title = match status {
        302 => "Found",
        401 => "Authorization Required",
        301 | 303 | 307 | 308 | 402 | 403 | 406 | 409 | 410 | 415 | 416 | 421 | 429 | 501 | 505
        | 507 => status::reason(status),
        _ => return None,
    };
    Some(format!(
        "<html>\r\n<head><title>{status} {title}</title></head>\r\n<body>\r\n<center><h1>{status} {title}</h1></center>\r\n</body>\r\n</html>\r\n"
    ))
}
