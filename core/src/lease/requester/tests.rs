//! A request on its own, without a peer.

use alloc::string::ToString;

use super::*;
use crate::message::lease::Blocker;
use crate::message::{Kind, Utc};

struct Rig {
    request: Requester,
    entropy: Entropy,
    now: Mono,
    sent: Option<LeaseRequest>,
    done: Option<Result<Answered, Unanswered>>,
}

const WALL: Wall = Wall::from_millis(1_000_500);

impl Rig {
    fn new(wait: Option<Patience>) -> Self {
        let ask = Ask::Claim {
            lease_id: "l1".into(),
            session: "s".into(),
            kind: "res".into(),
            value: "x".into(),
            mode: Mode::Exclusive,
            ttl_secs: 60,
            reason: String::new(),
            wait,
        };
        Self::asking(ask)
    }

    fn asking(ask: Ask) -> Self {
        let mut entropy = Entropy::new([7; 32]);
        let now = Mono::from_nanos(5);
        let (request, next) = Requester::new(now, ask, &mut entropy);
        let mut rig = Self { request, entropy, now, sent: None, done: None };
        rig.take(next);
        rig
    }

    fn take(&mut self, next: Next) {
        match next {
            Next::Send(request) => self.sent = Some(request),
            Next::Rest => {}
            Next::Done(end) => self.done = Some(end),
        }
    }

    fn sent(&mut self) -> Kind {
        self.sent.take().expect("something was sent").kind()
    }

    fn claim(&mut self) -> LeaseClaim {
        let sent = self.sent.take().expect("something was sent");
        let LeaseRequest::Claim(claim) = sent else { panic!("no claim: {sent:?}") };
        claim
    }

    fn answer(&mut self, outcome: Outcome) {
        let request_id = self.request.request_id.clone();
        let next =
            self.request.answered(self.now, WALL, LeaseResult { request_id, outcome }, &mut self.entropy);
        self.take(next);
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        if self.request.deadline() <= self.now {
            let next = self.request.due(self.now, &mut self.entropy);
            self.take(next);
        }
    }
}

fn lease() -> Lease {
    let at = Utc::from_secs(1000);
    Lease {
        id: "l1".into(),
        owner_session_id: "s@p".into(),
        owner_agent: String::new(),
        resource_kind: "res".into(),
        resource_value: "x".into(),
        mode: "exclusive".into(),
        reason: String::new(),
        acquired_at: at,
        expires_at: Utc::from_secs(1060),
        status: "active".into(),
        ttl_secs: 60,
        fencing_token: Some(3),
    }
}

fn queued() -> Outcome {
    Outcome::Queued { blocker: Blocker::Queue { ahead: 1 }, waiter_id: "w7".into() }
}

#[test]
fn three_attempts_of_5_seconds_carry_one_request_and_one_lease_id() {
    let mut rig = Rig::new(None);
    let first = rig.claim();
    for _ in 1..ATTEMPTS {
        rig.pass(ATTEMPT_TIME);
        assert_eq!(rig.claim(), first);
    }
    rig.pass(ATTEMPT_TIME);
    assert_eq!(rig.done, Some(Err(Unanswered::NoAnswer)));
}

#[test]
fn an_attempt_that_fails_early_is_repeated_when_its_time_is_over() {
    let mut rig = Rig::new(None);
    rig.claim();
    let next = rig.request.attempt_failed();
    rig.take(next);
    rig.pass(ATTEMPT_TIME - Duration::from_nanos(1));
    assert!(rig.sent.is_none());
    rig.pass(Duration::from_nanos(1));
    rig.claim();
}

#[test]
fn certainty_counts_from_the_moment_of_sending() {
    let mut rig = Rig::new(None);
    rig.pass(Duration::from_secs(2));
    rig.answer(Outcome::Granted(lease()));
    let Some(Ok(Answered::Granted { certain_until, .. })) = rig.done else { panic!("not granted") };
    assert_eq!(certain_until, Mono::from_nanos(5).after(Duration::from_millis(59_500)));
}

#[test]
fn a_clock_over_there_that_is_ahead_adds_no_certainty() {
    let mut rig = Rig::new(None);
    let far = Lease { expires_at: Utc::from_secs(999_999), ..lease() };
    rig.answer(Outcome::Granted(far));
    let Some(Ok(Answered::Granted { certain_until, .. })) = rig.done else { panic!("not granted") };
    assert_eq!(certain_until, Mono::from_nanos(5).after(Duration::from_secs(60)));
}

#[test]
fn an_answer_to_another_request_is_skipped() {
    let mut rig = Rig::new(None);
    let other = LeaseResult { request_id: "other".into(), outcome: Outcome::NotFound };
    let next = rig.request.answered(rig.now, WALL, other, &mut rig.entropy);
    rig.take(next);
    assert_eq!(rig.done, None);
}

