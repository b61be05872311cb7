//! Texts that many peers have in common.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// Texts of peers, each kept once for as long as anybody has it.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeSet<Arc<str>>);

impl Shared {
    /// The text, to be given back with [`release`](Self::release).
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(held) = self.0.get(text) {
            return Arc::clone(held);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }

    /// Forgets a text that nobody else has.
    pub(super) fn release(&mut self, text: Arc<str>) {
        // This one and the set's.
        if Arc::strong_count(&text) == 2 {
            self.0.remove(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_no_longer_than_anybody_has_it() {
        let mut shared = Shared::default();
        let (one, two) = (shared.share("0.92.4"), shared.share("0.92.4"));
        assert!(Arc::ptr_eq(&one, &two));
        shared.release(one);
        assert_eq!(shared.0.len(), 1);
        shared.release(two);
        assert!(shared.0.is_empty());
    }
}
