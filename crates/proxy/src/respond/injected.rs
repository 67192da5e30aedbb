//! Headers that the operator adds to, sets in or clears from every response, as with nginx's `add_header`,
//! `more_set_headers` and `more_clear_headers`. They are applied to the written bytes of the head, so that a gateway
//! without them has no extra cost.

/// A change to the head of every response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// Adds a header line. Without `always`, only responses with one of nginx's usual statuses get it.
    Add {
        name: String,
        value: String,
        always: bool,
    },
    /// Replaces all lines with this name.
    Set { name: String, value: String },
    /// Removes all lines with this name.
    Clear(String),
}

/// The statuses for which headers without `always` are added. Source: nginx ngx_http_headers_filter().
const USUAL_STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

impl Injection {
    fn replaces(&self, line: &[u8]) -> bool {
        let name = match self {
            Self::Add { .. } => return false,
            Self::Set { name, .. } | Self::Clear(name) => name.as_bytes(),
        };
        let given = line.split(|byte| *byte == b':').next();
        given.is_some_and(|given| given.eq_ignore_ascii_case(name))
    }

    fn adds(&self, status: u16) -> Option<(&str, &str)> {
        match self {
            Self::Add {
                name,
                value,
                always,
            } => (*always || USUAL_STATUSES.contains(&status)).then_some((name, value)),
            Self::Set { name, value } => Some((name, value)),
            Self::Clear(_) => None,
        }
    }
}

/// Applies all injections in order to a response that begins with its head. Each sees the result of the previous one.
pub fn inject(injections: &[Injection], status: u16, response: &mut Vec<u8>) {
    for injection in injections {
        let Some(end) = memchr::memmem::find(response, b"\r\n\r\n") else {
            return;
        };
        let mut head = Vec::with_capacity(end + 128);
        for (number, line) in response[..end + 2]
            .split_inclusive(|byte| *byte == b'\n')
            .enumerate()
        {
            if number == 0 || !injection.replaces(line) {
                head.extend_from_slice(line);
            }
        }
        if let Some((name, value)) = injection.adds(status) {
            super::line(&mut head, name, value.as_bytes());
        }
        response.splice(..end + 2, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected(status: u16, injections: &[Injection]) -> String {
        let mut response =
            format!("HTTP/1.1 {status} X\r\nServer: a\r\nx-b: 1\r\nX-B: 2\r\n\r\nbody: \r\n\r\n")
                .into_bytes();
        inject(injections, status, &mut response);
        String::from_utf8(response).unwrap()
    }

    fn add(always: bool) -> Injection {
        Injection::Add {
            name: "X-A".to_owned(),
            value: "v".to_owned(),
            always,
        }
    }

    #[test]
    fn heads_are_changed_and_bodies_are_not() {
        let set = Injection::Set {
            name: "X-B".to_owned(),
            value: "3".to_owned(),
        };
        let clear = Injection::Clear("server".to_owned());
        assert_eq!(
            injected(200, &[add(false), set, clear]),
            "HTTP/1.1 200 X\r\nX-A: v\r\nX-B: 3\r\n\r\nbody: \r\n\r\n"
        );
    }

    #[test]
    fn errors_get_only_headers_that_are_always_added() {
        assert!(!injected(502, &[add(false)]).contains("X-A"));
        assert!(injected(502, &[add(true)]).contains("X-A: v\r\n"));
    }
}
