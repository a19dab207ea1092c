//! A batch of Mooncake as it lies in the memory of its process.
//!
//! Nothing is called there and nothing is written: a batch keeps the count of its own bytes. It may be
//! freed while it is read; what it says of itself has to be the same before and after.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

use crate::probe::BatchLayout;

/// Most tasks of one batch, one for each of its descriptors.
const TASKS_MAX: u64 = 64 << 10;

/// Bytes of a batch that have arrived, over all its tasks. `memory` is `/proc/PID/mem`; the error
/// says why nothing was read, `InvalidData` where no batch lies at `batch`.
pub fn arrived(memory: &dyn Memory, batch: u64, layout: BatchLayout) -> Result<u64> {
    let (begin, end) = tasks(memory, batch, layout)?;
    let mut bytes = vec![0; size(end - begin)?];
    memory.read(&mut bytes, begin)?;
    if tasks(memory, batch, layout)? != (begin, end) {
        return Err(no_batch());
    }
    let at = size(layout.transferred)?;
    let tasks = bytes.chunks_exact(size(layout.task_bytes)?);
    let of = tasks.map(|task| Some(u64::from_le_bytes(*task.get(at..)?.first_chunk()?)));
    of.sum::<Option<u64>>().ok_or_else(no_batch)
}

fn size(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(Error::other)
}

/// Where its tasks begin and end. The first word of a batch is its own address.
fn tasks(memory: &dyn Memory, batch: u64, layout: BatchLayout) -> Result<(u64, u64)> {
    if word(memory, Some(batch))? != batch {
        return Err(no_batch());
    }
    let begin = batch.checked_add(layout.tasks);
    let (begin, end) =
        (word(memory, begin)?, word(memory, begin.and_then(|at| at.checked_add(8)))?);
    let size = end.checked_sub(begin).filter(|size| *size <= TASKS_MAX * layout.task_bytes);
    let whole = size.is_some_and(|size| size.checked_rem(layout.task_bytes) == Some(0));
    if whole { Ok((begin, end)) } else { Err(no_batch()) }
}

fn word(memory: &dyn Memory, at: Option<u64>) -> Result<u64> {
    let mut word = [0; 8];
    memory.read(&mut word, at.ok_or_else(no_batch)?)?;
    Ok(u64::from_le_bytes(word))
}

fn no_batch() -> Error {
    Error::new(ErrorKind::InvalidData, "no batch of Mooncake lies there")
}

/// A process' memory.
pub trait Memory {
    /// Fills `to` from an address.
    fn read(&self, to: &mut [u8], from: u64) -> Result<()>;
}

impl Memory for std::fs::File {
    fn read(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.read_exact_at(to, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: BatchLayout = BatchLayout { tasks: 16, task_bytes: 112, transferred: 24 };
    const BATCH: u64 = 0x1000;

    /// Memory from [`BATCH`] on.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, to: &mut [u8], from: u64) -> Result<()> {
            let at = usize::try_from(from.checked_sub(BATCH).ok_or_else(no_batch)?).unwrap();
            let from = self.0.get(at..at + to.len()).ok_or(ErrorKind::UnexpectedEof)?;
            to.copy_from_slice(from);
            Ok(())
        }
    }

    fn batch(id: u64, begin: u64, end: u64, tasks: &[u64]) -> Bytes {
        let words = [id, 4, begin, end];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for transferred in tasks {
            let mut task = [0xff; 112];
            task[24..32].copy_from_slice(&transferred.to_le_bytes());
            bytes.extend(task);
        }
        Bytes(bytes)
    }

    #[test]
    fn what_arrived_is_the_sum_over_its_tasks() {
        let begin = BATCH + 32;
        let full = batch(BATCH, begin, begin + 3 * 112, &[100, 0, 23]);
        assert_eq!(arrived(&full, BATCH, LAYOUT).unwrap(), 123);
        let empty = batch(BATCH, begin, begin, &[]);
        assert_eq!(arrived(&empty, BATCH, LAYOUT).unwrap(), 0);
    }

    #[test]
    fn what_is_no_batch_is_not_read_as_one() {
        let begin = BATCH + 32;
        let none = [
            batch(BATCH + 8, begin, begin + 112, &[1]),
            batch(BATCH, begin, begin + 111, &[1]),
            batch(BATCH, begin, begin - 112, &[1]),
            batch(BATCH, begin, begin + 112 * (TASKS_MAX + 1), &[1]),
            batch(BATCH, u64::MAX - 8, u64::MAX, &[]),
        ];
        for memory in none {
            let error = arrived(&memory, BATCH, LAYOUT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
        let short = batch(BATCH, begin, begin + 224, &[1]);
        assert_eq!(arrived(&short, BATCH, LAYOUT).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
