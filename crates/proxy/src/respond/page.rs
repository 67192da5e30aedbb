//! The HTML pages of redirects, which nginx generates under Kong. Kong omits nginx's name at the end of the page.
//! Source: nginx ngx_http_special_response.c.

pub const TYPE: &str = "text/html";

/// Returns the body of a redirect.
pub fn redirect(status: u16) -> String {
    let title = match status {
        301 => "301 Moved Permanently",
        302 => "302 Found",
        303 => "303 See Other",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        _ => "",
    };
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n</body>\r\n</html>\r\n"
    )
}
