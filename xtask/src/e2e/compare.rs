//! One load with hook and agent against the same load without, twice: what those two differ by is
//! noise, and any change below it is not shown to exist.

use std::fmt;

use serde::Serialize;

use super::record::{Record, Room};
use crate::price::median;

/// How a run compares with the bare ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    /// Requests that all runs have.
    pub(super) rooms: usize,
    /// Those whose tokens are not the same in all runs.
    pub(super) differ: usize,
    /// The runs: two bare ones, then the one with hook and agent.
    pub(super) times: Vec<Times>,
}

/// The times of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    /// Median of the prefill's answers, which come with the first token.
    first_token_s: f64,
    /// Tokens for each second that a request took, the median.
    tokens_per_s: f64,
}

impl Compared {
    /// Compare the healthy rooms; nothing where no bare run was made, or one came to nothing.
    pub(super) fn of(bare: &[Record], with: &Record) -> Option<Self> {
        let runs: Vec<&Record> = bare.iter().chain([with]).collect();
        if bare.is_empty() || runs.iter().any(|run| !run.spoilt.is_empty()) {
            return None;
        }
        let numbers = || healthy(with).map(|(number, _)| number);
        let tokens = |run: &Record, number: u64| {
            let answer = run.rooms.get(&number)?.answers.get("decode")?;
            Some(answer.tokens.clone())
        };
        let same = |number: &u64| {
            let right = tokens(with, *number);
            right.is_some() && runs.iter().all(|run| tokens(run, *number) == right)
        };
        Some(Self {
            rooms: numbers().count(),
            differ: numbers().filter(|number| !same(number)).count(),
            times: runs.into_iter().map(Times::of).collect(),
        })
    }
}

fn healthy(run: &Record) -> impl Iterator<Item = (u64, &Room)> {
    run.rooms.iter().filter(|(_, room)| room.name.is_none()).map(|(number, room)| (*number, room))
}

impl Times {
    fn of(run: &Record) -> Self {
        let of_side =
            |side: &'static str| healthy(run).filter_map(move |(_, room)| room.answers.get(side));
        #[expect(clippy::cast_precision_loss, reason = "some tokens")]
        let rate = of_side("decode").map(|it| it.tokens.len() as f64 / it.took_s.max(1e-9));
        Self {
            first_token_s: median(&of_side("prefill").map(|it| it.took_s).collect::<Vec<_>>()),
            tokens_per_s: median(&rate.collect::<Vec<_>>()),
        }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = self.rooms - self.differ;
        write!(out, "{same} of {} requests have the same tokens in all runs", self.rooms)?;
        let [bare, again, with] = self.times.as_slice() else { return Ok(()) };
        let change = |of: fn(&Times) -> f64| {
            let middle = f64::midpoint(of(bare), of(again)).max(1e-9);
            let percent = |by: f64| by / middle * 100.0;
            (percent(of(with) - middle), percent((of(bare) - of(again)).abs()))
        };
        let ((first, noise), (rate, rate_noise)) =
            (change(|times| times.first_token_s), change(|times| times.tokens_per_s));
        write!(
            out,
            "; first token {:.2} s, {first:+.1} % (noise {noise:.1} %), {:.1} tok/s, {rate:+.1} % \
             (noise {rate_noise:.1} %)",
            with.first_token_s, with.tokens_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::record::Answer;
    use super::*;
    use crate::clock::Moment;

    fn run(tokens: &[u32], took_s: f64) -> Record {
        let answer = Answer { status: 200, why: String::new(), tokens: tokens.to_vec(), took_s };
        let sides = ["prefill", "decode"].map(|side| (side.to_owned(), answer.clone()));
        let room = Room {
            name: None,
            injected: Moment(0),
            state: String::new(),
            asked: 2,
            answers: BTreeMap::from(sides),
        };
        Record { rooms: BTreeMap::from([(1, room)]), ..Record::default() }
    }

    #[test]
    fn the_same_tokens_and_a_change_beside_its_noise() {
        let bare = [run(&[1, 2], 1.0), run(&[1, 2], 1.1)];
        let compared = Compared::of(&bare, &run(&[1, 2], 1.05)).unwrap();
        assert_eq!((compared.rooms, compared.differ), (1, 0));
        let text = compared.to_string();
        assert!(text.contains("first token 1.05 s, +0.0 % (noise 9.5 %)"), "{text}");
    }

    #[test]
    fn other_tokens_in_any_run_are_counted() {
        for (first, second, with) in [([1], [1], [2]), ([1], [2], [1])] {
            let bare = [run(&first, 1.0), run(&second, 1.0)];
            assert_eq!(Compared::of(&bare, &run(&with, 1.0)).unwrap().differ, 1);
        }
    }

    #[test]
    fn without_a_bare_run_nothing_is_compared() {
        assert_eq!(Compared::of(&[], &run(&[1], 1.0)), None);
        let spoilt = Record { spoilt: vec!["ended".to_owned()], ..run(&[1], 1.0) };
        assert_eq!(Compared::of(&[spoilt], &run(&[1], 1.0)), None);
    }
}
