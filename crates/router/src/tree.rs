//! Radix trees over path prefixes, many in one arena. A lookup walks the bytes of the path once, whatever the number of
//! prefixes, and touches only nodes that the path runs through.

use std::collections::VecDeque;
use std::ops::Range;

/// All trees.
#[derive(Default)]
pub(crate) struct Trees {
    nodes: Vec<Node>,
    /// The first byte of each node's label, side by side for siblings, which are searched by it.
    firsts: Vec<u8>,
    labels: Vec<u8>,
}

/// A tree in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root(u32);

/// Half a cache line: a lookup among many routes costs what it has to fetch.
#[derive(Clone, Copy, Default)]
struct Node {
    /// The bytes between the parent's prefix and this one's.
    label: Label,
    /// The values that were inserted with exactly this prefix.
    values: Span,
    children: Span,
}

/// Bytes, in place if they are few.
#[derive(Clone, Copy, Default)]
struct Label {
    length: u32,
    /// The bytes, or at the start the number of the first of them in [`Trees::labels`].
    inline: [u8; INLINE],
}

const INLINE: usize = 12;

#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    length: u32,
}

/// A node to be filled: the keys that share its prefix, and where its label begins in them.
struct Pending {
    node: usize,
    keys: Range<usize>,
    depth: usize,
}

impl Trees {
    /// A tree of the keys, which are in order. The value of a key is its position, counted from `first`.
    pub(crate) fn insert(&mut self, keys: &[&[u8]], first: usize) -> Root {
        let root = self.add_nodes(1).start;
        let mut pending = VecDeque::from([Pending {
            node: root,
            keys: 0..keys.len(),
            depth: 0,
        }]);
        // By level, so that siblings are neighbours, and without recursion, since chains can be as long as paths.
        while let Some(next) = pending.pop_front() {
            self.fill(&next, keys, first, &mut pending);
        }
        Root(narrow(root))
    }

    fn fill(
        &mut self,
        next: &Pending,
        keys: &[&[u8]],
        first: usize,
        pending: &mut VecDeque<Pending>,
    ) {
        let own = &keys[next.keys.clone()];
        let (Some(&lowest), Some(&highest)) = (own.first(), own.last()) else {
            return;
        };
        // Keys are in order, so what the outermost share they all share.
        let end = next.depth + shared(&lowest[next.depth..], &highest[next.depth..]);
        let complete = own.iter().take_while(|key| key.len() == end).count();
        let label = self.add_label(&lowest[next.depth..end]);

        let mut groups = Vec::new();
        let mut at = complete;
        for group in own[complete..].chunk_by(|left, right| left[end] == right[end]) {
            groups.push(next.keys.start + at..next.keys.start + at + group.len());
            at += group.len();
        }
        let children = self.add_nodes(groups.len());
        for (node, group) in children.clone().zip(groups) {
            self.firsts[node] = keys[group.start][end];
            pending.push_back(Pending {
                node,
                keys: group,
                depth: end,
            });
        }
        self.nodes[next.node] = Node {
            label,
            values: Span::new(first + next.keys.start, complete),
            children: Span::new(children.start, children.len()),
        };
    }

    fn add_nodes(&mut self, count: usize) -> Range<usize> {
        let start = self.nodes.len();
        self.nodes.resize(start + count, Node::default());
        self.firsts.resize(start + count, 0);
        start..start + count
    }

    fn add_label(&mut self, bytes: &[u8]) -> Label {
        let mut inline = [0; INLINE];
        match inline.get_mut(..bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => {
                inline[..4].copy_from_slice(&narrow(self.labels.len()).to_ne_bytes());
                self.labels.extend_from_slice(bytes);
            }
        }
        Label {
            length: narrow(bytes.len()),
            inline,
        }
    }

    fn label<'t>(&'t self, label: &'t Label) -> &'t [u8] {
        let length = label.length as usize;
        label.inline.get(..length).unwrap_or_else(|| {
            let [a, b, c, d, ..] = label.inline;
            let start = u32::from_ne_bytes([a, b, c, d]) as usize;
            &self.labels[start..start + length]
        })
    }

    /// Calls `each` with the values of every key that the path begins with, the shortest first.
    pub(crate) fn prefixes_of(&self, root: Root, path: &[u8], mut each: impl FnMut(Range<u32>)) {
        let mut node = &self.nodes[root.0 as usize];
        let mut rest = path;
        loop {
            let Some(behind) = rest.strip_prefix(self.label(&node.label)) else {
                return;
            };
            rest = behind;
            if node.values.length > 0 {
                each(node.values.start..node.values.start + node.values.length);
            }
            let Some(&next) = rest.first() else {
                return;
            };
            let children = node.children.range();
            let Some(child) = memchr::memchr(next, &self.firsts[children.clone()]) else {
                return;
            };
            node = &self.nodes[children.start + child];
        }
    }
}

impl Span {
    fn new(start: usize, length: usize) -> Self {
        Self {
            start: narrow(start),
            length: narrow(length),
        }
    }

    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

fn shared(left: &[u8], right: &[u8]) -> usize {
    let pairs = left.iter().zip(right);
    pairs.take_while(|(left, right)| left == right).count()
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("an index holds less than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str], path: &str) -> Vec<u32> {
        let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
        assert!(keys.is_sorted());
        let mut trees = Trees::default();
        trees.insert(&[b"/other"], 0);
        let root = trees.insert(&keys, 100);
        let mut values = Vec::new();
        trees.prefixes_of(root, path.as_bytes(), |range| values.extend(range));
        values
    }

    #[test]
    fn every_prefix_is_found_and_nothing_else() {
        let keys = ["", "/", "/a", "/a", "/ab", "/abc/d", "/b"];
        assert_eq!(found(&keys, "/abc"), [100, 101, 102, 103, 104]);
        assert_eq!(found(&keys, "/abc/de"), [100, 101, 102, 103, 104, 105]);
        assert_eq!(found(&keys, "/b"), [100, 101, 106]);
        assert_eq!(found(&keys, "x"), [100]);
        assert_eq!(found(&keys, ""), [100]);
        assert!(found(&["/abc"], "/ab").is_empty());
        assert!(found(&[], "/ab").is_empty());
    }

    #[test]
    fn chains_as_long_as_paths_are_built_without_recursion() {
        let text = "/".repeat(50_000);
        let keys: Vec<_> = (1..=text.len()).map(|end| &text[..end]).collect();
        assert_eq!(found(&keys[..2_000], &text).len(), 2_000);
        assert_eq!(found(&[&text], &text), [100]);
    }
}
