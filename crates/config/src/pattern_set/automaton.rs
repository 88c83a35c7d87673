//! Aho-Corasick automaton: finds all occurrences of many literals in one pass over a text, in a time independent of the
//! number of literals. (A. Aho, M. Corasick: Efficient string matching, 1975.)

use std::collections::VecDeque;
use std::ops::Range;

/// The state before the first byte.
pub(super) const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;
/// Nodes with at most this many edges are searched linearly.
const LINEAR_MAX: usize = 8;

/// The literals as a trie with failure links.
pub(super) struct LiteralAutomaton {
    /// The child of the root for each byte.
    root: Box<[u32; 256]>,
    nodes: Vec<TrieNode>,
    /// The first byte and the target node of each edge, contiguous for each node and sorted by byte.
    labels: Vec<u8>,
    targets: Vec<u32>,
}

struct TrieNode {
    edges: Range<u32>,
    /// Failure link: the node of the longest proper suffix that is in the trie.
    failure: u32,
    /// The number of the literal that is spelled by this node; `NONE` if there is none.
    literal: u32,
    /// The nearest node along the failure links that spells a literal.
    shorter: u32,
    /// This node if it spells a literal; otherwise `shorter`.
    ending: u32,
}

impl LiteralAutomaton {
    /// Builds the automaton. The literals are in ascending order, distinct and not empty.
    pub(super) fn new(literals: &[&[u8]]) -> LiteralAutomaton {
        let mut automaton = LiteralAutomaton {
            root: Box::new([ROOT; 256]),
            nodes: vec![TrieNode::new(ROOT)],
            labels: Vec::new(),
            targets: Vec::new(),
        };
        // Breadth first: the failure link of a new node points to a node with complete edges.
        let mut queue = VecDeque::from([(ROOT, 0..literals.len(), 0)]);
        while let Some((node, mut range, depth)) = queue.pop_front() {
            // Literals are sorted: a literal that ends at this node is the first of its range.
            if range.start < range.end && literals[range.start].len() == depth {
                automaton.nodes[node as usize].literal = number(range.start);
                range.start += 1;
            }
            let first_edge = number(automaton.labels.len());
            while range.start < range.end {
                let byte = literals[range.start][depth];
                let group = &literals[range.clone()];
                // Literals are sorted: those with the same next byte are contiguous.
                let len = group.partition_point(|literal| literal[depth] == byte);
                let child = automaton.add_child(node, byte);
                queue.push_back((child, range.start..range.start + len, depth + 1));
                range.start += len;
            }
            automaton.nodes[node as usize].edges = first_edge..number(automaton.labels.len());
            // The failure node is nearer to the root, so its own links are complete.
            automaton.link_shorter(node);
        }
        automaton
    }

    fn add_child(&mut self, parent: u32, byte: u8) -> u32 {
        // Children of the root have the root as failure node; a look-up would return the children themselves.
        let failure = match parent {
            ROOT => ROOT,
            _ => self.next(self.nodes[parent as usize].failure, byte),
        };
        let child = number(self.nodes.len());
        self.nodes.push(TrieNode::new(failure));
        self.labels.push(byte);
        self.targets.push(child);
        if parent == ROOT {
            self.root[usize::from(byte)] = child;
        }
        child
    }

    fn link_shorter(&mut self, node: u32) {
        let failure = self.nodes[node as usize].failure;
        // The root's failure link points to itself; no literal ends there. Other literals may be proper suffixes of the
        // text of this node.
        let shorter = self.nodes[failure as usize].ending;
        let linked = &mut self.nodes[node as usize];
        linked.shorter = shorter;
        linked.ending = match linked.literal {
            NONE => shorter,
            _ => node,
        };
    }

    /// Whether no literal begins with a byte.
    #[inline(always)]
    pub(super) fn stays_at_root(&self, byte: u8) -> bool {
        self.root[usize::from(byte)] == ROOT
    }

    /// Returns the state after one more byte.
    #[inline]
    pub(super) fn next(&self, mut state: u32, byte: u8) -> u32 {
        while state != ROOT {
            let node = &self.nodes[state as usize];
            let (start, end) = (node.edges.start as usize, node.edges.end as usize);
            // For the few edges of most nodes a linear search is faster than a binary search; one edge is the common
            // case.
            let child = match end - start {
                1 => (self.labels[start] == byte).then_some(0),
                ..=LINEAR_MAX => self.labels[start..end].iter().position(|it| *it == byte),
                _ => self.labels[start..end].binary_search(&byte).ok(),
            };
            match child {
                Some(index) => return self.targets[start + index],
                // The longest proper suffix may have an edge for this byte.
                None => state = node.failure,
            }
        }
        self.root[usize::from(byte)]
    }

    /// Whether any literal ends in a state.
    #[inline]
    pub(super) fn is_ending(&self, state: u32) -> bool {
        // No literal is empty, so none ends at the root.
        state != ROOT && self.nodes[state as usize].ending != NONE
    }

    /// The literals that end in a state, longest first.
    pub(super) fn ending(&self, state: u32) -> impl Iterator<Item = usize> {
        let mut node_index = self.nodes[state as usize].ending;
        std::iter::from_fn(move || {
            let node = self.nodes.get(node_index as usize)?;
            node_index = node.shorter;
            Some(node.literal as usize)
        })
    }
}

impl TrieNode {
    fn new(failure: u32) -> TrieNode {
        TrieNode {
            edges: 0..0,
            failure,
            literal: NONE,
            shorter: NONE,
            ending: NONE,
        }
    }
}

/// The conversion cannot overflow: a pattern has at most 1024 bytes, and a configuration is far below 4 GiB.
fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(literals: &[&[u8]], text: &[u8]) -> Vec<(usize, usize)> {
        let automaton = LiteralAutomaton::new(literals);
        let (mut state, mut found) = (ROOT, Vec::new());
        for (at, byte) in text.iter().enumerate() {
            state = automaton.next(state, *byte);
            found.extend(automaton.ending(state).map(|literal| (literal, at + 1)));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn automaton_finds_all_occurrences_of_all_literals() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).expect("small")
        };
        let mut total = 0;
        for round in 0..3000 {
            let letters = 2 + round % 30;
            let mut word = |len: usize| -> Vec<u8> {
                (0..len).map(|_| b'a' + random(letters) as u8).collect()
            };
            let mut literals: Vec<Vec<u8>> = (0..1 + round % 40).map(|i| word(1 + i % 5)).collect();
            literals.sort();
            literals.dedup();
            let literals: Vec<&[u8]> = literals.iter().map(Vec::as_slice).collect();
            let text = word(round % 50);
            let mut expected = Vec::new();
            for (number, literal) in literals.iter().enumerate() {
                let ends =
                    (literal.len()..=text.len()).filter(|end| text[..*end].ends_with(literal));
                expected.extend(ends.map(|end| (number, end)));
            }
            assert_eq!(
                found(&literals, &text),
                expected,
                "{literals:?} in {text:?}"
            );
            total += expected.len();
        }
        assert!(total > 10_000, "{total} occurrences prove nothing");
    }
}
