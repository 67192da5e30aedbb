//! A radix tree that finds all keys that are prefixes of a text. Versions of the tree share nodes: a change copies only
//! the nodes from the root to its key. A lookup visits only nodes whose keys are prefixes of the text, and at most one
//! further child of each.
//!
//! A key is a sequence of steps. A step is either bytes, or a repeated class of bytes, which matches as many bytes as
//! possible ([`expr::Class`]). A path with parameters is therefore a key like any other. A node may continue with bytes
//! and with classes, so a lookup may read the same bytes of the text several times. It visits no node twice, because
//! only one sequence of steps leads to each node, and this sequence always matches the same part of a text.

use crate::label::Label;
use crate::work::Budget;
use expr::{Class, Step};
use smallvec::SmallVec;
use std::sync::Arc;

/// The content of a node. The default value means that the node has no content.
pub(crate) trait Value: Clone + Default {
    fn is_empty(&self) -> bool;
}

/// Clones share all data.
#[derive(Clone)]
pub(crate) struct Tree<V> {
    root: Option<Arc<Node<V>>>,
}

/// The cost of a lookup among many keys is the number of cache lines that it fetches. A node with a bucket of one
/// candidate therefore fits in one cache line, together with the counters of its [`Arc`].
#[derive(Clone, Default)]
struct Node<V> {
    /// The bytes after those of the parent. Empty only at the root and after a class.
    label: Label,
    value: V,
    below: Option<Box<Below<V>>>,
}

/// The continuations of the keys below a node.
#[derive(Clone)]
struct Below<V> {
    /// The first byte of each child's label, in the order of the children.
    firsts: SmallVec<[u8; 16]>,
    children: Box<[Arc<Node<V>>]>,
    /// The classes that follow the label; usually none.
    classes: Box<[Branch<V>]>,
}

#[derive(Clone)]
struct Branch<V> {
    class: Class,
    node: Arc<Node<V>>,
}

/// The link from a node to one of its children.
#[derive(Debug, Clone, Copy)]
enum Link {
    Child(usize),
    Class(usize),
}

impl<V: Value> Tree<V> {
    /// Calls `each` with every value whose key is a prefix of the text, and with the number of bytes that the key
    /// matched. Only classes consume the budget. If it is exhausted, values may be missing.
    pub(crate) fn walk<'t>(
        &'t self,
        text: &[u8],
        budget: &Budget,
        each: &mut impl FnMut(&'t V, usize),
    ) {
        if let Some(root) = &self.root {
            root.walk(text, 0, budget, each);
        }
    }

    /// Like [`Self::walk`], for a tree of reversed keys and a text that is read from its end. Such keys have no
    /// classes.
    pub(crate) fn walk_back<'t>(&'t self, text: &[u8], each: &mut impl FnMut(&'t V)) {
        let mut node = self.root.as_ref();
        let mut rest = text;
        while let Some(own) = node {
            let label = own.label.bytes();
            let Some(before) = rest.len().checked_sub(label.len()) else {
                return;
            };
            let (kept, end) = rest.split_at(before);
            if !end.iter().rev().eq(label) {
                return;
            }
            if !own.value.is_empty() {
                each(&own.value);
            }
            rest = kept;
            node = rest.last().and_then(|&last| own.child(last));
        }
    }

    #[cfg(test)]
    fn get(&self, key: &[Step]) -> Option<&V> {
        let mut node = self.root.as_ref()?;
        for link in self.links(key)? {
            node = node.follow(link);
        }
        Some(&node.value)
    }

    /// Changes the value of a key. The value of a new key is empty before the change. A key whose value is empty after
    /// the change is removed.
    pub(crate) fn change(&mut self, key: &[Step], change: impl FnOnce(&mut V)) {
        let mut node = self.root.get_or_insert_default();
        for step in key {
            node = match step {
                Step::Literal(bytes) => Node::reach(node, bytes),
                Step::Class(class) => Node::reach_class(node, *class),
            };
        }
        let value = &mut Arc::make_mut(node).value;
        change(value);
        if value.is_empty() {
            self.prune(key);
        }
    }

    /// Removes the nodes from the root to a key that are no longer needed.
    fn prune(&mut self, key: &[Step]) {
        let Some(mut links) = self.links(key) else {
            return;
        };
        loop {
            let Some(node) = self.follow_mut(&links) else {
                return;
            };
            if !node.is_bare() {
                node.merge();
                return;
            }
            let Some(last) = links.pop() else {
                self.root = None;
                return;
            };
            if let Some(parent) = self.follow_mut(&links) {
                parent.remove(last);
            }
        }
    }

