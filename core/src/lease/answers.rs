//! What a repeated request is answered: the same.
//!
//! A grant is not kept here, since the lease itself says it; nor is a list, which changes nothing.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::message::lease::Outcome;
use crate::time::Mono;

/// How long an answer is remembered: longer than a requester goes on with one request.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Answers that are remembered of one peer.
const MAX_ANSWERS: usize = 1024;

/// The answers to one peer's newest requests.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_request: BTreeMap<Box<str>, Answered>,
    order: VecDeque<(Mono, Box<str>)>,
}

#[derive(Debug)]
struct Answered {
    lease_id: Box<str>,
    outcome: Outcome,
}

impl Answers {
    /// What a request about this lease was answered.
    pub(super) fn get(&self, request_id: &str, lease_id: &str) -> Option<&Outcome> {
        let answered = self.by_request.get(request_id)?;
        (*answered.lease_id == *lease_id).then_some(&answered.outcome)
    }

    pub(super) fn keep(&mut self, now: Mono, request_id: &str, lease_id: &str, outcome: Outcome) {
        while let Some((since, _)) = self.order.front()
            && (now.since(*since) > REMEMBERED_FOR || self.order.len() >= MAX_ANSWERS)
        {
            if let Some((_, oldest)) = self.order.pop_front() {
                self.by_request.remove(&oldest);
            }
        }
        let answered = Answered { lease_id: lease_id.into(), outcome };
        if self.by_request.insert(request_id.into(), answered).is_none() {
            self.order.push_back((now, request_id.into()));
        }
        debug_assert!(self.order.len() <= MAX_ANSWERS, "a peer's answers are bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> alloc::string::String {
        alloc::format!("r{number}")
    }

    #[test]
    fn an_answer_is_kept_for_its_own_request_and_lease() {
        let mut answers = Answers::default();
        answers.keep(Mono::ZERO, "r", "l", Outcome::NotFound);
        assert_eq!(answers.get("r", "l"), Some(&Outcome::NotFound));
        assert_eq!((answers.get("r", "m"), answers.get("s", "l")), (None, None));
    }

    #[test]
    fn one_answer_past_the_bound_the_oldest_is_forgotten() {
        let mut answers = Answers::default();
        for number in 0..=MAX_ANSWERS {
            answers.keep(Mono::ZERO, &id(number), "l", Outcome::NotFound);
        }
        assert_eq!(answers.get(&id(0), "l"), None);
        assert!(answers.get(&id(1), "l").is_some() && answers.get(&id(MAX_ANSWERS), "l").is_some());
    }

    #[test]
    fn an_answer_is_forgotten_after_its_time() {
        let mut answers = Answers::default();
        answers.keep(Mono::ZERO, "r", "l", Outcome::NotFound);
        answers.keep(Mono::ZERO.after(REMEMBERED_FOR), "s", "l", Outcome::NotFound);
        assert!(answers.get("r", "l").is_some());
        answers.keep(Mono::from_nanos(1).after(REMEMBERED_FOR), "t", "l", Outcome::NotFound);
        assert_eq!(answers.get("r", "l"), None);
    }
}
