//! How many of a queue stand before a place, in O(log n).

use alloc::vec::Vec;

/// Counts over places that are given out in order and left in any order: a binary indexed tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    /// The tree, from its place 1 on.
    sums: Vec<u32>,
    live: u32,
}

impl Ranks {
    /// Takes the next place.
    pub(super) fn push(&mut self) -> u32 {
        let place = self.sums.len() as u32 + 1;
        // A node covers as many places, its own the last, as its lowest bit says.
        let first = place - lowest(place);
        let sum = 1 + self.before(place) - self.before(first + 1);
        self.sums.push(sum);
        self.live += 1;
        place - 1
    }

    /// Leaves a place that was taken.
    pub(super) fn remove(&mut self, place: u32) {
        let mut at = place + 1;
        while at as usize <= self.sums.len() {
            self.sums[at as usize - 1] -= 1;
            at += lowest(at);
        }
        self.live -= 1;
    }

    /// How many stand before a place.
    pub(super) fn ahead(&self, place: u32) -> u32 {
        self.before(place + 1)
    }

    /// Whether so many were left that the places should be given out anew.
    pub(super) const fn is_sparse(&self) -> bool {
        self.sums.len() as u32 > 2 * self.live + 64
    }

    /// The live ones of the tree's places before `at`.
    fn before(&self, at: u32) -> u32 {
        let (mut at, mut sum) = (at - 1, 0);
        while at > 0 {
            sum += self.sums[at as usize - 1];
            at -= lowest(at);
        }
        sum
    }
}

const fn lowest(at: u32) -> u32 {
    at & at.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn ranks_are_counts_over_a_list(steps: Vec<Option<u8>>) -> bool {
            let mut ranks = Ranks::default();
            let mut list: Vec<bool> = Vec::new();
            for step in steps {
                match step {
                    None => {
                        assert_eq!(ranks.push() as usize, list.len());
                        list.push(true);
                    }
                    Some(at) if list.get(usize::from(at)) == Some(&true) => {
                        ranks.remove(u32::from(at));
                        list[usize::from(at)] = false;
                    }
                    Some(_) => {}
                }
            }
            (0..list.len()).all(|at| {
                ranks.ahead(at as u32) as usize == list[..at].iter().filter(|live| **live).count()
            })
        }
    }
}
