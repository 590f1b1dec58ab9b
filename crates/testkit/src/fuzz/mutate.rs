//! Makes inputs of samples: as bytes, and where the form is known as trees.

use rmpv::Value as Tree;

/// The form of the samples of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputForm {
    /// Bytes or text of which nothing is known.
    Bytes,
    /// One JSON value.
    Json,
    /// JSON values, each on a line.
    JsonLines,
    /// One MessagePack value.
    MessagePack,
}

/// Changes that an input gets at most.
const CHANGES_MAX: usize = 6;
/// Bytes that an input is not made longer than, but for what is repeated.
const LENGTH_MAX: usize = 256 << 10;
/// Whole numbers at edges.
const EDGES: [i64; 16] = [
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2_147_483_647,
    2_147_483_648,
    4_294_967_295,
    4_294_967_296,
    i64::MAX,
    i64::MIN,
];
/// Numbers at edges, as text.
const NUMBERS: [&str; 12] = [
    "0",
    "-0",
    "-1",
    "1e999",
    "1e-999",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "9007199254740993",
    "0.1",
    "00",
    "1.7976931348623157e308",
];
/// Texts that are taken for something else.
const TEXTS: [&str; 16] = [
    "",
    "\0",
    "\u{feff}",
    "\u{202e}",
    "a\nb",
    "../../x",
    "nil",
    "*",
    ">",
    "a.b",
    "é",
    "e\u{301}",
    "\u{10ffff}",
    "-",
    "null",
    "00000000-0000-0000-0000-000000000000",
];
/// What nests.
const OPENERS: [&str; 8] = ["[", "{\"a\":", "(", "{", "- ", "\u{91}", "\u{81}\u{a1}a", "[["];

/// Numbers that follow from a seed: SplitMix64.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_number() % end.max(1) as u64).unwrap_or_default()
    }

    /// One of these.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Whether something happens that does so once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// An input: a sample, or one that was decoded before, with some changes.