    /// Returns the links from the root to the node of a key.
    fn links(&self, key: &[Step]) -> Option<Vec<Link>> {
        let mut links = Vec::new();
        let mut node = self.root.as_ref()?;
        for step in key {
            match step {
                Step::Literal(bytes) => {
                    let mut rest = &bytes[..];
                    while let Some(&first) = rest.first() {
                        let below = node.below.as_ref()?;
                        let child = memchr::memchr(first, &below.firsts)?;
                        node = &below.children[child];
                        rest = rest.strip_prefix(node.label.bytes())?;
                        links.push(Link::Child(child));
                    }
                }
                Step::Class(class) => {
                    let classes = &node.below.as_ref()?.classes;
                    let at = classes.iter().position(|branch| branch.class == *class)?;
                    node = &classes[at].node;
                    links.push(Link::Class(at));
                }
            }
        }
        Some(links)
    }

    fn follow_mut(&mut self, links: &[Link]) -> Option<&mut Node<V>> {
        let mut node = self.root.as_mut()?;
        for link in links {
            let below = Arc::make_mut(node).below.as_mut()?;
            node = match *link {
                Link::Child(at) => &mut below.children[at],
                Link::Class(at) => &mut below.classes[at].node,
            };
        }
        Some(Arc::make_mut(node))
    }
}

impl<V: Value> Node<V> {
    /// `at` is the position in the text where the label begins.
    fn walk<'t>(
        &'t self,
        text: &[u8],
        at: usize,
        budget: &Budget,
        each: &mut impl FnMut(&'t V, usize),
    ) {
        let mut node = self;
        let mut at = at;
        loop {
            let label = node.label.bytes();
            if !text[at..].starts_with(label) {
                return;
            }
            at += label.len();
            if !node.value.is_empty() {
                each(&node.value, at);
            }
            let Some(below) = &node.below else {
                return;
            };
            for branch in &below.classes {
                // The recursion depth is the number of classes in a key, which is limited when keys are created.
                let taken = branch.class.take(&text[at..]);
                if !budget.spend(1 + taken.unwrap_or(0)) {
                    return;
                }
                if let Some(taken) = taken {
                    branch.node.walk(text, at + taken, budget, each);
                }
            }
            let Some(child) = text.get(at).and_then(|&next| below.child(next)) else {
                return;
            };
            node = child;
        }
    }

    fn child(&self, first: u8) -> Option<&Arc<Self>> {
        self.below.as_ref()?.child(first)
    }

    #[cfg(test)]
    fn follow(&self, link: Link) -> &Arc<Self> {
        let below = self.below.as_ref().expect("a link leads to a child");
        match link {
            Link::Child(at) => &below.children[at],
            Link::Class(at) => &below.classes[at].node,
        }
    }

    /// Returns the node whose key continues this one's with `bytes`; creates it if it does not exist.
    fn reach<'n>(mut node: &'n mut Arc<Self>, bytes: &[u8]) -> &'n mut Arc<Self> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let below = Arc::make_mut(node).below.get_or_insert_default();
            let child = match memchr::memchr(first, &below.firsts) {
                Some(child) => child,
                None => below.add_child(rest),
            };
            let shared = shared(below.children[child].label.bytes(), rest);
            Self::split(&mut below.children[child], shared);
            rest = &rest[shared..];
            node = &mut below.children[child];
        }
        node
    }

    fn reach_class(node: &mut Arc<Self>, class: Class) -> &mut Arc<Self> {
        let below = Arc::make_mut(node).below.get_or_insert_default();
        let classes = &mut below.classes;
        let known = classes.iter().position(|branch| branch.class == class);
        let at = known.unwrap_or_else(|| {
            let node = Arc::default();
            edit(classes, |classes| classes.push(Branch { class, node }));
            classes.len() - 1
        });
        &mut classes[at].node
    }

    /// Moves the first `length` bytes of the label into a new parent node. Does nothing if this is the whole label.
    fn split(node: &mut Arc<Self>, length: usize) {
        if length == node.label.bytes().len() {
            return;
        }
        let mut lower = std::mem::take(node);
        let own = Arc::make_mut(&mut lower);
        let (upper_label, lower_label) = own.label.bytes().split_at(length);
        let mut upper = Self::default();
        upper.label = Label::new(upper_label);
        own.label = Label::new(lower_label);
        upper.below = Some(Box::new(Below {
            firsts: SmallVec::from_slice(&own.label.bytes()[..1]),
            children: Box::new([lower]),
            classes: Box::default(),
        }));
        *node = Arc::new(upper);
    }

    /// Whether the node can be removed without losing anything.
    fn is_bare(&self) -> bool {
        self.value.is_empty() && self.below.is_none()
    }

    fn remove(&mut self, link: Link) {
        let Some(below) = &mut self.below else {
            return;
        };
        match link {
            Link::Child(at) => {
                below.firsts.remove(at);
                edit(&mut below.children, |children| drop(children.remove(at)));
            }
            Link::Class(at) => edit(&mut below.classes, |classes| drop(classes.remove(at))),
        }
        if below.children.is_empty() && below.classes.is_empty() {
            self.below = None;
        }
    }

    /// Merges this node with its only child if it has no content of its own.
    fn merge(&mut self) {
        if !self.value.is_empty() || self.label.bytes().is_empty() {
            return;
        }
        let Some(below) = &mut self.below else {
            return;
        };
        let ([child], []) = (&mut below.children[..], &below.classes[..]) else {
            return;
        };
        let child = Arc::make_mut(child);
        self.label = Label::new(&[self.label.bytes(), child.label.bytes()].concat());
        self.value = std::mem::take(&mut child.value);
        let lower = std::mem::take(&mut child.below);
        self.below = lower;
    }
}

