//! An authority that is killed at a step of a claim, and what must hold when it is back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use relay_core::journal::Seq;
use relay_node::journal::verify;
use relay_tests::loads::name;
use relay_tests::peers::{Relay, RelayHome, Runtime};
use serde_json::Value;

use crate::wired::{Request, Wired, granted, home, queued};

/// What the authority is asked when it is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// To grant what is free.
    Claim,
    /// To take a lease back.
    Release,
    /// To let a claim wait.
    Queue,
    /// To grant to the first who waits.
    Poll,
}

impl Step {
    pub(crate) const ALL: [Self; 4] = [Self::Claim, Self::Release, Self::Queue, Self::Poll];
}

/// When it is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// So many hundredths of the time that the grant before it took, behind the sending.
    Within(u32),
    /// Once the answer is there.
    Answered,
    /// When the file `die` says, by its own hand.
    Itself(&'static str),
}

/// What a kill left.
#[derive(Debug)]
pub(crate) struct Left {
    /// The answer, where it came.
    pub(crate) answer: Option<Value>,
    /// Whether the step is in the journal.
    pub(crate) durable: bool,
}

/// The authority, three who ask it, and what it has told them.
pub(crate) struct Scene {
    home: RelayHome,
    /// `None` while it is dead.
    relay: Option<Relay>,
    asking: [Wired; 3],
    /// The newest token on the resource `hot`.
    hot: u64,
    /// Leases that were granted and never given back, with their tokens.
    kept: Vec<(String, u64)>,
    /// The places of two who wait for `line` all the time.
    line: [String; 2],
    number: usize,
    /// How long the newest grant before a kill took.
    took: Duration,
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

impl Scene {
    pub(crate) fn new(program: &str, runtime: Runtime) -> Self {
        let names: Vec<_> = (0..3).map(name).collect();
        let home = home(program, runtime, &names);
        let relay = home.serve();
        let asking = join(&relay);
        let mut scene = Self {
            home,
            relay: Some(relay),
            asking,
            took: Duration::ZERO,
            hot: 0,
            kept: Vec::new(),
            line: Default::default(),
            number: 0,
        };
        let token = granted(&scene.ask(A, &Request::claim("line", "line")));
        scene.kept.push(("line".to_owned(), token));
        scene.line = [B, C].map(|who| queued(&scene.ask(who, &Request::wait("line-next", "line", None))));
        scene
    }

    /// Brings the authority to the step, kills it there, starts it again and judges it.
    pub(crate) fn kill(&mut self, step: Step, moment: Moment) -> Left {
        self.number += 1;
        let keep = format!("keep-{}", self.number);
        let began = Instant::now();
        let token = granted(&self.ask(A, &Request::claim(&keep, &keep)));
        self.took = began.elapsed();
        self.kept.push((keep, token));
        let (who, request) = self.prepare(step);
        let before = self.newest();
        let answer = self.kill_at(who, &request, moment);
        let left = Left { answer, durable: self.newest() > before };
        assert!(left.answer.is_none() || left.durable, "an answer rests on what is durable: {left:?}");
        self.restart();
        self.judge_kept();
        self.judge(step, &request, left.answer.as_ref());
        left
    }

    /// Holds that all that was ever acknowledged is there, and who waited is still served in order.
    pub(crate) fn end(mut self) {
        for (lease, token) in self.kept.clone() {
            let resource = if lease == "line" { "line" } else { &lease };
            assert_eq!(granted(&self.ask(A, &Request::claim(&lease, resource))), token, "{lease}");
            assert_eq!(self.ask(B, &Request::claim("rival", resource))["outcome"], "conflict");
        }
        assert_eq!(self.ask(A, &Request::release("line"))["outcome"], "released");
        let [second, third] = self.line.clone();
        queued(&self.ask(C, &Request::wait("line-next", "line", Some(&third))));
        let token = granted(&self.ask(B, &Request::wait("line-next", "line", Some(&second))));
        assert!(token > self.hot, "the newest grant has the highest token");
        self.relay.take().expect("it runs").kill();
        assert_eq!(verify(&self.home.path().join("link.db")).unwrap().fault, None);
    }

    /// What comes before the step, and who asks what at it.
    fn prepare(&mut self, step: Step) -> (usize, Request) {
        let [first, second, third] = self.leases();
        if step == Step::Claim {
            return (A, Request::claim(&first, "hot"));
        }
        let held = self.ask(A, &Request::claim(&first, "hot"));
        self.newer(&held);
        match step {
            Step::Claim | Step::Release => (A, Request::release(&first)),
            Step::Queue => (B, Request::wait(&second, "hot", None)),
            Step::Poll => {
                let place = queued(&self.ask(B, &Request::wait(&second, "hot", None)));
                queued(&self.ask(C, &Request::wait(&third, "hot", None)));
                self.release(A, &first);
                (B, Request::wait(&second, "hot", Some(&place)))
            }
        }
    }

