//! The small pages that the web server under Kong makes by itself. Kong takes the server's name off their end.
//! Source: nginx ngx_http_special_response.c.

pub const TYPE: &str = "text/html";

/// The body of a redirect.
pub fn redirect(status: u16) -> String {
    let title = match status {
        301 => "301 Moved Permanently",
        302 => "302 Found",
        303 => "303 See Other",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        _ => "",
    };
    page(title, title, "")
}

/// The body of the answer to a request without TLS on a port with TLS.
pub fn plain_http() -> String {
    let text = "The plain HTTP request was sent to HTTPS port";
    let more = format!("<center>{text}</center>\r\n");
    page(&format!("400 {text}"), "400 Bad Request", &more)
}

fn page(title: &str, heading: &str, more: &str) -> String {
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{heading}</h1></center>\r\n{more}</body>\r\n</html>\r\n"
    )
}
