//! The segments of a normalized path: the parts between its slashes. A trailing slash adds no segment.

/// The segments of one path. The memory is reused from request to request.
#[derive(Default)]
pub(crate) struct Segments {
    /// The start of each segment.
    starts: Vec<u32>,
    /// The end of the last segment.
    end: u32,
}

impl Segments {
    pub(crate) fn read(&mut self, path: &[u8]) {
        self.starts.clear();
        // Kong skips the first byte too, without a check that it is a slash.
        let inner = path.get(1..).unwrap_or(b"");
        let slashes = inner.iter().rev().take_while(|&&byte| byte == b'/').count();
        let inner = &inner[..inner.len() - slashes];
        // Request heads are much smaller than 4 GiB, so this conversion cannot fail.
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.end = offset(1 + inner.len());
        if inner.is_empty() {
            return;
        }
        self.starts.push(1);
        let slashes = memchr::memchr_iter(b'/', inner);
        self.starts.extend(slashes.map(|at| offset(at + 2)));
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the segments from `first` to `last`, counted from 0, with the slashes between them. `None` if one
    /// of them does not exist.
    pub(crate) fn joined<'p>(&self, path: &'p [u8], first: u32, last: u32) -> Option<&'p [u8]> {
        let start = *self.starts.get(first as usize)?;
        let end = match self.starts.get(last as usize + 1) {
            Some(next) => next - 1,
            None if last as usize + 1 == self.starts.len() => self.end,
            None => return None,
        };
        path.get(start as usize..end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &str) -> (Segments, &[u8]) {
        let mut segments = Segments::default();
        segments.read(b"/of/the/last/request/before/this");
        segments.read(path.as_bytes());
        (segments, path.as_bytes())
    }

    #[test]
    fn a_slash_at_the_end_adds_no_segment() {
        for (path, count) in [("/", 0), ("", 0), ("/a", 1), ("/a/", 1), ("/a/b", 2)] {
            assert_eq!(segments(path).0.count(), count, "{path}");
        }
    }

    #[test]
    fn segments_are_joined_in_order_and_only_if_all_exist() {
        let (segments, path) = segments("/one/two/three/");
        let joined = |first, last| {
            let joined = segments.joined(path, first, last);
            joined.map(|text| std::str::from_utf8(text).unwrap())
        };
        assert_eq!(joined(0, 0), Some("one"));
        assert_eq!(joined(2, 2), Some("three"));
        assert_eq!(joined(0, 1), Some("one/two"));
        assert_eq!(joined(1, 2), Some("two/three"));
        assert_eq!(
            (joined(3, 3), joined(1, 3), joined(0, u32::MAX)),
            (None, None, None)
        );
    }
}
