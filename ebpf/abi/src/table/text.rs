//! Texts of bounded length in 64-bit words: one word of length, then the bytes.

use super::Table;
use crate::sync::Ordering::Relaxed;

/// A text read from the table, at most `N` bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
    whole_len: u64,
}

impl<const N: usize> Text<N> {
    /// The empty text.
    pub const EMPTY: Self = Self { bytes: [0; N], len: 0, whole_len: 0 };
    /// Words that the text takes in the table, its length included.
    pub const WORDS: usize = 1 + N.div_ceil(8);

    /// The bytes that were kept.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The bytes that were kept, as text; `None` when they are not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(self.bytes()).ok()
    }

    /// Whether the writer had more than fits. A cut text must not be used as an identity.
    pub const fn is_cut(&self) -> bool {
        self.whole_len > N as u64
    }
}

impl Table<'_> {
    /// Writes `text` at the word `at`; what does not fit in `N` bytes is cut, its length is kept.
    pub(super) fn write_text<const N: usize>(&self, at: usize, text: &[u8]) {
        self.word(at).store(text.len() as u64, Relaxed);
        let kept = text.get(..N.min(text.len())).unwrap_or_default();
        for (index, chunk) in kept.chunks(8).enumerate() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.word(at + 1 + index).store(u64::from_le_bytes(word), Relaxed);
        }
    }

    pub(super) fn read_text<const N: usize>(&self, at: usize) -> Text<N> {
        let whole_len = self.word(at).load(Relaxed);
        let len = usize::try_from(whole_len).unwrap_or(N).min(N);
        let mut text = Text { bytes: [0; N], len, whole_len };
        for (index, chunk) in text.bytes.chunks_mut(8).take(len.div_ceil(8)).enumerate() {
            let word = self.word(at + 1 + index).load(Relaxed).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
        // Only the length says where the text ends: what an earlier text left behind is not shown.
        for byte in text.bytes.iter_mut().skip(len) {
            *byte = 0;
        }
        text
    }
}
