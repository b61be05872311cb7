//! The known word nearest to one that is not: for errors that say what was probably meant.

/// The candidate that takes the fewest edits from `word`, if that is no more than a third of its length.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(64).collect();
    candidates
        .map(|candidate| (edits(&word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= candidate.chars().count().div_ceil(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out or changed to turn one word into the other.
fn edits(word: &[char], other: &str) -> usize {
    // row[n]: the edits from the part of `other` seen so far to the first n characters of `word`.
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (place, character) in other.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (n, own) in word.iter().enumerate() {
            let changed = diagonal + usize::from(*own != character);
            diagonal = row[n + 1];
            row[n + 1] = changed.min(row[n] + 1).min(diagonal + 1);
        }
    }
    row[word.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let words = ["listen", "log", "log_format", "max_peers"];
        assert_eq!(nearest("listn", words.into_iter()), Some("listen"));
        assert_eq!(nearest("logformat", words.into_iter()), Some("log_format"));
        assert_eq!(nearest("maxpeer", words.into_iter()), Some("max_peers"));
        assert_eq!(nearest("authority", words.into_iter()), None);
        assert_eq!(nearest("", words.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), words.into_iter()), None);
    }

    #[test]
    fn edits_are_counted_either_way() {
        let count = |one: &str, two: &str| edits(&one.chars().collect::<Vec<_>>(), two);
        assert_eq!((count("kitten", "sitting"), count("sitting", "kitten")), (3, 3));
        assert_eq!((count("", "abc"), count("abc", ""), count("abc", "abc")), (3, 3, 0));
    }
}
