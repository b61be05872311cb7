//! Whether two resources overlap: the rule that all leases rest on.
//!
//! Resources of the kind [`PATH_GLOB`] overlap as described at [`paths_overlap`]; those of any other kind overlap where
//! they are equal; those of two kinds never do.

use alloc::vec;
use alloc::vec::Vec;

/// The kind of resource whose values are paths with wildcards.
pub const PATH_GLOB: &str = "path_glob";

/// Whether two values of [`PATH_GLOB`] overlap. Symmetric.
///
/// They do where the existing peer says so, which compares texts: equal, or either is `**`, or one of them without its
/// trailing `**`, `*` and `/` is a prefix of the other (`src/*` holds `src/a/b.rs`, and `src` holds `srcfoo`). And they
/// do where a path exists that both name, each together with all below what it matches (`*.rs` and `a.rs`, `src/**/x`
/// and `src/a/x`), which the existing peer overlooks. A lease may so be refused once too often, never granted twice.
///
/// Wildcards: `*` any part of a segment, `**` any text, `?` one character, `[..]` one character, `{..}` any text.
/// Nothing is normalised: `./a` and `a`, and `A` and `a`, are different paths.
#[must_use]
pub fn paths_overlap(one: &str, other: &str) -> bool {
    texts_overlap(one, other) || languages_overlap(one, other)
}

/// The part of a pattern that every path it can overlap with shares or is a prefix of: two patterns overlap only where
/// one's stem is a prefix of the other's. Empty for one that begins with a wildcard, and for the root.
#[must_use]
pub fn stem(pattern: &str) -> &str {
    let literal = pattern.find(is_wildcard).map_or(pattern, |at| &pattern[..at]);
    literal.trim_end_matches('/')
}

const fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | '{')
}

fn texts_overlap(one: &str, other: &str) -> bool {
    if one == other || one == "**" || other == "**" {
        return true;
    }
    let covers = |tree: &str, path: &str| {
        let tree = tree.trim_end_matches("**").trim_end_matches('*').trim_end_matches('/');
        !tree.is_empty() && path.starts_with(tree)
    };
    covers(one, other) || covers(other, one)
}

/// One step of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// This character.
    Char(char),
    /// One character of a segment.
    Any,
    /// Any characters of a segment, or none.
    Run,
    /// Any text, or none.
    Text,
}

/// A pattern as steps, with all below what it matches.
fn tokens(pattern: &str) -> Vec<Token> {
    let mut rest = pattern;
    let mut tokens = Vec::with_capacity(pattern.len() + 1);
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '*' if rest.starts_with("**") => {
                taken = rest.len() - rest.trim_start_matches('*').len();
                // `**/` is also no directory at all, and `/**` the directory itself.
                taken += usize::from(rest[taken..].starts_with('/'));
                if tokens.last() == Some(&Token::Char('/')) && taken == rest.len() {
                    tokens.pop();
                }
                tokens.push(Token::Text);
            }
            '*' => tokens.push(Token::Run),
            '?' => tokens.push(Token::Any),
            '[' | '{' => {
                let end = rest.find(if c == '[' { ']' } else { '}' });
                taken = end.map_or(taken, |end| end + 1);
                tokens.push(match (end, c) {
                    (Some(_), '[') => Token::Any,
                    (Some(_), _) => Token::Text,
                    (None, c) => Token::Char(c),
                });
            }
            c => tokens.push(Token::Char(c)),
        }
        rest = &rest[taken..];
    }
    while tokens.last() == Some(&Token::Char('/')) {
        tokens.pop();
    }
    tokens
}

