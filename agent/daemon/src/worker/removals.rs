//! Which removals of a worker have been taken in: numbers from 1, mostly in order.

use std::collections::BTreeSet;

/// Most numbers kept beyond the first gap. The victim is the gap: it is given up.
const ABOVE_MAX: usize = 16 * 1024;

/// A set of removal numbers that is nearly an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    through: u64,
    above: BTreeSet<u64>,
}

impl Removals {
    /// All numbers up to and with `through`.
    pub const fn through(through: u64) -> Self {
        Self { through, above: BTreeSet::new() }
    }

    /// The last number of the unbroken beginning.
    pub const fn unbroken(&self) -> u64 {
        self.through
    }

    /// Numbers beyond the first gap.
    pub fn above(&self) -> impl Iterator<Item = u64> + '_ {
        self.above.iter().copied()
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        number <= self.through || self.above.contains(&number)
    }

    /// Adds `number`. Returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        self.above.insert(number);
        if self.above.len() > ABOVE_MAX {
            self.through = self.above.first().copied().unwrap_or(self.through);
        }
        self.close_up();
        true
    }

    /// Adds every number up to and with `through`. Returns how many of them were missing.
    pub fn give_up(&mut self, through: u64) -> u64 {
        let missing = through.saturating_sub(self.through);
        let here = self.above.range(..=through).count() as u64;
        self.through = self.through.max(through);
        self.close_up();
        missing.saturating_sub(here)
    }

    fn close_up(&mut self) {
        while let Some(first) = self.above.first().copied() {
            if first > self.through.saturating_add(1) {
                break;
            }
            self.through = self.through.max(first);
            self.above.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_order_close_up() {
        let mut removals = Removals::through(3);
        assert!(removals.insert(5) && removals.insert(6) && !removals.insert(2));
        assert_eq!(removals.unbroken(), 3);
        assert!(removals.contains(5) && !removals.contains(4));
        assert!(removals.insert(4));
        assert_eq!((removals.unbroken(), removals.above().count()), (6, 0));
    }

    #[test]
    fn giving_up_counts_what_was_missing() {
        let mut removals = Removals::through(1);
        removals.insert(4);
        removals.insert(9);
        assert_eq!(removals.give_up(6), 4, "2, 3, 5 and 6");
        assert_eq!(removals.unbroken(), 6);
        assert!(removals.contains(9));
        assert_eq!(removals.give_up(6), 0);
    }

    #[test]
    fn the_set_is_bounded() {
        let mut removals = Removals::default();
        for number in 0..3 * ABOVE_MAX as u64 {
            removals.insert(2 * number + 2);
        }
        assert!(removals.above().count() <= ABOVE_MAX);
        removals.insert(u64::MAX);
        assert!(removals.contains(u64::MAX));
        assert!(!removals.insert(u64::MAX));
    }
}