impl<V: Value> Below<V> {
    fn child(&self, first: u8) -> Option<&Arc<Node<V>>> {
        let child = memchr::memchr(first, &self.firsts)?;
        self.children.get(child)
    }

    fn add_child(&mut self, label: &[u8]) -> usize {
        let at = self.firsts.partition_point(|&known| known < label[0]);
        self.firsts.insert(at, label[0]);
        let mut child = Node::default();
        child.label = Label::new(label);
        edit(&mut self.children, |children| {
            children.insert(at, Arc::new(child))
        });
        at
    }
}

fn edit<T>(list: &mut Box<[T]>, edit: impl FnOnce(&mut Vec<T>)) {
    let mut whole = std::mem::take(list).into_vec();
    edit(&mut whole);
    *list = whole.into_boxed_slice();
}

fn shared(left: &[u8], right: &[u8]) -> usize {
    let pairs = left.iter().zip(right);
    pairs.take_while(|(left, right)| left == right).count()
}

/// Thousands of prefixes of one text are as many nested nodes, which would overflow the stack if they were dropped
/// recursively. Only nodes after a class are dropped recursively, because a key has few classes.
impl<V> Drop for Node<V> {
    fn drop(&mut self) {
        let Some(below) = self.below.take() else {
            return;
        };
        let mut pending = below.children.into_vec();
        while let Some(node) = pending.pop() {
            let below = Arc::into_inner(node).and_then(|mut node| node.below.take());
            pending.extend(below.into_iter().flat_map(|below| below.children));
        }
    }
}

