//! The texts of statuses: nginx's on the status line, and Kong's in error bodies.
//! Sources: nginx ngx_http_header_filter_module.c, kong/pdk/response.lua, kong/error_handlers.lua.

/// Status, reason phrase, and message of the error body (empty if the status is not an error).
const STATUSES: &[(u16, &str, &str)] = &[
    (200, "OK", ""),
    (201, "Created", ""),
    (202, "Accepted", ""),
    (204, "No Content", ""),
    (206, "Partial Content", ""),
    (301, "Moved Permanently", ""),
    (302, "Moved Temporarily", ""),
    (303, "See Other", ""),
    (304, "Not Modified", ""),
    (307, "Temporary Redirect", ""),
    (308, "Permanent Redirect", ""),
    (400, "Bad Request", "Bad request"),
    (401, "Unauthorized", "Unauthorized"),
    (402, "Payment Required", "Payment required"),
    (403, "Forbidden", "Forbidden"),
    (404, "Not Found", "Not found"),
    (405, "Not Allowed", "Method not allowed"),
    (406, "Not Acceptable", "Not acceptable"),
    (407, "", "Proxy authentication required"),
    (408, "Request Time-out", "Request timeout"),
    (409, "Conflict", "Conflict"),
    (410, "Gone", "Gone"),
    (411, "Length Required", "Length required"),
    (412, "Precondition Failed", "Precondition failed"),
    (413, "Request Entity Too Large", "Payload too large"),
    (414, "Request-URI Too Large", "URI too long"),
    (415, "Unsupported Media Type", "Unsupported media type"),
    (
        416,
        "Requested Range Not Satisfiable",
        "Range not satisfiable",
    ),
    (417, "", "Expectation failed"),
    (418, "", "I'm a teapot"),
    (421, "Misdirected Request", "Misdirected request"),
    (422, "", "Unprocessable entity"),
    (423, "", "Locked"),
    (424, "", "Failed dependency"),
    (425, "", "Too early"),
    (426, "", "Upgrade required"),
    (428, "", "Precondition required"),
    (429, "Too Many Requests", "Too many requests"),
    (431, "", "Request header fields too large"),
    (451, "", "Unavailable for legal reasons"),
    (494, "", "Request header or cookie too large"),
    (500, "Internal Server Error", "An unexpected error occurred"),
    (501, "Not Implemented", "Not implemented"),
    (
        502,
        "Bad Gateway",
        "An invalid response was received from the upstream server",
    ),
    (
        503,
        "Service Temporarily Unavailable",
        "The upstream server is currently unavailable",
    ),
    (504, "Gateway Time-out", "The upstream server is timing out"),
    (
        505,
        "HTTP Version Not Supported",
        "HTTP version not supported",
    ),
    (506, "", "Variant also negotiates"),
    (507, "Insufficient Storage", "Insufficient storage"),
    (508, "", "Loop detected"),
    (510, "", "Not extended"),
    (511, "", "Network authentication required"),
];

/// Returns the reason phrase, which is empty where nginx has none.
pub fn reason(status: u16) -> &'static str {
    find(status).map_or("", |(_, reason, _)| reason)
}

/// Returns the message of an error body, if the status has one.
pub fn message(status: u16) -> Option<&'static str> {
    find(status)
        .map(|(_, _, message)| *message)
        .filter(|message| !message.is_empty())
}

/// Returns the gRPC status for an HTTP status.
pub fn grpc_status(status: u16) -> u8 {
    match status {
        400 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        409 => 6,
        429 => 8,
        499 => 1,
        501 => 12,
        503 => 14,
        504 => 4,
        _ => match status / 100 {
            2 => 0,
            4 => 3,
            5 => 13,
            _ => 2,
        },
    }
}

/// Whether a response with this status has no body and no length.
pub fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

fn find(status: u16) -> Option<&'static (u16, &'static str, &'static str)> {
    let at = STATUSES.binary_search_by_key(&status, |(status, ..)| *status);
    at.ok().map(|at| &STATUSES[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(STATUSES.is_sorted_by(|one, two| one.0 < two.0));
    }
}