/// Whether a path exists that both patterns match, or that lies below what one of them matches.
///
/// Walks both patterns at once: a cell says whether some text takes both to there. O(length of one x length of the
/// other), both at most [`MAX_VALUE`](crate::message::lease::MAX_VALUE) bytes.
fn languages_overlap(one: &str, other: &str) -> bool {
    let is_plain = |pattern: &str| !pattern.contains(is_wildcard);
    if is_plain(one) && is_plain(other) {
        // One lies below the other, or is the root of all that begin with a slash.
        return is_below(one, other) || is_below(other, one);
    }
    let (one, other) = (tokens(one), tokens(other));
    let mut row = vec![false; other.len() + 1];
    let mut next = vec![false; other.len() + 1];
    row[0] = true;
    for at in 0..=one.len() {
        let token = one.get(at).copied();
        next.fill(false);
        for to in 0..=other.len() {
            if !row[to] {
                continue;
            }
            let against = other.get(to).copied();
            match (token, against) {
                (None, None) => return true,
                // All below what has matched is matched too: what is left of the other needs only to begin a segment.
                (None, Some(rest)) => {
                    if begins_below(rest) {
                        return true;
                    }
                }
                (Some(rest), None) => {
                    if begins_below(rest) {
                        return true;
                    }
                }
                (Some(_), Some(_)) => {}
            }
            // A wildcard that may be nothing is stepped over.
            if matches!(against, Some(Token::Run | Token::Text)) {
                row[to + 1] = true;
            }
            if matches!(token, Some(Token::Run | Token::Text)) {
                next[to] = true;
            }
            let (Some(token), Some(against)) = (token, against) else { continue };
            if !meet(token, against) {
                continue;
            }
            match (is_repeated(token), is_repeated(against)) {
                (false, false) => next[to + 1] = true,
                (true, false) => row[to + 1] = true,
                (false, true) => next[to] = true,
                // Both are stepped over above.
                (true, true) => {}
            }
        }
        core::mem::swap(&mut row, &mut next);
    }
    false
}

/// Whether a text that begins below a directory can begin with this.
const fn begins_below(token: Token) -> bool {
    matches!(token, Token::Char('/') | Token::Text)
}

const fn is_repeated(token: Token) -> bool {
    matches!(token, Token::Run | Token::Text)
}

/// Whether one character can be taken by both.
fn meet(one: Token, other: Token) -> bool {
    match (one, other) {
        (Token::Char(one), Token::Char(other)) => one == other,
        (Token::Char(c), Token::Any | Token::Run) | (Token::Any | Token::Run, Token::Char(c)) => c != '/',
        (Token::Any | Token::Run | Token::Text, Token::Any | Token::Run | Token::Text)
        | (Token::Char(_), Token::Text)
        | (Token::Text, Token::Char(_)) => true,
    }
}