    fn kill_at(&mut self, who: usize, request: &Request, moment: Moment) -> Option<Value> {
        let die = self.home.path().join("die");
        if let Moment::Itself(when) = moment {
            std::fs::write(&die, when).unwrap();
        }
        self.asking[who].send(request).unwrap();
        match moment {
            Moment::Within(hundredths) => {
                // Nothing waits for this: it moves the kill to anywhere within the step.
                std::thread::sleep(self.took * hundredths / 100);
                self.relay.take().expect("it runs").kill();
                self.asking[who].answer()
            }
            Moment::Answered => {
                let answer = self.asking[who].answer();
                self.relay.take().expect("it runs").kill();
                assert!(answer.is_some(), "it was killed behind its answer");
                answer
            }
            Moment::Itself(_) => {
                let answer = self.asking[who].answer();
                self.relay.take().expect("it runs").kill();
                std::fs::remove_file(&die).unwrap();
                answer
            }
        }
    }

    fn restart(&mut self) {
        let relay = self.home.serve();
        self.asking = join(&relay);
        self.relay = Some(relay);
    }

    /// No lease lost that was acknowledged, none granted twice, and both who wait have their places.
    fn judge_kept(&mut self) {
        for (lease, token) in self.kept.iter().rev().take(2).cloned().collect::<Vec<_>>() {
            assert_eq!(granted(&self.ask(A, &Request::claim(&lease, &lease))), token, "{lease}");
            assert_eq!(self.ask(B, &Request::claim("rival", &lease))["outcome"], "conflict", "{lease}");
        }
        for (who, place) in [B, C].into_iter().zip(self.line.clone()) {
            assert_eq!(queued(&self.ask(who, &Request::wait("line-next", "line", Some(&place)))), place);
        }
    }

    fn judge(&mut self, step: Step, request: &Request, answer: Option<&Value>) {
        let [first, second, third] = self.leases();
        match step {
            Step::Claim => {
                let again = self.ask(A, &Request::claim(&first, "hot"));
                self.newer(&again);
                if let Some(answer) = answer {
                    assert_eq!(granted(answer), self.hot, "what was acknowledged stands");
                }
                let rival = self.ask(B, &Request::claim(&second, "hot"));
                assert_eq!(
                    (&rival["outcome"], &rival["holder_lease"]),
                    (&"conflict".into(), &first.as_str().into())
                );
                self.release(A, &first);
            }
            Step::Release => {
                assert!(answer.is_none_or(|answer| answer["outcome"] == "released"), "{answer:?}");
                assert_eq!(self.ask(A, request)["outcome"], "released", "the same request, the same answer");
                let next = self.ask(B, &Request::claim(&second, "hot"));
                self.newer(&next);
                self.release(B, &second);
            }
            Step::Queue => {
                let held = self.ask(A, &Request::claim(&first, "hot"));
                assert_eq!(granted(&held), self.hot, "what was acknowledged stands");
                let known = answer.map(queued);
                let place = queued(&self.ask(B, &Request::wait(&second, "hot", known.as_deref())));
                assert!(known.is_none_or(|known| known == place), "a place that was told stands");
                let behind = queued(&self.ask(C, &Request::wait(&third, "hot", None)));
                self.release(A, &first);
                queued(&self.ask(C, &Request::wait(&third, "hot", Some(&behind))));
                let next = self.ask(B, &Request::wait(&second, "hot", Some(&place)));
                self.newer(&next);
                self.release(B, &second);
                let last = self.ask(C, &Request::wait(&third, "hot", Some(&behind)));
                self.newer(&last);
                self.release(C, &third);
            }
            Step::Poll => {
                let behind = queued(&self.ask(C, &Request::wait(&third, "hot", None)));
                let again = self.ask(B, request);
                self.newer(&again);
                if let Some(answer) = answer {
                    assert_eq!(granted(answer), self.hot, "what was acknowledged stands");
                }
                queued(&self.ask(C, &Request::wait(&third, "hot", Some(&behind))));
                self.release(B, &second);
                let last = self.ask(C, &Request::wait(&third, "hot", Some(&behind)));
                self.newer(&last);
                self.release(C, &third);
            }
        }
        let mut held: Vec<_> = self.kept.iter().map(|(lease, _)| lease.clone()).collect();
        held.reverse();
        let list = self.ask(A, &Request::list());
        let listed: Vec<_> =
            list["leases"].as_array().unwrap().iter().map(|lease| lease["id"].as_str().unwrap()).collect();
        assert_eq!(listed, held, "what was acknowledged is held, and nothing else");
    }

    fn leases(&self) -> [String; 3] {
        ["a", "b", "c"].map(|who| format!("hot-{}-{who}", self.number))
    }

    fn ask(&mut self, who: usize, request: &Request) -> Value {
        self.asking[who].ask(request)
    }

    fn release(&mut self, who: usize, lease: &str) {
        assert_eq!(self.ask(who, &Request::release(lease))["outcome"], "released", "{lease}");
    }

    /// A grant on `hot`, whose token is above all earlier ones.
    fn newer(&mut self, answer: &Value) {
        let token = granted(answer);
        assert!(token > self.hot, "token {token} after {}", self.hot);
        self.hot = token;
    }

    fn newest(&self) -> Seq {
        let path: PathBuf = self.home.path().join("link.db");
        verify(&path).unwrap().newest
    }
}

fn join(relay: &Relay) -> [Wired; 3] {
    [A, B, C].map(|who| Wired::join(relay.address, &name(who)))
}
