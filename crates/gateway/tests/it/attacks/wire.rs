//! A strict HTTP/1.1 parser that shares no code with the gateway's parser. The gateway must not send anything that this
//! parser refuses.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

/// Maximum time to wait for data; longer than any correct exchange takes.
const LIMIT: Duration = Duration::from_secs(20);

/// The framing of a message body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(usize),
    Chunked,
    Close,
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) line: String,
    /// The header lines as received, without their line ends.
    pub(super) lines: Vec<String>,
    pub(super) framing: Framing,
    pub(super) body: Vec<u8>,
    /// The body as it was transferred, with chunk headers.
    pub(super) raw: Vec<u8>,
}

/// The reason why no message could be read.
#[derive(Debug)]
pub(super) enum End {
    /// The other side closed the connection between messages.
    Closed,
    /// The other side closed or reset the connection within a message, before the message was complete.
    Cut,
    /// The other side reset the connection between messages, or within a body that ends with the connection.
    Reset,
    /// The bytes are invalid; the text says why.
    Wrong(String),
}

/// A connection whose messages are parsed strictly.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    /// All received bytes.
    pub(super) came: Vec<u8>,
    buffer: Vec<u8>,
}

impl Message {
    pub(super) fn status(&self) -> u16 {
        let status = self
            .line
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse().ok());
        status.unwrap_or(0)
    }

    pub(super) fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    pub(super) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let (present, value) = line.split_once(':')?;
            present.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        stream
            .set_nodelay(true)
            .expect("a TCP socket has the option");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(LIMIT)).expect("a limit above zero is accepted");
        }
        Self {
            stream,
            came: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Reads the next request.
    pub(super) fn request(&mut self) -> Result<Message, End> {
        let (line, lines) = self.head()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else {
            return Err(End::Wrong(format!("request line {line:?}")));
        };
        // Only a query may contain bytes that are not ASCII.
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let is_visible = |character: char| character > ' ' && character != '\x7f';
        let is_path = !path.is_empty() && path.is_ascii() && path.chars().all(is_visible);
        if !method.bytes().all(is_token) || !is_path || !query.chars().all(is_visible) {
            return Err(End::Wrong(format!("request line {line:?}")));
        }
        let hosts = lines.iter().filter(|line| is_named(line, "host")).count();
        if hosts != 1 {
            return Err(End::Wrong(format!("{hosts} Host lines")));
        }
        let framing = framing(&lines)?.unwrap_or(Framing::None);
        self.message(line, lines, framing)
    }

    /// Reads the next response to a request with this method. The response may be interim or final.
    pub(super) fn answer(&mut self, method: &str) -> Result<Message, End> {
        let (line, lines) = self.head()?;
        let status = line.split(' ').nth(1).unwrap_or_default();
        let is_status = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        if !line.starts_with("HTTP/1.1 ") || !is_status {
            return Err(End::Wrong(format!("status line {line:?}")));
        }
        let said = framing(&lines)?;
        let interim = status.starts_with('1');
        if (interim || status == "204") && said.is_some() {
            return Err(End::Wrong(format!("a length in {status}")));
        }
        let bodiless = method == "HEAD" || interim || matches!(status, "204" | "304");
        if bodiless {
            let framing = said.unwrap_or(Framing::None);
            return Ok(Message {
                line,
                lines,
                framing,
                body: Vec::new(),
                raw: Vec::new(),
            });
        }
        self.message(line, lines, said.unwrap_or(Framing::Close))
    }

    /// Waits until the other side closes the connection. Returns the bytes that belong to no message.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        while matches!(self.fill(), Ok(read) if read > 0) {}
        std::mem::take(&mut self.buffer)
    }

    fn message(
        &mut self,
        line: String,
        lines: Vec<String>,
        framing: Framing,
    ) -> Result<Message, End> {
        let mut raw = Vec::new();
        let body = match framing {
            Framing::None => Vec::new(),
            Framing::Length(length) => self.exactly(length)?,
            Framing::Chunked => self.chunks(&mut raw)?,
            Framing::Close => loop {
                match self.fill() {
                    Ok(0) => break std::mem::take(&mut self.buffer),
                    Ok(_) => {}
                    Err(_) => return Err(End::Reset),
                }
            },
        };
        if framing != Framing::Chunked {
            raw.clone_from(&body);
        }
        Ok(Message {
            line,
            lines,
            framing,
            body,
            raw,
        })
    }

    fn head(&mut self) -> Result<(String, Vec<String>), End> {
        let length = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            let empty = self.buffer.is_empty();
            match self.fill() {
                Ok(0) if empty => return Err(End::Closed),
                Ok(0) => return Err(End::Cut),
                Ok(_) => {}
                Err(_) if empty => return Err(End::Reset),
                Err(_) => return Err(End::Cut),
            }
        };
        let head: String = self.buffer.drain(..length).map(char::from).collect();
        let mut lines = head[..].split("\r\n").map(str::to_owned);
        let first = lines.next().unwrap_or_default();
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        for line in &lines {
            check_line(line)?;
        }
        let control = |character: char| character < ' ' && character != '\t';
        if first.contains(control) {
            return Err(End::Wrong(format!("first line {first:?}")));
        }
        Ok((first, lines))
    }

    fn chunks(&mut self, raw: &mut Vec<u8>) -> Result<Vec<u8>, End> {
        let mut body = Vec::new();
        loop {
            let line = self.line(raw)?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).ok();
            let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let (Some(size), true) = (size, plain) else {
                return Err(End::Wrong(format!("chunk size {line:?}")));
            };
            if size == 0 {
                break;
            }
            let data = self.exactly(size + 2)?;
            raw.extend_from_slice(&data);
            if !data.ends_with(b"\r\n") {
                return Err(End::Wrong("a chunk does not end where it says".to_owned()));
            }
            body.extend_from_slice(&data[..size]);
        }
        loop {
            let line = self.line(raw)?;
            if line.is_empty() {
                return Ok(body);
            }
            check_line(&line)?;
        }
    }

    fn line(&mut self, raw: &mut Vec<u8>) -> Result<String, End> {
        loop {
            if let Some(at) = find(&self.buffer, b"\n") {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                raw.extend_from_slice(&line);
                let text = line.strip_suffix(b"\r\n");
                let text = text.ok_or_else(|| End::Wrong("a bare line feed".to_owned()))?;
                return Ok(text.iter().copied().map(char::from).collect());
            }
            if !matches!(self.fill(), Ok(read) if read > 0) {
                return Err(End::Cut);
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, End> {
        while self.buffer.len() < length {
            if !matches!(self.fill(), Ok(read) if read > 0) {
                return Err(End::Cut);
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let read = self.stream.read(&mut piece);
        if let Err(error) = &read
            && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        {
            panic!("nothing comes; so far {}", super::shown(&self.buffer));
        }
        let read = read?;
        self.came.extend_from_slice(&piece[..read]);
        self.buffer.extend_from_slice(&piece[..read]);
        Ok(read)
    }
}

/// Returns the framing according to `Content-Length` and `Transfer-Encoding`. It is an error if both are present, or if
/// one is present twice.
fn framing(lines: &[String]) -> Result<Option<Framing>, End> {
    let mut found = None;
    for line in lines {
        let value = line.split_once(':').map_or("", |(_, value)| value.trim());
        let said = if is_named(line, "content-length") {
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits);
            Framing::Length(length.ok_or_else(|| End::Wrong(line.clone()))?)
        } else if is_named(line, "transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(End::Wrong(line.clone()));
            }
            Framing::Chunked
        } else {
            continue;
        };
        if found.replace(said).is_some() {
            return Err(End::Wrong("two lengths".to_owned()));
        }
    }
    Ok(found)
}

fn check_line(line: &str) -> Result<(), End> {
    let Some((name, value)) = line.split_once(':') else {
        return Err(End::Wrong(format!("line {line:?}")));
    };
    let control = |character: char| (character < ' ' && character != '\t') || character == '\x7f';
    if name.is_empty() || !name.bytes().all(is_token) || value.contains(control) {
        return Err(End::Wrong(format!("line {line:?}")));
    }
    Ok(())
}

fn is_named(line: &str, name: &str) -> bool {
    let present = line.split(':').next().unwrap_or_default();
    present.eq_ignore_ascii_case(name)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