/// Whether a path is a directory, or lies below it.
fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (!directory.is_empty() || path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use quickcheck::{Arbitrary, Gen, quickcheck};

    use super::*;

    const CONFLICT: bool = true;
    const FREE: bool = false;

    /// The overlap table of the link's requirements, row by row, with the verdict decided there.
    const TABLE: [(&str, &str, bool); 40] = [
        ("src/**", "src/app.rs", CONFLICT),
        ("**", "anything", CONFLICT),
        ("**", "/", CONFLICT),
        ("src/*", "src/a/b.rs", CONFLICT),
        ("*", "a", CONFLICT),
        ("src", "src/app.rs", CONFLICT),
        ("src/", "src/app.rs", CONFLICT),
        ("/**", "/etc/x", CONFLICT),
        ("/", "a", FREE),
        ("/", "/etc/x", CONFLICT),
        ("src", "srcfoo", CONFLICT),
        ("**/x.rs", "src/x.rs", CONFLICT),
        ("**/x.rs", "x.rs", CONFLICT),
        // A plain path may be a directory, with an x.rs in it.
        ("**/x.rs", "src/y.rs", CONFLICT),
        ("src/app", "src/app.rs", CONFLICT),
        ("x.rs", "x.rs.bak", CONFLICT),
        ("*.rs", "a.rs", CONFLICT),
        ("*.rs", "a.py", FREE),
        ("*.rs", "src/a.rs", FREE),
        ("src/*.rs", "src/a.rs", CONFLICT),
        ("src/*.rs", "lib/a.rs", FREE),
        ("src/a/**", "src/ab/x", CONFLICT),
        ("src/**/x", "src/a/x", CONFLICT),
        ("src/**/x", "src/a/b/x", CONFLICT),
        ("src/**/x", "src/x", CONFLICT),
        ("src/**/x", "src/a/y", CONFLICT),
        ("src/**/x", "lib/a/x", FREE),
        ("a/**/", "a/x", CONFLICT),
        ("src/a/**", "src/b/**", FREE),
        ("./src/a", "src/a", FREE),
        ("src//a", "src/a", FREE),
        ("SRC/**", "src/a", FREE),
        ("a***", "ab", CONFLICT),
        ("src/***", "src/q", CONFLICT),
        ("src/*.rs", "src/*.rs", CONFLICT),
        ("src/?.rs", "src/a.rs", CONFLICT),
        ("src/[ab].rs", "src/a.rs", CONFLICT),
        ("{src,lib}/a", "lib/a", CONFLICT),
        ("*.rs", "a.*", CONFLICT),
        ("a", "b", FREE),
    ];

    #[test]
    fn the_overlap_table_holds_in_both_directions() {
        for (one, other, conflict) in TABLE {
            assert_eq!(paths_overlap(one, other), conflict, "{one} held, {other} asked");
            assert_eq!(paths_overlap(other, one), conflict, "{other} held, {one} asked");
        }
    }

    #[test]
    fn a_stem_ends_at_the_first_wildcard() {
        for (pattern, expected) in
            [("src/**", "src"), ("src/a*.rs", "src/a"), ("*.rs", ""), ("/", ""), ("a/b/", "a/b"), ("x?", "x")]
        {
            assert_eq!(stem(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn the_longest_patterns_are_compared() {
        let stars: String = core::iter::repeat_n("*a", 256).collect();
        let tail: String = core::iter::repeat_n("a", 512).collect();
        assert!(paths_overlap(&stars, &tail));
        assert!(!paths_overlap(&stars, &tail.replace('a', "b")));
    }

    /// A pattern over few characters, so that overlaps are common.
    #[derive(Clone, Debug)]
    struct Pattern(String);

    impl Arbitrary for Pattern {
        fn arbitrary(g: &mut Gen) -> Self {
            let parts = ["a", "b", "/", "*", "**", "?", "[ab]", "ab", "/a", "b/"];
            let count = usize::arbitrary(g) % 6 + 1;
            Self((0..count).map(|_| *g.choose(&parts).expect("there are parts")).collect())
        }
    }

    /// Whether a plain text is matched by a pattern, or lies below what is: by trying every way.
    fn holds(pattern: &[Token], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty() || text[0] == '/',
            Some((Token::Char(c), rest)) => {
                text.split_first().is_some_and(|(first, left)| first == c && holds(rest, left))
            }
            Some((Token::Any, rest)) => {
                text.split_first().is_some_and(|(first, left)| *first != '/' && holds(rest, left))
            }
            Some((Token::Run, rest)) => {
                holds(rest, text)
                    || text.split_first().is_some_and(|(first, left)| *first != '/' && holds(pattern, left))
            }
            Some((Token::Text, rest)) => {
                holds(rest, text) || text.split_first().is_some_and(|(_, left)| holds(pattern, left))
            }
        }
    }

    quickcheck! {
        fn overlap_is_symmetric(one: Pattern, other: Pattern) -> bool {
            paths_overlap(&one.0, &other.0) == paths_overlap(&other.0, &one.0)
        }

        fn a_pattern_overlaps_itself(one: Pattern) -> bool {
            paths_overlap(&one.0, &one.0) && languages_overlap(&one.0, &one.0)
        }

        fn two_patterns_that_hold_one_path_overlap(one: Pattern, other: Pattern, path: Vec<u8>) -> bool {
            let path: Vec<char> = path.iter().take(8).map(|c| ['a', 'b', '/'][usize::from(c % 3)]).collect();
            let both = holds(&tokens(&one.0), &path) && holds(&tokens(&other.0), &path);
            !both || paths_overlap(&one.0, &other.0)
        }

        fn what_overlaps_has_stems_that_are_prefixes_of_one_another(one: Pattern, other: Pattern) -> bool {
            let (left, right) = (stem(&one.0), stem(&other.0));
            !paths_overlap(&one.0, &other.0) || left.starts_with(right) || right.starts_with(left)
        }
    }
}