impl<V> Default for Below<V> {
    fn default() -> Self {
        Self {
            firsts: SmallVec::new(),
            children: Box::default(),
            classes: Box::default(),
        }
    }
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<V: Value> Value for Tree<V> {
    fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{Dialect, Regex};
    use std::collections::BTreeMap;

    impl Value for Vec<u32> {
        fn is_empty(&self) -> bool {
            self.is_empty()
        }
    }

    fn literal(text: &str) -> Vec<Step> {
        vec![Step::Literal(text.as_bytes().into())]
    }

    fn tree_of(keys: &[&str]) -> Tree<Vec<u32>> {
        let mut tree = Tree::default();
        for (number, key) in (0..).zip(keys) {
            tree.change(&literal(key), |value: &mut Vec<u32>| value.push(number));
        }
        tree
    }

    fn found(tree: &Tree<Vec<u32>>, text: &str) -> Vec<(u32, usize)> {
        let mut values = Vec::new();
        tree.walk(text.as_bytes(), &Budget::default(), &mut |list, at| {
            values.extend(list.iter().map(|&value| (value, at)));
        });
        values
    }

    #[test]
    fn every_prefix_is_found_and_nothing_else() {
        let tree = tree_of(&["", "/", "/a", "/a", "/ab", "/abc/d", "/b"]);
        let values =
            |text| -> Vec<u32> { found(&tree, text).iter().map(|found| found.0).collect() };
        assert_eq!(values("/abc"), [0, 1, 2, 3, 4]);
        assert_eq!(values("/abc/de"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(values("/b"), [0, 1, 6]);
        assert_eq!(values("x"), [0]);
        assert_eq!(values(""), [0]);
        assert_eq!(found(&tree, "/abc/de").last(), Some(&(5, 6)));
        assert!(found(&tree_of(&["/abc"]), "/ab").is_empty());
        assert!(found(&tree_of(&[]), "/ab").is_empty());
    }

    #[test]
    fn reversed_keys_are_found_from_the_end() {
        let tree = tree_of(&["moc.", "moc.a.", "gro."]);
        let found = |text: &str| {
            let mut values = Vec::new();
            tree.walk_back(text.as_bytes(), &mut |list| {
                values.extend(list.iter().copied())
            });
            values
        };
        assert_eq!(found("x.a.com"), [0, 1]);
        assert_eq!(found(".org"), [2]);
        assert!(found("com").is_empty());
    }

    #[test]
    fn classes_match_as_much_as_possible_and_keys_continue_after_them() {
        let key = |pattern: &str| {
            let regex = Regex::new(pattern, Dialect::Rust).expect("the pattern is a regex");
            regex.starts()[0].steps().to_vec()
        };
        let (orders, user) = (key("^/users/[^/]+/orders"), key("^/users/[^/]+"));
        let mut tree = tree_of(&["/users/me", "/users/"]);
        tree.change(&orders, |value| value.push(7));
        tree.change(&user, |value| value.push(8));
        assert_eq!(
            found(&tree, "/users/me/orders"),
            [(1, 7), (8, 9), (7, 16), (0, 9)]
        );
        assert_eq!(found(&tree, "/users/"), [(1, 7)]);
        let before = tree.clone();
        tree.change(&orders, Vec::clear);
        tree.change(&user, Vec::clear);
        assert_eq!(found(&tree, "/users/me/orders"), [(1, 7), (0, 9)]);
        assert_eq!(found(&before, "/users/me/orders").len(), 4);
    }

    #[test]
    fn chains_as_long_as_paths_are_built_and_dropped_without_recursion() {
        let text = "/".repeat(50_000);
        let mut tree = Tree::default();
        for end in 1..=2_000 {
            tree.change(&literal(&text[..end]), |value: &mut Vec<u32>| value.push(1));
        }
        assert_eq!(found(&tree, &text).len(), 2_000);
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let dropped = small.spawn(move || drop(tree)).expect("a thread starts");
        dropped.join().expect("its stack is large enough");
    }

    /// Returns the number of nodes that should have been removed or merged, because they have no content and at most
    /// one child.
    fn idle(node: &Node<Vec<u32>>) -> usize {
        let children = node.below.as_ref().map_or(&[][..], |below| &below.children);
        let own = node.value.is_empty() && !node.label.bytes().is_empty() && children.len() < 2;
        usize::from(own) + children.iter().map(|child| idle(child)).sum::<usize>()
    }

    #[test]
    fn behaves_as_a_map_whose_keys_are_looked_up_by_prefix() {
        let mut random = 7_u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) as usize
        };
        let mut tree = Tree::<Vec<u32>>::default();
        let mut known = BTreeMap::<String, Vec<u32>>::new();
        let mut before = (tree.clone(), known.clone());
        for step in 0..20_000 {
            let length = next() % 7;
            let key: String = (0..length).map(|_| ["a", "b", "/"][next() % 3]).collect();
            if next() % 16 < if step < 10_000 { 10 } else { 5 } {
                tree.change(&literal(&key), |value| value.push(step));
                known.entry(key.clone()).or_default().push(step);
            } else {
                tree.change(&literal(&key), Vec::clear);
                known.remove(&key);
            }
            if step % 10 == 0 {
                let expected: Vec<(u32, usize)> = (0..=key.len())
                    .filter_map(|end| Some((end, known.get(&key[..end])?)))
                    .flat_map(|(end, list)| list.iter().map(move |&value| (value, end)))
                    .collect();
                assert_eq!(found(&tree, &key), expected);
            }
            if step % 2_000 == 0 {
                for (key, value) in &before.1 {
                    assert_eq!(before.0.get(&literal(key)), Some(value));
                }
                before = (tree.clone(), known.clone());
                assert_eq!(tree.root.as_deref().map_or(0, idle), 0);
            }
        }
        for key in known.keys() {
            tree.change(&literal(key), Vec::clear);
        }
        assert!(Value::is_empty(&tree));
    }
}