pub(super) fn input(
    draw: &mut Draw,
    form: InputForm,
    (samples, learned): (&[Vec<u8>], &[Vec<u8>]),
    tokens: &[&'static [u8]],
) -> Vec<u8> {
    let pick = |draw: &mut Draw| match learned.is_empty() || draw.once_in(2) {
        true => draw.one(samples).clone(),
        false => draw.one(learned).clone(),
    };
    let (mut input, other) = (pick(draw), pick(draw));
    let as_tree = draw.below(3) != 0;
    for _ in 0..=draw.below(CHANGES_MAX) {
        let changed = match form {
            InputForm::Bytes => None,
            _ if !as_tree => None,
            InputForm::Json => change_json(draw, &input, &other),
            InputForm::JsonLines => change_lines(draw, &input, &other),
            InputForm::MessagePack => change_messagepack(draw, &input, &other),
        };
        match changed {
            Some(changed) => input = changed,
            None => change_bytes(draw, &mut input, &other, tokens),
        }
        input.truncate(LENGTH_MAX);
    }
    if draw.once_in(500) {
        repeat(draw, &mut input);
    }
    input
}

/// A piece very often: what nests exhausts a stack, and what is long exhausts memory.
fn repeat(draw: &mut Draw, input: &mut Vec<u8>) {
    let opener: Vec<u8> = draw.one(&OPENERS).chars().map(|c| c as u8).collect();
    let (at, times) = (draw.below(input.len() + 1), 1 << (6 + draw.below(12)));
    input.splice(at..at, opener.repeat(times));
}

fn change_bytes(draw: &mut Draw, input: &mut Vec<u8>, other: &[u8], tokens: &[&'static [u8]]) {
    let length = input.len();
    let at = draw.below(length + 1);
    let end = at + draw.below((length - at).min(64) + 1);
    match draw.below(12) {
        0 => drop(input.drain(at..end)),
        1 => input.insert(at, draw.next_number().to_le_bytes()[0]),
        2 if at < length => input[at] ^= 1 << draw.below(8),
        3 if at < length => {
            input[at] = *draw.one(&[0, 0x7f, 0x80, 0xff, b'"', b'\\', b'\n', b'{', 0xc1])
        }
        4 => {
            let piece = input[at..end].to_vec();
            let to = draw.below(length + 1);
            input.splice(to..to, piece);
        }
        5 | 6 if !other.is_empty() => {
            let from = draw.below(other.len());
            let until = from + draw.below((other.len() - from).min(200) + 1);
            input.splice(at..end, other[from..until].iter().copied());
        }
        7 | 8 if !tokens.is_empty() => {
            let token = draw.one(tokens);
            input.splice(at..(if draw.once_in(2) { at } else { end }), token.iter().copied());
        }
        9 => number_in_text(draw, input),
        10 if at + 4 <= length => {
            let edge = draw.one(&EDGES).to_le_bytes();
            let edge = if draw.once_in(2) {
                [edge[0], edge[1], edge[2], edge[3]]
            } else {
                [edge[3], edge[2], edge[1], edge[0]]
            };
            input[at..at + 4].copy_from_slice(&edge);
        }
        11 => input.truncate(at),
        _ => {
            let text = draw.one(&TEXTS).bytes();
            input.splice(at..at, text);
        }
    }
}

/// Puts a number at an edge in the place of digits.
fn number_in_text(draw: &mut Draw, input: &mut Vec<u8>) {
    let digits: Vec<usize> =
        (0..input.len()).filter(|at| input[*at].is_ascii_digit()).take(4096).collect();
    if digits.is_empty() {
        return;
    }
    let at = *draw.one(&digits[..]);
    let end = at + input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    input.splice(at..end, draw.one(&NUMBERS).bytes());
}

fn change_json(draw: &mut Draw, input: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let mut tree: Tree = serde_json::from_slice(input).ok()?;
    let other = serde_json::from_slice(other).unwrap_or(Tree::Nil);
    change_tree(draw, &mut tree, &other);
    serde_json::to_vec(&tree).ok()
}

fn change_messagepack(draw: &mut Draw, input: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let read = |mut bytes: &[u8]| rmpv::decode::read_value_with_max_depth(&mut bytes, 100).ok();
    let mut tree = read(input)?;
    change_tree(draw, &mut tree, &read(other).unwrap_or(Tree::Nil));
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &tree).ok()?;
    Some(out)
}

/// Changes a line, or which lines there are and in what order.
fn change_lines(draw: &mut Draw, input: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    let others: Vec<&[u8]> = other.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() || others.is_empty() {
        return None;
    }
    let (at, to) = (draw.below(lines.len()), draw.below(lines.len()));
    let changed;
    match draw.below(8) {
        0 => drop(lines.remove(at)),
        1 => lines.swap(at, to),
        2 => lines.insert(to, lines[at]),
        3 => lines.insert(at, *draw.one(&others[..])),
        _ => {
            let piece = *draw.one(&others[..]);
            let mut line = change_json(draw, lines[at], piece)?;
            line.push(b'\n');
            changed = line;
            lines[at] = &changed;
        }
    }
    Some(lines.concat())
}

fn change_tree(draw: &mut Draw, tree: &mut Tree, other: &Tree) {
    let at = draw.below(nodes(tree));
    let Some(place) = node(tree, at) else { return };
    match draw.below(10) {
        0..=2 => *place = scalar(draw),
        3 | 4 => {
            let mut other = other.clone();
            let from = draw.below(nodes(&other));
            if let Some(piece) = node(&mut other, from) {
                *place = piece.clone();
            }
        }
        5 => {
            let inner = std::mem::replace(place, Tree::Nil);
            *place = match draw.once_in(2) {
                true => Tree::Array(vec![inner]),
                false => Tree::Map(vec![(Tree::from("input"), inner)]),
            };
        }
        6 if draw.once_in(8) => {
            let depth = 1 << draw.below(9);
            *place = (0..depth).fold(Tree::from(1), |inner, _| Tree::Array(vec![inner]));
        }
        6 => *place = Tree::from("a".repeat(1 << draw.below(14))),
        _ => change_members(draw, place),
    }
}

fn change_members(draw: &mut Draw, place: &mut Tree) {
    match place {
        Tree::Map(fields) if !fields.is_empty() => {
            let at = draw.below(fields.len());
            match draw.below(4) {
                0 => drop(fields.remove(at)),
                1 => fields.push(fields[at].clone()),
                2 => fields[at].0 = Tree::from(*draw.one(&TEXTS)),
                _ => fields[at].1 = scalar(draw),
            }
        }
        Tree::Array(all) if !all.is_empty() => {
            let at = draw.below(all.len());
            match draw.below(4) {
                0 => drop(all.remove(at)),
                1 => {
                    let again = all[at].clone();
                    all.extend(std::iter::repeat_n(again, 1 << draw.below(6)));
                }
                2 => all.reverse(),
                _ => all[at] = scalar(draw),
            }
        }
        place => *place = scalar(draw),
    }
}

fn scalar(draw: &mut Draw) -> Tree {
    match draw.below(9) {
        0 => Tree::Nil,
        1 => Tree::Boolean(draw.once_in(2)),
        2 | 3 => Tree::from(*draw.one(&EDGES)),
        4 => Tree::from(u64::MAX - u64::from(draw.once_in(2))),
        5 => Tree::F64(*draw.one(&[0.0, -0.0, 0.1, 1e308, -1e-308, 9_007_199_254_740_993.0])),
        6 => Tree::Array(Vec::new()),
        7 => Tree::Map(Vec::new()),
        _ => Tree::from(*draw.one(&TEXTS)),
    }
}

/// How many values a tree has, itself included.
fn nodes(tree: &Tree) -> usize {
    1 + match tree {
        Tree::Array(all) => all.iter().map(nodes).sum(),
        Tree::Map(fields) => fields.iter().map(|(_, value)| nodes(value)).sum(),
        _ => 0,
    }
}

/// A value of a tree by its number.
fn node(tree: &mut Tree, mut number: usize) -> Option<&mut Tree> {
    if number == 0 {
        return Some(tree);
    }
    number -= 1;
    let members: Vec<&mut Tree> = match tree {
        Tree::Array(all) => all.iter_mut().collect(),
        Tree::Map(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
        _ => return None,
    };
    for member in members {
        let inside = nodes(member);
        if number < inside {
            return node(member, number);
        }
        number -= inside;
    }
    None
}
