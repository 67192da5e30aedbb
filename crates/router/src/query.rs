//! Parses the arguments of a query as OpenResty does for Kong (`ngx.req.get_uri_args`). Arguments are separated by `&`
//! and decoded. An argument without a name is skipped, and an argument without `=` has an empty value.

use std::ops::Range;

/// The arguments of one request. The memory is reused from request to request.
#[derive(Default)]
pub(crate) struct Arguments {
    /// The decoded names and values, concatenated.
    text: Vec<u8>,
    /// Sorted by name; arguments with the same name keep their order in the query.
    entries: Vec<Entry>,
}

struct Entry {
    name: Range<u32>,
    value: Range<u32>,
}

impl Arguments {
    /// Reads the first `most` arguments of a query. Skipped arguments are not counted.
    pub(crate) fn read(&mut self, query: &[u8], most: usize) {
        self.text.clear();
        self.entries.clear();
        for piece in query.split(|&byte| byte == b'&') {
            if self.entries.len() == most {
                break;
            }
            let equals = memchr::memchr(b'=', piece);
            let name = &piece[..equals.unwrap_or(piece.len())];
            if name.is_empty() {
                continue;
            }
            let value = equals.map_or(&b""[..], |at| &piece[at + 1..]);
            let name = self.decode(name);
            let value = self.decode(value);
            self.entries.push(Entry { name, value });
        }
        let text = &self.text;
        self.entries.sort_unstable_by(|left, right| {
            let names = slice(text, &left.name).cmp(slice(text, &right.name));
            names.then(left.name.start.cmp(&right.name.start))
        });
    }

    /// Returns the values of a name, in the order of the query.
    pub(crate) fn values<'s>(&'s self, name: &'s [u8]) -> impl Iterator<Item = &'s [u8]> {
        let name_of = |entry: &Entry| slice(&self.text, &entry.name);
        let first = self.entries.partition_point(|entry| name_of(entry) < name);
        let named = self.entries[first..].iter();
        named
            .take_while(move |entry| name_of(entry) == name)
            .map(|entry| slice(&self.text, &entry.value))
    }

    /// Appends the decoded text and returns its range. `+` becomes a space; a `%` without two hex digits is kept.
    fn decode(&mut self, encoded: &[u8]) -> Range<u32> {
        let start = self.text.len();
        let mut rest = encoded;
        while let Some(at) = memchr::memchr2(b'%', b'+', rest) {
            self.text.extend_from_slice(&rest[..at]);
            let escaped = (rest[at] == b'%').then(|| rest.get(at + 1..at + 3).and_then(hex_byte));
            let (byte, length) = match escaped {
                None => (b' ', 1),
                Some(Some(byte)) => (byte, 3),
                Some(None) => (b'%', 1),
            };
            self.text.push(byte);
            rest = &rest[at + length..];
        }
        self.text.extend_from_slice(rest);
        // Request heads are much smaller than 4 GiB, so this conversion cannot fail.
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        offset(start)..offset(self.text.len())
    }
}

fn slice<'t>(text: &'t [u8], range: &Range<u32>) -> &'t [u8] {
    &text[range.start as usize..range.end as usize]
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(query: &str, most: usize, name: &str) -> Vec<String> {
        let mut arguments = Arguments::default();
        arguments.read(b"of=the&last=request", most);
        arguments.read(query.as_bytes(), most);
        let values = arguments.values(name.as_bytes());
        values
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect()
    }

    #[test]
    fn values_of_a_name_keep_their_order_and_a_bare_name_is_an_empty_value() {
        let query = "b=2&a=3&b&a=1&=x&&b=0&c=d=e";
        assert_eq!(values(query, 100, "b"), ["2", "", "0"]);
        assert_eq!(values(query, 100, "a"), ["3", "1"]);
        assert_eq!(values(query, 100, "c"), ["d=e"]);
        assert!(values(query, 100, "B").is_empty() && values(query, 100, "").is_empty());
        assert!(values("", 100, "").is_empty() && values(query, 100, "last").is_empty());
    }

    #[test]
    fn names_and_values_are_decoded_and_broken_escapes_stay() {
        assert_eq!(
            values("a%62+c=x%2Bz+%zz%4&%=%41%", 100, "ab c"),
            ["x+z %zz%4"]
        );
        assert_eq!(values("a%62+c=x&%=%41%", 100, "%"), ["A%"]);
    }

    #[test]
    fn only_the_first_arguments_with_a_name_are_read() {
        assert_eq!(values("&=0&a=1&a=2&a=3&b=4", 3, "a"), ["1", "2", "3"]);
        assert!(values("&=0&a=1&a=2&a=3&b=4", 3, "b").is_empty());
        assert_eq!(values("&=0&a=1&a=2&a=3&b=4", 4, "b"), ["4"]);
    }
}