#[test]
fn an_answer_that_may_be_to_an_earlier_attempt_is_certain_from_the_first() {
    let mut rig = Rig::new(None);
    rig.pass(ATTEMPT_TIME);
    rig.pass(Duration::from_secs(1));
    let request_id = rig.request.request_id().to_string();
    let result = LeaseResult { request_id, outcome: Outcome::Granted(lease()) };
    let next = rig.request.answered_elsewhere(rig.now, WALL, result, &mut rig.entropy);
    rig.take(next);
    let Some(Ok(Answered::Granted { certain_until, .. })) = rig.done else { panic!("not granted") };
    assert_eq!(certain_until, Mono::from_nanos(5).after(Duration::from_millis(59_500)));
}

#[test]
fn a_lease_that_a_release_finds_released_when_it_is_repeated_was_released_by_it() {
    let released = || Outcome::NotActive { status: Some("released".into()) };
    let expired = || Outcome::NotActive { status: Some("expired".into()) };
    for (attempts, outcome, told) in
        [(1, released(), released()), (2, released(), Outcome::Released), (2, expired(), expired())]
    {
        let mut rig = Rig::asking(Ask::Release { lease_id: "l".into(), session: "s".into() });
        (1..attempts).for_each(|_| rig.pass(ATTEMPT_TIME));
        rig.answer(outcome);
        assert_eq!(rig.done, Some(Ok(Answered::Other(told))));
    }
}

#[test]
fn a_waiting_claim_polls_a_second_after_each_answer_with_its_waiter_id() {
    let mut rig = Rig::new(Some(Patience::Endless));
    let first = rig.claim();
    assert!(first.wait && first.waiter_id.is_none());
    rig.answer(queued());
    rig.pass(POLL_EVERY - Duration::from_nanos(1));
    assert!(rig.sent.is_none());
    rig.pass(Duration::from_nanos(1));
    let second = rig.claim();
    assert_eq!((second.waiter_id.as_deref(), &second.lease_id), (Some("w7"), &first.lease_id));
    assert_ne!(second.request_id, first.request_id);
}

#[test]
fn a_waiter_that_is_gone_rejoins_at_the_end() {
    let mut rig = Rig::new(Some(Patience::Endless));
    rig.answer(queued());
    rig.pass(POLL_EVERY);
    rig.claim();
    rig.answer(Outcome::WaiterGone);
    rig.pass(POLL_EVERY);
    assert_eq!(rig.claim().waiter_id, None);
}

#[test]
fn out_of_patience_the_claim_is_given_back() {
    let mut rig = Rig::new(Some(Patience::For(Duration::from_millis(1500))));
    rig.answer(queued());
    rig.pass(POLL_EVERY);
    rig.claim();
    rig.pass(Duration::from_millis(500));
    assert_eq!(rig.sent(), Kind::LeaseRelease);
    assert_eq!(rig.done, None);
    rig.answer(Outcome::NotFound);
    assert_eq!(rig.done, Some(Err(Unanswered::WaitedInVain)));
}

#[test]
fn a_grant_that_comes_when_the_time_had_run_out_is_given_back() {
    let mut rig = Rig::new(Some(Patience::For(Duration::from_secs(2))));
    rig.claim();
    rig.now = rig.now.after(Duration::from_secs(2));
    rig.answer(Outcome::Granted(lease()));
    assert_eq!(rig.sent(), Kind::LeaseRelease);
    rig.answer(Outcome::Released);
    assert_eq!(rig.done, Some(Err(Unanswered::WaitedInVain)));
}

#[test]
fn who_gives_up_leaves_the_queue() {
    let mut rig = Rig::new(Some(Patience::Endless));
    rig.answer(queued());
    let next = rig.request.give_up(rig.now, &mut rig.entropy);
    rig.take(next);
    assert_eq!(rig.sent(), Kind::LeaseRelease);
    rig.answer(Outcome::NotFound);
    assert_eq!(rig.done, Some(Err(Unanswered::GivenUp)));
}

#[test]
fn a_release_and_a_list_end_with_their_answer() {
    for (ask, kind, outcome) in [
        (Ask::Release { lease_id: "l".into(), session: "s".into() }, Kind::LeaseRelease, Outcome::Released),
        (Ask::List, Kind::LeaseList, Outcome::List { leases: alloc::vec::Vec::new(), truncated: false }),
    ] {
        let mut rig = Rig::asking(ask);
        assert_eq!(rig.sent(), kind);
        rig.answer(outcome.clone());
        assert_eq!(rig.done, Some(Ok(Answered::Other(outcome))));
    }
}

#[test]
fn a_conflict_ends_a_claim_whether_it_waits_or_not() {
    for wait in [None, Some(Patience::Endless)] {
        let mut rig = Rig::new(wait);
        let conflict = Outcome::Conflict(Blocker::Queue { ahead: 1 });
        rig.answer(conflict.clone());
        assert_eq!(rig.done, Some(Ok(Answered::Other(conflict))));
    }
}
