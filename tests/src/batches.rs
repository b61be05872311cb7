//! Batches of records that say by themselves which batch they are of and whether they are whole.

use relay_core::journal::{Records, Seq};

/// The most records in a batch.
const MOST: u64 = 30;
/// The longest record, in bytes, its head excepted.
const LONGEST: u64 = 3000;

/// Draws batches; the same ones from the same seed and place.
#[derive(Debug)]
pub struct Batches {
    state: u64,
    next: Seq,
}

/// A record, read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first record of its batch.
    pub first: u64,
    /// How many records its batch has.
    pub of: u64,
}

impl Batches {
    /// Batches behind the record `newest`.
    #[must_use]
    pub const fn new(seed: u64, newest: Seq) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, next: newest.next() }
    }

    /// A number below `bound`.
    pub const fn draw(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    /// The next batch.
    #[must_use]
    pub fn next_batch(&mut self) -> Records {
        let (first, of) = (self.next, 1 + self.draw(MOST));
        let mut records = Records::reuse(Records::default(), first);
        for seq in (first.number()..first.number() + of).map(Seq::new) {
            let length = self.draw(LONGEST) as usize;
            records.push(|out| {
                out.extend_from_slice(format!("{{\"of\":[{},{of},{length}]}} ", first.number()).as_bytes());
                out.extend(filler(seq, length));
            });
        }
        self.next = records.last().next();
        records
    }
}

impl Part {
    /// Reads the record at `seq`; `None` where it is not whole.
    #[must_use]
    pub fn read(seq: Seq, record: &[u8]) -> Option<Self> {
        let space = record.iter().position(|byte| *byte == b' ')?;
        let (head, rest) = record.split_at(space + 1);
        let head: serde_json::Value = serde_json::from_slice(head).ok()?;
        let number = |at: usize| head["of"][at].as_u64();
        let length = usize::try_from(number(2)?).ok()?;
        let whole = rest.iter().copied().eq(filler(seq, length));
        if whole { Some(Self { first: number(0)?, of: number(1)? }) } else { None }
    }
}

/// Bytes that hold for one record alone: white space to JSON.
pub fn filler(seq: Seq, length: usize) -> impl Iterator<Item = u8> {
    let mut state = seq.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    core::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b" \n\t\r"[(state >> 20) as usize % 4]
    })
    .take(length)
}
