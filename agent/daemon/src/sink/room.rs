//! A room's id in JSON: text.
//!
//! Engines draw ids from the whole of u64. jq 1.6, JavaScript and whoever else keeps numbers as
//! doubles would show another id than the engine's from 2^53 on, with no sign that they do.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// The engine's id of a request's transfer. Written as decimal text; a number is read as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomId(pub u64);

impl fmt::Display for RoomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for RoomId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RoomId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

/// Reads text and numbers.
struct Either;

impl Visitor<'_> for Either {
    type Value = RoomId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a room's id: a whole number from 0 to 2^64 - 1, or the same as text")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<RoomId, E> {
        Ok(RoomId(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RoomId, E> {
        text.parse().map(RoomId).map_err(|_error| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_so_that_no_reader_rounds_it_and_read_in_both_forms() {
        for id in [0, (1 << 53) + 1, u64::MAX] {
            let text = serde_json::to_string(&RoomId(id)).unwrap();
            assert_eq!(text, format!("\"{id}\""));
            let read = |text: &str| serde_json::from_str::<RoomId>(text).unwrap();
            assert_eq!((read(&text), read(&id.to_string())), (RoomId(id), RoomId(id)));
        }
        for wrong in ["-1", "1.5", "\"x\"", "\"18446744073709551616\"", "null"] {
            assert!(serde_json::from_str::<RoomId>(wrong).is_err(), "{wrong}");
        }
    }
}
